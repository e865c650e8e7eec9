"""What the data do: moments, best responses, memory, and the rules that expectations are taken by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from client_samples import DRAWS, expectation, one_client, samples
from scipy.optimize import minimize

import performative as pf
from performative.populations import Contaminated, Gaussian, Reweighted, Sluggish, Strategic
from performative.types import Scene

PART_EXAMPLES = {
    "pf.populations.Gaussian": (
        "mean=np.arange(1.0 * N), sensitivity=0.5, scale=1.0",
        "mean=X[:, 0], sensitivity=np.abs(X[:, :3]) / 9, scale=1.0",
    ),
    "pf.populations.Contaminated": (
        "inner=G, fraction=0.1, outlier=G",
        (
            "inner=G, fraction=np.linspace(0, 0.4, N), "
            "outlier=pf.populations.Mixture([pf.populations.Outliers(5.0, 1.0, law) for law in ('normal', "
            "'cauchy')], pf.populations.shares.Constant(np.eye(2)[[0, 1] * 3 + [0]]))"
        ),
    ),
    "pf.populations.Sluggish": ("inner=G, speed=0.5", "inner=G, speed=np.linspace(0.2, 1.0, N)"),
}

pytestmark = pytest.mark.usefixtures("double_precision")
RNG = np.random.default_rng(0)


def test_gaussian_mean_and_variance_follow_the_deployed_model():
    population = Gaussian(mean=[1.0, -2.0], sensitivity=[0.5, -0.3], scale=[1.0, 3.0])
    theta = jnp.asarray(4.0)
    for i, (mean, scale) in enumerate([(1.0 + 0.5 * 4.0, 1.0), (-2.0 - 0.3 * 4.0, 3.0)]):
        z = np.asarray(samples(one_client(population, i), theta))
        assert abs(z.mean() - mean) < 4 * scale / np.sqrt(DRAWS)
        assert abs(z.var() - scale**2) < 4 * scale**2 * np.sqrt(2 / DRAWS)


@pytest.mark.parametrize("shape", [(), (3,), (3, 3)], ids=["number", "vector", "matrix"])
def test_gaussian_sensitivity_is_a_number_a_vector_or_a_matrix(shape):
    sensitivity = RNG.uniform(-1, 1, (4, *shape))
    mean, theta = RNG.standard_normal((4, 3)), jnp.asarray([1.0, -2.0, 0.5])
    quiet = Gaussian(mean, sensitivity, 0.0)
    for i in range(4):
        eps = sensitivity[i]
        shift = eps @ theta if eps.ndim == 2 else eps * theta
        np.testing.assert_allclose(samples(one_client(quiet, i), theta, draws=2)[0], mean[i] + shift, rtol=1e-12)


def test_gaussian_closed_forms_are_roots_of_what_they_solve():
    weights = np.asarray([0.5, 0.3, 0.2])
    mean, matrix = RNG.standard_normal((3, 2)), RNG.uniform(-0.4, 0.4, (3, 2, 2))
    eps_bar = np.tensordot(weights, matrix, 1)
    stable = Gaussian(mean, matrix, 1.0).stable_point(pf.losses.squared, weights)
    np.testing.assert_allclose(stable, weights @ mean + eps_bar @ stable, rtol=1e-12)
    vector = Gaussian(mean, matrix[:, 0], 1.0)

    def risk(t):
        return float(np.sum(weights[:, None] * ((1 - matrix[:, 0]) * t - mean) ** 2))

    best = minimize(risk, np.zeros(2), tol=1e-12)
    np.testing.assert_allclose(vector.optimal_point(pf.losses.squared, weights), best.x, atol=1e-6)
    # eps_bar = 1: there is no stable point; and none is claimed for another loss.
    assert Gaussian([1.0, 2.0], [0.5, 1.5], 1.0).stable_point(pf.losses.squared, np.asarray([0.5, 0.5])) is None
    assert vector.stable_point(pf.losses.negative_revenue, weights) is None


def test_gaussian_nodes_are_exact_where_they_say_so():
    line = one_client(Gaussian([2.0], 0.5, 3.0), 0)
    theta = jnp.asarray(1.0)
    moments = expectation(line, theta, None, lambda z: jnp.stack([z, z**2, z**4]))
    m, s = 2.5, 3.0
    np.testing.assert_allclose(moments, [m, m**2 + s**2, m**4 + 6 * m**2 * s**2 + 3 * s**4], rtol=1e-10)
    plane = one_client(Gaussian(np.asarray([[1.0, 2.0]]), 0.0, 2.0), 0)
    second = expectation(plane, jnp.zeros(2), None, lambda z: jnp.outer(z, z))
    np.testing.assert_allclose(second, np.outer([1, 2], [1, 2]) + 4 * np.eye(2), rtol=1e-10)


X, Y = RNG.standard_normal((2, 5, 4)), RNG.integers(0, 2, (2, 5))


@pytest.mark.parametrize("features", [None, (0, 2)])
@pytest.mark.parametrize("size", [1.0, 1e-4])
@pytest.mark.parametrize("response", ["linear", "evade"])
def test_strategic_people_maximize_the_stated_utility(response, size, features):
    strength = np.asarray([0.7, 2.0])
    population = Strategic(X, Y, strength, features=features, response=response)
    theta = size * np.asarray([0.3, -1.0, 0.5, 0.8])
    movable = np.isin(np.arange(4), range(4) if features is None else features)
    for client, row in ((0, 0), (0, 1), (1, 3)):
        x_bar, y = X[client, row], Y[client, row]
        pull = theta if response == "linear" else y * theta / max(1e-3, np.linalg.norm(theta))

        def loss(move, x_bar=x_bar, pull=pull, beta=strength[client]):
            # Utility -pull.x - |x - x_bar|^2 / (2 strength), with the other features where they were.
            step = np.where(movable, move, 0.0)
            return pull @ (x_bar + step) + step @ step / (2 * beta)

        best = minimize(loss, np.zeros(4), tol=1e-12).x
        got, label = one_client(population, client).sample(jnp.asarray(row, jnp.int32), None, jnp.asarray(theta))
        np.testing.assert_allclose(got, x_bar + np.where(movable, best, 0.0), atol=1e-6)
        assert int(label) == y
        assert np.all(np.asarray(got)[~movable] == x_bar[~movable])


def test_strategic_clients_hold_only_their_own_rows():
    population = Strategic(X, Y, 0.0, count=[2, 5])
    for client, count in ((0, 2), (1, 5)):
        mine = one_client(population, client)
        rows = np.asarray(mine.draw(jax.random.key(0), (DRAWS,), jnp.zeros(4)))
        drawn = np.bincount(rows, minlength=5)
        assert drawn[count:].sum() == 0
        assert np.all(np.abs(drawn[:count] - DRAWS / count) < 4 * np.sqrt(DRAWS / count))
        mean = expectation(mine, jnp.zeros(4), None, lambda z: z[0])
        np.testing.assert_allclose(mean, X[client, :count].mean(axis=0), rtol=1e-12)


def test_contaminated_data_hold_the_stated_fraction_of_outliers():
    clean, dirty = Gaussian([1.0, 2.0], 0.5, 1.0), Gaussian([100.0, 50.0], 0.0, 1.0)
    mine = one_client(Contaminated(clean, [0.2, 0.05], dirty), 1)
    theta = jnp.asarray(4.0)
    world = mine.init(Scene(theta, pf.losses.squared))
    z = np.asarray(samples(mine, theta, world))
    strays = np.mean(z > 25)
    assert abs(strays - 0.05) < 4 * np.sqrt(0.05 * 0.95 / DRAWS)
    assert abs(z[z < 25].mean() - 4.0) < 4 / np.sqrt(0.95 * DRAWS)
    for within in (True, False):
        moments = expectation(mine, theta, world, lambda z: jnp.stack([z, z**2]), within=within)
        np.testing.assert_allclose(moments, [0.95 * 4 + 0.05 * 50, 0.95 * 17 + 0.05 * 2501], rtol=1e-10)


def test_sluggish_worlds_feel_a_model_that_trails():
    mine = one_client(Sluggish(Gaussian([1.0, 2.0], 0.5, 0.0), [0.25, 1.0]), 0)
    world = mine.init(Scene(jnp.asarray(0.0), pf.losses.squared))
    felt = 0.0
    for theta in (4.0, 4.0, -1.0):
        world = mine.deploy(world, Scene(jnp.asarray(theta), pf.losses.squared))
        felt += 0.25 * (theta - felt)
        np.testing.assert_allclose(samples(mine, jnp.asarray(theta), world, draws=1)[0], 1.0 + 0.5 * felt, rtol=1e-12)
    for _ in range(200):
        world = mine.deploy(world, Scene(jnp.asarray(3.0), pf.losses.squared))
    settled = mine.settle(Scene(jnp.asarray(3.0), pf.losses.squared))
    np.testing.assert_allclose(world[0][0], settled[0][0], rtol=1e-12)
    np.testing.assert_allclose(samples(mine, jnp.asarray(9.0), settled, draws=1)[0], 1.0 + 0.5 * 3.0, rtol=1e-12)


def test_sluggish_memory_of_speed_one_is_none():
    inner = Strategic(X, Y, 0.5)
    mine, plain = one_client(Sluggish(inner, 1.0), 0), one_client(inner, 0)
    theta = jnp.asarray(RNG.standard_normal(4))
    world = mine.deploy(mine.init(Scene(jnp.zeros(4), pf.losses.logistic())), Scene(theta, pf.losses.logistic()))
    row = jnp.asarray(2, jnp.int32)
    np.testing.assert_array_equal(mine.sample(row, world, theta)[0], plain.sample(row, None, theta)[0])


LOSS = pf.losses.cross_entropy(pf.losses.linear_scores)
# Client 0 holds classes 0 and 2 only; client 1 all three, and they come in no order.
CLASSES = np.asarray([[2, 0, 0, 2, 0, 0], [1, 2, 0, 1, 1, 0]])
IMAGES = RNG.standard_normal((2, 6, 4))


def class_weights(client, theta, temperature):
    """softmax(temperature * mean loss of each class), by hand; classes that are not there weigh 0."""
    scores = IMAGES[client] @ theta.T
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(6), CLASSES[client]]
    means = [losses[CLASSES[client] == k].mean() if np.any(CLASSES[client] == k) else -np.inf for k in range(3)]
    powers = np.exp(temperature * np.asarray(means))
    return powers / powers.sum()


def test_reweighted_classes_follow_their_losses():
    population = Reweighted(IMAGES, CLASSES, temperature=[2.0, 0.5])
    theta = RNG.standard_normal((3, 4))
    for client, temperature in enumerate((2.0, 0.5)):
        mine = one_client(population, client)
        start = mine.init(Scene(jnp.asarray(theta), LOSS))
        np.testing.assert_allclose(start, np.bincount(CLASSES[client], minlength=3) / 6, rtol=1e-12)
        world = mine.deploy(start, Scene(jnp.asarray(theta), LOSS))
        expected = class_weights(client, theta, temperature)
        np.testing.assert_allclose(world, expected, rtol=1e-10)
        x, y = samples(mine, jnp.asarray(theta), world)
        drawn = np.bincount(np.asarray(y), minlength=3)
        assert np.all(np.abs(drawn - DRAWS * expected) <= 4 * np.sqrt(DRAWS * expected * (1 - expected)))
        # Within a class every row is as likely as the next, and keeps its own label.
        rows = np.argmax(np.all(np.asarray(x)[:, None] == IMAGES[client], axis=2), axis=1)
        np.testing.assert_array_equal(CLASSES[client][rows], y)
        share = (expected / np.maximum(np.bincount(CLASSES[client], minlength=3), 1))[CLASSES[client]]
        counts = np.bincount(rows, minlength=6)
        assert np.all(np.abs(counts - DRAWS * share) < 4 * np.sqrt(DRAWS * share * (1 - share)))
    assert class_weights(0, theta, 2.0)[1] == 0.0


@pytest.mark.slow
def test_reweighted_nodes_are_exact_within_a_world_and_come_close_without():
    mine = one_client(Reweighted(IMAGES, CLASSES, 2.0), 1)
    theta = jnp.asarray(RNG.standard_normal((3, 4)))
    world = mine.settle(Scene(theta, LOSS))

    def label(z):
        return jax.nn.one_hot(z[1], 3)

    weights = np.asarray(world)
    np.testing.assert_allclose(expectation(mine, theta, world, label), weights, rtol=1e-12)
    share = expectation(mine, theta, world, label, count=4096, within=False)
    assert np.all(np.abs(share - weights) < 4 * np.sqrt(weights * (1 - weights) / 4096))


def test_a_table_of_keys_can_be_wrapped():
    """A population with `sample` only, whose noise is a key, inside both wrappers."""

    class Echo(pf.populations.AbstractPopulation):
        level: np.ndarray = pf.per_client()

        def sample(self, noise, world, theta):
            return self.level + theta + jax.random.normal(noise)

    inner = Sluggish(Echo(np.asarray([1.0, 2.0])), 0.5)
    mine = one_client(Contaminated(inner, 0.5, Gaussian(10.0, 0.0, 0.0)), 1)
    theta = jnp.asarray(1.0)
    world = mine.settle(Scene(theta, pf.losses.squared))
    for within in (True, False):
        mean = expectation(mine, theta, world, lambda z: z, count=1024, within=within)
        assert abs(mean - (0.5 * 3.0 + 0.5 * 10.0)) < 4 * 0.5 / np.sqrt(1024)
