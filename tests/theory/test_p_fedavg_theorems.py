"""Theorems 3.1 to 3.3: constants by hand, the conditions behind them, the bound against the exact error, refusals."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.theory import Assumptions, gaussian_beside, p_fedavg, theorem_3_1, theorem_3_2, theorem_3_3

# eps_bar = 1/2, eps_max = 1, delta = 1/2: mu_tilde = 1 - 3/4 = 1/4.
GIVEN = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, [0.0, 1.0], 4.0, delta=0.5)


def test_constants_by_hand():
    found = theorem_3_1(GIVEN, 2)
    c, eta_0 = found.constants, found.constants["eta_0"]
    assert [c[name] for name in ("mu_tilde", "c1", "c2", "c3", "c4", "c5")] == [0.25, 8.0, 20.0, 84.0, 21.75, 261.0]
    assert c["drift"] == pytest.approx(6 * math.log(2))
    bracket = 8 * 84 + 20 / 6
    assert eta_0 == pytest.approx(0.25 / (2 / 4 + bracket * 21.75 * 6 * math.log(2)))
    assert c["B"] == pytest.approx(2 + (32 * eta_0 + 80 * eta_0**2) * 261 * 6 * math.log(2))
    assert (found.name, found.beta, found.unmet, found.printed) == ("3.1", 8.0, (), False)
    assert found.gamma == pytest.approx(8 / eta_0)
    assert found.v == pytest.approx(max(64 * c["B"], 4 * found.gamma))
    assert found.bound(10.0) == pytest.approx(found.v / (found.gamma + 10))
    assert found.eta(3) == pytest.approx(8 / (found.gamma + 3))


def test_schemes_and_the_printed_form():
    c6 = 15 * math.log(3)  # (2E^2 + 3E + 1) log(E + 1) at E = 2
    one, two = theorem_3_2(GIVEN, 2, 3), theorem_3_3(GIVEN, 2, 1)
    eta_0 = one.constants["eta_0"]
    assert one.constants["drift"] == pytest.approx(c6) and two.constants["eta_0"] == eta_0
    spread = 32 * eta_0 + 80 * eta_0**2
    assert one.constants["B"] == pytest.approx(2 + (spread + 1 / 3) * 261 * c6)
    assert two.constants["B"] == pytest.approx(2 + (spread + 1) * 261 * c6)
    printed = theorem_3_3(GIVEN, 2, 1, printed=True)
    assert printed.constants["eta_0"] == pytest.approx(0.25 / (2 + (8 * 84 + 20 / 6) * 21.75 * c6))
    assert (one.name, two.name, printed.printed) == ("3.2", "3.3", True)
    # With full participation and E = 1 there is no drift, so the noise and Lemma B.1 decide.
    assert theorem_3_1(GIVEN, 1).gamma == pytest.approx(2 * 20 / 0.25**2)
    assert theorem_3_1(GIVEN, 1, printed=True).gamma == pytest.approx(8 * math.sqrt(6 * 84))
    # Theorem 3.3's root is printed with c5 = 36 varsigma^2 (distance + 1); large if all else is small.
    calm = dataclasses.replace(GIVEN, sigma=0.0, varsigma=1e-4, distance=1e10)
    assert theorem_3_3(calm, 1, 1, printed=True).gamma == pytest.approx(8 * math.sqrt(20 * 3600))
    assert theorem_3_3(calm, 1, 1).gamma == pytest.approx(2 * 16 / 0.25**2)


@pytest.mark.parametrize("scheme", ["full", "one", "two"])
@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("L", [0.05, 1.0])
def test_the_steps_meet_the_conditions_of_the_proofs(scheme, E, L):
    k = None if scheme == "full" else 1
    given = Assumptions.of_clients(0.9 * L, L, 0.3, 0.2, [0.5, 0.7], 2.0)
    found = p_fedavg(given, E, scheme, k)
    c = found.constants
    schedule = pf.schedules.theorem(given, E, scheme, k)
    assert isinstance(schedule, pf.schedules.Harmonic)
    t = np.arange(4 * E)
    eta = found.eta(t)
    np.testing.assert_allclose(schedule(jnp.asarray(3)), found.eta(3), rtol=1e-6)  # float32
    assert eta[0] <= min(c["eta_0"], given.mu_tilde / c["c2"]) * (1 + 1e-12)
    assert np.all(eta[:-E] <= 2 * eta[E:])
    age = t % E + 1 if scheme == "full" else t % E + 2
    assert np.all(eta**2 <= 1 / (2 * c["c3"] * age * (1 + 2 * age)) * (1 + 1e-12))
    # The distance never exceeds its start: Lemma B.1 (or C.2) with the consensus error at its largest.
    chance = {"full": 0.0, "one": 1.0, "two": 1.0}[scheme]
    extra = (4 * c["c1"] * eta[0] + 4 * c["c2"] * eta[0] ** 2 + chance) * c["c5"] * c["drift"]
    assert eta[0] * (2 * given.sigma**2 + extra) <= given.mu_tilde * given.distance * (1 + 1e-12)


@pytest.mark.parametrize("scheme", ["full", "one", "two"])
@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("eps", [[0.1, 0.3, 0.2], [0.0, 0.0, 0.0], [1.4, -0.6, 0.7]])
def test_the_bound_dominates_the_exact_error(scheme, printed, eps):
    mean, E, k = [1.0, 2.0, -1.0], 2, None if scheme == "full" else 2
    given = Assumptions.of_gaussian(mean, eps, 0.5, start=3.0)
    beside = gaussian_beside(p_fedavg(given, E, scheme, k, printed), mean, eps, 0.5, start=3.0, rounds=3000)
    assert np.all(np.isfinite(beside.bound)) and np.all(beside.exact <= beside.bound)
    assert beside.exact[-1] < beside.exact[0]


def test_a_static_problem_is_covered():
    # At eps_bar = 0 the paper's c1 divides by zero; mu - eps_bar L can be halved all the same.
    given = Assumptions(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    assert given.mu_tilde == 0.5
    found = theorem_3_1(given, 2)
    assert found.unmet == () and found.constants["c1"] == pytest.approx(1.0)
    # c1 is continuous there, and is the paper's expression elsewhere.
    near = theorem_3_1(dataclasses.replace(given, eps_bar=1e-9, eps_max=1e-9), 2)
    assert near.gamma == pytest.approx(found.gamma, rel=1e-6)
    asked = theorem_3_1(dataclasses.replace(given, delta=0.5), 2)
    assert "omit delta" in asked.unmet[0] and asked.bound(0) == math.inf


REFUSED = {
    "eps_bar < mu / L = 1: eps_bar is 1.1": {"eps_bar": 1.1, "eps_max": 1.2},
    "use a delta below 1": {"delta": 2.0},
    "mu > 0": {"mu": 0.0},
    "mu <= L": {"mu": 2.0},
    "(2.2) L finite": {"L": math.inf},
    "(2.3) eps_max finite": {"eps_max": math.inf},
    "(2.5) sigma finite": {"sigma": math.inf},
    "(2.6) varsigma finite": {"varsigma": math.inf},
    "0 < E |theta_0 - theta_PS|^2 < inf: it is 0": {"distance": 0.0},
    "0 < E |theta_0 - theta_PS|^2 < inf: it is inf": {"distance": math.inf},
}


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("sentence", REFUSED)
def test_problems_that_are_refused(sentence, printed):
    given = dataclasses.replace(GIVEN, **REFUSED[sentence])
    for found in (theorem_3_1(given, 2, printed), theorem_3_2(given, 2, 1, printed), theorem_3_3(given, 2, 1, printed)):
        assert [sentence in line for line in found.unmet] == [True]
        assert found.bound(5) == math.inf and np.all(found.bound(np.arange(3)) == math.inf)
        with pytest.raises(ValueError, match=f"Theorem {found.name} allows no step; unmet: "):
            found.eta(0)


def test_weights_and_schedules_that_are_refused():
    uneven = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, [0.2, 0.6], 4.0, weights=[0.25, 0.75])
    found = theorem_3_3(uneven, 2, 1)
    assert "the heaviest client has 1.5 times" in found.unmet[0] and found.bound(1) == math.inf
    with pytest.raises(ValueError, match=r"equal weights \(Scheme II\): the heaviest client has 1\.5"):
        pf.schedules.theorem(uneven, 2, "two", 1)
    assert theorem_3_2(uneven, 2, 1).unmet == ()
    nowhere = Assumptions.of_gaussian([1.0, 2.0], [0.5, 1.5], 1.0)  # eps_bar = 1: no stable point
    assert nowhere.distance == math.inf and len(theorem_3_1(nowhere, 1).unmet) == 3


def test_nonsense_raises():
    wrong = {"mu": (-1.0, math.nan, math.inf), "L": (0.0, math.nan), "delta": (0.0, math.nan), "G": (-1.0, math.nan)}
    for name in ("sigma", "varsigma", "eps_bar", "eps_max", "distance", "Lz"):
        wrong[name] = (-1.0, math.nan)
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"\b{name} must"):
                dataclasses.replace(GIVEN, **{name: value})
    for change, match in (({"eps_max": 0.4}, "exceed"), ({"clients": 0}, "clients"), ({"heaviest": 0.5}, "heaviest")):
        with pytest.raises(ValueError, match=match):
            dataclasses.replace(GIVEN, **change)
    for E, scheme, k, match in (
        (0, "full", None, "local_steps must be a whole number >= 1"),
        (2, "two", 3, "k <= 2 clients"),
        (2, "one", None, "k >= 1"),
        (2, "full", 1, "omit it"),
        (2, "three", 1, "scheme must be"),
    ):
        with pytest.raises(ValueError, match=match):
            p_fedavg(GIVEN, E, scheme, k)


def test_rescaling_for_unequal_weights():
    weights, eps = np.array([0.25, 0.75]), np.array([0.1, 0.3])
    given = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, eps, 4.0, weights=weights, G=2.0)
    scaled = given.rescaled()
    assert (scaled.mu, scaled.L, scaled.sigma, scaled.G, scaled.Lz) == (1.0, 1.5, 1.5, 3.0, None)
    assert scaled.mu_tilde == pytest.approx(given.mu_tilde)
    assert theorem_3_3(scaled, 2, 1).unmet == ()
    printed = given.rescaled(printed=True)
    assert (printed.mu, printed.L) == (0.5, 1.5)
    assert printed.sigma == pytest.approx(math.sqrt(1.5)) and printed.varsigma == pytest.approx(0.5 * math.sqrt(1.5))
    # Equal clients with unequal weights: varsigma = 0, yet the gradients of N p_i f_i differ.
    theta, q = np.linspace(-5, 5, 101), 2 * weights
    gradient = (1 - 0.2) * theta  # m = 0, eps = 1/5, theta_PS = 0
    same = Assumptions.of_gaussian(0.0, [0.2, 0.2], 1.0, weights=weights, start=1.0)
    assert same.varsigma == 0.0
    gap = np.max((gradient - q[:, None] * gradient) ** 2, axis=0)
    assert np.all(gap <= same.rescaled().varsigma ** 2 * (1 + theta**2))
    assert np.any(gap > same.rescaled(printed=True).varsigma ** 2 * (1 + theta**2))
