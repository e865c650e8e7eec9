"""Exact errors of training that follows a moving target, and the best step and period, against plain recursions."""

import numpy as np
import pytest

from performative.theory import best_period, best_step, drift_error, retraining_error

V, EPS, SD, P = np.array([0.1, -0.02]), np.array([0.2, 0.6]), np.array([1.0, 0.5]), np.array([0.7, 0.3])
CASES = [(0.01, 0.5, 1.0, None), (0.5, -0.5, 0.3, None), (1e-4, 0.9, 2.0, None), (V, EPS, SD, P)]


@pytest.mark.parametrize(("v", "eps", "sd", "p"), CASES)
def test_steps_against_the_recursion(v, eps, sd, p):
    p = np.ones(1) if p is None else p
    v_bar, c, s2 = (float(np.sum(p * x)) for x in (v, 1 - np.asarray(eps), p * np.square(sd) / 3))
    eta, mean, variance = 0.4 / c, 0.0, 0.0
    for _ in range(400):  # u' = (1 - eta c) u - v / c + eta noise
        mean, variance = (1 - eta * c) * mean - v_bar / c, (1 - eta * c) ** 2 * variance + eta**2 * s2
    found = drift_error(v, eps, sd, eta, weights=p, batch=3)
    assert found.lag == pytest.approx(mean**2) and found.noise == pytest.approx(variance)
    assert found.total == found.lag + found.noise


@pytest.mark.parametrize(("v", "eps", "sd", "p"), CASES)
def test_no_step_of_a_grid_is_better(v, eps, sd, p):
    best = best_step(v, eps, sd, weights=p)
    least = drift_error(v, eps, sd, best, weights=p).total
    c = 1 - float(np.sum((np.ones(1) if p is None else p) * eps))
    grid = np.geomspace(1e-3, 1.99, 80) / c
    others = [drift_error(v, eps, sd, eta, weights=p).total for eta in grid]
    assert least <= min(others) * (1 + 1e-9) and min(others) <= least * 1.1


@pytest.mark.parametrize("period", [1, 2, 7])
def test_retraining_against_the_recursion(period):
    v, eps, rows = 0.1, 0.5, 4
    rng, repeats = np.random.default_rng(0), 20000
    theta, squares = np.zeros(repeats), []
    for j in range(60):
        start = j * period
        if j >= 40:
            squares += [np.mean((theta - v * (start + a) / (1 - eps)) ** 2) for a in range(period)]
        theta = v * start + eps * theta + rng.normal(0, 1 / np.sqrt(rows), repeats)
    found = retraining_error(v, eps, 1.0, period, rows=rows)
    assert np.mean(squares) == pytest.approx(found.total, rel=0.01)
    if period == 1:
        assert found.lag == pytest.approx((v / (1 - eps) ** 2) ** 2)


@pytest.mark.parametrize(("v", "eps", "cost"), [(0.1, 0.5, 1.0), (0.01, 0.0, 5.0), (1e-3, -0.7, 1.0), (1.0, 0.9, 1e-3)])
def test_no_other_period_is_better(v, eps, cost):
    best = best_period(v, eps, cost)
    total = {P: retraining_error(v, eps, 0.0, P).lag + cost / P for P in range(1, 2 * best + 20)}
    assert total[best] == min(total.values())


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: drift_error(0.1, 0.5, 1.0, 4.5), "eta must lie between 0 and .* = 4; got 4.5"),
        (lambda: drift_error(0.1, 1.0, 1.0, 0.5), "needs an average sensitivity below 1; it is 1"),
        (lambda: drift_error(0.1, 0.5, -1.0, 0.5), "scale is a standard deviation"),
        (lambda: best_step([0.1, -0.1], 0.5, 1.0), "velocity is 0 on average"),
        (lambda: best_step(0.1, 0.5, 0.0), "scale is 0"),
        (lambda: retraining_error(0.1, -1.0, 1.0, 2), "needs an average sensitivity above -1"),
        (lambda: best_period(0.0, 0.5, 1.0), "velocity is 0 on average"),
        (lambda: best_period(0.1, 0.5, 0.0), "cost"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(ValueError, match=match):
        call()
