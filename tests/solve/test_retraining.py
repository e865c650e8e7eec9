"""Retraining to the minimum and by gradient steps: exact iterates, domains, refusals."""

import numpy as np
import pytest
from solve_problems import MEAN, SENSITIVITY, WEIGHTS, Pricing, gaussian
from untold import Untold

import performative as pf
from performative import solve
from performative.populations import Gaussian, Strategic

M, EPS = WEIGHTS @ MEAN, WEIGHTS @ SENSITIVITY


def test_iterates_are_exact():
    path = solve.repeated_risk_minimization(gaussian(), theta=5.0, deployments=6)
    known = [5.0]
    for _ in range(6):
        known.append(M + EPS * known[-1])
    np.testing.assert_allclose(path, known, rtol=1e-14)
    assert path.dtype == np.float64
    steps = solve.repeated_gradient_descent(gaussian(), theta=5.0, rate=0.5, deployments=3)
    fading = solve.repeated_gradient_descent(gaussian(), 5.0, pf.schedules.harmonic(1.0, 2.0), 3)
    for found, eta in ((steps, [0.5, 0.5, 0.5]), (fading, [1 / 2, 1 / 3, 1 / 4])):
        theta = 5.0
        for number in range(3):
            theta -= eta[number] * ((1 - EPS) * theta - M)
            np.testing.assert_allclose(found[number + 1], theta, rtol=1e-14)
    np.testing.assert_array_equal(solve.repeated_gradient_descent(gaussian(), deployments=0), [0.0])


def test_domains():
    boxed = solve.repeated_risk_minimization(gaussian(1.5, pf.Box(-10.0, 10.0)), 0.0, 4)
    np.testing.assert_allclose(boxed, [0.0, 2.3, 5.75, 10.0, 10.0], rtol=1e-12)
    np.testing.assert_allclose(
        solve.repeated_gradient_descent(gaussian(1.5, pf.Box(-3.0, 3.0)), 0.0, 1.0, 3), [0, 2.3, 3, 3]
    )
    mean = np.array([[3.0, 4.0], [3.0, 4.0]])
    ball = pf.Problem(pf.losses.squared, Gaussian(mean, 0.5, 1.0), None, pf.Ball(2.0))
    path = solve.repeated_risk_minimization(ball, None, 2)
    np.testing.assert_allclose(path, [[0, 0], [1.2, 1.6], [1.2, 1.6]], rtol=1e-9, atol=1e-12)
    # A start outside of the domain is brought in first.
    assert solve.repeated_gradient_descent(gaussian(domain=pf.Box(0.0, 1.0)), 7.0, 0.1, 0)[0] == 1.0


def test_prices_need_a_box():
    demand, slope = np.array([[8.0, -1.0], [12.0, -3.0], [4.0, -2.0]]), np.array([1.0, 2.0, 0.5])
    free = pf.Problem(pf.losses.negative_revenue, Pricing(demand[:, 0], slope), WEIGHTS)
    with pytest.raises(ValueError, match=r"deployment 1 .*is unbounded below.*pf\.Box.*nothing-to-retrain-to"):
        solve.repeated_risk_minimization(free)
    # It has a stable point all the same, where the gradient vanishes: small steps settle there.
    root = WEIGHTS @ demand[:, 0] / (WEIGHTS @ slope)
    np.testing.assert_allclose(solve.stable_point(free), root, rtol=1e-12)
    np.testing.assert_allclose(solve.repeated_gradient_descent(free, 0.0, 0.3, 100)[-1], root, rtol=1e-10)
    # In a box the best answer to a price is a corner: demand is positive at 0 and negative at the top.
    boxed = pf.Problem(pf.losses.negative_revenue, Pricing(demand[:, 0], slope), WEIGHTS, pf.Box(0.0, 100.0))
    np.testing.assert_array_equal(solve.repeated_risk_minimization(boxed, 0.0, 3), [0, 100, 0, 100])
    np.testing.assert_allclose(solve.stable_point(boxed), root, rtol=1e-12)
    two = pf.Problem(
        pf.losses.negative_revenue,
        Pricing(demand, slope[:, None]),
        WEIGHTS,
        pf.Box([0.0, -1.0], [1.0, 1.0]),
    )
    np.testing.assert_array_equal(solve.repeated_risk_minimization(two, np.array([0.5, 0.5]), 1)[1], [1.0, -1.0])


def test_no_unique_minimizer_is_refused():
    x = np.random.default_rng(0).normal(size=(2, 20, 1))
    label = (x[..., 0] > 0).astype(int)
    twice = Strategic(np.concatenate([x, x], axis=2), label.astype(float), 0.1)
    with pytest.raises(ValueError, match=r"flat in some direction.*penalty"):
        solve.repeated_risk_minimization(pf.Problem(pf.losses.ridge(0.0), twice))
    separable = Strategic(x, label, 0.1)
    with pytest.raises(ValueError, match="nothing to retrain to"):
        solve.repeated_risk_minimization(pf.Problem(pf.losses.logistic(0.0), separable))
    path = solve.repeated_risk_minimization(pf.Problem(pf.losses.logistic(0.1), separable), None, 2)
    assert np.all(np.isfinite(path))


@pytest.mark.parametrize("deployments", [-1, True])
def test_bad_counts(deployments):
    with pytest.raises(ValueError, match="deployments must be a whole number"):
        solve.repeated_gradient_descent(gaussian(), 0.0, 0.1, deployments)


def test_bad_starts():
    with pytest.raises(ValueError, match="shape"):
        solve.repeated_risk_minimization(gaussian(), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="at least one model"):
        solve.equilibria(gaussian(), starts=[])
    with pytest.raises(ValueError, match="the number to scatter"):
        solve.optimal_point(pf.Problem(pf.losses.squared, Untold(gaussian().population)), starts=-1)


@pytest.mark.parametrize(
    ("k", "eps", "settles"),
    [
        pytest.param(1, -0.9, True, marks=pytest.mark.slow),
        pytest.param(1, -1.1, False, marks=pytest.mark.slow),
        (2, -1.5, True),
        pytest.param(2, -2.2, False, marks=pytest.mark.slow),
    ],
)
def test_the_last_data_sets_settle_between_minus_k_and_one(k, eps, settles):
    """theta_{t+1} = m + eps (theta_t + ... + theta_{t-k+1}) / k, with what there is at the start."""
    problem = pf.Problem(pf.losses.squared, Gaussian([2.0], eps, 1.0))
    path = solve.repeated_risk_minimization(problem, 1.0, 150, snapshots=k)
    known = [1.0]
    for _ in range(20):
        known.append(2.0 + eps * np.mean(known[-k:]))
    np.testing.assert_allclose(path[:21], known, rtol=1e-12)
    gap = abs(path[-1] - 2.0 / (1.0 - eps))
    assert gap < 1e-4 if settles else gap > 1e2


def test_data_sets_are_weighed_the_newest_first_and_remember_their_time():
    weights = np.array([0.5, 0.3, 0.2])
    path = solve.repeated_risk_minimization(gaussian(), 5.0, 6, snapshots=3, snapshot_weights=2.0 * weights)
    known = [5.0]
    for _ in range(6):
        last = np.array(known[:-4:-1])
        known.append(M + EPS * np.average(last, weights=weights[: len(last)]))
    np.testing.assert_allclose(path, known, rtol=1e-13)
    rising = pf.populations.Drifting(Gaussian([2.0], 0.5, 1.0), pf.paths.Linear(1.0))
    path, known = solve.repeated_risk_minimization(pf.Problem(pf.losses.squared, rising), 0.0, 4, snapshots=2), [0.0]
    for t in range(4):
        known.append(np.mean([2.0 + s + 0.5 * known[s] for s in range(max(t - 1, 0), t + 1)]))
    np.testing.assert_allclose(path, known, rtol=1e-13)
    for wrong in ([1.0], [0.0, 1.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="snapshot_weights must be 2"):
            solve.repeated_risk_minimization(gaussian(), snapshots=2, snapshot_weights=wrong)
