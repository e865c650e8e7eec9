"""Clipping and noise: what one person can add, what is added to it, and what is kept back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.clipping import clip_tree, clipped_sum
from performative._base.noise import GRID
from performative._engine.prepare import on_device
from performative.estimators import Clipped, Dice
from performative.estimators.dice import needed_memory_clip
from performative.types import Batch, Broadcast, Local

PART_EXAMPLES = {
    "pf.estimators.Clipped": (
        "clip=1.0, noise_multiplier=0.5",
        "clip=0.5, noise_multiplier=1.0, block=3",
    ),
    "pf.estimators.Dice": "clip=1.0, memory_clip=10.0, noise_multiplier=0.5",
}

ROWS, WIDTH = 13, 4
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32), (RNG.random(ROWS) < 0.5).astype(np.float32)
ZERO = jnp.zeros((), jnp.int32)


def inner_product(theta, z):
    """A loss whose gradient is the sample itself, in two leaves."""
    return jnp.sum(theta["a"] * z[:2]) + theta["b"] * z[2]


def along(theta, z):
    return jnp.sum(jnp.tanh(theta * z))


PEOPLE = pf.populations.Gaussian(0.0, 0.0, 1.0)  # nobody looks at them
TWO_LEAVES = {"a": jnp.zeros(2), "b": jnp.zeros(())}


def gradients(rows):
    """Rows as gradients of the loss above."""
    return Batch(jnp.asarray(rows, jnp.float32), None, None)


def loop_of_clips(rows, clip):
    """sum_j min(1, clip / |g_j|) g_j, one by one in float64."""
    total = np.zeros(3)
    for row in np.asarray(rows, float):
        total += min(1.0, clip / max(np.linalg.norm(row), 1e-300)) * row
    return total


@pytest.mark.parametrize("block", [None, 1, 5, 13, 64])
def test_clipping_equals_a_loop_over_samples(block):
    rows = RNG.standard_normal((ROWS, 3)) * np.geomspace(0.01, 100, ROWS)[:, None]
    sums = clipped_sum(inner_product, TWO_LEAVES, gradients(rows), jnp.asarray(0.7), block=block)
    np.testing.assert_allclose(
        np.concatenate([sums.total["a"], sums.total["b"][None]]), loop_of_clips(rows, 0.7), atol=1e-6
    )
    np.testing.assert_allclose(np.concatenate([sums.whole["a"], sums.whole["b"][None]]), rows.sum(0), rtol=1e-5)
    assert int(sums.clipped) == np.sum(np.linalg.norm(rows, axis=1) > 0.7)
    assert int(sums.rejected) == 0


@pytest.mark.filterwarnings("ignore:optax.global_norm:DeprecationWarning")  # the other library's own
def test_clipping_agrees_with_another_library():
    tree = {"a": jnp.asarray([3.0, -1.0]), "b": jnp.asarray(2.0)}
    ours, _, _ = clip_tree(tree, jnp.asarray(0.5))
    clip_pytree = pytest.importorskip("jax_privacy.clipping").clip_pytree
    theirs, _ = clip_pytree(tree, 0.5)
    for name in tree:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6)


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_escapes_and_is_counted(bad, block):
    rows = np.asarray([[0.1, 0.0, 0.0], [bad, 0.2, 0.0], [0.0, 0.0, 0.3]], np.float32)
    sums = clipped_sum(inner_product, TWO_LEAVES, gradients(rows), jnp.asarray(1.0), block=block)
    np.testing.assert_allclose(np.concatenate([sums.total["a"], sums.total["b"][None]]), [0.1, 0.0, 0.3], atol=1e-6)
    assert (int(sums.clipped), int(sums.rejected)) == (0, 1)


@pytest.mark.parametrize("size", [1e10, 1e20, 3e38])
def test_huge_gradients_keep_their_direction_and_lose_their_length(size):
    rows = np.asarray([[size, size, 0.0], [0.0, 0.0, 0.5]], np.float32)
    sums = clipped_sum(inner_product, TWO_LEAVES, gradients(rows), jnp.asarray(1.0))
    got = np.concatenate([sums.total["a"], sums.total["b"][None]])
    assert np.linalg.norm(got[:2]) <= 1 + 1e-6
    if size < 1e38:  # beyond, 1 / |g| is below the smallest float and the row counts as 0
        np.testing.assert_allclose(got, [0.5**0.5, 0.5**0.5, 0.5], rtol=1e-5)
    assert (int(sums.clipped), int(sums.rejected)) == (1, 0)


def test_rows_that_do_not_count_add_nothing():
    rows = np.asarray([[0.1, 0.0, 0.0], [np.nan, 9.0, 9.0], [0.0, 5.0, 0.0]], np.float32)
    mask = jnp.asarray([True, False, False])
    sums = clipped_sum(inner_product, TWO_LEAVES, Batch(jnp.asarray(rows), None, mask), jnp.asarray(1.0))
    np.testing.assert_allclose(sums.total["a"], [0.1, 0.0], atol=1e-7)
    assert (int(sums.clipped), int(sums.rejected)) == (0, 0)


def local(theta, expected=None):
    broadcast = Broadcast(theta, theta, {}, ZERO, 1)
    return Local(inner_product, None, None, theta, broadcast, ZERO, jnp.asarray(0.1), expected=expected)


@eqx.filter_jit
def estimate(estimator, noise, batch, memory, expected):
    return estimator.estimate(noise, TWO_LEAVES, batch, local(TWO_LEAVES, expected), memory)


def test_noise_has_the_stated_size_whatever_the_batch_drew():
    estimator = on_device(Clipped(0.5, 3.0), jnp.float32)
    noise = estimator.draw(jax.random.key(0), 4000, TWO_LEAVES)
    mask = jnp.asarray([True, False])
    batch = Batch(jnp.zeros((2, 3)), None, mask)
    out = eqx.filter_jit(jax.vmap(lambda row: estimate(estimator, row, batch, None, 8.0).direction["a"]))(noise)
    assert abs(float(jnp.std(out)) - 3.0 * 0.5 / 8.0) < 4 * 3.0 * 0.5 / 8.0 / np.sqrt(2 * 8000)


def test_dice_remembers_what_the_clip_cut_off():
    estimator = on_device(Dice(1.0, 2.0, 0.0), jnp.float32)
    memory = estimator.init(TWO_LEAVES, PEOPLE, inner_product)
    noise = jnp.zeros(3)
    error, out = np.zeros(3), None
    for row in ([10.0, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, -4.0]):
        g = np.asarray(row)
        v = min(1.0, 1.0 / np.linalg.norm(g)) * g + min(1.0, 2.0 / max(np.linalg.norm(error), 1e-12)) * error
        error = error + g - v
        out = estimate(estimator, noise, gradients([row]), memory, 1.0)
        memory = out.memory
        np.testing.assert_allclose(np.concatenate([out.direction["a"], out.direction["b"][None]]), v, atol=1e-5)
        np.testing.assert_allclose(np.concatenate([memory.error["a"], memory.error["b"][None]]), error, atol=1e-5)
    assert set(out.metrics) == {"samples", "clipped", "rejected"}  # the memory is not among them
    assert int(memory.steps) == 3


@pytest.mark.parametrize("estimator", [Clipped(1.0, 2.0), Dice(1.0, 1.5, 2.0)], ids=["Clipped", "Dice"])
def test_whole_numbers_of_noise_give_sums_on_the_grid(estimator):
    estimator = on_device(estimator, jnp.float32)
    rows = RNG.standard_normal((5, 3)).astype(np.float32)
    memory = estimator.init(TWO_LEAVES, PEOPLE, inner_product)
    if memory is not None:
        memory = eqx.tree_at(lambda m: m.error["b"], memory, jnp.asarray(1.2))
    noise = jnp.asarray([5, -GRID, 3], jnp.int32)
    out = estimate(estimator, noise, gradients(rows), memory, 5.0)
    plain = estimate(estimator, jnp.asarray([5.0 / GRID, -1.0, 3.0 / GRID]), gradients(rows), memory, 5.0)
    step = 2.0 / GRID / 5.0
    for name in ("a", "b"):
        steps = np.asarray(out.direction[name], float) / step
        np.testing.assert_allclose(steps, np.round(steps), atol=0.02)
        np.testing.assert_allclose(out.direction[name], plain.direction[name], atol=6 * step)


def test_nobody_adds_more_than_the_clip_after_rounding():
    clip, step = jnp.asarray(1.0), jnp.asarray(0.05)  # a coarse grid, where rounding matters
    for seed in range(20):
        row = np.random.default_rng(seed).standard_normal((1, 3)).astype(np.float32) * 10
        sums = clipped_sum(inner_product, TWO_LEAVES, gradients(row), clip, step)
        length = np.linalg.norm(np.concatenate([sums.total["a"], sums.total["b"][None]]) * 0.05)
        assert 0.8 < length <= 1.0


def test_a_broken_gradient_leaves_the_memory_alone():
    estimator = on_device(Dice(1.0, 2.0, 0.0), jnp.float32)
    memory = estimator.init(TWO_LEAVES, PEOPLE, inner_product)
    out = estimate(estimator, jnp.zeros(3), gradients([[np.nan, 1.0, 0.0], [0.5, 0.0, 0.0]]), memory, 2.0)
    np.testing.assert_allclose(out.direction["a"], [0.25, 0.0])
    np.testing.assert_array_equal(out.memory.error["a"], [0.0, 0.0])
    assert (int(out.metrics["rejected"]), int(out.metrics["clipped"])) == (1, 0)


@pytest.mark.parametrize("clip", [1e-25, 1e-12, 1e12])
def test_clips_of_any_size_hold(clip):
    tree = {"a": jnp.asarray([100 * clip, 0.0], jnp.float32), "b": jnp.asarray(0.0)}
    kept, shortened, _ = clip_tree(tree, jnp.asarray(clip, jnp.float32))
    np.testing.assert_allclose(kept["a"][0], clip, rtol=1e-5)
    assert bool(shortened)


def test_blocks_bound_the_memory_that_is_needed():
    theta, z = jnp.zeros(4096), jnp.zeros((64, 4096))

    def bytes_for(block):
        def total(theta, z):
            return clipped_sum(along, theta, Batch(z, None, None), jnp.asarray(1.0), block=block).total

        return jax.jit(total).lower(theta, z).compile().memory_analysis().temp_size_in_bytes

    assert bytes_for(4) < 0.5 * max(bytes_for(64), z.nbytes)


# In a run.


def random_walks(channel=None, estimator=None, clients=3, rounds=4, seed=0, repeats=2, steps=2):
    """Clients without data to learn from: all that moves the models is noise."""
    population = pf.populations.Gaussian(mean=np.zeros(clients), sensitivity=0.0, scale=0.0)
    problem = pf.Problem(pf.losses.squared, population)
    algorithm = pf.p_fedavg(
        0.0 if estimator is None else 1.0, local_steps=steps,
        estimator=estimator or pf.estimators.Minibatch(), channel=channel or pf.channels.Plain(),
    )  # fmt: skip
    return pf.run(problem, algorithm, rounds, theta=0.0, seed=seed, repeats=repeats, record=pf.Record(risks=False))


@pytest.mark.slow
def test_noise_differs_between_clients_steps_rounds_repeats_and_seeds():
    estimator, theta = Clipped(1.0, 1.0), jnp.zeros(3)
    keys = pf.executors.run_keys(jax.random.key(0))
    other = pf.executors.run_keys(jax.random.key(1))
    rows = [
        estimator.draw(run.of_client(jnp.asarray(r), jnp.asarray(i)).estimator, 2, theta)
        for run in (keys, other) for r in (0, 1) for i in (0, 1)
    ]  # fmt: skip
    numbers = np.concatenate([np.ravel(row) for row in rows])
    assert len(np.unique(numbers)) == numbers.size == 2 * 2 * 2 * 2 * 3
    # The same through a run: consensus between clients would be 0 if their noise were shared.
    history = random_walks(estimator=estimator)
    assert np.all(history["consensus"][:, 1:] > 0)
    assert len(np.unique(history.theta)) == 1 + 2 * 4
    assert not np.allclose(history.theta, random_walks(estimator=estimator, seed=1).theta)


def test_the_sum_of_updates_carries_the_stated_noise():
    history = random_walks(pf.channels.ClippedNoise(0.5, 2.0), clients=4, rounds=1, repeats=4000)
    spread = np.std(history.theta[:, -1])
    expected = 2.0 * 0.5 / 4  # z c on the sum of four updates, which weigh a quarter each
    assert abs(spread - expected) < 4 * expected / np.sqrt(2 * 4000)


def test_updates_are_clipped_and_broken_ones_replaced():
    channel = on_device(pf.channels.ClippedNoise(1.0, 0.0), jnp.float32)
    broadcast = Broadcast(TWO_LEAVES, TWO_LEAVES, {}, ZERO, 1, 4)
    long = {"a": jnp.asarray([3.0, 4.0]), "b": jnp.asarray(0.0)}
    sent, _ = channel.send(jnp.zeros(3), long, broadcast, None)
    np.testing.assert_allclose(sent["a"], [0.6, 0.8], rtol=1e-6)
    assert {name: int(n) for name, n in channel.totals(long).items()} == {"clipped_updates": 1, "rejected_updates": 0}
    broken = {"a": jnp.asarray([jnp.nan, 4.0]), "b": jnp.asarray(0.0)}
    sent, _ = channel.send(jnp.zeros(3), broken, broadcast, None)
    np.testing.assert_array_equal(sent["a"], 0.0)
    assert {name: int(n) for name, n in channel.totals(broken).items()} == {"clipped_updates": 0, "rejected_updates": 1}


# What is said.


def test_the_memory_clip_that_is_needed():
    problem = pf.cases.quadratic(beta=0.05)
    stable = -0.1 * 10 / (1 - 10 * 0.05)
    # At theta_PS the gradient is -1 (9 of 10) or 9: clipped at 1 its mean is -0.8.
    np.testing.assert_allclose(needed_memory_clip(problem, stable, 1.0), 0.8, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Clipped(0.0, 1.0), "clip must be above 0"),
        (lambda: Clipped(1.0, -1.0), "noise_multiplier must not be negative"),
        (lambda: Clipped(np.nan, 1.0), "clip"),
        (lambda: Clipped(1.0, 1.0, block=0), "block"),
        (lambda: Dice(1.0, 0.0, 1.0), "memory_clip must be above 0"),
        (lambda: pf.channels.ClippedNoise(-1.0, 1.0), "clip must be above 0"),
    ],
)
def test_slips_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
