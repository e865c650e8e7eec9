"""Networks are taken apart without loss, our layers are the usual ones, and the fused layer has their derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import performative as pf
from performative.networks.halving import as_product, convolve_relu_halve
from performative.networks.layers import Convolution, Dense, GroupNorm, HalvingConvolution
from performative.networks.resnet import Block

PART_EXAMPLES = {
    "pf.networks.Network": (),
}

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape))


def size(theta):
    return sum(leaf.size for leaf in jax.tree.leaves(theta))


def assert_same(first, second, rtol=1e-12):
    """Of two functions or two trees of arrays, relative to the largest entry of each array."""
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(1.0, float(jnp.max(jnp.abs(b)))))


def with_gradient(function, out):
    """Jitted: value, and the gradient of its product with `out` in all arguments."""

    def inner(*args):
        value = function(*args)
        return jnp.sum(value * out), value

    def both(*args):
        (_, value), slopes = jax.value_and_grad(inner, argnums=tuple(range(len(args))), has_aux=True)(*args)
        return value, slopes

    return jax.jit(both)


class Scaled(eqx.Module):
    """A module with a field of its own choice."""

    weight: jax.Array
    other: object

    def __call__(self, x):
        return x * self.weight


def test_split_and_put_together():
    model = eqx.nn.MLP(3, 2, 4, 1, key=KEY)
    theta, network = pf.networks.split(model)
    x = jnp.ones(3)
    np.testing.assert_array_equal(network(theta, x), model(x))
    assert size(theta) == 3 * 4 + 4 + 4 * 2 + 2
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(theta))
    doubled = jax.tree.map(lambda leaf: 2 * leaf, theta)
    assert not np.allclose(network(doubled, x), network(theta, x)), "theta is not what the network computes with"
    # The rest is a static part of the loss: networks of one structure must be equal, or each would compile anew.
    other_theta, other = pf.networks.split(eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(1)))
    assert other == network and hash(other) == hash(network)
    assert not np.array_equal(other_theta.layers[0].weight, theta.layers[0].weight)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (3, "must be an equinox module that is called with one sample; got 3"),
        (jax.nn.relu, "has no floating arrays, so there is nothing to train"),
        (eqx.nn.Lambda(jax.nn.relu), "Lambda has no floating arrays"),
        (Scaled(jnp.ones(2), jnp.arange(2)), r"model\.other \(int32\) is neither trained nor fixed code"),
        (Scaled(jnp.ones(2), np.arange(2)), r"model\.other \(int64\) is neither trained nor fixed code"),
        (Scaled(jnp.ones(2), np.ones(2, complex)), r"model\.other \(complex128\) is neither trained"),
        (Scaled(jnp.ones(2), KEY), r"model\.other \(key<fry>\) is neither trained"),
        (eqx.nn.BatchNorm(3, "batch", mode="ema"), r"_index \(state between calls\).*GroupNorm"),
        (eqx.nn.BatchNorm(3, "batch", mode="batch"), r"\(state between calls\).*GroupNorm"),
        # All that it remembers are floats, which would otherwise be taken for trained.
        (
            eqx.nn.SpectralNorm(eqx.nn.Linear(2, 2, key=KEY), "weight", key=KEY),
            r"model\.uv_index \(state between calls\)",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(model, says):
    with pytest.raises(ValueError, match=f"split: .*{says}"):
        pf.networks.split(model)


def test_a_module_that_was_not_split_is_refused_by_run():
    population = pf.populations.Static(np.zeros((2, 5, 3)), np.zeros((2, 5), int))
    problem = pf.Problem(pf.losses.cross_entropy(lambda theta, x: theta(x)), population)
    with pytest.raises(ValueError, match=r"theta\.activation is .* theta, network = pf\.networks\.split\(module\)"):
        pf.run(problem, pf.fedavg(0.1), rounds=1, theta=eqx.nn.MLP(3, 2, 4, 1, key=KEY))


@pytest.mark.parametrize(
    ("made", "shape", "outputs", "numbers"),
    [
        (lambda: pf.networks.mlp(784, 10), (28, 28), 10, 784 * 196 + 196 + 196 * 10 + 10),
        (lambda: pf.networks.mlp(12, 3, width=5, depth=3), (3, 4), 3, 12 * 5 + 5 + 2 * (5 * 5 + 5) + 5 * 3 + 3),
        (
            lambda: pf.networks.cnn((28, 28), 10),
            (28, 28),
            10,
            (9 * 16 + 16) + (9 * 16 * 32 + 32) + (7 * 7 * 32 * 64 + 64) + (64 * 10 + 10),
        ),
        # 9 x 7 is halved to 4 x 3: an odd last row or column is left out.
        (
            lambda: pf.networks.cnn((9, 7, 3), 4, (5,), width=6),
            (9, 7, 3),
            4,
            (27 * 5 + 5) + (4 * 3 * 5 * 6 + 6) + (6 * 4 + 4),
        ),
        # The count of the ResNet-18 for CIFAR-10 that He et al.'s layers give (BatchNorm has as many numbers as
        # GroupNorm): 11.2 million.
        (lambda: pf.networks.resnet18((32, 32, 3), 10), (32, 32, 3), 10, 11_173_962),
        # LeNet-5 for CIFAR-10 as everybody counts it.
        (lambda: pf.networks.lenet5((32, 32, 3), 10), (32, 32, 3), 10, 62_006),
    ],
)
def test_shapes_and_sizes(made, shape, outputs, numbers):
    theta, network = made()
    assert size(theta) == numbers
    assert jax.eval_shape(network, theta, jax.ShapeDtypeStruct(shape, jnp.float32)).shape == (outputs,)


def test_starts_come_from_the_seed_alone():
    first, again, other = (pf.networks.cnn((8, 8), 3, (4,), seed=seed)[0] for seed in (1, 1, 2))
    for a, b, c in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.allclose(a, c)
    weight = jax.tree.leaves(pf.networks.mlp(400, 10, width=100)[0])[0]
    # U(-1/20, 1/20): the standard deviation is 1 / (20 sqrt 3), known to 0.4% from 40,000 draws.
    assert float(jnp.max(jnp.abs(weight))) <= 0.05
    np.testing.assert_allclose(jnp.std(weight), 0.05 / np.sqrt(3), rtol=0.02)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pf.networks.mlp(3, 2, depth=0), "depth must be a whole number >= 1; got 0"),
        (lambda: pf.networks.cnn((28,), 10), r"cnn: shape must be \(height, width\) or .*; got \[28\]"),
        (lambda: pf.networks.cnn((28, True), 10), "cnn: shape must be"),
        (lambda: pf.networks.cnn((3, 32, 32), 10), r"looks like \(channels, height, width\).*channels last"),
        (lambda: pf.networks.cnn((4, 4), 10, (8, 8, 8)), r"shape \(4, 4\) is too small for 3 poolings"),
        (lambda: pf.networks.cnn((8, 8), 10, (8, 0)), "channels must be a whole number >= 1; got 0"),
        (lambda: pf.networks.resnet18((32, 32, 3), 10, width=6), "width must be a multiple of 4, .*; got 6"),
        (lambda: pf.networks.resnet18((3, 32, 32), 10), "resnet18: shape .* looks like"),
        (lambda: pf.networks.lenet5((12, 12), 10), r"lenet5: an image of shape \(12, 12\) is too small"),
    ],
)
def test_what_cannot_be_built_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.usefixtures("double_precision")
def test_dense_is_equinox_linear():
    ours, theirs = Dense(RNG, 4, 3), eqx.nn.Linear(4, 3, key=KEY)
    theirs = eqx.tree_at(lambda m: (m.weight, m.bias), theirs, (ours.weight.T, ours.bias))
    assert_same(ours(normal(4)), theirs(normal(4)))


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("side", "stride", "shape"), [(3, 2, (6, 5)), pytest.param(1, 2, (7, 4), marks=pytest.mark.slow)]
)
def test_convolution_is_that_of_equinox(side, stride, shape):
    ours = Convolution(RNG, 2, 3, side, stride)
    theirs = eqx.nn.Conv2d(2, 3, side, stride, padding=side // 2, key=KEY)

    def usual(x, kernel, bias):
        filled = eqx.tree_at(
            lambda m: (m.weight, m.bias), theirs, (jnp.transpose(kernel, (3, 2, 0, 1)), bias[:, None, None])
        )
        return jnp.moveaxis(filled(jnp.moveaxis(x, -1, 0)), 0, -1)

    def mine(x, kernel, bias):
        return eqx.tree_at(lambda m: (m.kernel, m.bias), ours, (kernel, bias))(x)

    args = normal(*shape, 2), ours.kernel, ours.bias
    out = normal(*jax.eval_shape(mine, *args).shape)
    assert_same(with_gradient(mine, out)(*args), with_gradient(usual, out)(*args))


@pytest.mark.usefixtures("double_precision")
def test_group_norm_is_that_of_equinox():
    ours, theirs = GroupNorm(2, 6), eqx.nn.GroupNorm(2, 6)
    scale, shift, x = normal(6), normal(6) + 1, normal(4, 5, 6)
    ours = eqx.tree_at(lambda m: (m.scale, m.shift), ours, (scale, shift))
    theirs = eqx.tree_at(lambda m: (m.weight, m.bias), theirs, (scale, shift))
    out = normal(4, 5, 6) * 2

    def usual(x):
        return jnp.moveaxis(theirs(jnp.moveaxis(x, -1, 0)), 0, -1)

    assert_same(with_gradient(ours, out)(x), with_gradient(usual, out)(x), rtol=1e-10)


@pytest.mark.usefixtures("double_precision")
def test_halving_is_convolution_relu_and_pooling():
    layer = HalvingConvolution(RNG, 2, 3)
    pool = eqx.nn.MaxPool2d(2, 2)

    def usual(x):
        out = lax.conv_general_dilated_patches(
            x[None], (3, 3), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]
        # Patches come with the channels first: [c, i, j] on the last axis.
        out = out @ jnp.transpose(layer.kernel, (2, 0, 1, 3)).reshape(-1, 3) + layer.bias
        return jnp.moveaxis(pool(jnp.moveaxis(jax.nn.relu(out), -1, 0)), 0, -1)

    x, out = normal(7, 4, 2), normal(3, 2, 3)
    assert_same(with_gradient(layer, out)(x), with_gradient(usual, out)(x))


def whole_numbers(seed, *shape):
    """From -2 to 2, most of them 0."""
    return jnp.asarray(
        np.random.default_rng(seed).binomial(2, 0.15, shape) * np.random.default_rng(seed + 10).choice([-1, 1], shape),
        float,
    )


@pytest.mark.usefixtures("double_precision")
def test_the_fused_layer_has_the_values_and_gradients_of_the_plain_one():
    # Any numbers; small whole ones, whose sums are exact and often equal; an image of zeros, all of whose windows are
    # ties, under a bias above 0 (the first entry counts), at 0 and below (no slope).
    images = jnp.stack([normal(6, 8, 2), whole_numbers(1, 6, 8, 2), jnp.zeros((6, 8, 2))])
    kernels = jnp.stack([normal(3, 3, 2, 3), whole_numbers(2, 3, 3, 2, 3), normal(3, 3, 2, 3)])
    biases = jnp.asarray([[0.3, -0.2, 0.1], [0.0, 1.0, -1.0], [0.5, 0.0, -0.5]])
    out = normal(3, 4, 3)
    once = lax.conv_general_dilated(images[1:2], kernels[1], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    windows = np.asarray(once).reshape(3, 2, 4, 2, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 4)
    assert np.mean(np.sum(windows == windows.max(axis=1, keepdims=True), axis=1) > 1) > 0.2, "hardly a tie"
    fused, plain = (
        jax.jit(jax.vmap(with_gradient(layer, out)))(images, kernels, biases)
        for layer in (as_product, convolve_relu_halve)
    )
    assert_same(fused, plain)
    _, (_, _, bias_slope) = fused
    np.testing.assert_allclose(bias_slope[2], [jnp.sum(out[..., 0]), 0.0, 0.0], atol=1e-12)


def test_odd_images_are_left_to_the_plain_layer():
    for shape in ((5, 4, 1), (4, 5, 1)):
        assert as_product(jnp.ones(shape), jnp.ones((3, 3, 1, 2)), jnp.ones(2)) is None


@pytest.mark.usefixtures("double_precision")
def test_a_residual_block_adds_to_its_shortcut():
    x = normal(6, 6, 4)
    for outputs, stride in ((4, 1), (8, 2)):
        block = Block(RNG, 4, outputs, stride, 2)
        assert (block.shortcut is None) == (stride == 1)
        # With nothing added, all that is left is the shortcut, of which only what is above 0 passes.
        silent = eqx.tree_at(lambda b: b.norms[1].scale, block, jnp.zeros(outputs))
        straight = x if stride == 1 else block.shortcut[1](x[::2, ::2] @ block.shortcut[0].kernel[0, 0])
        loud, quiet = eqx.filter_jit(lambda both, x: [block(x) for block in both])((block, silent), x)
        assert_same(quiet, jnp.maximum(straight, 0))
        assert not np.allclose(loud, quiet)


def test_resnet_tells_images_apart():
    theta, network = pf.networks.resnet18((8, 8, 3), 5, width=4)
    scores = jax.jit(jax.vmap(network, in_axes=(None, 0)))(theta, jnp.asarray(normal(3, 8, 8, 3), jnp.float32))
    assert scores.shape == (3, 5) and np.all(np.isfinite(scores))
    assert np.ptp(np.asarray(scores), axis=0).max() > 1e-3
    stages = [leaf.shape[-1] for leaf in jax.tree.leaves(theta) if leaf.ndim == 4]
    # A stem, then four stages of two blocks; those that change size have a third convolution.
    assert stages == [4] * 5 + [8] * 5 + [16] * 5 + [32] * 5


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_resnet_learns():
    # Stripes that lie or stand: the mean of an image, which norms take out, says nothing.
    rng = np.random.default_rng(0)
    stripes = np.tile([1.0, 1.0, -1.0, -1.0], (8, 2))
    y = rng.integers(0, 2, (2, 32))
    x = np.where(y[..., None, None] == 1, stripes, stripes.T) + rng.standard_normal((2, 32, 8, 8))
    theta, network = pf.networks.resnet18((8, 8), 2, width=4)
    problem = pf.Problem(pf.losses.cross_entropy(network), pf.populations.Static(x, y))
    algorithm = pf.fedavg(0.03, local_steps=2, batch=pf.Fixed(16))
    history = pf.run(problem, algorithm, rounds=30, theta=theta, record=pf.Record(risks=False))
    final = jax.tree.map(lambda leaf: leaf[0], history.final)
    scores = jax.jit(jax.vmap(network, in_axes=(None, 0)))(final, x.reshape(-1, 8, 8).astype(np.float32))
    # 64 images that were seen: guessing is right about 50% of them, with a standard error of 6 points.
    assert np.mean(np.argmax(scores, axis=1) == y.ravel()) > 0.9
