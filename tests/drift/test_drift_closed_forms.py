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


def test_distances_are_to_the_point_of_the_time_at_which_the_round_ends():
    history = pf.run(MOVING, pf.p_fedavg(0.2), 5, theta=2.0, dtype="float64", record=pf.Record(risks=False))
    np.testing.assert_allclose(
        history["distance_to_stable"][0], np.abs(history.theta[0] - (1 + V * np.arange(6)) / C), rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("k", [None, 2])
def test_constant_steps_trade_lag_against_the_noise_of_the_aggregate(k):
    """(v / (c^2 eta))^2 + eta s^2 / (c (2 - eta c)), s^2 = sum_i E[w_i^2] sigma_i^2 / n.

    Clients react and move alike: pulls that differ would add the variance of who takes part.
    """
    eta, n, p, sd, rounds = 0.3, 2, np.array([0.5, 0.3, 0.2]), np.array([0.5, 1.0, 2.0]), 250
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian(np.ones(3), EPS, sd), pf.paths.Linear(V)), p)
    who, square = (pf.Full(), p**2) if k is None else (pf.SchemeOne(k), (1 - 1 / k) * p**2 + p / k)
    found = pf.moments(problem, pf.p_fedavg(eta, batch=pf.Fixed(n), participation=who), rounds, 2.0)
    error = (found.mean[-1] - (1 + V * rounds) / C) ** 2 + found.covariance[-1, 0, 0]
    known = (V / (C**2 * eta)) ** 2 + eta * (square @ sd**2 / n) / (C * (2 - eta * C))
    np.testing.assert_allclose(error, known, rtol=1e-9)
