"""However a run is laid out (convolutions as products, clients in turn, half precision), it computes the same."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import performative as pf
from performative._engine import layout
from performative._engine.blocks import map_in_blocks
from performative._engine.compute import Compute, InHalf
from performative._engine.layout import Footprint
from performative._engine.memory import bytes_of, peak_bytes
from performative._engine.ready import make_ready

RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape))


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_map_in_blocks_is_a_map(at_once):
    rows, pairs, shared = normal(5, 2), (normal(5), normal(5, 3)), normal(2)

    def function(row, pair, shared, none):
        assert none is None
        number, vector = pair
        return {"a": jnp.dot(row, shared) + number, "b": (vector * number, shared)}

    axes = (0, (0, 0), None, None)
    blocks = jax.jit(map_in_blocks(function, axes, at_once, 5))(rows, pairs, shared, None)
    usual = jax.vmap(function, in_axes=axes, axis_size=5)(rows, pairs, shared, None)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), blocks, usual)


def test_one_at_a_time_is_a_plain_loop():
    """Without an axis of length 1: products stay products of matrices, which all cores share."""

    def function(row):
        return row @ row.T

    for at_once, batched in ((1, False), (2, True)):
        program = str(jax.make_jaxpr(map_in_blocks(function, (0,), at_once, 4))(normal(4, 2, 3)))
        assert ("f32[2,2,2]" in program) == batched
    # The only one is no loop either; side by side it would be a batch of one product.
    for at_once, batched in ((1, False), (None, True)):
        alone = map_in_blocks(function, (0,), at_once, 1)
        program = str(jax.make_jaxpr(alone)(normal(1, 2, 3)))
        assert ("batch" in program or "([0], [0])" in program) == batched and "scan" not in program
        np.testing.assert_allclose(alone(normal(1, 2, 3))[0], function(normal(1, 2, 3)[0]), rtol=1e-6)


PEOPLE = 7
STRATEGIC = pf.Problem(
    pf.losses.logistic(0.1),
    pf.populations.Strategic(
        RNG.standard_normal((PEOPLE, 4, 2)), RNG.integers(0, 2, (PEOPLE, 4)), np.linspace(0.1, 0.5, PEOPLE)
    ),
)
SOME = pf.p_fedavg(0.1, local_steps=2, batch=pf.Fixed(2), participation=pf.SchemeTwo(5))


def run(problem=STRATEGIC, algorithm=SOME, rounds=3, **options):
    return pf.run(problem, algorithm, rounds, **dict(record=pf.Record(risks=False), dtype="float64") | options)


def assert_same_run(first, second, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(first.theta), jax.tree.leaves(second.theta), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.max(np.abs(b)))
    assert set(first.records) == set(second.records)
    for name in first.records:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.fixture(scope="module")
def all_at_once():
    return run(repeats=2)


@pytest.mark.parametrize("at_once", [1, pytest.param(3, marks=pytest.mark.slow), 5])
def test_clients_in_turn_give_the_same_run(all_at_once, at_once):
    history = run(repeats=2, clients_at_once=at_once)
    assert_same_run(history, all_at_once)
    said = {1: "one client at a time", 3: "3 clients at once", 5: "all clients at once"}[at_once]
    assert history.meta["compute"].startswith(said)


@pytest.mark.slow
def test_everyone_in_turn_with_a_memory():
    population = pf.populations.Sluggish(STRATEGIC.population, 0.3)
    problem = pf.Problem(STRATEGIC.loss, population)
    algorithm = pf.scaffold(0.1, local_steps=2, batch=pf.Fixed(2))
    assert_same_run(run(problem, algorithm, clients_at_once=2), run(problem, algorithm))


@pytest.mark.slow
def test_a_sweep_in_turn_gives_the_same_runs():
    over = {"rate": [0.1, 0.2]}
    sweeps = [
        pf.sweep(STRATEGIC, SOME, over, 3, repeats=2, dtype="float64", clients_at_once=at_once) for at_once in (None, 2)
    ]
    for usual, turns in zip(*(sweep.histories for sweep in sweeps), strict=True):
        assert_same_run(turns, usual)
        assert turns.meta["compute"].startswith("2 clients at once")


@pytest.mark.slow
def test_a_run_in_turn_goes_on_from_its_checkpoint(tmp_path):
    whole = run(rounds=6, clients_at_once=2)
    folder = dict(checkpoint=pf.Checkpoint(tmp_path, every=2, resume=True), clients_at_once=2)
    run(rounds=4, **folder)
    resumed = run(rounds=6, **folder)
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    # How a run is laid out is no part of what it is: it may go on with more or less memory.
    other = run(rounds=8, **folder | dict(clients_at_once=None))
    assert_same_run(other, run(rounds=8))


def test_at_once_is_checked():
    with pytest.raises(ValueError, match="clients_at_once must be a whole number >= 1; got 0"):
        run(clients_at_once=0)


def small_cnn(images=6, **options):
    """Clients with images of two classes, and a network with enough numbers to be looked at."""
    y = np.random.default_rng(0).integers(0, 2, (4, images))
    x = np.random.default_rng(1).standard_normal((4, images, 8, 8)) + 2 * y[..., None, None]
    theta, network = pf.networks.cnn((8, 8), 2, (4,), width=64)
    problem = pf.Problem(pf.losses.cross_entropy(network), pf.populations.Static(x, y))
    return problem, pf.fedavg(0.1, batch=pf.Fixed(3), participation=pf.SchemeTwo(3)), theta


@pytest.fixture(scope="module")
def cnn_runs():
    """One round in float64, float32 and bfloat16."""
    problem, algorithm, theta = small_cnn()
    return {dtype: run(problem, algorithm, 2, theta=theta, dtype=dtype) for dtype in ("float64", "float32", "bfloat16")}


@pytest.mark.slow
def test_half_precision_stays_near(cnn_runs):
    assert cnn_runs["bfloat16"].meta["compute"].endswith("gradients in bfloat16")
    assert cnn_runs["bfloat16"].meta["dtype"] == "float32"
    exact = np.concatenate([np.ravel(leaf[0, -1] - leaf[0, 0]) for leaf in jax.tree.leaves(cnn_runs["float64"].theta)])
    for dtype, precision in (("float32", 2**-23), ("bfloat16", 2**-8)):
        leaves = jax.tree.leaves(cnn_runs[dtype].theta)
        assert {leaf.dtype for leaf in leaves} == {np.dtype("float32")}
        moved = np.concatenate([np.ravel(leaf[0, -1].astype(float) - leaf[0, 0]) for leaf in leaves])
        error = np.linalg.norm(moved - exact) / np.linalg.norm(exact)
        # Rounding errors of about one unit add up over a sum of some hundred terms like a random walk.
        assert precision / 100 < error < 10 * precision, f"{dtype}: {error}"


def test_the_gradient_in_half_comes_back_in_full():
    def loss(theta, z):
        x, y = z
        assert theta["w"].dtype == x.dtype == jnp.bfloat16 and y.dtype == jnp.int32
        return jnp.sum(theta["w"] * x) ** 2

    theta, z = {"w": jnp.asarray([1.0, 1 / 3])}, (jnp.ones(2), jnp.asarray(1, jnp.int32))
    value, slope = jax.value_and_grad(InHalf(loss))(theta, z)
    assert value.dtype == slope["w"].dtype == jnp.float32
    np.testing.assert_allclose(slope["w"], 8 / 3, rtol=2 * 2**-8)
    # Rounded to 8 bits, and not to more.
    assert np.all(np.asarray(slope["w"]) == np.asarray(slope["w"].astype(jnp.bfloat16).astype(jnp.float32)))
    assert abs(float(slope["w"][0]) - 8 / 3) > 1e-4


@pytest.mark.slow
def test_short_memory_splits_a_run(monkeypatch, cnn_runs):
    problem, algorithm, theta = small_cnn()
    whole = cnn_runs["float64"]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # a CPU takes clients of networks in turn anyway

    def pretend(memory):
        monkeypatch.setattr(layout, "free_bytes", lambda: memory)
        return run(problem, algorithm, 2, theta=theta)

    assert pretend(1 << 40).meta["compute"].startswith("all clients at once")
    with jax.enable_x64(True):
        setup, start, _ = make_ready(problem, algorithm, theta, pf.Clock(), pf.Record(), jnp.float64)
        footprint = layout.measure_footprint(layout.set_compute(setup, start, False), start, 1)
    room = footprint.standing + 2 * 3 * footprint.update + int(2.1 * 1.5 * footprint.client)
    split = pretend(room)
    assert split.meta["compute"].startswith("2 clients at once")
    assert "3 clients per round" in split.meta["memory"]
    assert split.meta["memory"].endswith("enough for 2 clients at once")
    assert_same_run(split, whole, rtol=1e-10)
    with pytest.warns(UserWarning, match=r"less than data and memory alone.*\[not-enough-memory\]"):
        assert pretend(footprint.standing * 3 // 4).meta["compute"].startswith("one client")


def test_a_footprint_says_what_fits_in_words():
    mib = 1 << 20
    footprint = Footprint(client=10 * mib, update=mib, standing=100 * mib, available=1 << 30, cohort=20, copies=1)
    assert footprint.at_once is None
    assert footprint.whole == 100 * mib + 20 * 12 * mib
    said = str(footprint)
    assert "about 0.332 GiB: 20 clients per round of 10 MiB each" in said
    assert "100 MiB of data and memory; 1 GiB are free, enough for all clients at once" in said
    # 200 MiB are left of 300, 40 of them for the updates: 160 / 15 are ten clients with the margin, in two blocks.
    short = dataclasses.replace(footprint, available=300 * mib)
    assert short.at_once == 10 and "10 clients at once" in str(short)
    assert dataclasses.replace(footprint, available=290 * mib).at_once == 10
    assert dataclasses.replace(footprint, available=280 * mib).at_once == 7  # nine would fit; three even blocks
    assert dataclasses.replace(footprint, available=0).at_once == 1
    alone = dataclasses.replace(footprint, standing=59 << 30, available=20 << 30)
    assert "59 GiB of data and memory; 20 GiB are free, less than data and memory alone: keep tables" in str(alone)
    tight = dataclasses.replace(footprint, available=149 * mib)  # 100, 40 for the updates, 9 for a client of 10
    assert tight.missing == mib and "too little for a single client" in str(tight)
    assert dataclasses.replace(tight, available=150 * mib).missing == 0
    copies = dataclasses.replace(footprint, copies=4)
    assert copies.at_once is not None and "4 repeats" in str(copies)


def test_the_memory_of_a_program_without_surprises():
    def chain(x):
        y = x @ x  # 8 x 8 doubles are 512 bytes
        z = y @ y  # y is read here for the last time
        return jnp.sum(z @ z)

    with jax.enable_x64(True):
        assert peak_bytes(jax.make_jaxpr(chain)(normal(8, 8)).jaxpr) in range(2 * 512, 2 * 512 + 17)
        assert bytes_of({"a": normal(8, 8), "b": jnp.zeros(3, jnp.int32)}) == 512 + 12


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_the_estimate_of_memory_is_near_what_the_compiler_takes(kind):
    made = pf.networks.mlp(784, 10) if kind == "mlp" else pf.networks.cnn((28, 28), 10)
    theta, network = made
    loss = Compute(products=kind == "cnn").loss(pf.losses.cross_entropy(network))

    def steps(theta, x, y):
        """Five steps on 32 images each, as a client does them."""

        def step(theta, batch):
            slope = jax.grad(lambda theta: jnp.mean(jax.vmap(loss, in_axes=(None, 0))(theta, batch)))(theta)
            return jax.tree.map(lambda v, g: v - 0.1 * g, theta, slope), None

        return lax.scan(step, theta, (x, y))[0]

    args = theta, jnp.zeros((5, 32, 28, 28)), jnp.zeros((5, 32), jnp.int32)
    estimate = peak_bytes(jax.make_jaxpr(steps)(*args).jaxpr)
    taken = jax.jit(steps).lower(*args).compile().memory_analysis()
    ratio = estimate / (taken.temp_size_in_bytes + taken.output_size_in_bytes)
    assert 0.5 < ratio < 2, ratio
