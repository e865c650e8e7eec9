"""Prices, regressions, classes and outliers: what the data do, and the rules expectations are taken by."""

import jax.numpy as jnp
import numpy as np
import pytest
from client_samples import DRAWS, assert_normal, expectation, one_client, samples
from scipy import stats

import performative as pf
from performative._engine.prepare import on_device
from performative._engine.risk import client_risks
from performative.families import ClassLocation, Location, Slope
from performative.populations import (
    Classes,
    Contaminated,
    Mixture,
    Outliers,
    Pricing,
    Regression,
    Strategic,
)
from performative.populations.nodes import standard_nodes
from performative.populations.shares import Constant
from performative.types import Scene

PART_EXAMPLES = {
    "pf.populations.Pricing": (
        {
            "arguments": "demand=np.arange(1.0 * N), sensitivity=0.5, scale=1.0",
            "loss": "pf.losses.negative_revenue",
        },
        {
            "arguments": "demand=X[:, 0], sensitivity=np.abs(X[:, :3]), scale=1.0",
            "loss": "pf.losses.negative_revenue",
        },
    ),
    "pf.populations.Regression": (
        {
            "arguments": (
                "features_mean=np.arange(1.0 * N), features_cov=1.0, slope=np.arange(1.0 * N), sensitivity=0.1, "
                "noise=1.0"
            ),
            "loss": "pf.losses.ridge(0.1)",
        },
        {
            "arguments": (
                "features_mean=X[:, 0], features_cov=np.eye(3) + 0.3 * np.ones((N, 3, 3)), slope=X[:, 1], "
                "sensitivity=X[:, 2], noise=0.5"
            ),
            "loss": "pf.losses.ridge(0.1)",
        },
    ),
    "pf.populations.Classes": (
        {
            "arguments": "mean=X[0, :2], sensitivity=0.5, scale=np.ones(N)",
            "loss": "pf.losses.logistic(0.1)",
        },
        {
            "arguments": "mean=X[0, :2], sensitivity=np.abs(X[:, 0, :2]), scale=0.5, share=[0.3, 0.7]",
            "loss": "pf.losses.logistic(0.1)",
        },
    ),
    "pf.populations.Strategic": (
        {"arguments": "x=X, y=Y, strength=0.5", "loss": "pf.losses.logistic(0.1)"},
        {
            "arguments": "x=X, y=Y, strength=0.5, features=(0, 2), count=[1, 2, 3, 4, 6, 5, 2]",
            "loss": "pf.losses.logistic(0.1)",
        },
        {
            "arguments": "x=X, y=Y, strength=np.abs(X[:, 0, :2]), count=[1, 2, 3, 4, 6, 5, 2]",
            "loss": "pf.losses.logistic(0.1)",
        },
    ),
    "pf.populations.Outliers": (
        {"arguments": "location=np.arange(1.0 * N), scale=1.0", "theta": "0.0"},
        {
            "arguments": "location=np.arange(1.0 * N), scale=2.0, law='student3'",
            "theta": "np.zeros(3)",
        },
    ),
}

pytestmark = pytest.mark.usefixtures("double_precision")
RNG = np.random.default_rng(0)


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
        exact = expectation(mine, jnp.asarray(theta), None, lambda z: jnp.stack([z[0] ** 2, z[0] * z[1], z[1] ** 2]))
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
    exact = expectation(mine, jnp.asarray(theta), None, second)
    S = cov + np.outer(mean[1], mean[1])
    np.testing.assert_allclose(exact[:3, :3], S, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(exact[3, :3], S @ follow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(exact[3, 3], follow @ S @ follow + 0.25, rtol=1e-9)
    x, y = samples(mine, jnp.asarray(theta))
    assert_normal(x, mean[1], np.sqrt(np.diag(cov)))
    assert_normal(y - x @ follow, 0.0, 0.5)


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

        center = mean - sensitivity[i, :, None] * theta
        fourths = center**4 + 6 * center**2 * 0.25 + 3 * 0.25**2
        exact = expectation(mine, jnp.asarray(theta), None, fourth)
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
        pytest.param("uniform", stats.uniform(-1, 2), marks=pytest.mark.slow),
        pytest.param("laplace", stats.laplace(), marks=pytest.mark.slow),
        ("cauchy", stats.cauchy()),
        pytest.param("student3", stats.t(3), marks=pytest.mark.slow),
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
        assert expectation(mine, theta, None, lambda z: z) == pytest.approx(np.full(theta.shape, 20.0), rel=1e-12)


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
        world = mine.init(Scene(theta, pf.losses.squared))
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
        mean = expectation(mine, theta, world, lambda z: z)
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
BAD = {
    r"Pricing: demand must be finite": lambda: Pricing([1.0, np.nan], 1.0, 1.0),
    r"Pricing: demand is empty": lambda: Pricing(np.zeros(0), 1.0, 1.0),
    r"Pricing: scale is a standard deviation and must be >= 0; got -1": lambda: Pricing([1.0], 1.0, -1.0),
    r"Pricing: sensitivity has shape \(2, 3\), but theta has shape \(2,\).*demand, sensitivity and scale": (
        lambda: Pricing(np.zeros((2, 2)), np.zeros((2, 3)), 1.0)
    ),
    r"demand has 2, sensitivity has 3": lambda: Pricing([1.0, 2.0], [1.0, 2.0, 3.0], 1.0),
    r"Regression: noise is a standard deviation and must be >= 0": lambda: Regression([1.0], 1.0, 1.0, 0.0, -1.0),
    r"Regression: noise must be a number or one per client; got shape \(2, 3\)": (
        lambda: Regression(np.zeros((2, 3)), 1.0, 1.0, 0.0, np.ones((2, 3)))
    ),
    r"Regression: features_cov contains variances.*smallest is -2": lambda: Regression(
        [1.0, 2.0], [1.0, -2.0], 1.0, 0.0, 1.0
    ),
    r"features_cov must contain symmetric positive definite.*client 1 has the eigenvalue": (
        lambda: Regression(np.zeros((2, 2)), np.stack([np.eye(2), np.ones((2, 2)) - 2 * np.eye(2)]), 1.0, 0.0, 1.0)
    ),
    r"features_cov must.*client 0 is not symmetric": (
        lambda: Regression(np.zeros((1, 2)), np.asarray([[[2.0, 1.0], [0.0, 2.0]]]), 1.0, 0.0, 1.0)
    ),
    r"Regression: slope has shape \(2, 3\)": lambda: Regression(np.zeros((2, 2)), 1.0, np.ones((2, 3)), 0.0, 1.0),
    r"Regression: slope must be finite": lambda: Regression([1.0, 2.0], 1.0, [1.0, np.nan], 0.0, 1.0),
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
    r"Strategic: strength must be a number, one per client, or \[clients, 2\].*got shape \(3, 5\)": (
        lambda: Strategic(*TABLE, np.ones((3, 5)))
    ),
    r"Strategic: strength by label needs labels y of 0 and 1; got \[-1, 1\]": (
        lambda: Strategic(TABLE[0], 2 * TABLE[1] - 1, np.ones((3, 2)))
    ),
    r"Outliers: there is no law 'gauss'": lambda: Outliers(0.0, 1.0, "gauss"),
    r"Outliers: there is no law 'laplac'. Did you mean 'laplace'": lambda: Outliers(0.0, 1.0, "laplac"),
    r"Outliers: scale must not be negative": lambda: Outliers(0.0, -1.0),
    r"Outliers: location must be finite": lambda: Outliers([0.0, np.nan], 1.0),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        BAD[message]()
