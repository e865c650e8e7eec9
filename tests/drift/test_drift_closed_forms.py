"""How far training stays behind data that move by themselves, against closed forms."""

import numpy as np
import pytest

import performative as pf
from performative.populations import Drifting, Gaussian

EPS, V, SD = 0.5, 0.02, 1.0
C = 1 - EPS
MOVING = pf.Problem(pf.losses.squared, Drifting(Gaussian([1.0], EPS, SD), pf.paths.Linear(V)))


def stable(problem, times):
    return np.array([pf.stable_point(problem, time=float(t)) for t in times])


def test_the_stable_point_moves_with_the_data():
    np.testing.assert_allclose(stable(MOVING, (0, 7, 1000)), (1 + V * np.array([0, 7, 1000])) / C, rtol=1e-14)
    assert float(pf.optimal_point(MOVING.at(7.0))) == pytest.approx((1 + 7 * V) / C)
    assert float(pf.stable_point(MOVING.at(3.0).at(9.0))) == (1 + 3 * V) / C  # its clock is stopped


@pytest.mark.parametrize("eps", [pytest.param(-0.5, marks=pytest.mark.slow), 0.5])
def test_full_retraining_lags_by_a_known_distance(eps):
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian([1.0], eps, SD), pf.paths.Linear(V)))
    path = pf.repeated_risk_minimization(problem, theta=2.0, deployments=32)
    now, before = stable(problem, (32, 31))
    assert now - path[-1] == pytest.approx(V / (1 - eps) ** 2, rel=1e-6)
    assert before - path[-1] == pytest.approx(eps * V / (1 - eps) ** 2, rel=1e-6)


def test_retraining_meets_the_people_of_each_deployment():
    # theta_{k+1} = m(k) + eps theta_k, whatever the path.
    path = pf.paths.Periodic([1.0, 3.0], 5.0, 0.3) + pf.paths.Jump(4.0, 2.0)
    weights = np.array([0.25, 0.75])
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian([1.0, 2.0], EPS, SD), path), weights)
    known = [0.5]
    for k in range(8):
        season = np.array([1.0, 3.0]) * (np.sin(2 * np.pi * k / 5 + 0.3) - np.sin(0.3))
        known.append(weights @ (np.array([1.0, 2.0]) + season + 2.0 * (k >= 4)) + EPS * known[-1])
    found = pf.repeated_risk_minimization(problem, theta=0.5, deployments=8)
    np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_slow_people_of_a_moving_town():
    # felt <- felt + s (theta - felt), data m(k) + eps felt: the mean moves, the memory is of models only.
    speed, felt, known = 0.3, 0.0, [0.0]
    problem = pf.Problem(
        pf.losses.squared, pf.populations.Sluggish(Drifting(Gaussian([1.0], EPS, SD), pf.paths.Linear(V)), speed)
    )
    other = pf.Problem(
        pf.losses.squared, Drifting(pf.populations.Sluggish(Gaussian([1.0], EPS, SD), speed), pf.paths.Linear(V))
    )
    for k in range(6):
        felt += speed * (known[-1] - felt)
        known.append(1.0 + V * k + EPS * felt)
    for one in (problem, other):
        np.testing.assert_allclose(pf.repeated_risk_minimization(one, theta=0.0, deployments=6), known, rtol=1e-9)


@pytest.mark.slow
def test_exact_gradient_steps_lag_by_a_known_distance():
    path = pf.repeated_gradient_descent(MOVING, theta=0.0, rate=0.4, deployments=100)
    assert stable(MOVING, [100])[0] - path[-1] == pytest.approx(V / (C**2 * 0.4), rel=1e-6)


def mean_square(problem, algorithm, rounds, repeats, last, **options):
    """E(theta - theta_PS,t)^2 over the last rounds, its standard error from independent repeats, and the record."""
    history = pf.run(
        problem, algorithm, rounds=rounds, theta=2.0, repeats=repeats, dtype="float64", record=pf.Record(risks=False),
        **options,
    )  # fmt: skip
    far = history["distance_to_stable"][:, -last:] ** 2
    assert far.shape == (repeats, last)
    each = far.mean(axis=1)
    return each.mean(), each.std() / np.sqrt(repeats), history


def test_constant_steps_trade_lag_against_noise():
    eta = 0.2
    found, error, history = mean_square(MOVING, pf.p_fedavg(eta), 160, 400, 80)
    known = (V / (C**2 * eta)) ** 2 + eta * SD**2 / (C * (2 - eta * C))
    assert abs(found - known) < 4 * error and error < 0.03 * known
    # Distances are to the point of the time at which the round ends.
    np.testing.assert_allclose(
        history["distance_to_stable"][0, -5:], np.abs(history.theta[0, -5:] - (1 + V * np.arange(156, 161)) / C)
    )


@pytest.mark.parametrize("k", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_federations_trade_lag_against_the_noise_of_the_aggregate(k):
    # Clients that react and move alike, so that the aggregated gradient has one variance everywhere near the point:
    # sum_i E[w_i^2] sigma_i^2 / n; pulls of clients that differ would add that of who takes part.
    eta, n, p, sd = 0.3, 2, np.array([0.5, 0.3, 0.2]), np.array([0.5, 1.0, 2.0])
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian(np.ones(3), EPS, sd), pf.paths.Linear(V)), p)
    who = pf.Full() if k is None else pf.SchemeOne(k)
    found, error, _ = mean_square(problem, pf.p_fedavg(eta, batch=pf.Fixed(n), participation=who), 120, 400, 60)
    square = p**2 if k is None else (1 - 1 / k) * p**2 + p / k
    noise = float(square @ sd**2) / n
    if k is None:
        known = (V / (C**2 * eta)) ** 2 + eta * noise / (C * (2 - eta * C))
    else:
        # Scheme I weighs draws by 1/K each: the weights sum to one, and moves of clients who agree are not scaled.
        known = (V / (C**2 * eta)) ** 2 + eta * noise / (C * (2 - eta * C))
    assert abs(found - known) < 4 * error and error < 0.03 * known
