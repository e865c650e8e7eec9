"""Channels that send less, and what becomes of the rest; batches of all rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import performative as pf
from performative._base.run_once import quickly_compiled
from performative.batches import Whole
from performative.channels import Quantized, RandomK, Sparse
from performative.types import Broadcast

PART_EXAMPLES = {
    "pf.channels.Sparse": ("k=1", "k=2"),
    "pf.channels.RandomK": ("k=1", "k=2, scale=False"),
    "pf.channels.Quantized": "bits=4",
}

THETA = {"a": jnp.zeros((2, 3)), "b": jnp.zeros(())}
SIZE = 7
SEEDS = st.integers(0, 10**6)
FEW = settings(max_examples=40, deadline=None, derandomize=True)


@quickly_compiled
def sent(channel, key, delta, memory):
    """What arrives, what is kept and what is counted, updates as one row of numbers."""
    tree = unflat(delta)
    broadcast = Broadcast(tree, tree, {}, jnp.zeros((), jnp.int32), 1)
    message, memory = channel.send(channel.draw(key, tree), tree, broadcast, memory)
    return flat(message), memory, channel.totals(tree)["bits_sent"]


def unflat(row):
    return {"a": row[:6].reshape(2, 3), "b": row[6]}


def flat(tree):
    return jnp.append(tree["a"].reshape(-1), tree["b"])


def messages(channel, deltas, seed=0):
    """Messages, leftovers and bits of a few rounds of one client."""
    channel = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), channel)
    memory, rows = channel.init(THETA), []
    for r, delta in enumerate(np.asarray(deltas, np.float32)):
        message, memory, bits = sent(channel, jax.random.key(seed + r), delta, memory)
        left = np.zeros(SIZE) if memory is None else np.asarray(flat(memory))
        rows.append((np.asarray(message), left, float(bits)))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def top(v, k):
    """The k largest of v by magnitude, the first of equals."""
    kept = sorted(range(len(v)), key=lambda j: (-abs(v[j]), j))[:k]
    return np.where(np.isin(np.arange(len(v)), kept), v, 0)


@FEW
@given(SEEDS, st.sampled_from([(1, 1), (3, 3), (7, 7), (50, 7), (0.01, 1), (2 / 7, 2), (0.3, 3), (0.999, 7)]))
def test_sparse_sends_the_largest_and_keeps_the_rest(seed, setting):
    k, entries = setting
    # Whole numbers: sums are exact, and there are ties.
    deltas = np.random.default_rng(seed).integers(-4, 5, (5, SIZE)).astype(float)
    message, left, bits = messages(Sparse(k), deltas)
    e = np.zeros(SIZE)
    for r, delta in enumerate(deltas):
        wanted = top(delta + e, entries)
        e = delta + e - wanted
        np.testing.assert_array_equal(message[r], wanted)
        np.testing.assert_array_equal(left[r], e)
    np.testing.assert_array_equal(bits, entries * (32 + 3))


def test_without_feedback_the_rest_is_forgotten():
    deltas = np.asarray([[5.0, 1, 1, 1, 1, 1, 2], [0, 0, 1, 0, 0, 0, -3]])
    message, _, _ = messages(Sparse(1, feedback=False), deltas)
    np.testing.assert_array_equal(message, [top(d, 1) for d in deltas])
    assert Sparse(1, feedback=False).init(THETA) is None


@pytest.mark.parametrize(("k", "entries"), [(1, 1), (3, 3), (50, 7), (0.3, 3)])
def test_random_entries_are_sent_larger(k, entries):
    deltas = np.arange(1.0, 1 + 20 * SIZE).reshape(20, SIZE)
    message, _, bits = messages(RandomK(k), deltas)
    places = message != 0
    np.testing.assert_array_equal(places.sum(axis=1), entries)
    np.testing.assert_allclose(message[places], (deltas * SIZE / entries)[places], rtol=1e-6)
    np.testing.assert_array_equal(bits, entries * (32 + 3))
    assert entries == SIZE or len(np.unique(places, axis=0)) > 3
    plain, _, _ = messages(RandomK(k, scale=False), deltas)
    np.testing.assert_array_equal(plain, np.where(places, deltas, 0))
    assert RandomK(k).init(THETA) is None


def test_every_set_of_random_entries_is_equally_likely():
    """35 sets of 3, 20,000 draws: a chi-square test at 1e-3."""
    draws = jax.vmap(lambda key: RandomK(3).draw(key, THETA))(jax.random.split(jax.random.key(1), 20_000))
    sets = np.sort(np.argsort(np.asarray(draws), axis=1)[:, :3], axis=1)
    _, counts = np.unique(sets, axis=0, return_counts=True)
    assert len(counts) == 35
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    "k", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(7, marks=pytest.mark.slow), 0.5]
)
def test_random_entries_are_unbiased_with_the_stated_variance(k):
    channel, tree = RandomK(k), unflat(jnp.zeros(SIZE))
    nodes, weights = channel.quadrature(tree)
    delta = np.random.default_rng(0).normal(size=SIZE)
    row = unflat(jnp.asarray(delta))
    broadcast = Broadcast(row, row, {}, jnp.zeros((), jnp.int32), 1)
    got = np.asarray(jax.vmap(lambda u: flat(channel.send(u, row, broadcast, None)[0]))(nodes))
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(weights @ got, delta, atol=1e-14)
    entries = int(channel.entries(tree))
    variance = weights @ np.sum((got - delta) ** 2, axis=1)
    assert variance == pytest.approx((SIZE / entries - 1) * np.sum(delta**2), abs=1e-12)


@FEW
@given(SEEDS, st.sampled_from([2, 3, 4, 8, 16]), st.sampled_from([1e-20, 1.0, 1e20]))
def test_quantized_entries_lie_on_few_levels_close_by(seed, bits, size):
    deltas = size * np.random.default_rng(seed).normal(size=(4, SIZE)).astype(np.float32)
    message, _, counted = messages(Quantized(bits, feedback=False), deltas, seed)
    levels = 2 ** (bits - 1) - 1
    for delta, got in zip(deltas, message, strict=True):
        step = np.abs(delta).max() / levels
        place = got / step
        # A float32 tells 2^24 places apart.
        np.testing.assert_allclose(place, np.round(place), atol=levels * 2e-6)
        assert np.abs(place).max() <= levels * (1 + 1e-6)
        assert np.all(np.abs(got - delta) <= step * (1 + 1e-5 * levels))
    np.testing.assert_array_equal(counted, SIZE * bits + 32)


def test_quantized_is_unbiased_and_rounds_independently():
    delta, draws = np.asarray([1.0, 0.9, -0.35, 0.02, 0.0, -0.6, 0.5], np.float32), 4000
    many = jax.vmap(sent, in_axes=(None, 0, None, None))
    for bits in (2, 4):
        channel, levels = Quantized(jnp.asarray(float(bits)), feedback=False), 2 ** (bits - 1) - 1
        got = many(channel, jax.random.split(jax.random.key(bits), draws), jnp.asarray(delta), None)[0]
        got = np.asarray(got, np.float64)
        error = got.std(axis=0) / np.sqrt(draws)
        assert np.all(np.abs(got.mean(axis=0) - delta) < 4.5 * error + 1e-6)
        # A Bernoulli between two levels: variance s^2 f (1 - f).
        part = np.mod(np.abs(delta) * levels, 1.0)
        np.testing.assert_allclose(got.var(axis=0), part * (1 - part) / levels**2, atol=6 / levels**2 / np.sqrt(draws))
        moving = np.flatnonzero(got.std(axis=0) > 1e-3)
        between = np.corrcoef(got[:, moving].T) - np.eye(len(moving))
        assert np.abs(between).max() < 4.5 / np.sqrt(draws)


@FEW
@given(SEEDS, st.sampled_from([3, 4, 6]))
def test_what_quantized_leaves_over_stays_small(seed, bits):
    rng = np.random.default_rng(seed)
    deltas = rng.choice([-1.0, 0.02, 1.0], (12, SIZE)) * rng.uniform(0, 1, (12, 1))
    message, left, _ = messages(Quantized(bits), deltas, seed)
    levels = 2 ** (bits - 1) - 1
    assert np.abs(left).max() <= np.abs(deltas).max() / (levels - 1) * (1 + 1e-5)
    # Nothing is lost: all that was to be sent was sent, or is still owed.
    np.testing.assert_allclose(np.cumsum(message, axis=0) + left, np.cumsum(deltas, axis=0), atol=1e-5)


@pytest.mark.parametrize("channel", [Sparse(2), RandomK(2), Quantized(4)], ids=["Sparse", "RandomK", "Quantized"])
def test_a_broken_update_is_passed_on_and_leaves_the_memory_alone(channel):
    deltas = np.random.default_rng(0).normal(size=(4, SIZE))
    deltas[2, 4] = np.nan
    deltas[3, 1] = np.inf
    message, left, _ = messages(channel, deltas)
    np.testing.assert_array_equal(message[2:], deltas[2:].astype(np.float32))
    assert np.all(np.isfinite(left))
    np.testing.assert_array_equal(left[1], left[3])
    nothing, _, _ = messages(channel, np.zeros((1, SIZE)))
    np.testing.assert_array_equal(nothing, 0.0)


MEAN = np.asarray([[3.0, 0.2, -1.0], [-2.0, 0.3, 1.5], [4.0, 0.1, 0.2], [1.0, 0.2, -0.3]])
STABLE = MEAN.mean(axis=0) / 0.5


def average(channel):
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, 0.5, 0.0))
    history = pf.run(
        problem,
        pf.p_fedavg(0.1, channel=channel),
        600,
        theta=np.zeros(3),
        record=pf.Record(risks=False),
        dtype="float64",
    )
    return history, np.asarray(history.theta)[0, 100:].mean(axis=0)


@pytest.mark.slow
def test_feedback_keeps_the_stable_point_and_forgetting_does_not():
    # With feedback the sum of moves differs from the sum of mean updates only by what is still owed: averaged over
    # rounds, the model is at the stable point. Entries that are never the largest never move without it.
    history, center = average(Sparse(1))
    np.testing.assert_allclose(center, STABLE, atol=0.02)
    assert history["bits_sent"][0, -1] == 600 * 4 * (64 + 2)
    forgetful = average(Sparse(1, feedback=False))[1]
    assert forgetful[1] == 0.0
    assert STABLE[1] == pytest.approx(0.4)


@pytest.mark.parametrize("feedback", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_quantized_updates_keep_the_stable_point(feedback):
    # Settled, max |delta| = 0.35: a level is s = 0.05 and the noise of a move at most s / 2 / sqrt(4 clients) = 0.0125.
    # Over 500 rounds that makes 0.0125 / (0.1 * 0.5 sqrt(500)) = 0.011 in the average: 0.05 is 4.5 standard errors.
    # With feedback only what is owed at the end counts, s / (0.1 * 0.5 * 500) and the distance gone.
    np.testing.assert_allclose(average(Quantized(4, feedback))[1], STABLE, atol=0.02 if feedback else 0.05)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Sparse(0), "k must be a whole number of entries >= 1, or a fraction"),
        (lambda: Sparse(1.0), "got 1.0"),
        (lambda: Sparse(2.5), "got 2.5"),
        (lambda: Sparse(True), "got True"),
        (lambda: Sparse(float("nan")), "got nan"),
        (lambda: RandomK(0), "RandomK: k must be a whole number of entries >= 1, or a fraction"),
        (lambda: RandomK(1.5), "got 1.5"),
        (lambda: Quantized(1), "bits must be a whole number from 2 to 16; got 1"),
        (lambda: Quantized(17), "got 17"),
        (lambda: Quantized(4.5), "got 4.5"),
        (lambda: Quantized(2), r"Quantized\(bits=2\) has one level per sign"),
    ],
)
def test_impossible_settings_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


TABLES = [np.asarray([1.0, 2.0, 6.0]), np.asarray([-4.0]), np.asarray([0.0, 1.0])]


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(TABLES, id="ragged"),
        pytest.param(np.asarray([[1.0, 2.0, 6.0], [0.0, 1.0, 5.0]]), id="equal", marks=pytest.mark.slow),
    ],
)
def test_whole_tables_are_gradient_descent(tables):
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(tables, pf.populations.shifts.Linear(0.3)))
    history = pf.run(
        problem,
        pf.p_fedavg(0.2, local_steps=3, batch=Whole()),
        4,
        theta=2.0,
        record=pf.Record(risks=False),
        dtype="float64",
    )
    theta, path = 2.0, [2.0]
    for _ in range(4):
        ends = []
        for table in tables:
            mine = theta
            for _ in range(3):
                mine -= 0.2 * np.mean(mine - (table + 0.3 * mine))
            ends.append(mine)
        theta = np.mean(ends)
        path.append(theta)
    np.testing.assert_allclose(np.asarray(history.theta)[0], path, rtol=1e-12)
    held = sum(len(table) for table in tables)
    np.testing.assert_array_equal(history["samples"][0], held * 3 * np.arange(5))
    np.testing.assert_array_equal(Whole().expected(problem.population), problem.population.rows)


def test_whole_needs_a_table():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"Whole\(\) needs a population with a finite table.*Fixed"):
        pf.run(problem, pf.p_fedavg(0.1, batch=Whole()), 1)
