"""Theorems 3.1 to 3.3: constants by hand, the conditions behind them, the bound against the exact error."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.theory import Assumptions, gaussian_moments, p_fedavg

# eps_bar = 1/2, eps_max = 1, delta = 1/2: mu_tilde = 1 - 3/4 = 1/4.
GIVEN = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, [0.0, 1.0], 4.0, delta=0.5)


def test_constants_by_hand():
    found = p_fedavg(GIVEN, 2)
    assert (found.mu_tilde, found.c1, found.c2, found.c3) == (0.25, 8.0, 20.0, 84.0)
    assert (found.c4, found.c5) == (21.75, 261.0)
    assert found.drift == pytest.approx(6 * math.log(2))
    bracket = 8 * 84 + 20 / 6
    assert found.eta_0 == pytest.approx(0.25 / (2 / 4 + bracket * 21.75 * 6 * math.log(2)))
    noise = 32 * found.eta_0 + 80 * found.eta_0**2
    assert pytest.approx(2 + noise * 261 * 6 * math.log(2)) == found.B
    assert found.gamma == pytest.approx(8 / found.eta_0)
    assert found.v == pytest.approx(max(64 * found.B, 4 * found.gamma))
    assert found.bound(10.0) == pytest.approx(found.v / (found.gamma + 10))


def test_schemes_and_the_printed_form():
    c6 = 15 * math.log(3)  # (2E^2 + 3E + 1) log(E + 1) at E = 2
    one, two = p_fedavg(GIVEN, 2, "one", 3), p_fedavg(GIVEN, 2, "two", 1)
    assert one.drift == pytest.approx(c6) and one.eta_0 == two.eta_0
    assert pytest.approx((32 * one.eta_0 + 80 * one.eta_0**2 + 1 / 3) * 261 * c6) == one.B - 2
    assert pytest.approx((32 * two.eta_0 + 80 * two.eta_0**2 + 1) * 261 * c6) == two.B - 2
    printed = p_fedavg(GIVEN, 2, "two", 1, printed=True)
    assert printed.eta_0 == pytest.approx(0.25 / (2 + (8 * 84 + 20 / 6) * 21.75 * c6))
    # With full participation and E = 1 there is no drift, so the noise and Lemma B.1 decide.
    assert p_fedavg(GIVEN, 1).gamma == pytest.approx(2 * 20 / 0.25**2)
    assert p_fedavg(GIVEN, 1, printed=True).gamma == pytest.approx(8 * math.sqrt(6 * 84))
    # Theorem 3.3's root is printed with c5 = 36 varsigma^2 (distance + 1); large if all else is small.
    calm = dataclasses.replace(GIVEN, sigma=0.0, varsigma=1e-4, distance=1e10)
    assert p_fedavg(calm, 1, "two", 1, printed=True).gamma == pytest.approx(8 * math.sqrt(20 * 3600))
    assert p_fedavg(calm, 1, "two", 1).gamma == pytest.approx(2 * 16 / 0.25**2)


@pytest.mark.parametrize("scheme", ["full", "one", "two"])
@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("L", [0.05, 1.0])
def test_the_steps_meet_the_conditions_of_the_proofs(scheme, E, L):
    k = None if scheme == "full" else 1
    given = Assumptions.of_clients(0.9 * L, L, 0.3, 0.2, [0.5, 0.7], 2.0)
    found = p_fedavg(given, E, scheme, k)
    schedule = pf.schedules.theorem(given, E, scheme, k)
    assert isinstance(schedule, pf.schedules.Harmonic)
    t = np.arange(4 * E)
    eta = found.eta(t)
    np.testing.assert_allclose(schedule(jnp.asarray(3)), found.eta(3), rtol=1e-6)  # float32
    assert eta[0] <= min(found.eta_0, given.mu_tilde / found.c2) * (1 + 1e-12)
    assert np.all(eta[:-E] <= 2 * eta[E:])
    age = t % E + 1 if scheme == "full" else t % E + 2
    assert np.all(eta**2 <= 1 / (2 * found.c3 * age * (1 + 2 * age)) * (1 + 1e-12))
    # The distance never exceeds its start: Lemma B.1 (or C.2) with the consensus error at its largest.
    chance = {"full": 0.0, "one": 1.0, "two": 1.0}[scheme]
    extra = (4 * found.c1 * eta[0] + 4 * found.c2 * eta[0] ** 2 + chance) * found.c5 * found.drift
    assert eta[0] * (2 * given.sigma**2 + extra) <= given.mu_tilde * given.distance * (1 + 1e-12)


@pytest.mark.parametrize("scheme", ["full", "one", "two"])
def test_the_bound_dominates_the_exact_error(scheme):
    mean, eps, E = np.array([1.0, 2.0, -1.0]), np.array([0.1, 0.3, 0.2]), 2
    k = None if scheme == "full" else 2
    given = Assumptions.of_gaussian(mean, eps, 0.5, start=3.0)
    found = p_fedavg(given, E, scheme, k)
    rounds = np.arange(3001)
    exact = gaussian_moments(
        mean, eps, 0.5, found.eta(np.arange(3000 * E)), local_steps=E, start=3.0, scheme=scheme, k=k
    )
    assert np.all(exact.mse <= found.bound(rounds * E))
    assert exact.mse[-1] < exact.mse[0]


def test_what_the_theorems_do_not_cover():
    with pytest.raises(ValueError, match=r"must be positive; it is -0\.2.*eps_bar < mu / L only"):
        Assumptions(1.0, 1.0, 1.0, 1.0, 1.1, 1.2, 1.0, delta=0.1 / 1.1)
    with pytest.raises(ValueError, match="smaller delta"):
        Assumptions(1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 1.0, delta=2.0)
    for name in ("mu", "L", "eps_bar", "distance"):
        with pytest.raises(ValueError, match=f"{name} must be a positive number; got 0"):
            dataclasses.replace(GIVEN, **{name: 0.0})
    uneven = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, [0.2, 0.6], 4.0, weights=[0.25, 0.75])
    with pytest.raises(ValueError, match=r"equal weights; the heaviest client has 1\.5"):
        pf.schedules.theorem(uneven, 2, "two", 1)
    assert p_fedavg(uneven, 2, "one", 1).gamma > 0
    with pytest.raises(ValueError, match="k <= 2 clients"):
        p_fedavg(GIVEN, 2, "two", 3)


def test_rescaling_for_unequal_weights():
    weights, eps = np.array([0.25, 0.75]), np.array([0.1, 0.3])
    given = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, eps, 4.0, weights=weights)
    scaled = given.rescaled()
    assert (scaled.mu, scaled.L, scaled.sigma) == (1.0, 1.5, 1.5)
    assert scaled.mu_tilde == pytest.approx(given.mu_tilde)
    assert p_fedavg(scaled, 2, "two", 1).gamma > 0
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
