"""Rules in the place of draws: what channels, estimators and normal data draw, as nodes and weights."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.client_axis import slice_client
from performative.channels import AbstractChannel, ClippedNoise, Plain, Quantized, RandomK, Sparse
from performative.estimators import (
    AdaptiveSize,
    Clipped,
    ClippedModel,
    ControlVariate,
    Dice,
    Filtered,
    Minibatch,
    Performative,
    Preconditioned,
    Prox,
)
from performative.facts import Uncertified, declared
from performative.populations import (
    Contaminated,
    Database,
    Drifting,
    Gaussian,
    Mixture,
    Outliers,
    Pools,
    Regression,
    Sluggish,
    shares,
)
from performative.populations.nodes import Polynomial, standard_nodes
from performative.populations.normal_rules import _degree_five, polynomial_rule
from performative.populations.pooled import Pooled
from performative.populations.scaled import Scaled
from performative.testing.uses import scene_of

pytestmark = pytest.mark.usefixtures("double_precision")

THETA = {"a": np.zeros((2, 2)), "b": np.zeros(3)}


def theta():
    return jax.tree.map(jnp.asarray, THETA)


def normal_moment(powers):
    """E prod_i x_i^n_i: products of double factorials, 0 where a power is odd."""
    return float(np.prod([0.0 if n % 2 else np.prod(np.arange(n - 1, 0, -2)) for n in powers]))


def monomials(size, degree):
    for chosen in itertools.combinations_with_replacement(range(size + 1), degree):  # `size` stands for the factor 1
        yield np.bincount(chosen, minlength=size + 1)[:size]


RULES = {
    "degree five": (_degree_five, 5),
    "up to five": (lambda m: polynomial_rule(m, 5), 5),
    "up to three": (lambda m: polynomial_rule(m, 3), 3),
}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("rule", RULES)
def test_all_moments_of_normal_data(rule, size):
    make, degree = RULES[rule]
    nodes, weights = make(size)
    assert nodes.shape == (len(weights), size)
    for powers in monomials(size, degree):
        found = weights @ np.prod(nodes**powers, axis=1)
        assert found == pytest.approx(normal_moment(powers), abs=1e-12), powers


def test_few_nodes():
    counts = [len(polynomial_rule(m, 5)[1]) for m in (1, 2, 3, 4, 10)]
    assert counts == [3, 9, 27, 33, 201]
    assert len(polynomial_rule(2, 7)[1]) == 16
    nodes, weights = polynomial_rule(4, 7)
    assert weights @ nodes[:, 1] ** 6 == pytest.approx(15.0, abs=1e-11)
    with pytest.raises(Uncertified, match="no rule of few nodes"):
        polynomial_rule(20, 7)
    with pytest.raises(Uncertified, match="too many for a rule"):
        polynomial_rule(1000, 5)


def test_standard_nodes_keep_their_shape():
    nodes, weights = standard_nodes((2, 3), Polynomial(5))
    assert nodes.shape == (73, 2, 3) and weights.shape == (73,)
    nodes, weights = standard_nodes((), Polynomial(5))
    assert nodes.shape == (3,)


MEANS = np.linspace(-1.0, 1.0, 5)[None]
GAUSSIAN = Gaussian(MEANS, 0.3, 1.5)
POPULATIONS = {
    "normal": GAUSSIAN,
    "drifting": Drifting(GAUSSIAN, pf.paths.Linear(0.1)),
    "pools": Pools(GAUSSIAN, [0.3, 0.7], [1.0, 0.5]),
    "sluggish": Sluggish(GAUSSIAN, 0.5),
    "mixture": Mixture([GAUSSIAN, Gaussian(-2 * MEANS, 0.0, 0.5)], shares.Constant([0.4, 0.6])),
    "outliers": Contaminated(GAUSSIAN, 0.1, Outliers(9.0, 2.0)),
    "rows with noise": Database(np.arange(15.0).reshape(1, 3, 5), pf.populations.shifts.Linear(0.2), noise=0.7),
    "rows": Database(np.arange(15.0).reshape(1, 3, 5)),
    "scaled": Scaled(GAUSSIAN, 2.0),
    "pooled": Pooled(Gaussian(np.concatenate([MEANS, 2 * MEANS]), 0.3, 1.0), np.asarray([0.5, 0.5])),
}


def second_moments(population, model, count):
    """E z and E z z^T of the first client, z as one row of numbers; and how many nodes that took."""
    mine = slice_client(jax.tree.map(jnp.asarray, population), jnp.asarray(0))
    scene = scene_of(mine, model, pf.losses.squared)
    world = mine.deploy(mine.init(scene), scene)
    noise, weights = mine.quadrature_within(world, model, count)

    def row(u):
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(mine.sample(u, world, model))])

    z = np.asarray(jax.vmap(row)(noise))
    return weights @ z, (np.asarray(weights)[:, None] * z).T @ z, len(weights)


@pytest.mark.parametrize("population", POPULATIONS.values(), ids=POPULATIONS)
def test_populations_hand_the_rule_on(population):
    """Draws that are whitened are exact for mean and covariance, too."""
    model = jnp.full(5, 0.4)
    mean, square, few = second_moments(population, model, Polynomial(5))
    exact_mean, exact_square, many = second_moments(population, model, 4096)
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(square, exact_square, rtol=1e-10, atol=1e-10)
    assert few <= min(many, 6 * 51)


def test_products_of_normal_data():
    """z = (x, y) has y of degree two in the normals, and y^2 of degree four; the grid of 6^4 is exact beyond."""
    population = Regression(np.ones((1, 3)), np.full((1, 3), 2.0), np.arange(3.0)[None], 0.5, 0.3)
    few, many = (second_moments(population, jnp.full(3, 0.4), count) for count in (Polynomial(5), 1296))
    for found, exact in zip(few[:2], many[:2], strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-11)
    assert few[2] == 33


@pytest.mark.parametrize("law", ["uniform", "student3"])
def test_data_that_are_drawn_have_no_such_rule(law):
    with pytest.raises(Uncertified, match="expectations are taken over draws"):
        Outliers(0.0, 1.0, law).quadrature(jnp.zeros(3), Polynomial(5))


NORMALS = {
    "ClippedNoise": ClippedNoise(1.0, 0.5),
    "Clipped": Clipped(1.0, 0.5),
    "Dice": Dice(1.0, 1.0, 0.5),
    "Prox": Prox(Clipped(1.0, 0.5), 0.1),
}


@pytest.mark.parametrize("part", NORMALS.values(), ids=NORMALS)
def test_normal_noise(part):
    nodes, weights = declared(part, "quadrature", theta())
    nodes, weights = np.asarray(nodes), np.asarray(weights)
    assert nodes[0].shape == drawn_once(part).shape
    np.testing.assert_allclose(weights.sum(), 1.0, atol=1e-14)
    np.testing.assert_allclose(weights @ nodes, 0.0, atol=1e-14)
    np.testing.assert_allclose((weights[:, None] * nodes).T @ nodes, np.eye(7), atol=1e-14)


def drawn_once(part):
    """What `draw` gives for one message, or one step."""
    key = jax.random.key(0)
    return part.draw(key, theta()) if isinstance(part, AbstractChannel) else part.draw(key, 3, theta())[0]


NOTHING = {
    "Plain": Plain(),
    "Minibatch": Minibatch(),
    "Prox": Prox(Minibatch(), 0.1),
    "Filtered": Filtered(Minibatch()),
    "ControlVariate": ControlVariate(Minibatch()),
    "Preconditioned": Preconditioned(Minibatch(), pf.optimizers.Momentum()),
    "AdaptiveSize": AdaptiveSize(Performative(2), tolerance=0.1),
    "ClippedModel": ClippedModel(1.0),
}


@pytest.mark.parametrize("part", NOTHING.values(), ids=NOTHING)
def test_parts_that_draw_nothing_have_one_node(part):
    nodes, weights = declared(part, "quadrature", theta())
    assert nodes is None
    np.testing.assert_array_equal(weights, [1.0])


def test_what_is_not_known_is_not_stated():
    class Mine(Minibatch):
        pass

    unknown = Sparse(2), Quantized(4), Mine(), Prox(Mine(), 0.1), RandomK(50)
    model = jnp.zeros(100)
    assert all(declared(part, "quadrature", model) is None for part in unknown)
    nodes, _ = declared(RandomK(2), "quadrature", model)
    assert nodes.shape == (4950, 100) and nodes[0].dtype == RandomK(2).draw(jax.random.key(0), model).dtype
    # Inside a program too, where k is known.
    assert jax.jit(lambda t: RandomK(0.02).quadrature(t)[0])(model).shape == (4950, 100)
