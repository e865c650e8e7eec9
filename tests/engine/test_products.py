"""Convolutions and poolings spelled out as matrix products compute the same, with the same derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from performative._engine.products import AsProducts, has_convolutions


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
