"""Propositions 2.8 and 2.9, and the exact points of the Gaussian problem beside them."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.optimize

import performative as pf
from performative.theory import Assumptions, gaussian_points, proposition_2_8, proposition_2_9

GIVEN = Assumptions.of_clients(1.0, 2.0, 1.0, 0.5, [0.1, 0.5], 4.0)
P = np.array([0.2, 0.5, 0.3])


def test_the_contraction_by_hand():
    found = proposition_2_8(GIVEN)
    assert (found.name, found.unmet) == ("2.8", ()) and found.factor == pytest.approx(0.6)
    assert found.bound(3) == pytest.approx(0.6**6 * 4)
    # delta, sigma and varsigma play no part.
    free = dataclasses.replace(GIVEN, delta=9.0, sigma=math.inf, varsigma=math.inf)
    assert proposition_2_8(free) == found


@pytest.mark.parametrize(
    "eps", [[0.3, 0.9, 0.5], pytest.param([-0.9, -0.7, -0.95], marks=pytest.mark.slow), [0.0] * 3, [2.0, 0.1, -0.4]]
)
def test_the_contraction_dominates_retraining(eps):
    mean, start = np.array([1.0, -2.0, 4.0]), 3.0
    given = Assumptions.of_gaussian(mean, eps, 1.0, weights=P, start=start)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, np.array(eps), 1.0), P)
    path = np.asarray(pf.repeated_risk_minimization(problem, theta=start, deployments=12))
    points, found = gaussian_points(mean, eps, P), proposition_2_8(given)
    assert found.unmet == () and points.verdict == "one stable point, which attracts"
    errors = (path - points.stable) ** 2
    assert np.all(errors <= found.bound(np.arange(13)) * (1 + 1e-9) + 1e-20)
    # The exact rate beside it: the slope with its signs.
    np.testing.assert_allclose(
        path - points.stable, (start - points.stable) * points.multiplier ** np.arange(13), atol=1e-9
    )
    assert float(pf.stable_point(problem)) == pytest.approx(points.stable, abs=1e-9)
    assert float(pf.optimal_point(problem)) == pytest.approx(points.optimal, abs=1e-6)


def test_what_2_8_refuses():
    for change, sentence in (
        ({"eps_bar": 0.5}, "eps_bar < mu / L = 0.5: eps_bar is 0.5"),
        ({"mu": 0.0}, "mu > 0"),
        ({"L": math.inf}, "(2.2) L finite"),
        ({"distance": math.inf}, "distance finite"),
    ):
        found = proposition_2_8(dataclasses.replace(GIVEN, **change))
        assert [sentence in line for line in found.unmet] == [True]
        assert found.bound(5) == math.inf and np.all(found.bound(np.arange(2)) == math.inf)


@pytest.mark.parametrize(
    ("mean", "eps", "stable", "verdict"),
    [
        ([1.0, 3.0], [0.2, 0.6], 2 / 0.6, "one stable point, which attracts"),
        ([1.0, 3.0], [3.0, -2.0], 4.0, "one stable point, which attracts"),  # eps_bar = 2.5 is not needed to be < 1
        ([1.0, 3.0], [1.4, 1.6], -4.0, "one stable point, which repels"),
        ([1.0, 3.0], [-1.4, -1.6], 0.8, "one stable point, which repels"),
        ([1.0, 3.0], [-1.0, -1.0], 1.0, "one stable point, which neither attracts nor repels"),
        ([1.0, 3.0], [0.5, 1.5], math.nan, "no stable point"),
        ([1.0, -1.0], [0.5, 1.5], math.nan, "every theta is stable"),
    ],
)
def test_the_condition_is_sufficient_and_not_necessary(mean, eps, stable, verdict):
    found = gaussian_points(mean, eps)
    assert found.verdict == verdict and found.stable == pytest.approx(stable, nan_ok=True)
    refused = bool(proposition_2_8(Assumptions.of_gaussian(mean, eps, 1.0)).unmet)
    assert refused == (np.mean(np.abs(eps)) >= 1)
    if not math.isnan(stable):
        # Started at the stable point, retraining stays there also where it repels: not "any sequence" diverges.
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.array(mean), np.array(eps), 1.0))
        path = pf.repeated_risk_minimization(problem, theta=found.stable, deployments=5)
        np.testing.assert_allclose(path, stable, atol=1e-6)


def test_the_gap_of_2_9_dominates_exact_gaps():
    # Pricing, l = mu theta^2 / 2 - theta z with z = m - eps theta: Lz = |theta_PO|.
    rng = np.random.default_rng(1)
    for mu, m, eps in rng.uniform(0.1, 3.0, (50, 3)):
        stable, optimal = m / (mu + eps), m / (mu + 2 * eps)
        best = scipy.optimize.minimize_scalar(lambda u, mu=mu, m=m, eps=eps: mu * u * u / 2 - u * (m - eps * u))
        assert best.x == pytest.approx(optimal, abs=1e-6)
        given = Assumptions(float(mu), 5.0, 0.0, 0.0, float(eps), float(eps), 1.0, Lz=float(optimal))
        found = proposition_2_9(given)
        assert found.unmet == () and abs(stable - optimal) <= found.total
        assert found.total == pytest.approx(2 * optimal * eps / mu)
    # l = mu (theta - b)^2 / 2 + c z with z = eps theta: the gap is c eps / mu, half of the bound.
    given = Assumptions(2.0, 2.0, 0.0, 0.0, 0.4, 0.4, 1.0, Lz=3.0)
    assert pytest.approx(proposition_2_9(given).total / 2) == 3.0 * 0.4 / 2.0
    static = dataclasses.replace(given, eps_bar=0.0, eps_max=0.0)
    assert proposition_2_9(static).total == 0.0


def test_what_2_9_refuses():
    squared = Assumptions.of_gaussian([1.0, 5.0], [0.2, 0.8], 1.0)
    found = proposition_2_9(squared)
    assert found.total == math.inf and "Lipschitz in z; the squared loss is not" in found.unmet[0]
    # The exact gap beside it, by hand: theta_PS = 6, theta_PO = (0.8 * 1 + 0.2 * 5) / (0.64 + 0.04).
    points = gaussian_points([1.0, 5.0], [0.2, 0.8])
    assert points.distance == pytest.approx(6 - 1.8 / 0.68)
    assert math.isnan(gaussian_points([1.0, 2.0], [1.0, 1.0]).optimal)
    for change in ({"mu": 0.0}, {"Lz": math.inf}, {"eps_max": math.inf}):
        refused = proposition_2_9(dataclasses.replace(GIVEN, **{"Lz": 1.0, **change}))
        assert refused.total == math.inf and len(refused.unmet) == 1
    # eps_bar < mu / L is not asked for.
    assert proposition_2_9(dataclasses.replace(GIVEN, eps_bar=3.0, eps_max=3.0, Lz=1.0)).total == 6.0
