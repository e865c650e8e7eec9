"""Stable and optimal points of Zheng et al. (2024): closed forms against numerical solves and written-out risks."""

import numpy as np
import pytest
from scipy import optimize

import performative as pf
from performative.populations import Contaminated, Gaussian, Mixture, Outliers, Pricing, Regression, Sluggish
from performative.populations.shares import Budgets, Constant, Linear, Losses

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
WEIGHTS = np.asarray([0.5, 0.3, 0.2])
REVENUE = pf.losses.negative_revenue


def assert_solved(loss, population, weights=WEIGHTS, ways=("stable", "optimal")):
    """Closed forms agree with the numerical solves, and pass those solvers' own check of the gradient."""
    plain = pf.Problem(loss, population, weights)
    blind = pf.Problem(loss, Contaminated(population, 0.0, population), weights)
    for way in ways:
        solve = getattr(pf, f"{way}_point")
        closed, found = solve(plain, report=True), solve(blind, report=True)
        assert closed.method == "closed form" and found.method != "closed form"
        np.testing.assert_allclose(closed.theta, found.theta, rtol=1e-7, atol=1e-8)


def revenue_points(demand, sensitivity):
    """theta_PS and theta_PO of mean demand m - G theta, by root search and by maximizing theta.(m - G theta)."""
    m, G = WEIGHTS @ demand, np.tensordot(WEIGHTS, sensitivity, 1)
    stable = optimize.root(lambda t: m - G @ t, np.zeros(len(m)), tol=1e-13).x
    optimal = optimize.minimize(lambda t: -t @ (m - G @ t), np.zeros(len(m)), tol=1e-12).x
    return stable, optimal


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)], ids=["number", "vector", "matrix"])
def test_prices(shape):
    demand = RNG.uniform(6, 7, (3, 2))
    sensitivity = RNG.uniform(1, 3, (3, *shape))
    if len(shape) == 2:
        sensitivity = sensitivity / 4 + 2 * np.eye(2)  # goods that stand in for each other, not evenly
    wide = sensitivity if len(shape) == 2 else sensitivity.reshape(3, -1, 1) * np.eye(2)
    population = Pricing(demand, sensitivity, 1.0)
    stable, optimal = revenue_points(demand, wide)
    np.testing.assert_allclose(population.stable_point(REVENUE, WEIGHTS), stable, rtol=1e-9)
    np.testing.assert_allclose(population.optimal_point(REVENUE, WEIGHTS), optimal, atol=1e-6)
    halved = np.allclose(optimal, stable / 2, atol=1e-4)
    assert halved == (len(shape) < 2)  # half of it only where the goods are even


def test_one_price_numerically():
    population = Pricing(RNG.uniform(6, 7, 3), RNG.uniform(1, 3, 3), 1.0)
    assert_solved(REVENUE, population)
    # Mean estimation attracts retraining only below sensitivity 1.
    assert_solved(pf.losses.squared, Pricing(RNG.uniform(6, 7, 3), RNG.uniform(0, 0.9, 3), 1.0))
    slow = Sluggish(population, 0.5)
    np.testing.assert_array_equal(slow.optimal_point(REVENUE, WEIGHTS), population.optimal_point(REVENUE, WEIGHTS))


def test_prices_without_points():
    falls, rises = Pricing([1.0, 2.0, 3.0], 1.0, 1.0), Pricing([1.0, 2.0, 3.0], -1.0, 1.0)
    assert rises.optimal_point(REVENUE, WEIGHTS) is None  # revenue has no maximum
    np.testing.assert_allclose(rises.stable_point(REVENUE, WEIGHTS), -1.7, rtol=1e-12)
    flat = Pricing([1.0, 2.0, 3.0], [1.0, 0.0, -2.5], 1.0)  # G = 0
    assert flat.stable_point(REVENUE, WEIGHTS) is None and flat.optimal_point(REVENUE, WEIGHTS) is None
    # G + G^T has the eigenvalues 2 +- 3: a saddle, though G itself is regular.
    saddle = Pricing(np.ones((3, 2)), np.tile([[1.0, 3.0], [0.0, 1.0]], (3, 1, 1)), 1.0)
    assert saddle.optimal_point(REVENUE, WEIGHTS) is None
    np.testing.assert_allclose(saddle.stable_point(REVENUE, WEIGHTS), [-2.0, 1.0], rtol=1e-12)
    assert falls.stable_point(pf.losses.ridge(), WEIGHTS) is None
    # As Gaussian with the sensitivity turned round.
    mirror = Gaussian([1.0, 2.0, 3.0], -1.0, 1.0)
    for way in ("stable_point", "optimal_point"):
        squared = getattr(falls, way)(pf.losses.squared, WEIGHTS)
        np.testing.assert_array_equal(squared, getattr(mirror, way)(pf.losses.squared, WEIGHTS))


@pytest.mark.parametrize(("alpha", "printed"), [(0.0, 5.56), (0.25, 5.59), (0.5, 5.67)])
def test_table_1(alpha, printed):
    """y = (a0 + gamma theta) x + noise of Izzo et al., plus and not minus; ten clients on the midpoint grid.

    The noise 2.0333 is 61/30. Printed is where runs ended; the optimum cannot lie above, but for rounding.
    """
    noise = 61 / 30
    gamma = 5 / 3 + alpha * (np.arange(10) - 4.5) / 5
    problem = pf.Problem(pf.losses.ridge(10 / 3), Regression(5 / 3, 1.0, 5 / 3, -gamma, noise))
    optimal = pf.optimal_point(problem, report=True)

    def risk(theta):
        miss = (1 - gamma) * theta - 5 / 3
        return np.mean(miss**2 * (1 + 25 / 9) + noise**2 + 10 / 3 * theta**2) / 2

    by_hand = optimize.minimize_scalar(risk, tol=1e-12)
    np.testing.assert_allclose(optimal.theta, by_hand.x, atol=1e-7)
    np.testing.assert_allclose(optimal.risk, by_hand.fun, rtol=1e-10)
    assert printed - 0.015 < optimal.risk < printed + 0.005
    if alpha == 0:
        assert round(float(optimal.theta), 6) == -0.837438 and round(optimal.risk, 6) == 5.556549
    # The stable point leaves the reaction out: S (A theta - slope) + penalty theta = 0.
    S, slope = 34 / 9, 5 / 3
    stable = S * slope / (S * (1 - gamma.mean()) + 10 / 3)
    np.testing.assert_allclose(
        problem.population.stable_point(problem.loss, problem.client_weights), stable, rtol=1e-12
    )


def ridge_risk(data, theta, deployed, penalty):
    """The performative ridge risk over people of flesh and blood: x, normal noise n and coefficients a client."""
    total = 0.0
    for p, (x, n, slope, matrix) in zip(WEIGHTS, data, strict=True):
        y = x @ (slope - matrix @ deployed) + n
        total += p * np.mean((x @ theta - y) ** 2) / 2
    return total + penalty * theta @ theta / 2


@pytest.mark.parametrize("kind", ["numbers", "vectors", "matrices"])
def test_regression_of_vectors(kind):
    """Against minimizers of the risk over a finite sample, whose own mean and covariance the population is given."""
    d, n = 3, 400
    x = RNG.standard_normal((3, n, d)) @ RNG.standard_normal((3, d, d)) + RNG.standard_normal((3, 1, d))
    slope = RNG.standard_normal((3, d))
    given = {
        "numbers": RNG.uniform(0, 1, 3),
        "vectors": RNG.uniform(0, 1, (3, d)),
        "matrices": RNG.uniform(-0.5, 0.5, (3, d, d)),
    }[kind]
    matrices = [np.diag(np.broadcast_to(g, d)) if g.ndim < 2 else g for g in given]
    # Noise without a trace of x, so that the sample has the moments that the population assumes.
    noise = RNG.standard_normal((3, n))
    noise = np.stack([e - f @ np.linalg.lstsq(f, e, rcond=None)[0] for f, e in zip(x, noise, strict=True)])
    mean = x.mean(axis=1)
    cov = np.stack([np.cov(f, rowvar=False, bias=True) for f in x])
    population = Regression(mean, cov, slope, given, np.sqrt(np.mean(noise**2, axis=1)))
    data = list(zip(x, noise, slope, matrices, strict=True))
    loss = pf.losses.ridge(0.7)
    optimal = optimize.minimize(lambda t: ridge_risk(data, t, t, 0.7), np.zeros(d), tol=1e-12).x
    np.testing.assert_allclose(population.optimal_point(loss, WEIGHTS), optimal, atol=1e-6)

    def decoupled_gradient(t):
        # Central differences are exact for a quadratic, up to rounding.
        sides = [[ridge_risk(data, t + sign * step, t, 0.7) for step in np.eye(d)] for sign in (1, -1)]
        return (np.asarray(sides[0]) - np.asarray(sides[1])) / 2

    stable = optimize.root(decoupled_gradient, np.zeros(d), tol=1e-13).x
    np.testing.assert_allclose(population.stable_point(loss, WEIGHTS), stable, atol=1e-8)


@pytest.mark.slow
def test_regression_numerically():
    assert_solved(pf.losses.ridge(0.5), Regression([1.0, 2.0, -1.0], 0.5, [1.0, 3.0, 2.0], [0.5, -0.2, 1.0], 0.3))
    cov = np.asarray([[1.0, 0.5], [0.5, 2.0]]) * np.asarray([1.0, 2.0, 0.5])[:, None, None]
    matrix = RNG.uniform(-0.4, 0.4, (3, 2, 2))
    assert_solved(pf.losses.ridge(0.5), Regression(RNG.standard_normal((3, 2)), cov, 1.0, matrix, 0.3))


def test_regression_without_points():
    # 1 + sensitivity = 0: the data follow theta wherever it goes, and without a penalty all theta are alike.
    loose = Regression(1.0, 1.0, 2.0, -1.0, 1.0)
    one = np.ones(1)
    for way in ("stable_point", "optimal_point"):
        assert getattr(loose, way)(pf.losses.ridge(), one) is None
        np.testing.assert_allclose(getattr(loose, way)(pf.losses.ridge(2.0), one), [2.0, 0.0][way == "optimal_point"])
        assert getattr(loose, way)(pf.losses.logistic(), one) is None
    with pytest.raises(ValueError, match="penalty must not be negative"):
        pf.losses.ridge(-1.0)


def shop(first, second, level=(0.5, 0.5), slope=(0.5, -0.5)):
    """Two groups of buyers with fixed demands, who stay by the price."""
    return Mixture((Gaussian(first, 0.0, 0.5), Pricing(second, 0.0, 0.5)), Linear(level, slope))


def test_appendix_d_2_2():
    """PS = -(a1 + a2)/(a1 - a2), PO half of it: the printed signs are wrong."""
    a1, a2 = -0.5, 0.3
    population, one = shop(a1, a2), np.ones(1)
    np.testing.assert_allclose(population.stable_point(REVENUE, one), -(a1 + a2) / (a1 - a2), rtol=1e-12)
    np.testing.assert_allclose(population.optimal_point(REVENUE, one), -(a1 + a2) / (a1 - a2) / 2, rtol=1e-12)
    assert_solved(REVENUE, population, one)

    def revenue(theta):
        first = np.clip(0.5 + 0.5 * theta, 0, 1)
        return theta * (first * a1 + (1 - first) * a2)

    grid = np.linspace(-5, 5, 100_001)
    np.testing.assert_allclose(grid[np.argmax(revenue(grid))], population.optimal_point(REVENUE, one), atol=1e-4)
    # The paper's own a1 = -a2 = 0.5 puts both at 0, and revenue is least there: no maximum.
    even = shop(0.5, -0.5)
    assert float(even.stable_point(REVENUE, one)) == 0.0 and even.optimal_point(REVENUE, one) is None


def test_mixtures_of_clients():
    first, second, tilt = np.asarray([-0.5, -0.3, -0.1]), np.asarray([0.3, 0.6, 0.2]), np.asarray([0.5, 0.2, 0.4])
    level = np.stack([0.4 + 0.0 * tilt, 0.6 + 0.0 * tilt], axis=1)
    population = shop(first, second, level, np.stack([tilt, -tilt], axis=1))
    assert_solved(REVENUE, population)

    def mean(theta):
        share = np.clip(0.4 + tilt * theta, 0, 1)
        return WEIGHTS @ (share * first + (1 - share) * second)

    np.testing.assert_allclose(population.stable_point(REVENUE, WEIGHTS), optimize.brentq(mean, -1, 1), rtol=1e-9)
    best = optimize.minimize_scalar(lambda t: -t * mean(t), bounds=(-1, 1), options={"xatol": 1e-10})
    np.testing.assert_allclose(population.optimal_point(REVENUE, WEIGHTS), best.x, atol=1e-6)


@pytest.mark.parametrize(
    "population",
    [
        shop([0.1, 0.1, 0.1], 0.5),  # demand stays positive: -A/B = 1.5 lies beyond the simplex, where it is no root
        shop([-0.5, 0.3, -0.5], [0.3, -0.6, 0.3]),  # clients pull both ways: there may be several roots
        shop([0.5, 0.5, 0.5], 0.5),  # B = 0
        Mixture((Gaussian([-0.5] * 3, 0.1, 0.5), Gaussian(0.3, 0.0, 0.5)), Linear([0.5, 0.5], [0.5, -0.5])),
        Mixture((Gaussian([-0.5] * 3, 0.0, 0.5), Outliers(0.3, 0.5)), Linear([0.5, 0.5], [0.5, -0.5])),
        Mixture((Gaussian([-0.5] * 3, 0.0, 0.5), Gaussian(0.3, 0.0, 0.5)), Constant([0.5, 0.5])),
    ],
    ids=["beyond the simplex", "both ways", "flat", "groups react", "another law", "constant"],
)
def test_mixtures_without_a_closed_form(population):
    assert population.stable_point(REVENUE, WEIGHTS) is None
    assert population.optimal_point(REVENUE, WEIGHTS) is None


@pytest.mark.slow
def test_regression_with_dynamic_contribution():
    """Groups y = x + noise and y = 3 x + noise, who leave a model that serves them badly."""
    slope, mean, noise, offset = np.asarray([1.0, 3.0]), np.asarray([1.0, 0.5, 2.0]), 2.0, np.asarray([0.1, 1.0, 0.0])
    second = mean**2 + 1.0
    groups = [Regression(mean, 1.0, s, 0.0, noise) for s in slope]
    problem = pf.Problem(pf.losses.ridge(0.2), Mixture(groups, Losses(slope, second, noise, offset)), WEIGHTS)

    def risk(theta, deployed):
        def errors(at):
            return (at - slope) ** 2 * second[:, None] + noise**2

        kept = (errors(deployed) + offset[:, None])[:, ::-1]
        share = kept / kept.sum(axis=1, keepdims=True)
        return WEIGHTS @ np.sum(share * errors(theta), axis=1) / 2 + 0.1 * theta**2

    grid = np.linspace(-1, 5, 61)
    start = grid[np.argmin([risk(t, t) for t in grid])]
    best = optimize.minimize_scalar(lambda t: risk(t, t), bracket=(start - 0.1, start, start + 0.1), tol=1e-12)
    optimal = pf.optimal_point(problem, report=True)
    np.testing.assert_allclose(optimal.risk, best.fun, rtol=1e-10)
    np.testing.assert_allclose(optimal.theta, best.x, atol=1e-6)
    found = float(pf.stable_point(problem))
    assert abs(risk(found + 1, found) - risk(found - 1, found)) < 1e-8  # exact for a quadratic
    assert abs(found - optimal.theta) > 1e-3


def test_dynamic_contribution_with_positive_demands_has_no_stable_point():
    """Prices that only ever pay: what is learned runs to the end of the box."""
    demand = np.asarray([[1.0, 2.0], [0.5, 1.5], [2.0, 1.0]])
    groups = [Gaussian(demand[:, k], 0.0, 0.5) for k in range(2)]
    population = Mixture(groups, Budgets(demand, 10.0))
    boxed = pf.Problem(REVENUE, population, WEIGHTS, pf.Box(0.0, 4.0))
    np.testing.assert_allclose(pf.stable_point(boxed), 4.0)
