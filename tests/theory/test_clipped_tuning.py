"""The step and the clip that the corrected bounds ask for."""

import math

import numpy as np
import pytest
from clipped_instances import GIVEN
from scipy.optimize import minimize, minimize_scalar

from performative.theory import (
    ClippedAssumptions,
    ClippedQuadratic,
    harmonic_kappa,
    noise_share,
    optimal_clip,
    optimal_clip_and_step,
    optimal_clip_limit,
    optimal_step,
    pcsgd,
    printed_noise_share,
)

# Corollary 3.7


@pytest.mark.parametrize("rounds", [1, 2, 5, 40, 100_000])
def test_the_optimal_step_minimizes_the_bound(rounds):
    def bound(step, slope):
        return (1 - step) ** rounds * 16 + slope * step

    for sigma in (0.0, 0.5):
        found = optimal_step(GIVEN, 1.0, rounds, sigma)
        least = minimize_scalar(
            bound, bounds=(0, 1), args=(1 + 2 * sigma**2,), method="bounded", options={"xatol": 1e-13}
        ).fun
        assert found.total - 4.0 == pytest.approx(least, rel=1e-6) and found.total - 4.0 <= least * (1 + 1e-9)
        assert not found.unmet and 0 < found.step <= 1
        # It is a bound: never below the recursion with that step.
        exact = pcsgd(GIVEN, 1.0, np.full(rounds, found.step), sigma).total[-1]
        assert exact <= found.total * (1 + 1e-12)


def test_the_printed_step_against_the_minimizer_of_the_printed_bound():
    def bound(g, rounds):
        return (1 - g) ** rounds * 16 + 2 * 20.5 * g

    for rounds, least, most in ((5, 0.1, 0.2), (50, 5e-3, 2e-2), (5000, 1e-4, 1e-3)):
        printed = optimal_step(GIVEN, 1.0, rounds, 0.5, printed=True)
        assert printed.step == pytest.approx(math.log(rounds * 16 / 41) / rounds)
        best = minimize_scalar(bound, bounds=(0, 1), args=(rounds,), method="bounded", options={"xatol": 1e-13})
        assert best.x == pytest.approx(1 - (41 / (rounds * 16)) ** (1 / (rounds - 1)), rel=1e-5)
        assert least < abs(printed.step / best.x - 1) < most  # nearly the same for many rounds
        ours = optimal_step(GIVEN, 1.0, rounds, 0.5)
        assert ours.step > 1.2 * printed.step and ours.total < printed.total  # c_1 = 1.5, not 2 * 20.5
    few = ClippedAssumptions(1.0, 1.0, 0.0, 1.0, 1e9)
    assert "gamma <= 1 / mu~" in optimal_step(few, 1.0, 3, printed=True).unmet[0]
    assert optimal_step(few, 1.0, 3).step < 1
    near = ClippedAssumptions(1.0, 1.0, 0.0, 1.0, 1e-3)
    stay, negative = optimal_step(near, 1.0, 5), optimal_step(near, 1.0, 5, printed=True)
    assert stay.step == 0 and "Delta < 1" in stay.unmet[0] and negative.step < 0 and "Delta < 1" in negative.unmet[0]
    assert optimal_step(ClippedAssumptions(1.0, 2.0, 0.5, 1.0, 1.0), 1.0, 5).total == math.inf


# Corollary 3.8


@pytest.mark.parametrize("eta", [np.full(400, 0.01), 3 / (5 + np.arange(400)), [0.2]])
@pytest.mark.parametrize("multiplier", [0.0, 1.0, 20.0])
def test_the_optimal_clip_minimizes_the_recursion(eta, multiplier):
    found = optimal_clip(GIVEN, eta, multiplier)

    def bound(clip):
        return pcsgd(GIVEN, clip, eta, clip * multiplier).total[-1]

    best = minimize_scalar(bound, bounds=(1e-9, GIVEN.G), method="bounded", options={"xatol": 1e-9})
    assert found.total <= bound(2 * GIVEN.G)  # beyond G nothing is clipped, but the noise may grow
    assert found.clip == pytest.approx(best.x, rel=1e-4) and found.total == pytest.approx(best.fun, rel=1e-9)


@pytest.mark.parametrize("phi", [1e-4, 0.1, 3.0])
def test_the_optimal_clip_as_the_rounds_grow(phi):
    rounds = 100_000
    t, multiplier = np.arange(rounds), math.sqrt(phi * rounds / 2)
    assert noise_share(multiplier, rounds, 2) == pytest.approx(phi)
    for scale in (2.0, 3.0, 10.0):  # mu~ = 1; the start is forgotten as t^-scale
        kappa = harmonic_kappa(GIVEN, scale)
        assert kappa == pytest.approx(scale**2 / (scale - 1)) and kappa >= 4.0 == harmonic_kappa(GIVEN, 2.0)
        limit, finite = optimal_clip_limit(GIVEN, phi, kappa), optimal_clip(GIVEN, scale / (20 + t), multiplier)
        # The clipped gradient's own square adds 1 / (phi T) to the noise, which the limit leaves out.
        assert limit.clip == pytest.approx(finite.clip, rel=2e-3)
        assert limit.total == pytest.approx(finite.total, rel=2 / (phi * rounds) + 2e-3)
    assert optimal_clip_limit(GIVEN, phi, harmonic_kappa(GIVEN, 1.0)).total == math.inf
    s = 8.0
    constant = optimal_clip(GIVEN, np.full(rounds, s / rounds), multiplier)
    assert optimal_clip_limit(GIVEN, phi, s).clip == pytest.approx(constant.clip, rel=2e-3)


def test_the_bias_vanishes_with_the_noise_and_printed_does_not():
    bounds = [optimal_clip_limit(GIVEN, phi, 4.0).total for phi in (1e-2, 1e-4, 1e-6)]
    assert bounds[0] > 90 * bounds[1] > 8000 * bounds[2] > 0
    printed = optimal_clip_limit(GIVEN, 1e-6, 4.0, printed=True)
    assert printed.total >= GIVEN.G**2 and printed.clip == pytest.approx(3 / (1 + 1e-6))
    # What c* as printed minimizes is (G - c)^2 / mu~^2 + phi c^2 / mu~: G^2 phi / (mu~ (1 + mu~ phi)) at its minimum.
    mu, phi, G = 0.5, 0.3, 7.0
    given = ClippedAssumptions(1.0, 1.0, 0.5, G, 1.0)
    best = minimize_scalar(lambda c: (G - c) ** 2 / mu**2 + phi * c**2 / mu, bounds=(0, G), method="bounded")
    assert optimal_clip_limit(given, phi, 1.0, printed=True).clip == pytest.approx(best.x, rel=1e-5)
    assert best.fun == pytest.approx(G**2 * phi / (mu * (1 + mu * phi)))


@pytest.mark.parametrize("phi", [1e-5, 1e-2, 0.5])
def test_clip_and_step_together(phi):
    given = ClippedAssumptions(1.0, 1.0, 0.2, 3.0, 40.0)
    found = optimal_clip_and_step(given, phi, 1000)

    def bound(at):
        return math.exp(-at[0]) * 40 + (max(3 - at[1], 0) ** 2 + at[0] * phi * at[1] ** 2) / 0.64

    trials = [minimize(bound, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000})
              for start in ([1.0, 1.0], [5.0, 2.9], [9.0, 0.5])]  # fmt: skip
    assert found.total == pytest.approx(min(t.fun for t in trials), rel=1e-6)
    assert found.total == pytest.approx(bound([found.step * 0.8 * 1000, found.clip]))
    assert "outweighs the start" in optimal_clip_and_step(given, 3.0).unmet[0]


@pytest.mark.parametrize("beta", [0.1, 0.2])
@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_the_printed_clip_of_the_experiments_does_not_follow(beta, epsilon):
    q, records = ClippedQuadratic(0.1, 1.0, 6.0, beta), 100_000
    phi = printed_noise_share(epsilon, 1 / records, records)
    assert phi == pytest.approx(math.log(1e5) / (1e5 * epsilon) ** 2) and phi < 2e-5
    for radius in (10.0, q.radius(2.32)):
        given = q.assumptions(radius, 5.0)
        assert pytest.approx(6 + (1 - beta) * radius) == given.G and given.G >= 7.2 * (1 - 1e-12)
        for found in (
            optimal_clip_limit(given, phi, 4.0),
            optimal_clip_limit(given, phi, 4.0, printed=True),
            optimal_clip_and_step(given, phi),
        ):
            assert 0.9998 * given.G < found.clip < given.G  # not 2.32
    # The real bias of this instance is gone from c = (1 - p) a b on.
    assert q.squared_bias(2.32) == pytest.approx((0.1 * (6 - 2.32 / 0.9) / (1 - beta)) ** 2)
    assert q.squared_bias(5.4) == pytest.approx(0.0, abs=1e-24)
