"""However a run is laid out (convolutions as products, clients in turn, half precision), it computes the same."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import performative as pf
from performative.engine import layout
from performative.engine.blocks import map_in_blocks
from performative.engine.compute import Compute, InHalf
from performative.engine.layout import Footprint
from performative.engine.memory import bytes_of, peak_bytes
from performative.engine.products import AsProducts, has_convolutions
from performative.engine.run import make_ready

RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape))


def operations(function, *args):
    """Names of all operations of a program, those inside of others too."""
    names = set()

    def look(jaxpr):
        for eqn in jaxpr.eqns:
            names.add(eqn.primitive.name)
            for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
                if hasattr(inner, "eqns"):
                    look(getattr(inner, "jaxpr", inner))

    look(jax.make_jaxpr(function)(*args).jaxpr)
    return names


def assert_same_function(function, *args, spelled_out=True):
    """Values and gradients in all arguments, and whether there is still a convolution or a pooling in it."""

    def with_slopes(function):
        def inner(*args):
            value = function(*args)
            return jnp.sum(jnp.sin(value)), value

        return jax.value_and_grad(inner, argnums=tuple(range(len(args))), has_aux=True)

    usual, mine = with_slopes(function), with_slopes(AsProducts(function))
    plain, products = jax.jit(lambda *args: (usual(*args), mine(*args)))(*args)
    for a, b in zip(jax.tree.leaves(products), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1.0, float(jnp.max(jnp.abs(b)))))
    left = operations(AsProducts(function), *args) & {"conv_general_dilated", "reduce_window_max"}
    assert bool(left) != spelled_out, f"left of {operations(function, *args)} is {left}"


def convolve(image, kernel, order, **options):
    return lax.conv_general_dilated(image, kernel, dimension_numbers=order, **options)


NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("image", "kernel", "order", "options"),
    [
        ((2, 5, 6, 3), (3, 3, 3, 4), NHWC, dict(window_strides=(1, 1), padding="SAME")),
        # The padding is uneven, the windows leave a rest, and the axes stand in an order of their own.
        ((5, 3, 2, 7), (4, 2, 3, 3), ("WCNH", "OHWI", "HNCW"), dict(window_strides=(2, 3), padding=((0, 1), (2, 0)))),
        ((1, 2, 3, 4, 3), (2, 2, 1, 3, 2), ("NCDHW", "OIDHW", "NCDHW"), dict(window_strides=(1, 1, 2), padding="SAME")),
        pytest.param(
            (1, 4, 4, 3), (1, 1, 3, 2), NHWC, dict(window_strides=(2, 2), padding="VALID"), marks=pytest.mark.slow
        ),
        pytest.param(
            (2, 3, 7, 6), (4, 3, 2, 3), NCHW, dict(window_strides=(1, 2), padding="VALID", rhs_dilation=(2, 2)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            (2, 6, 3), (4, 3, 2), ("NWC", "WIO", "NWC"), dict(window_strides=(2,), padding=((3, 1),)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["same", "order", "3-d", "kernel 1", "dilated", "1-d"],
)  # fmt: skip
def test_convolutions_become_products(image, kernel, order, options):
    assert_same_function(functools.partial(convolve, order=order, **options), normal(*image), normal(*kernel))


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_any_convolution_becomes_a_product(data):
    few = functools.partial(st.integers, 1)
    dims = data.draw(few(3))
    size, window, stride, dilation = (
        data.draw(st.lists(few(most), min_size=dims, max_size=dims)) for most in (6, 3, 3, 2)
    )
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    size = [max(s, r) for s, r in zip(size, reach, strict=True)]
    padding = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(dims)]
    batch, channels, out = (data.draw(few(3)) for _ in range(3))
    space = "DHW"[-dims:]
    image_order, kernel_order, out_order = (
        "".join(data.draw(st.permutations(letters + space))) for letters in ("NC", "OI", "NC")
    )
    lengths = dict(zip(space, size, strict=True)) | {"N": batch, "C": channels}
    sides = dict(zip(space, window, strict=True)) | {"I": channels, "O": out}
    assert_same_function(
        functools.partial(
            convolve, order=(image_order, kernel_order, out_order), window_strides=stride, padding=padding,
            rhs_dilation=dilation,
        ),
        normal(*(lengths[axis] for axis in image_order)),
        normal(*(sides[axis] for axis in kernel_order)),
    )  # fmt: skip


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3, 1, 4), dict(feature_group_count=2)),
        pytest.param((3, 3, 2, 4), dict(lhs_dilation=(2, 2), padding=((1, 1), (1, 1))), marks=pytest.mark.slow),
        pytest.param((3, 3, 2, 4), dict(padding=((-1, 0), (0, 0))), marks=pytest.mark.slow),
    ],
    ids=["grouped", "transposed", "cropped"],
)
def test_unusual_convolutions_are_left_alone(kernel, options):
    options = dict(window_strides=(1, 1), padding="VALID") | options
    assert_same_function(
        functools.partial(convolve, order=NHWC, **options), normal(1, 5, 5, 2), normal(*kernel), spelled_out=False
    )


def test_products_are_as_precise_as_was_asked():
    function = functools.partial(
        convolve, order=NHWC, window_strides=(1, 1), padding="SAME", precision="highest",
        preferred_element_type=jnp.float32,
    )  # fmt: skip
    args = jnp.ones((1, 3, 3, 1), jnp.bfloat16), jnp.ones((3, 3, 1, 2), jnp.bfloat16)
    assert AsProducts(function)(*args).dtype == jnp.float32
    products = [e for e in jax.make_jaxpr(AsProducts(function))(*args).jaxpr.eqns if e.primitive.name == "dot_general"]
    assert len(products) == 1
    assert products[0].params["precision"] == (lax.Precision.HIGHEST, lax.Precision.HIGHEST)


plain_conv = functools.partial(convolve, order=NHWC, window_strides=(1, 1), padding="SAME")


@jax.custom_jvp
def doubled_conv(image, kernel):
    """A derivative of its own: twice the true one."""
    return plain_conv(image, kernel)


@doubled_conv.defjvp
def _doubled_conv_jvp(primals, tangents):
    value, slope = jax.jvp(plain_conv, primals, tangents)
    return value, 2 * slope


def pooled(function, window, strides, padding="VALID"):
    return lambda *args: lax.reduce_window(function(*args), -jnp.inf, lax.max, window, strides, padding)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("function", "spelled_out"),
    [
        (jax.jit(lambda x, k: jax.jit(plain_conv)(jnp.tanh(plain_conv(x, k)), k)), True),
        (jax.checkpoint(lambda x, k: jnp.tanh(plain_conv(jnp.tanh(plain_conv(x, k)), k))), True),
        (pooled(plain_conv, (1, 2, 2, 1), (1, 2, 2, 1)), True),
        # An odd last row, and a window that is not square.
        pytest.param(pooled(plain_conv, (1, 3, 1, 2), (1, 3, 1, 2)), True, marks=pytest.mark.slow),
        (pooled(plain_conv, (1, 3, 3, 1), (1, 2, 2, 1)), False),
        pytest.param(pooled(plain_conv, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"), False, marks=pytest.mark.slow),
        (doubled_conv, False),
        pytest.param(
            lambda x, k: lax.scan(lambda c, _: (jnp.tanh(plain_conv(c, k)), None), x, None, 2)[0],
            False,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["jit", "checkpoint", "pooling", "uneven pooling", "overlapping", "padded", "custom derivative", "scan"],
)
def test_whole_functions_keep_their_values_and_derivatives(function, spelled_out):
    assert_same_function(function, normal(1, 5, 5, 2), normal(3, 3, 2, 2), spelled_out=spelled_out)


def test_what_is_computed_twice_stays_so():
    again = jax.checkpoint(lambda x, k: jnp.tanh(plain_conv(x, k)))
    args = normal(1, 4, 4, 1), normal(3, 3, 1, 1)
    assert operations(AsProducts(again), *args) & {"checkpoint", "remat2"}


@pytest.mark.usefixtures("double_precision")
def test_pooling_breaks_ties_as_the_plain_one_does():
    """The first of equal entries, row by row, gets the slope."""
    # Every pattern of largest entries in a window.
    patterns = np.asarray([[(n >> bit) & 1 for bit in range(4)] for n in range(16)], float)
    windows = jnp.asarray(patterns.reshape(4, 4, 2, 2).transpose(0, 2, 1, 3).reshape(1, 8, 8, 1))
    pool = pooled(lambda x: x, (1, 2, 2, 1), (1, 2, 2, 1))
    plain, sliced = (jax.jit(jax.grad(lambda x, f=f: jnp.sum(f(x))))(windows) for f in (pool, AsProducts(pool)))
    np.testing.assert_array_equal(sliced[0, :, :, 0], plain[0, :, :, 0])


def test_trees_and_unused_arguments_pass_through():
    def function(theta, z):
        x, y = z
        return {"scores": x @ theta["w"], "label": y, "constant": 3.0}, theta["w"]

    theta, z = {"w": jnp.ones((2, 3)), "unused": jnp.ones(4)}, (jnp.ones(2), jnp.asarray(1, jnp.int32))
    mine, usual = AsProducts(function)(theta, z), function(theta, z)
    assert jax.tree.structure(mine) == jax.tree.structure(usual)
    jax.tree.map(np.testing.assert_array_equal, mine, usual)
    assert not has_convolutions(function, theta, z)


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


PEOPLE = 7
STRATEGIC = pf.Problem(
    pf.losses.logistic(0.1),
    pf.populations.Strategic(
        RNG.standard_normal((PEOPLE, 4, 2)), RNG.integers(0, 2, (PEOPLE, 4)), np.linspace(0.1, 0.5, PEOPLE)
    ),
)
SOME = pf.p_fedavg(0.1, local_steps=2, batch=pf.Fixed(2), participation=pf.SchemeTwo(5))


def run(problem=STRATEGIC, algorithm=SOME, rounds=3, **options):
    return pf.run(problem, algorithm, rounds, **dict(risk=False, dtype="float64") | options)


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
    history = run(repeats=2, at_once=at_once)
    assert_same_run(history, all_at_once)
    said = {1: "one client at a time", 3: "3 clients at once", 5: "all clients at once"}[at_once]
    assert history.meta["compute"].startswith(said)


@pytest.mark.slow
def test_everyone_in_turn_with_a_memory():
    population = pf.populations.Sluggish(STRATEGIC.population, 0.3)
    problem = pf.Problem(STRATEGIC.loss, population)
    algorithm = pf.scaffold(0.1, local_steps=2, batch=pf.Fixed(2))
    assert_same_run(run(problem, algorithm, at_once=2), run(problem, algorithm))


@pytest.mark.slow
def test_a_sweep_in_turn_gives_the_same_runs():
    over = {"rate": [0.1, 0.2]}
    sweeps = [pf.sweep(STRATEGIC, SOME, over, 3, repeats=2, dtype="float64", at_once=at_once) for at_once in (None, 2)]
    for usual, turns in zip(*(sweep.histories for sweep in sweeps), strict=True):
        assert_same_run(turns, usual)
        assert turns.meta["compute"].startswith("2 clients at once")


@pytest.mark.slow
def test_a_run_in_turn_goes_on_from_its_checkpoint(tmp_path):
    whole = run(rounds=6, at_once=2)
    folder = dict(checkpoint=tmp_path, checkpoint_every=2, at_once=2)
    run(rounds=4, **folder)
    resumed = run(rounds=6, resume=True, **folder)
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    # How a run is laid out is no part of what it is: it may go on with more or less memory.
    other = run(rounds=8, resume=True, **folder | dict(at_once=None))
    assert_same_run(other, run(rounds=8))


def test_at_once_is_checked():
    with pytest.raises(ValueError, match="at_once must be a whole number >= 1; got 0"):
        run(at_once=0)


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
        setup, start, _ = make_ready(problem, algorithm, theta, pf.Clock(), True, jnp.float64)
        footprint = layout.measure_footprint(layout.set_compute(setup, start, False), start, 1)
    room = footprint.standing + 2 * 3 * footprint.update + int(2.1 * 1.5 * footprint.client)
    split = pretend(room)
    assert split.meta["compute"].startswith("2 clients at once")
    assert "3 clients a round" in split.meta["memory"] and split.meta["memory"].endswith("enough for 2 clients at once")
    assert_same_run(split, whole, rtol=1e-10)
    assert pretend(1).meta["compute"].startswith("one client")


def test_a_footprint_says_what_fits_in_words():
    mib = 1 << 20
    footprint = Footprint(client=10 * mib, update=mib, standing=100 * mib, available=1 << 30, cohort=20, copies=1)
    assert footprint.at_once is None
    assert footprint.whole == 100 * mib + 20 * 12 * mib
    said = str(footprint)
    assert "about 0.332 GiB: 20 clients a round of 10 MiB each" in said
    assert "100 MiB of data and memory; 1 GiB are free, enough for all clients at once" in said
    # 200 MiB are left of 300, 40 of them for the updates: 160 / 15 are ten clients with the margin, in two blocks.
    short = dataclasses.replace(footprint, available=300 * mib)
    assert short.at_once == 10 and "10 clients at once" in str(short)
    assert dataclasses.replace(footprint, available=290 * mib).at_once == 10
    assert dataclasses.replace(footprint, available=280 * mib).at_once == 7  # nine would fit; three even blocks
    assert dataclasses.replace(footprint, available=0).at_once == 1
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
@pytest.mark.usefixtures("optimised_programs")
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
