"""PCSGD and DiceSGD: bounds against exact steps and simulation, limits against roots, tuning against scipy."""

import math

import numpy as np
import pytest
from clipped_instances import GIVEN, PAPER, TINY, simulate, within
from scipy.optimize import brentq

from performative.theory import (
    ClippedAssumptions,
    ClippedQuadratic,
    bias_amplification,
    bias_bound,
    clip_pull,
    gradient_change,
    one_step,
    pcsgd,
)

# Theorem 3.4


def test_constants_by_hand():
    eta = [0.5, 0.4]
    found = pcsgd(GIVEN, 1.0, eta, 0.5)
    np.testing.assert_allclose(found.transient, [16.0, 8.0, 4.8])
    np.testing.assert_allclose(found.noise, [0.0, 1.5 / 4, 0.6 * 1.5 / 4 + 1.5 * 0.16])
    np.testing.assert_allclose(found.clipping, [0.0, 2.0, 0.6 * 2 + 1.6])
    closed, printed = (pcsgd(GIVEN, 1.0, eta, 0.5, form=form) for form in ("closed", "printed"))
    np.testing.assert_allclose(closed.noise, [0.0, 1.5, 1.2])
    np.testing.assert_allclose(printed.noise, [0.0, 20.5, 16.4])
    assert closed.clipping[-1] == 4.0 == bias_bound(GIVEN, 1.0)
    assert printed.clipping[-1] == 32.0 == bias_bound(GIVEN, 1.0, printed=True)
    assert bias_amplification(2.0, 4.0, 0.25) == 1.0 and bias_amplification(2.0, 4.0, 0.5) == math.inf
    assert bias_bound(GIVEN, 3.0) == 0.0  # nothing is clipped


@pytest.mark.parametrize("q", PAPER)
@pytest.mark.parametrize("edge", [False, True])
def test_the_lemmas_hold_at_every_model(q, edge):
    # With the edge the box cuts theta_PS off, so the stable point is the end of the box, where grad f is not 0.
    clip, gamma, radius = 1.0, 0.3, 0.5 if edge else 10.0
    stable = max(q.stable, -radius)
    given = ClippedAssumptions(1.0, q.a, q.beta, q.mu_tilde * radius + q.a * q.b, 1.0)
    theta = np.linspace(-radius, radius, 501)
    square = (theta - stable) ** 2
    after = 0.0
    for share, value in ((q.p, q.a * q.b), (1 - q.p, 0.0)):
        step = np.clip(theta - gamma * np.clip(q.mu_tilde * theta + value, -clip, clip), -radius, radius)
        after = after + share * (step - stable) ** 2
    gradient = theta + q.a * (q.p * q.b - q.beta * stable)  # grad f(theta; theta_PS)
    pull = (theta - stable) * (q.mean_clipped(theta, clip) - gradient)
    assert np.all(after <= one_step(given, clip, gamma, square, pull) + 1e-12)
    room = clip_pull(given, clip, gamma, square) + 2 * gamma * pull
    assert np.all(room >= -1e-12)
    assert np.all(clip_pull(given, clip, gamma, square, printed=True) >= clip_pull(given, clip, gamma, square))
    u, v = np.meshgrid(theta[::50], theta[::50])
    change = np.abs((u - q.a * q.beta * v) - (theta[0] - q.a * q.beta * theta[-1]))
    assert np.all(change <= gradient_change(q.a, q.beta, abs(u - theta[0]), abs(v - theta[-1])) + 1e-12)


def test_the_pull_of_clipping_is_attained():
    # If E b_t = -(G - c) - L beta x, Lemma 5.2 is an equality at x = (G - c) / mu~ = 2: no smaller constant will do.
    x = np.linspace(0.0, 5.0, 51)
    room = clip_pull(GIVEN, 1.0, 0.3, x**2) - 2 * 0.3 * x * (2.0 + 1.0 * x)
    assert np.min(room) == pytest.approx(0.0, abs=1e-12) and x[np.argmin(room)] == pytest.approx(2.0)


@pytest.mark.parametrize("q", PAPER)
def test_the_bound_dominates_the_measured_error(q):
    eta, sigma = 10 / (101 + np.arange(1500)), 0.107
    for radius, start in ((10.0, 5.0), (q.radius(1.0), 0.0)):
        given, excess = q.assumptions(radius, start), q.excess(1.0, radius)
        mean, error, _, _ = simulate(q, start, eta, 1.0, sigma=sigma, radius=radius)
        best = pcsgd(given, 1.0, eta, sigma, excess)
        plain, closed, printed = (
            pcsgd(given, 1.0, eta, sigma, form=form) for form in ("recursion", "closed", "printed")
        )
        assert not (closed.unmet or printed.unmet)
        assert np.all(best.total >= mean[0] - 4 * error[0] - TINY)
        assert np.all(best.total <= plain.total) and np.all(plain.total <= closed.total * (1 + 1e-12))
        assert np.all(closed.total[1:] <= printed.total[1:])
        assert q.squared_bias(1.0) <= excess**2 / q.mu_tilde**2 <= bias_bound(given, 1.0)
    # In the small box the sharper bias says something: it is less than the squared width of the box.
    assert best.total[-1] < (radius - q.stable) ** 2 < plain.total[-1] < printed.total[-1]


def test_the_recursion_needs_no_condition_on_the_steps():
    q = PAPER[0]
    given = q.assumptions(4.0, 3.0)
    for eta in (np.full(60, 1.9), np.geomspace(0.01, 5.0, 60), np.geomspace(2.0, 1e-4, 60)):
        mean, error, _, _ = simulate(q, 3.0, eta, 2.0, sigma=0.3, radius=4.0, repeats=4000)
        found = pcsgd(given, 2.0, eta, 0.3, q.excess(2.0, 4.0))
        assert not found.unmet and np.all(found.total >= mean[0] - 4 * error[0] - TINY)
        assert pcsgd(given, 2.0, eta, 0.3, form="closed").unmet


def test_unmet_preconditions_are_named():
    def unmet(form, eta, given=GIVEN):
        return " ".join(pcsgd(given, 1.0, eta, form=form).unmet)

    assert not unmet("closed", [0.9, 0.8])
    assert "gamma <= 1:" in unmet("closed", [1.5, 1.5]) and not unmet("printed", [1.5, 1.5])
    assert "gamma <= 2:" in unmet("printed", [2.5, 2.5])
    assert "must not increase" in unmet("closed", [0.1, 0.2])
    assert "fall too fast" in unmet("closed", [0.2, 0.1])
    reacting = ClippedAssumptions(2.0, 4.0, 0.5, 3.0, 16.0)
    for form in ("recursion", "closed", "printed"):
        found = pcsgd(reacting, 1.0, [0.1], form=form)
        assert np.all(np.isinf(found.total)) and "beta < mu / L = 0.5" in found.unmet[0]
    with pytest.raises(ValueError, match="form must be one of"):
        pcsgd(GIVEN, 1.0, [0.1], form="other")
    with pytest.raises(ValueError, match="excess must lie in"):
        pcsgd(GIVEN, 1.0, [0.1], excess=2.5)
    with pytest.raises(ValueError, match="excess is not in the printed form"):
        pcsgd(GIVEN, 1.0, [0.1], excess=1.0, form="printed")
    with pytest.raises(ValueError, match="eta must contain a positive step"):
        pcsgd(GIVEN, 1.0, [0.1, 0.0])
    with pytest.raises(ValueError, match="mu must be a positive number; got 0"):
        ClippedAssumptions(0.0, 1.0, 0.1, 1.0, 1.0)


# Theorem 3.5


@pytest.mark.parametrize("p", [0.02, 0.1, 0.45])
@pytest.mark.parametrize("clip", [0.3, 2.9, 3.05, 3.3, 5.0, 8.0])
def test_the_fixed_point_is_the_only_root(p, clip):
    q = ClippedQuadratic(p, 2.0, 3.0, 0.2)  # a b = 6: both sides of a b = 2 c and of a b = c / (1 - p)
    grid = np.linspace(-20, 20, 4001)
    direction = q.mean_clipped(grid, clip)
    assert np.all(np.diff(direction) >= -1e-15)
    assert np.sum(np.diff(np.sign(direction)) != 0) <= 2 and np.sum(direction == 0) <= 1
    root = brentq(q.mean_clipped, -20, 20, args=(clip,), xtol=1e-13)
    assert q.pcsgd_limit(clip) == pytest.approx(root, abs=1e-9)
    biased = not q.unmet(clip)
    assert biased == (clip / (1 - p) < 6.0) == (q.squared_bias(clip) > 0)
    assert q.unmet(clip, q.radius(clip)) == q.unmet(clip)
    assert q.squared_bias(clip) == pytest.approx((p / 0.6 * max(0.0, 6 - clip / (1 - p))) ** 2)


def test_the_bias_is_amplified_as_said():
    low, high = PAPER
    amplified = bias_amplification(1.0, 10.0, 0.05) / bias_amplification(1.0, 10.0, 0.01)
    assert high.squared_bias(1.0) / low.squared_bias(1.0) == pytest.approx(amplified) == pytest.approx(3.24)
    assert (low.stable, high.stable) == pytest.approx((-10 / 9, -2.0))
    assert (low.pcsgd_limit(1.0), high.pcsgd_limit(1.0)) == pytest.approx((-0.1 / 0.81, -0.1 / 0.45))


@pytest.mark.slow
def test_the_limits_of_simulations():
    for q, clip in ((PAPER[0], 1.0), (PAPER[1], 1.0), (ClippedQuadratic(0.1, 1.0, 6.0, 0.2), 2.32)):
        _, _, theta, _ = simulate(q, q.stable, np.full(1500, 0.02), clip, repeats=2000, keep=300, seed=1)
        assert within(theta, q.pcsgd_limit(clip))
        assert not within(theta, q.stable, 50)
    # Without a clip that bites: theta_PS, with b in it (a b = 6; the printed formula has a = 1).
    _, _, theta, _ = simulate(q, -0.1, np.full(1500, 0.02), 5.8, repeats=2000, keep=300, seed=2)
    assert within(theta, -0.6 / 0.8) and not within(theta, -0.1 / 0.8, 50)


def test_the_box_must_use_ab():
    q = ClippedQuadratic(0.1, 1.0, 6.0, 0.1)
    printed, corrected = q.radius(2.32, printed=True), q.radius(2.32)
    assert printed < abs(q.stable) < corrected
    assert "X must contain theta_PS" in q.unmet(2.32, printed)[0] and not q.unmet(2.32, corrected)
    with pytest.raises(ValueError, match="radius must be at least"):
        q.assumptions(printed, 0.0)
    for wrong in ({"p": 0.5}, {"b": 0.0}, {"beta": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ClippedQuadratic(**{"p": 0.1, "a": 1.0, "b": 6.0, "beta": 0.1, **wrong})
