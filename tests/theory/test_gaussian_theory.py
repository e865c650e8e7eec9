"""The moments of random weights, and the exact 1/t rate."""

import itertools

import numpy as np
import pytest

from performative.theory import gaussian_moments, gaussian_rate
from performative.theory.gaussian import weight_moments

P = np.array([0.1, 0.2, 0.3, 0.4])
MEAN, EPS, SCALE = (
    np.array([1.0, -2.0, 3.0, 0.5]),
    np.array([0.2, 0.9, -0.5, 0.6]),
    np.array([1.0, 0.5, 2.0, 1.5]),
)


def draws(scheme, k):
    """Every outcome of a round's weights, with its probability."""
    if scheme == "one":
        for picked in itertools.product(range(4), repeat=k):
            yield np.prod(P[list(picked)]), np.bincount(picked, minlength=4) / k
    else:
        subsets = list(itertools.combinations(range(4), k))
        for picked in subsets:
            yield 1 / len(subsets), np.where(np.isin(range(4), picked), P * 4 / k, 0)


@pytest.mark.parametrize(("scheme", "k"), [("one", 1), ("one", 3), ("two", 1), ("two", 3), ("two", 4)])
def test_weight_moments_by_enumeration(scheme, k):
    u = np.array([3.0, -1.0, 0.5, 2.0])
    chance = np.array([c for c, _ in draws(scheme, k)])
    w = np.array([w for _, w in draws(scheme, k)])
    np.testing.assert_allclose(chance @ w, P)
    moments = weight_moments(P, scheme, k)
    np.testing.assert_allclose(moments.square, chance @ w**2)
    np.testing.assert_allclose(moments.pair * (P @ u) ** 2 + moments.own @ u**2, chance @ (w @ u) ** 2)


@pytest.mark.parametrize(
    ("scheme", "k", "weights"), [("full", None, P), ("one", 2, P), ("two", 2, P), ("two", 2, None)]
)
def test_the_error_times_t_reaches_its_limit(scheme, k, weights):
    E, beta, rounds = 4, 5.0, 50_000
    options = {"local_steps": E, "weights": weights, "scheme": scheme, "k": k, "batch": 2}
    limit = gaussian_rate(MEAN, EPS, SCALE, beta, **options)
    for deploy in ("step", "round"):
        eta = beta / (np.arange(rounds * E) + 50.0)
        moments = gaussian_moments(MEAN, EPS, SCALE, eta, deploy=deploy, start=2.0, **options)
        np.testing.assert_allclose(rounds * E * moments.mse[-1], limit, rtol=2e-3)


def test_the_limit_by_hand():
    # N = 2, equal weights, eps_bar = 1/2, theta_PS = 2: g = (1 - eps) 2 - m = (1, -1), so G = 1.
    problem = ([0.0, 2.0], [0.5, 0.5], 1.0)
    # beta = 2: beta^2 / (2 beta kappa - 1) = 4.
    assert gaussian_rate(*problem, 2.0, local_steps=3) == pytest.approx(4 * 0.5)
    assert gaussian_rate(*problem, 2.0, local_steps=3, scheme="one", k=2) == pytest.approx(4 * (0.75 + 3 / 2))
    assert gaussian_rate(*problem, 2.0, local_steps=3, scheme="two", k=1) == pytest.approx(4 * (1 + 3))


def test_preconditions():
    with pytest.raises(ValueError, match=r"2 beta \(1 - eps_bar\) > 1; got 0.9.*beta > 1"):
        gaussian_rate(1.0, 0.5, 1.0, 0.9)
    with pytest.raises(ValueError, match="average sensitivity below 1"):
        gaussian_rate(1.0, 1.2, 1.0, 2.0)
    # Below the precondition t * MSE really grows without limit.
    eta = 0.5 / (np.arange(100_000) + 10.0)
    mse = gaussian_moments(1.0, 0.5, 1.0, eta, start=0.0).mse
    assert mse[100_000] * 100_000 > 5 * mse[1_000] * 1_000
    for wrong, match in (
        ({"scheme": "two", "k": 5}, "k <= 4 clients"),
        ({"scheme": "one"}, "whole number of clients"),
        ({"k": 2}, "omit it"),
        ({"scheme": "three"}, "scheme must be"),
        ({"local_steps": 3}, "eta must contain"),
        ({"weights": [0.5, 0.5, 0.5, 0.5]}, "sum to one"),
        ({"deploy": "often"}, "deploy must be"),
    ):
        with pytest.raises(ValueError, match=match):
            gaussian_moments(MEAN, EPS, SCALE, np.ones(8), **wrong)
