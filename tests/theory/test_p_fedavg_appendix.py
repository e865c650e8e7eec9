"""Theorems B.4, C.5, D.5 and D.8: constants by hand, bounds against exact errors, refusals, the proofs' steps."""

import dataclasses
import math

import numpy as np
import pytest

from performative.theory import (
    Assumptions,
    gaussian_beside,
    gaussian_moments,
    gaussian_rate,
    p_fedavg,
    theorem_3_1,
    theorem_b_4,
    theorem_c_5,
    theorem_d_5,
    theorem_d_8,
)
from performative.theory.gaussian import local_maps

# eps_bar = 1/2, eps_max = 1, delta = 1/2: mu_tilde = 1/4, c1 = 8, c2 = 20, c3 = 84, c5 = 261.
GIVEN = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, [0.0, 1.0], 4.0, delta=0.5, G=3.0)
MEAN, EPS, SCALE = np.array([1.0, 2.0, -1.0]), np.array([0.1, 0.6, -0.2]), 0.5
SCHEMES = [("full", None), ("one", 2), ("two", 2)]


def any_steps(given, E, beta, gamma, scheme, k, printed=False):
    if scheme == "full":
        return theorem_b_4(given, E, beta, gamma, printed)
    return theorem_c_5(given, E, beta, gamma, scheme, k, printed)


def bounded(given, E, beta, gamma, scheme, k, printed=False):
    if scheme == "full":
        return theorem_d_5(given, E, beta, gamma, printed)
    return theorem_d_8(given, E, beta, gamma, scheme, k, printed)


def visited(eta, E, scheme, k, start):
    """At each local step, [E, rounds]: E grad^2 at its largest over clients, consensus error, E (mean - theta_PS)^2."""
    moments = gaussian_moments(MEAN, EPS, SCALE, eta, local_steps=E, start=start, scheme=scheme, k=k)
    mu, var = moments.mean[:-1, None], moments.variance[:-1, None]
    steps, noise, p = eta.reshape(-1, E), np.full(3, SCALE**2), np.full(3, 1 / 3)
    stable, rows = (p @ MEAN) / (1 - p @ EPS), []
    for e in range(E):
        A, B, S = local_maps(MEAN, EPS, noise, steps[:, :e], "step", start)
        slope, shift = (1 - EPS) * A, (1 - EPS) * B - MEAN
        square = (slope * mu + shift) ** 2 + slope**2 * var + (1 - EPS) ** 2 * S + SCALE**2
        a, b = A - (A @ p)[:, None], B - (B @ p)[:, None]
        consensus = ((a * mu + b) ** 2 + a**2 * var) @ p + S @ (p - p**2)
        Ap, Bp = (A @ p)[:, None], (B @ p)[:, None]
        away = ((Ap * mu + Bp - stable) ** 2 + Ap**2 * var)[:, 0] + S @ p**2
        rows.append((square.max(1), consensus, away))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def test_constants_by_hand():
    beta, gamma, E = 5.0, 1e7, 2
    eta, drift, c6 = beta / gamma, 6 * math.log(2), 15 * math.log(3)
    found = theorem_b_4(GIVEN, E, beta, gamma)
    assert found.unmet == () and found.constants["B"] == pytest.approx(2 + (32 * eta + 80 * eta**2) * 261 * drift)
    assert found.v == pytest.approx(max(25 * found.constants["B"] / 0.25, gamma * 4))
    one, two = theorem_c_5(GIVEN, E, beta, gamma, "one", 3), theorem_c_5(GIVEN, E, beta, gamma, "two", 1)
    assert one.constants["B"] == pytest.approx(2 + (32 * eta + 80 * eta**2 + 1 / 3) * 261 * c6)
    assert two.constants["B"] == pytest.approx(2 + (32 * eta + 80 * eta**2 + 1.0) * 261 * c6)
    assert (found.name, one.name, found.eta(10)) == ("B.4", "C.5", 5.0 / (1e7 + 10))
    # c7 = 4 G^2 = 36, c8 = 2 + 4 * 4 * 9 / K
    gamma = 1000.0
    top = 20 * 36 * 5**4 / gamma**2 + 8 * 36 * 5**3 / gamma
    assert theorem_d_5(GIVEN, E, beta, gamma).v == pytest.approx(max((top + 2 * 25) / 0.25, 4000))
    tail = theorem_d_8(GIVEN, E, beta, gamma, "one", 3)
    assert tail.v == pytest.approx((top + (2 + 48) * 25) / 0.25) and tail.name == "D.8"
    assert theorem_d_8(GIVEN, E, beta, gamma, "two", 1).constants["c8"] == pytest.approx(2 + 144)
    assert theorem_d_8(GIVEN, E, beta, gamma, "two", 2).constants["c8"] == 2.0


def test_the_printed_forms_differ():
    # B.4 and C.5: 4 B / mu_tilde^2 whatever beta is; equal at beta = 2 / mu_tilde = 8 only.
    for beta in (5.0, 8.0, 100.0):
        near = dataclasses.replace(GIVEN, distance=1e-9)  # so that gamma times the distance does not decide
        ours, theirs = (theorem_b_4(near, 1, beta, 20 * beta / 0.25, printed) for printed in (False, True))
        assert theirs.v == pytest.approx(4 * 2 / 0.25**2)
        assert ours.v == pytest.approx(beta**2 * 2 / (0.25 * beta - 1))
        assert ours.v >= theirs.v * (1 - 1e-12) and (ours.v > theirs.v * 1.1) == (beta != 8.0)
    # D.5: beta mu - 1, c7 = 4 (E - 1) G^2 and (gamma + 1) Delta_1.
    theirs = theorem_d_5(GIVEN, 3, 5.0, 100.0, printed=True)
    assert theirs.constants["c7"] == 72.0 and theorem_d_5(GIVEN, 3, 5.0, 1e3).constants["c7"] == 144.0
    top = 20 * 72 * 5**4 / 100**2 + 8 * 72 * 5**3 / 100 + 2 * 25
    one_step = (1 - 0.25 * 0.05) * 4 + 2 * 0.05**2
    assert theirs.unmet == () and theirs.v == pytest.approx(max(top / 4, 101 * one_step))
    # D.8: L^2 in c1.
    half = dataclasses.replace(GIVEN, mu=0.5, L=0.5)
    assert theorem_d_8(half, 2, 50.0, 1e4, "one", 1).constants["c1"] == 4.0
    assert theorem_d_8(half, 2, 50.0, 1e4, "one", 1, printed=True).constants["c1"] == 2.0


@pytest.mark.parametrize(("scheme", "k"), SCHEMES)
@pytest.mark.parametrize("E", [1, 3])
def test_the_theorems_of_section_3_are_special_cases(scheme, k, E):
    given = Assumptions.of_gaussian(MEAN, EPS, SCALE, start=3.0)
    chosen = p_fedavg(given, E, scheme, k)
    general = any_steps(given, E, chosen.beta, chosen.gamma, scheme, k)
    assert general.unmet == () and general.v <= chosen.v * (1 + 1e-12)


@pytest.mark.parametrize(("scheme", "k"), SCHEMES)
@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("times", [1.2, 6.0])
def test_any_steps_dominate_the_exact_error(scheme, k, E, times):
    given = Assumptions.of_gaussian(MEAN, EPS, SCALE, start=3.0)
    beta = times / given.mu_tilde
    gammas = np.geomspace(1.0, 1e12, 200)  # the least offset that is allowed: the largest steps
    gamma = next(float(g) for g in gammas if not any_steps(given, E, beta, float(g), scheme, k).unmet)
    found = any_steps(given, E, beta, gamma, scheme, k)
    beside = gaussian_beside(found, MEAN, EPS, SCALE, start=3.0, rounds=4000)
    assert np.all(beside.exact <= beside.bound) and beside.exact_limit < beside.bound_limit < math.inf


@pytest.mark.parametrize(("scheme", "k"), SCHEMES)
@pytest.mark.parametrize("E", [1, 3])
def test_bounded_gradients_dominate_the_exact_error(scheme, k, E):
    given = Assumptions.of_gaussian(MEAN, EPS, SCALE, start=3.0)
    beta = 2.0 / given.mu_tilde
    c2 = 4 * (given.sigma**2 + (1 + given.eps_max) ** 2)
    gamma = beta * c2 / given.mu_tilde
    eta = beta / (np.arange(4000 * E) + gamma)
    square, consensus, _ = visited(eta, E, scheme, k, 3.0)
    given = dataclasses.replace(given, G=float(np.sqrt(square.max())))
    found = bounded(given, E, beta, gamma, scheme, k)
    assert found.unmet == ()
    beside = gaussian_beside(found, MEAN, EPS, SCALE, start=3.0, rounds=4000)
    assert np.all(beside.exact <= beside.bound) and beside.exact_limit < beside.bound_limit < math.inf
    # Lemma D.2, with the square that Lemma D.4 leaves out of c7.
    assert np.all(consensus <= 4 * (E - 1) ** 2 * eta.reshape(-1, E).T ** 2 * given.G**2)
    # (3) for all theta is impossible: |grad f| grows with the distance.
    far = Assumptions.of_gaussian(MEAN, EPS, SCALE, start=1e3, G=given.G)
    assert "(3) G >=" in bounded(far, E, beta, gamma, scheme, k).unmet[0]


def test_theorem_b_4_as_printed_is_broken_by_a_real_instance():
    # N = 1, E = 1, eps = 1/2, theta_PS = 2: t MSE -> beta^2 / (beta - 1), far above 4 B / mu_tilde^2 = 128.
    given = Assumptions.of_gaussian(1.0, 0.5, 1.0, start=2.01)
    printed = theorem_b_4(given, 1, 1000.0, 2e4, printed=True)
    assert printed.unmet == () and printed.v == pytest.approx(128.0)
    assert gaussian_rate(1.0, 0.5, 1.0, 1000.0) == pytest.approx(1e6 / 999)
    beside = gaussian_beside(printed, 1.0, 0.5, 1.0, start=2.01, rounds=100_000)
    assert np.all(beside.exact[100:] > 7 * beside.bound[100:])
    assert "mu_tilde / c2" in theorem_b_4(given, 1, 1000.0, 2e4).unmet[0]
    ours = theorem_b_4(given, 1, 1000.0, 52_000.0)
    beside = gaussian_beside(ours, 1.0, 0.5, 1.0, start=2.01, rounds=100_000)
    assert ours.unmet == () and np.all(beside.exact <= beside.bound)


def test_theorem_d_5_as_printed_is_broken_by_a_real_instance():
    # beta mu - 1 = 20 where 2 beta (1 - eps) - 1 = 3.2: with so strong a reaction mu is not the contraction.
    given = Assumptions.of_gaussian(1.0, 0.9, 1.0, start=10.0, G=1.2)
    printed = theorem_d_5(given, 1, 21.0, 90.0, printed=True)
    assert printed.unmet == () and printed.v == pytest.approx(2 * 441 / 20)
    beside = gaussian_beside(printed, 1.0, 0.9, 1.0, start=10.0, rounds=100_000)
    assert np.all(1.0 + 0.1**2 * beside.exact <= 1.2**2)  # (3) holds at all that is visited
    assert beside.exact_limit == pytest.approx(441 / 3.2)
    assert np.all(beside.exact[100:] > 2.8 * beside.bound[100:])
    ours = theorem_d_5(given, 1, 21.0, 21 * 4 * (1 + 1.9**2) / 0.05)
    beside = gaussian_beside(ours, 1.0, 0.9, 1.0, start=10.0, rounds=100_000)
    assert ours.unmet == () and np.all(beside.exact <= beside.bound)


@pytest.mark.parametrize(("scheme", "k"), [("full", None), ("one", 1), ("two", 1)])
def test_what_is_refused(scheme, k):
    good = (2, 5.0, 1e7)
    assert any_steps(GIVEN, *good, scheme, k).unmet == bounded(GIVEN, *good, scheme, k).unmet == ()
    for (E, beta, gamma), sentence in (
        ((2, 4.0, 1e7), "beta > 1 / mu_tilde = 4: beta is 4"),
        ((10**8, 5.0, 1e7), "gamma >= E = 100000000"),
        ((2, 5.0, 300.0), "first step <= mu_tilde / c2 = 0.0125: it is 0.0166667"),
    ):
        if E < 10**8:
            assert any(sentence in line for line in any_steps(GIVEN, E, beta, gamma, scheme, k).unmet)
        found = bounded(GIVEN, E, beta, gamma, scheme, k)
        assert [sentence in line for line in found.unmet] == [True] and found.bound(9) == math.inf
    short = any_steps(GIVEN, 30, 5.0, 20.0, scheme, k)
    for sentence in ("gamma >= E = 30: gamma is 20", "eta_0 B <= mu_tilde", "2 c3 eta_t^2 a (1 + 2a) <= 1"):
        assert any(sentence in line for line in short.unmet)
    assert short.bound(9) == math.inf
    assert any("first step <= eta_0" in line for line in any_steps(GIVEN, 2, 5.0, 300.0, scheme, k, True).unmet)
    assert any("1 / (4 L) = 0.25" in line for line in bounded(GIVEN, 2, 5.0, 3.0, scheme, k, True).unmet)
    for change, sentence, theorems in (
        ({"eps_bar": 1.0}, "eps_bar < mu / L = 1: eps_bar is 1", (any_steps, bounded)),
        ({"varsigma": math.inf}, "(2.6) varsigma finite", (any_steps,)),
        ({"sigma": math.inf}, "(2.5) sigma finite", (any_steps,)),
        ({"G": None}, "(3) G finite", (bounded,)),
        ({"G": 0.9}, "(3) G >= 1, the least that |grad f| can be at theta_0: G is 0.9", (bounded,)),
        ({"distance": math.inf}, "distance", (bounded,)),
    ):
        for theorem in theorems:
            for printed in (False, True):
                found = theorem(dataclasses.replace(GIVEN, **change), *good, scheme, k, printed)
                assert [sentence in line for line in found.unmet] == [True] and found.bound(0) == math.inf
    # Bounded gradients stand in for (2.5) and (2.6).
    assert bounded(dataclasses.replace(GIVEN, sigma=math.inf, varsigma=math.inf), *good, scheme, k).unmet == ()
    for theorem in (any_steps, bounded):
        for beta, gamma in ((-1.0, 1.0), (1.0, math.nan)):
            with pytest.raises(ValueError, match=r"must be (a positive|one) number"):
                theorem(GIVEN, 2, beta, gamma, scheme, k)
        if scheme == "two":
            uneven = dataclasses.replace(GIVEN, heaviest=1.5, lightest=0.5)
            assert "equal weights" in theorem(uneven, *good, scheme, k).unmet[0]
    for theorem in (theorem_c_5, theorem_d_8):
        with pytest.raises(ValueError, match='is for scheme "one" or "two"'):
            theorem(GIVEN, *good, "full", 1)


def test_lemma_b_1_on_random_clients():
    rng = np.random.default_rng(0)
    p = np.array([0.2, 0.5, 0.3])
    for _ in range(300):
        mean, eps, sd = rng.normal(size=3), rng.uniform(-0.9, 0.9, 3), rng.uniform(0, 2, 3)
        given = Assumptions.of_gaussian(mean, eps, sd, weights=p, delta=float(rng.uniform(0.01, 0.1)))
        stable = p @ mean / (1 - p @ eps)
        theta = stable + rng.normal() * 3 + rng.normal(size=3) * rng.choice([0.01, 1.0, 10.0])
        away, consensus = (p @ theta - stable) ** 2, p @ (theta - p @ theta) ** 2
        c = theorem_3_1(dataclasses.replace(given, distance=1.0), 1).constants
        eta = c["mu_tilde"] / c["c2"] * rng.uniform(0.01, 1)
        exact = (p @ (theta - eta * (theta - mean - eps * theta)) - stable) ** 2 + eta**2 * p**2 @ sd**2
        spread = (c["c1"] * eta + c["c2"] * eta**2) * consensus
        assert exact <= (1 - c["mu_tilde"] * eta) * away + 2 * given.sigma**2 * eta**2 + spread
    # Without eta <= mu_tilde / c2 the lemma fails: eps = 0, sigma = 0, eta = 1.9 throws theta to the other side.
    static, mse = (
        Assumptions.of_gaussian(0.0, 0.0, 0.0, start=1.0),
        gaussian_moments(0.0, 0.0, 0.0, [1.9], start=1.0).mse,
    )
    assert mse[1] > 10 * (1 - static.mu_tilde * 1.9) * mse[0] > 0


@pytest.mark.parametrize(("scheme", "k"), SCHEMES)
def test_the_consensus_lemmas(scheme, k):
    # Lemmas B.2 and C.3, and that the distance never exceeds its start.
    given = Assumptions.of_gaussian(MEAN, EPS, SCALE, start=3.0)
    found = p_fedavg(given, 3, scheme, k)
    eta = found.eta(np.arange(3 * 500))
    _, consensus, away = visited(eta, 3, scheme, k, 3.0)
    assert np.all(consensus <= 4 * eta.reshape(-1, 3).T ** 2 * found.constants["drift"] * found.constants["c5"])
    assert np.all(away <= given.distance * (1 + 1e-12)) and consensus[1:].min() > 0
