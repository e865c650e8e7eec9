"""Prices, regressions, groups, classes and outliers: what the data do, and the rules expectations are taken by."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy import stats

import performative as pf
from performative.config import load_experiment
from performative.engine.setup import on_device
from performative.families import ClassLocation, Location, Proportions, Slope
from performative.populations import (
    Classes,
    Contaminated,
    Gaussian,
    Mixture,
    Outliers,
    Pricing,
    Regression,
    Reweighted,
    Sluggish,
    Strategic,
)
from performative.populations.base import collect
from performative.populations.nodes import standard_nodes
from performative.populations.shares import AbstractShare, Budgets, Constant, Linear, Losses
from performative.risk import client_risks
from performative.testing.uses import slice_client

RNG = np.random.default_rng(0)
DRAWS = 40_000


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def one_client(population, client):
    """A client's own slice, in float64."""
    return slice_client(on_device(population, jnp.float64), jnp.asarray(client, jnp.int32))


def samples(mine, theta, world=None, draws=DRAWS):
    """Many samples of one client."""
    noise = mine.draw(jax.random.key(5), (draws,), theta)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda u: mine.sample(u, world, theta)))(noise))


def moments(mine, theta, world, function, count=256):
    """E[function(Z)] by the population's own nodes."""
    noise, share = mine.nodes_within(world, theta, count)
    np.testing.assert_allclose(np.sum(share), 1.0, rtol=1e-12)
    each = jax.vmap(lambda u: function(mine.sample(u, world, theta)))(noise)
    return np.tensordot(np.asarray(share), np.asarray(each), 1)


def assert_normal(z, mean, scale):
    """Mean and variance of independent draws, within five standard errors."""
    n = len(z)
    assert np.all(np.abs(z.mean(axis=0) - mean) < 5 * scale / np.sqrt(n))
    assert np.all(np.abs(z.var(axis=0) - scale**2) < 5 * scale**2 * np.sqrt(2 / n))


# Expectations.


def test_nodes_on_the_plane_are_exact_for_high_powers():
    for shape in ((2,), (1, 2)):
        nodes, weights = standard_nodes(shape, 8)
        assert nodes.shape == (32 * 32, *shape)
        x, y = np.asarray(nodes).reshape(-1, 2).T
        # E[X^4] = 3, E[X^6] = 15, E[Y^2] = 1.
        np.testing.assert_allclose(np.sum(np.asarray(weights) * x**4 * y**6), 45.0, rtol=1e-11)
        np.testing.assert_allclose(np.sum(np.asarray(weights) * x**3 * y**2), 0.0, atol=1e-11)


# Pricing.


@pytest.mark.parametrize("shape", [(), (3,), (3, 3)], ids=["number", "vector", "matrix"])
def test_demand_falls_with_prices(shape):
    demand, sensitivity = RNG.uniform(5, 7, (4, 3)), RNG.uniform(0, 2, (4, *shape))
    theta = np.asarray([1.0, -2.0, 0.5])
    population = Pricing(demand, sensitivity, [1.0, 2.0, 0.0, 3.0])
    assert population.model_shape() == (3,) and population.family == Location() and population.smooth
    for i, scale in ((1, 2.0), (2, 0.0)):
        fall = sensitivity[i] @ theta if len(shape) == 2 else sensitivity[i] * theta
        z = samples(one_client(population, i), jnp.asarray(theta))
        if scale == 0:
            np.testing.assert_allclose(z[0], demand[i] - fall, rtol=1e-12)
        else:
            assert_normal(z, demand[i] - fall, scale)


# Regression.


def test_outcomes_follow_the_listed_price():
    population = Regression([5 / 3, 1.0], [1.0, 4.0], [5 / 3, 2.0], [-5 / 3, 0.5], [2.0333, 0.1])
    assert population.model_shape() == () and population.family == Slope() and population.smooth
    theta = 0.7
    for i, (mean, spread, slope, noise) in enumerate(
        [(5 / 3, 1.0, 5 / 3 + 5 / 3 * theta, 2.0333), (1.0, 2.0, 2.0 - 0.5 * theta, 0.1)]
    ):
        mine = one_client(population, i)
        x, y = samples(mine, jnp.asarray(theta))
        assert x.shape == y.shape == (DRAWS,)
        assert_normal(x, mean, spread)
        assert_normal(y - slope * x, 0.0, noise)
        assert abs(np.corrcoef(x, y - slope * x)[0, 1]) < 5 / np.sqrt(DRAWS)
        exact = moments(mine, jnp.asarray(theta), None, lambda z: jnp.stack([z[0] ** 2, z[0] * z[1], z[1] ** 2]))
        second = mean**2 + spread**2
        np.testing.assert_allclose(exact, [second, slope * second, slope**2 * second + noise**2], rtol=1e-10)


@pytest.mark.parametrize("kind", ["variance", "variances", "covariance"])
def test_features_have_the_stated_covariance(kind):
    half = RNG.standard_normal((2, 3, 3))
    given = {"variance": [0.5, 2.0], "variances": half[:, 0] ** 2, "covariance": half @ half.transpose(0, 2, 1)}[kind]
    cov = {"variance": 2.0 * np.eye(3), "variances": np.diag(half[1, 0] ** 2), "covariance": half[1] @ half[1].T}[kind]
    mean, slope, matrix = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3, 3))
    theta = RNG.standard_normal(3)
    mine = one_client(Regression(mean, given, slope, matrix, 0.5), 1)
    follow = slope[1] - matrix[1] @ theta

    def second(z):
        both = jnp.append(z[0], z[1])
        return jnp.outer(both, both)

    # Quadratic in the randomness, hence exact with whitened draws too.
    exact = moments(mine, jnp.asarray(theta), None, second)
    S = cov + np.outer(mean[1], mean[1])
    np.testing.assert_allclose(exact[:3, :3], S, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(exact[3, :3], S @ follow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(exact[3, 3], follow @ S @ follow + 0.25, rtol=1e-9)
    x, y = samples(mine, jnp.asarray(theta))
    assert_normal(x, mean[1], np.sqrt(np.diag(cov)))
    assert_normal(y - x @ follow, 0.0, 0.5)


# Shares.


def test_shares_by_their_formulas():
    theta = 0.3
    cases = {
        "D.2.2": (Linear([0.5, 0.5], [0.5, -0.5]), [0.65, 0.35]),
        "three": (Linear([0.2, 0.3, 0.5], [1.0, -0.5, -0.5]), [0.5, 0.15, 0.35]),
        "beyond": (Linear([0.9, 0.1], [0.5, -0.5]), [1.0, 0.0]),
        "constant": (Constant([0.1, 0.2, 0.7]), [0.1, 0.2, 0.7]),
        "budgets": (Budgets([2.0, 5.0], 3.0), np.asarray([2.4, 1.5]) / 3.9),
        "spent": (Budgets([20.0, 5.0], 3.0), [0.0, 1.0]),
        "all spent": (Budgets([20.0, 50.0], 3.0), [0.5, 0.5]),
        # l = (0.49, 7.29) * 2 + 4, offset 1: the group that is served worse shrinks.
        "losses": (Losses([1.0, 3.0], 2.0, 2.0, 1.0), np.asarray([19.58, 5.98]) / 25.56),
    }
    for name, (share, wanted) in cases.items():
        got = share(jnp.asarray(theta))
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15, err_msg=name)
        assert share.groups == len(wanted) and share.reacts == (name != "constant")


def test_shares_of_clients_and_of_vectors():
    demand, level = RNG.uniform(0, 1, (4, 2, 3)), np.asarray([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0], [0.0, 1.0]])
    theta = np.asarray([1.0, 0.5, 2.0])
    budgets, still = Budgets(demand, [5.0, 6.0, 7.0, 8.0]), Constant(level)
    for i in range(4):
        left = 5.0 + i - demand[i] @ theta
        np.testing.assert_allclose(one_client(budgets, i)(jnp.asarray(theta)), left / left.sum(), rtol=1e-12)
        np.testing.assert_allclose(one_client(still, i)(jnp.asarray(theta)), level[i], rtol=1e-12)
    slope = np.stack([demand[:, 0], -demand[:, 0]], axis=1) / 10
    moved = one_client(Linear(level, slope), 1)(jnp.asarray(theta))
    np.testing.assert_allclose(moved, level[1] + slope[1] @ theta, rtol=1e-12)
    with pytest.raises(ValueError, match=r"Budgets: demand has shape \(\) a group, theta \(3,\).*\[N, K, d\]"):
        Budgets([1.0, 2.0], 3.0)(jnp.asarray(theta))


# Mixture.


MEANS = np.asarray([[0.5, -0.5], [1.0, -2.0], [2.0, -1.0]])
PAIR = tuple(Gaussian(MEANS[:, k], 0.0, 0.5) for k in range(2))


def test_groups_come_in_their_shares():
    population = Mixture(PAIR, Linear([0.5, 0.5], [0.5, -0.5]))
    assert population.clients == 3 and population.family == Proportions(2) and not population.smooth
    theta, mine = jnp.asarray(0.4), one_client(population, 1)
    world = mine.init(theta, pf.losses.squared)
    noise = mine.draw(jax.random.key(1), (DRAWS,), theta)
    batch = jax.jit(lambda noise: collect(mine, noise, None, world, theta))(noise)
    group, z = np.asarray(batch.group), np.asarray(batch.z)
    assert group.dtype == np.int32
    assert abs(np.mean(group == 0) - 0.7) < 5 * np.sqrt(0.7 * 0.3 / DRAWS)
    for k in range(2):
        assert_normal(z[group == k], MEANS[1, k], 0.5)
    exact = moments(mine, theta, world, lambda z: jnp.stack([z, z**2]))
    np.testing.assert_allclose(exact, [0.7 * 1.0 - 0.3 * 2.0, 0.7 * 1.25 + 0.3 * 4.25], rtol=1e-12)


def test_the_risk_of_a_mixture_and_its_derivatives_are_exact():
    """Against the same risk written out, at a price where one client's first group has spent its budget."""
    demand, budget = np.asarray([[0.5, 0.2], [1.0, 2.0], [4.0, 1.0]]), np.asarray([3.0, 5.0, 6.0])
    groups = tuple(Pricing(demand[:, k], 0.3 * k, 0.5) for k in range(2))
    problem = on_device(pf.Problem(pf.losses.negative_revenue, Mixture(groups, Budgets(demand, budget))), jnp.float64)

    def by_hand(theta, deployed):
        left = np.maximum(budget[:, None] - deployed * demand, 0)
        mean = demand - deployed * np.asarray([0.0, 0.3])
        return -theta * np.sum(left / left.sum(axis=1, keepdims=True) * mean, axis=1)

    both = jax.jit(jax.jacobian(lambda at: client_risks(problem, at[0], at[1])))
    for theta in (0.7, 1.9):
        risk = client_risks(problem, jnp.asarray(theta), jnp.asarray(theta))
        np.testing.assert_allclose(risk, by_hand(theta, theta), rtol=1e-12)
        step = 1e-6
        slopes = [
            (by_hand(theta + step, theta) - by_hand(theta - step, theta)) / (2 * step),
            (by_hand(theta, theta + step) - by_hand(theta, theta - step)) / (2 * step),
        ]
        np.testing.assert_allclose(both(jnp.asarray([theta, theta])), np.transpose(slopes), rtol=1e-7, atol=1e-9)


def test_groups_may_hold_tables_and_memories():
    x, y = RNG.standard_normal((2, 5, 3)), RNG.integers(0, 2, (2, 5))
    slow = Sluggish(Strategic(x, y, 0.5), 0.25)
    population = Mixture([slow, Strategic(x[:, :2], y[:, :2], 0.0)], Constant([[0.25, 0.75], [1.0, 0.0]]))
    assert population.capacity is None and population.model_shape() == (3,)
    assert population.smooth and population.family is None
    assert not Mixture((Reweighted(x, y, 1.0),), Constant([1.0])).smooth
    mine, loss = one_client(population, 0), pf.losses.logistic()
    theta = RNG.standard_normal(3)
    world = mine.deploy(mine.init(jnp.zeros(3), loss), jnp.asarray(theta), loss)
    mean = moments(mine, jnp.asarray(theta), world, lambda z: z[0])
    felt = x[0].mean(axis=0) - 0.5 * 0.25 * theta
    np.testing.assert_allclose(mean, 0.25 * felt + 0.75 * x[0, :2].mean(axis=0), rtol=1e-10)
    settled = moments(mine, jnp.asarray(theta), mine.settle(jnp.asarray(theta), loss), lambda z: z[0])
    np.testing.assert_allclose(settled - mean, -0.25 * 0.5 * 0.75 * theta, rtol=1e-9)


def test_a_mixture_runs_and_can_be_written_in_a_file(tmp_path):
    (tmp_path / "shop.toml").write_text("""
        [problem]
        loss = "negative_revenue"
        domain = {name = "Box", lo = -1.0, hi = 1.0}
        [problem.population]
        name = "Mixture"
        groups = [
            {name = "Gaussian", mean = [-0.5, -0.4, -0.6], sensitivity = 0.0, scale = 0.5},
            {name = "Pricing", demand = 0.3, sensitivity = 0.0, scale = 0.5},
        ]
        share = {name = "Linear", level = [0.5, 0.5], slope = [[0.5, -0.5], [0.4, -0.4], [0.3, -0.3]]}
        [algorithm]
        recipe = "p_fedavg"
        rate = 0.1
        batch = {name = "Fixed", n = 20}
        [run]
        rounds = 200
        repeats = 4
        seed = 1
    """)
    experiment = load_experiment(tmp_path / "shop.toml")
    slope = np.asarray([[0.5, -0.5], [0.4, -0.4], [0.3, -0.3]])
    means = np.asarray([[-0.5, 0.3], [-0.4, 0.3], [-0.6, 0.3]])
    stable = -np.mean(0.5 * means.sum(axis=1)) / np.mean(np.sum(slope * means, axis=1))
    history = experiment.run()
    population = experiment.problem.population
    closed = population.stable_point(pf.losses.negative_revenue, experiment.problem.client_weights)
    np.testing.assert_allclose(closed, stable, rtol=1e-12)
    late = np.asarray(history.theta)[:, 100:].mean()
    # A step has noise 0.1 * sd / sqrt(3 * 20), sd <= 0.75; theta forgets by 1 - 0.1 * B, B = 0.32 a round.
    assert abs(late - stable) < 5 * 0.75 / np.sqrt(3 * 20 * 100 * 4) / 0.32


# Classes.


def test_classes_move_by_their_own_sensitivity():
    mean, sensitivity = np.asarray([[1.0, 1.0], [-1.0, -0.8]]), RNG.uniform(0, 3, (4, 2))
    share = np.asarray([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [1.0, 0.0]])
    population = Classes(mean, sensitivity, 0.5, share)
    assert population.clients == 4 and population.model_shape() == (2,)
    assert population.family == ClassLocation(2) and population.smooth
    theta = np.asarray([0.7, -0.4])
    for i in range(4):
        mine = one_client(population, i)
        x, y = samples(mine, jnp.asarray(theta))
        assert y.dtype == np.int32
        p = share[i, 1]
        assert abs(np.mean(y) - p) <= 5 * np.sqrt(p * (1 - p) / DRAWS)
        for k in np.unique(y):
            assert_normal(x[y == k], mean[k] - sensitivity[i, k] * theta, 0.5)

        def fourth(z):
            return jnp.append(z[0] ** 4, z[1].astype(z[0].dtype))

        centre = mean - sensitivity[i, :, None] * theta
        fourths = centre**4 + 6 * centre**2 * 0.25 + 3 * 0.25**2
        exact = moments(mine, jnp.asarray(theta), None, fourth)
        np.testing.assert_allclose(exact, [*(share[i] @ fourths), p], rtol=1e-10, atol=1e-12)


def test_what_classes_share_is_stored_once_a_client():
    mean = RNG.standard_normal((3, 2))
    shared = Classes(mean, np.ones((5, 3)), 1.0)
    assert shared.mean.shape == (5, 3, 2) and shared.share.shape == (5, 3) and shared.classes == 3
    np.testing.assert_allclose(shared.share, 1 / 3)
    alone = Classes(mean, 2.0, 1.0)
    assert alone.clients == 1
    own = Classes(np.stack([mean, mean + 1]), 2.0, [1.0, 3.0], [0.2, 0.3, 0.5])
    assert own.clients == 2 and own.share.shape == (2, 3)
    np.testing.assert_allclose(samples(one_client(own, 1), jnp.zeros(2), draws=5)[0].shape, (5, 2))


# Strategic by label.


@pytest.mark.parametrize("dtype", [int, float])
@pytest.mark.parametrize("response", ["linear", "evade"])
def test_strength_may_depend_on_the_label(response, dtype):
    x, y = RNG.standard_normal((2, 6, 3)), np.asarray([[0, 1, 0, 1, 1, 0], [1, 1, 0, 0, 1, 0]], dtype)
    strength = np.asarray([[0.1, 3.0], [0.0, 2.0]])
    theta = np.asarray([0.3, -1.0, 0.5])
    by_label = Strategic(x, y, strength, features=(0, 2), response=response)
    for i in range(2):
        mine = one_client(by_label, i)
        for row in range(6):
            plain = Strategic(x, y, strength[:, int(y[i, row])], features=(0, 2), response=response)
            got = mine.sample(jnp.asarray(row, jnp.int32), None, jnp.asarray(theta))
            wanted = one_client(plain, i).sample(jnp.asarray(row, jnp.int32), None, jnp.asarray(theta))
            np.testing.assert_array_equal(got[0], wanted[0])


# Outliers.


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        ("normal", stats.norm()),
        ("uniform", stats.uniform(-1, 2)),
        ("laplace", stats.laplace()),
        ("cauchy", stats.cauchy()),
        ("student3", stats.t(3)),
    ],
)
def test_outliers_follow_their_law_whatever_the_model(law, reference):
    population = Outliers([1.0, 20.0], [1.0, 2.0], law)
    assert population.model_shape() is None and population.clients == 2
    mine = one_client(population, 1)
    for theta in (jnp.asarray(3.0), jnp.asarray([1.0, -7.0])):
        z = samples(mine, theta)
        assert z.shape == (DRAWS, *theta.shape)
        u = np.sort((z.ravel() - 20.0) / 2.0)
        # The largest gap between the empirical and the true distribution; 2.2 / sqrt(n) happens once in 8000.
        ranks = np.arange(1, len(u) + 1) / len(u)
        assert np.max(np.abs(ranks - reference.cdf(u))) < 2.2 / np.sqrt(len(u))
        assert moments(mine, theta, None, lambda z: z) == pytest.approx(np.full(theta.shape, 20.0), rel=1e-12)


def test_outliers_of_vectors_settle_the_shape():
    assert Outliers(np.zeros((4, 3)), 1.0).model_shape() == (3,)
    assert Outliers(0.0, np.ones((4, 3)), "cauchy").model_shape() == (3,)


def test_each_client_has_its_own_fraction_and_law_of_outliers():
    laws = (Outliers([50.0, 60.0, 70.0], 1.0, "uniform"), Outliers([50.0, 60.0, 70.0], 1.0, "laplace"))
    outlier = Mixture(laws, Constant([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    fraction = [0.1, 0.4, 0.0]
    population = Contaminated(Pricing([6.0, 7.0, 6.5], [1.0, 2.0, 3.0], 1.0), fraction, outlier)
    assert population.clients == 3 and population.family == Location() and population.smooth
    theta = jnp.asarray(0.5)
    for i, eps in enumerate(fraction):
        mine = one_client(population, i)
        world = mine.init(theta, pf.losses.squared)
        z = samples(mine, theta, world)
        stray = z > 30
        assert abs(stray.mean() - eps) <= 5 * np.sqrt(eps * (1 - eps) / DRAWS)
        clean = [5.5, 6.0, 5.0][i]
        assert_normal(z[~stray], clean, 1.0)
        if eps:
            far = np.abs(z[stray] - (50.0 + 10 * i))
            # Uniform on (-1, 1) never leaves it; Laplace does with probability 1/e.
            outside = np.mean(far > 1)
            wanted = (0.0, np.exp(-1.0))[i]
            assert abs(outside - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / stray.sum())
        mean = moments(mine, theta, world, lambda z: z)
        np.testing.assert_allclose(mean, (1 - eps) * clean + eps * (50.0 + 10 * i), rtol=1e-12)


# The 0/1 loss.


def test_zero_one_counts_what_a_linear_classifier_gets_wrong():
    theta, x = jnp.asarray([1.0, -2.0]), np.asarray([[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]])  # scores 1, -1, 0
    for label, wanted in ((0, [1, 0, 0]), (1, [0, 1, 1])):
        got = [float(pf.losses.zero_one(theta, (jnp.asarray(row), jnp.asarray(label, jnp.int32)))) for row in x]
        assert got == wanted
    assert float(pf.losses.zero_one(jnp.asarray(-1.0), (jnp.asarray(-2.0), jnp.asarray(1.0)))) == 0.0
    x, y = RNG.standard_normal((2, 50, 3)), RNG.integers(0, 2, (2, 50))
    problem = on_device(pf.Problem(pf.losses.zero_one, Strategic(x, y, 0.2)), jnp.float64)
    theta = RNG.standard_normal(3)
    accuracy = 1 - client_risks(problem, jnp.asarray(theta), jnp.asarray(theta))
    np.testing.assert_allclose(accuracy, np.mean(((x - 0.2 * theta) @ theta > 0) == y, axis=1), rtol=1e-12)


# What is refused.


TABLE = (np.zeros((3, 4, 5)), np.tile([0, 1, 0, 1], (3, 1)))
NAN = float("nan")
BAD = {
    r"Pricing: demand must be finite": lambda: Pricing([1.0, NAN], 1.0, 1.0),
    r"Pricing: demand is empty": lambda: Pricing(np.zeros(0), 1.0, 1.0),
    r"Pricing: scale is a standard deviation and must be >= 0; got -1": lambda: Pricing([1.0], 1.0, -1.0),
    r"Pricing: sensitivity has shape \(2, 3\), but theta has shape \(2,\).*demand, sensitivity and scale": (
        lambda: Pricing(np.zeros((2, 2)), np.zeros((2, 3)), 1.0)
    ),
    r"demand has 2, sensitivity has 3": lambda: Pricing([1.0, 2.0], [1.0, 2.0, 3.0], 1.0),
    r"Regression: noise is a standard deviation and must be >= 0": lambda: Regression([1.0], 1.0, 1.0, 0.0, -1.0),
    r"Regression: noise must be a number or one a client; got shape \(2, 3\)": (
        lambda: Regression(np.zeros((2, 3)), 1.0, 1.0, 0.0, np.ones((2, 3)))
    ),
    r"Regression: features_cov holds variances.*least is -2": lambda: Regression(
        [1.0, 2.0], [1.0, -2.0], 1.0, 0.0, 1.0
    ),
    r"features_cov must hold symmetric positive definite.*client 1 has the eigenvalue": (
        lambda: Regression(np.zeros((2, 2)), np.stack([np.eye(2), np.ones((2, 2)) - 2 * np.eye(2)]), 1.0, 0.0, 1.0)
    ),
    r"features_cov must.*client 0 is not symmetric": (
        lambda: Regression(np.zeros((1, 2)), np.asarray([[[2.0, 1.0], [0.0, 2.0]]]), 1.0, 0.0, 1.0)
    ),
    r"Regression: slope has shape \(2, 3\)": lambda: Regression(np.zeros((2, 2)), 1.0, np.ones((2, 3)), 0.0, 1.0),
    r"Regression: slope must be finite": lambda: Regression([1.0, 2.0], 1.0, [1.0, NAN], 0.0, 1.0),
    r"Mixture: groups must be a tuple of populations": lambda: Mixture(PAIR[0], Constant([1.0])),
    r"Mixture: groups must be populations; groups\[1\] is 3": lambda: Mixture((PAIR[0], 3), Constant([0.5, 0.5])),
    r"share is for 3 groups, but groups has 2": lambda: Mixture(PAIR, Constant([0.2, 0.3, 0.5])),
    r"theta of one shape, but they take groups\[0\] \(\), groups\[1\] \(5,\)": (
        lambda: Mixture((PAIR[0], Strategic(*TABLE, 0.1)), Constant([0.5, 0.5]))
    ),
    r"Mixture: all per-client arrays need one row a client": lambda: Mixture(PAIR, Constant(np.full((4, 2), 0.5))),
    r"Constant: share must not be negative; the least is -0.5": lambda: Constant([1.5, -0.5]),
    r"Constant: share must sum to 1 over the groups; it sums to 0.9": lambda: Constant([[0.5, 0.5], [0.5, 0.4]]),
    r"Constant: share needs one entry for each group": lambda: Constant(0.5),
    r"Constant: share must hold numbers": lambda: Constant(["a", "b"]),
    r"Constant: share must be finite.*index \(1, 0\)": lambda: Constant([[0.5, 0.5], [NAN, 0.5]]),
    r"Linear: slope must sum to 0": lambda: Linear([0.5, 0.5], [0.5, 0.5]),
    r"Linear: level must sum to 1": lambda: Linear([0.5, 0.6], [0.5, -0.5]),
    r"Linear: level and slope need one entry for each group; they have 2 and 3": (
        lambda: Linear([0.5, 0.5], [0.5, -0.5, 0.0])
    ),
    r"Linear: level must be \[K\] or \[N, K\]": lambda: Linear(np.full((2, 2, 2), 0.5), [0.5, -0.5]),
    r"Budgets: budget must be finite": lambda: Budgets([1.0, 2.0], NAN),
    r"Budgets: budget must be a number or one a client; got shape \(2, 2\)": lambda: Budgets(
        [1.0, 2.0], np.ones((2, 2))
    ),
    r"Losses: slope must hold two groups; got 3": lambda: Losses([1.0, 2.0, 3.0], 1.0, 1.0, 0.0),
    r"Losses: offset must not be negative": lambda: Losses([1.0, 2.0], 1.0, 1.0, -0.5),
    r"Classes: mean must be \[C, d\] or \[N, C, d\]; got shape \(3,\)": lambda: Classes(np.zeros(3), 0.0, 1.0),
    r"Classes: sensitivity must be a number or \[N, C\] .*got shape \(2,\)": (
        lambda: Classes(np.zeros((2, 3)), [0.0, 1.0], 1.0)
    ),
    r"mean has 4, sensitivity has 3": lambda: Classes(np.zeros((4, 2, 3)), np.zeros((3, 2)), 1.0),
    r"Classes: scale is a standard deviation and must be >= 0": lambda: Classes(np.zeros((2, 3)), 0.0, -1.0),
    r"Classes: share must be >= 0 and sum to one": lambda: Classes(np.zeros((2, 3)), 0.0, 1.0, [0.5, 0.6]),
    r"Classes: share must be \[C\] or \[N, C\].*got shape \(1, 3\)": (
        lambda: Classes(np.zeros((2, 3)), 0.0, 1.0, [0.2, 0.3, 0.5])
    ),
    r"Strategic: strength must be a number, one a client, or \[clients, 2\].*got shape \(3, 5\)": (
        lambda: Strategic(*TABLE, np.ones((3, 5)))
    ),
    r"Strategic: strength by label needs labels y of 0 and 1; got \[-1, 1\]": (
        lambda: Strategic(TABLE[0], 2 * TABLE[1] - 1, np.ones((3, 2)))
    ),
    r"Outliers: there is no law 'gauss'": lambda: Outliers(0.0, 1.0, "gauss"),
    r"Outliers: there is no law 'laplac'. Did you mean 'laplace'": lambda: Outliers(0.0, 1.0, "laplac"),
    r"Outliers: scale must be >= 0": lambda: Outliers(0.0, -1.0),
    r"Outliers: location must be finite": lambda: Outliers([0.0, NAN], 1.0),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        BAD[message]()


def test_a_share_is_a_module(monkeypatch):
    # The tests' own type checks would speak first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"Mixture: share must be a share such as .*; got \[0.5, 0.5\]"):
        Mixture(PAIR, [0.5, 0.5])


def test_groups_with_other_samples_are_refused_when_they_meet():
    pairs = Mixture((Regression([1.0, 2.0], 1.0, 1.0, 0.0, 1.0), Gaussian([1.0, 2.0], 0.0, 1.0)), Constant([0.5, 0.5]))
    with pytest.raises(
        ValueError, match=r"do not fit together: Mixture: groups need samples of one structure and shape"
    ):
        pf.run(pf.Problem(pf.losses.ridge(), pairs), pf.p_fedavg(rate=0.1), rounds=1)


def test_a_share_of_ones_own():
    class Fashion(AbstractShare):
        pull: float = pf.number()

        @property
        def groups(self):
            return 2

        def __call__(self, theta):
            first = jax.nn.sigmoid(self.pull * theta)
            return jnp.stack([first, 1 - first])

    mine = one_client(Mixture(PAIR, Fashion(2.0)), 0)
    theta = jnp.asarray(0.7)
    mean = moments(mine, theta, (None, None), lambda z: z)
    first = 1 / (1 + np.exp(-1.4))
    np.testing.assert_allclose(mean, first * 0.5 - (1 - first) * 0.5, rtol=1e-12)
