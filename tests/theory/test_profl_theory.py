"""Theorem 5.10, Corollary 5.11 and Lemmas C.1 and C.3 of PROFL, on pricing, where the risk is known exactly."""

import math

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from performative.theory import (
    PerformativeAssumptions,
    PricingDescent,
    client_drift,
    corollary_5_11,
    lemma_c_1,
    location_smoothness,
    mixture_sensitivity,
    theorem_5_10,
)

TINY = 1e-12
SHOP = PricingDescent([6.0, 7.0, 6.5], [1.0, 3.0, 2.0], [0.5, 0.2, 0.3])  # gamma_bar = 1.7
START, REACH = SHOP.optimum + 2.0, 8.0


def simulate(shop, eta, steps, start, local_steps=1, bias=0.0, variance=0.0, repeats=4000, seed=0):
    """Plain NumPy: the gap at every t with its standard error, and the root mean square of the longest direction."""
    rng = np.random.default_rng(seed)
    local = np.full((repeats, len(shop.demand)), start)
    gaps, longest = [], 0.0
    for t in range(steps + 1):
        model = local @ shop.weights
        gaps.append(shop.gamma_bar * (model - shop.optimum) ** 2)
        if t % local_steps == 0:
            local = np.repeat(model[:, None], local.shape[1], axis=1)
        noise = math.sqrt(variance) * rng.standard_normal(local.shape)
        g = 2.0 * shop.sensitivity * local - shop.demand + bias + noise
        longest = max(longest, math.sqrt(np.max(np.mean(g**2, axis=0))))
        local = local - eta * g
    gaps = np.stack(gaps, 1)
    return gaps.mean(0), gaps.std(0) / math.sqrt(repeats), longest


# Theorem 5.10

CASES = [(b, v) for b in (0.0, 1.0) for v in (0.0, 4.0)]


@pytest.mark.parametrize(("bias", "variance"), CASES)
@pytest.mark.parametrize("local_steps", [1, 4])
def test_the_exact_gap_is_that_of_a_simulation_and_below_the_bound(bias, variance, local_steps):
    eta, steps = 0.05, 60
    exact = SHOP.gaps(eta, steps, START, local_steps=local_steps, bias=bias, variance=variance)
    mean, error, longest = simulate(SHOP, eta, steps, START, local_steps, bias, variance)
    assert np.all(np.abs(mean - exact) <= 4.5 * error + TINY)
    given = SHOP.assumptions(START, REACH, bias, variance)
    assert longest <= given.G
    averaged = variance * float(SHOP.weights @ SHOP.weights)
    found = theorem_5_10(given, eta, steps, local_steps=local_steps, error=bias**2, variance=averaged)
    assert not found.unmet and np.all(found.total >= exact - TINY)
    # Nothing known of the noise: all of it is an error.
    rough = theorem_5_10(given, eta, steps, local_steps=local_steps, error=bias**2 + averaged)
    assert np.all(rough.total >= exact - TINY)


def test_steps_that_are_too_long_cost_but_are_covered():
    given = SHOP.assumptions(START, REACH)
    smooth = float(SHOP.weights @ (2 * SHOP.sensitivity))
    for eta in (1.02 / smooth, 1.5 / smooth, 1.9 / smooth):
        exact = SHOP.gaps(eta, 100, START)
        found = theorem_5_10(given, eta, 100)
        assert np.all(found.total >= exact - TINY) and found.error[-1] > 0
    assert theorem_5_10(given, 1.0 / smooth, 100).error[-1] == 0


def test_the_floor_is_exact_for_a_constant_error_and_within_two_for_noise():
    given, eta = SHOP.assumptions(START, REACH), 0.01
    found = theorem_5_10(given, eta, 5000, error=1.0)
    assert found.total[-1] == pytest.approx(SHOP.limit(eta, bias=1.0), rel=1e-9) == pytest.approx(1 / (4 * 1.7))
    noise = theorem_5_10(given, eta, 5000, variance=4.0 * float(SHOP.weights @ SHOP.weights))
    assert noise.total[-1] / SHOP.limit(eta, variance=4.0) == pytest.approx(2 * (1 - 1.7 * eta), rel=1e-6)
    for bias, variance in CASES:
        last = SHOP.gaps(eta, 3000, START, bias=bias, variance=variance)[-1]
        assert last == pytest.approx(SHOP.limit(eta, bias, variance), rel=1e-9, abs=1e-12)
    assert SHOP.limit(1 / 1.7) == math.inf and SHOP.gaps(1.01 / 1.7, 3000, START)[-1] > 1e10


def test_the_printed_residual_is_exceeded():
    # C in place of C / (rho eta): the gap stays, and C goes to zero with eta.
    eta, bias = 1e-3, 1.0
    given = SHOP.assumptions(START, 2.0, bias)
    exact = SHOP.gaps(eta, 4000, START, bias=bias)
    printed = theorem_5_10(given, eta, 4000, error=bias**2, printed=True)
    assert not printed.unmet
    assert exact[-1] > 50 * printed.total[-1]
    corrected = theorem_5_10(given, eta, 4000, error=bias**2)
    assert np.all(corrected.total >= exact - TINY)
    # The same with C / (rho eta) holds again.
    assert printed.error[-1] / (given.rho * eta) > exact[-1]


def test_constants_by_hand():
    given = PerformativeAssumptions(
        L=2.0, gamma=[1.0, 3.0], rho=1.0, gap=8.0, smoothness=[2.0, 4.0], G=3.0, weights=[0.75, 0.25]
    )
    found = theorem_5_10(given, 0.1, 2, local_steps=3, error=4.0, variance=5.0)
    apart = 2 * 0.1 * 3 * math.sqrt(0.75 * 4 + 0.25 * 16)
    assert client_drift(given, 0.1, 3) == pytest.approx(apart)
    step = 0.05 * (apart + 2) ** 2
    np.testing.assert_allclose(found.transient, [8.0, 7.2, 6.48])
    np.testing.assert_allclose(found.error, [0.0, step, 1.9 * step])
    np.testing.assert_allclose(found.noise, np.asarray([0.0, 1.0, 1.9]) * 2.5 * 0.01 * 5 / 2)
    printed = theorem_5_10(given, 0.1, 2, local_steps=3, error=4.0, variance=5.0, smallest=6.0, printed=True)
    # (1 + gamma_bar)^2 + sigma_gamma^2 = 6.25 + 0.75 = 7
    C = (9 - 3) * 0.1 + 2 * 2.5 * (9 + 9) * 0.01 + 0.5 * 4 * 4 * 9 * 7 * 0.001
    np.testing.assert_allclose(printed.total, np.asarray([8.0, 7.2, 6.48]) + C)


def test_the_printed_smoothness_fails_for_pricing():
    shop = PricingDescent(6.0, 5.0)
    given = shop.assumptions(shop.optimum + 1.0, 1.0)
    assert given.lipschitz[0] == 10.0 == location_smoothness(5.0, cross=1.0)
    x, eta = shop.optimum + 1.0, 0.15
    g = 2 * 5.0 * x - 6.0

    def risk(theta):
        return -theta * (6.0 - 5.0 * theta)

    after = risk(x - eta * g)
    assert after > risk(x) - eta * g**2 + (1 + 5.0) / 2 * eta**2 * g**2 + 0.1  # L (1 + gamma) = 6 with L = 1
    assert after == pytest.approx(risk(x) - eta * g**2 + 10.0 / 2 * eta**2 * g**2)


def test_smoothness_of_a_moving_population_by_differences():
    # l = (theta - z)^2 / 2 + sin(theta) z and f = 0.3 sin(theta): all terms at once.
    def gradient(theta):
        f, slope = 0.3 * np.sin(theta), 0.3 * np.cos(theta)
        return (theta - f) + np.cos(theta) * f + slope * (f - theta + np.sin(theta))

    theta = np.linspace(-2, 2, 20001)
    found = np.max(np.abs(np.diff(gradient(theta)) / np.diff(theta)))
    f = 0.3 * np.sin(theta)
    bound = location_smoothness(
        0.3,
        model=1 + 0.3,
        cross=1.0 + 1.0,
        data=1.0,
        curvature=0.3,
        slope=float(np.max(np.abs(f - theta + np.sin(theta)))),
    )
    assert 1.3 < found <= bound  # the reaction adds to what the loss has by itself


def test_local_pl_is_not_enough():
    def value(x):
        return x**2 + 3 * np.sin(x) ** 2

    def slope(x):
        return 2 * x + 3 * np.sin(2 * x)

    x = np.linspace(-10, 10, 200001)
    assert np.all(slope(x) ** 2 / 2 >= value(x) / 32 - TINY)  # PL with rho = 1/32
    middle = math.pi / 2
    mean = 0.5 * (value(x + middle) + value(x + middle - math.pi))
    both = 0.5 * (slope(middle) + slope(middle - math.pi))
    assert both == pytest.approx(0.0, abs=1e-12)  # a stationary point of the mean of two such risks
    assert 0.5 * (value(middle) + value(middle - math.pi)) > mean.min() + 1  # that is not its minimum


def test_unmet_preconditions_are_named_and_nothing_is_claimed():
    def unmet(local_steps=1, eta=0.1, printed=False, **changes):
        numbers = {"L": 1.0, "gamma": 1.0, "rho": 1.0, "gap": 1.0, "smoothness": 2.0, "G": 3.0, **changes}
        found = theorem_5_10(PerformativeAssumptions(**numbers), eta, 5, local_steps=local_steps, printed=printed)
        if found.unmet and not printed:
            assert np.all(np.isinf(found.total))
        return " ".join(found.unmet)

    assert not unmet() and not unmet(printed=True) and not unmet(local_steps=3)
    assert "PL condition" in unmet(rho=0.0) and "PL condition" in unmet(rho=0.0, printed=True)
    assert "smoothness must be finite" in unmet(smoothness=math.inf)
    assert "rho <= Lambda = 2" in unmet(rho=3.0)
    assert not unmet(G=math.inf)
    assert "G must be finite" in unmet(G=math.inf, local_steps=2) and "G must be" in unmet(G=math.inf, eta=0.6)
    assert "eta <= 1 / rho" in unmet(eta=1.5, printed=True)
    for wrong, message in (
        ({"L": -1.0}, "L must be finite and not negative"), ({"gamma": math.inf}, "gamma must be a finite number"),
        ({"weights": [0.5, 0.6]}, "sum to one"), ({"gamma": [1.0, 2.0], "weights": [1.0]}, "one per client"),
        ({"dimension": 0}, "dimension"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            PerformativeAssumptions(**{"L": 1.0, "gamma": 1.0, "rho": 1.0, "gap": 1.0, **wrong})
    good = PerformativeAssumptions(1.0, 1.0, 1.0, 1.0, 2.0)
    with pytest.raises(ValueError, match="eta must be a positive"):
        theorem_5_10(good, 0.0, 5)
    with pytest.raises(ValueError, match="local_steps must be a whole number"):
        theorem_5_10(good, 0.1, 5, local_steps=0)
    with pytest.raises(ValueError, match="error must be finite and not negative"):
        theorem_5_10(good, 0.1, 5, error=-1.0)
    with pytest.raises(ValueError, match="sensitivity must be positive"):
        PricingDescent(6.0, -1.0)


# Corollary 5.11


def test_an_error_that_shrinks_with_the_gradient_leaves_no_floor():
    given, eta = SHOP.assumptions(START, REACH), 0.05
    for kappa in (0.3, 0.9):
        found = corollary_5_11(given, eta, 200, relative=kappa)
        assert not found.unmet
        for sign in (-1.0, 1.0):
            error = 2.0 * (1 - eta * 2 * SHOP.gamma_bar * (1 + sign * kappa)) ** np.arange(201)
            assert np.all(found.total >= SHOP.gamma_bar * error**2 - TINY)
        # g = grad L (1 + kappa xi), xi = +-1 with equal chance: the error has mean zero and does not vanish either.
        growth = (1 - eta * 2 * SHOP.gamma_bar) ** 2 + (eta * 2 * SHOP.gamma_bar * kappa) ** 2
        assert np.all(found.total >= SHOP.gamma_bar * 4.0 * growth ** np.arange(201) - TINY)
    assert found.total[-1] < 0.01 * given.gap
    for wrong, message in (({"relative": 1.0}, "kappa < 1"), ({"relative": 0.5, "local_steps": 2}, "R = 1")):
        refused = corollary_5_11(given, eta, 10, **wrong)
        assert message in refused.unmet[0] and np.all(np.isinf(refused.total))
    assert "eta <= 1 / Lambda" in corollary_5_11(given, 0.5, 10, relative=0.5).unmet[0]
    same = corollary_5_11(given, eta, 10, error=1.0)
    np.testing.assert_array_equal(same.total, theorem_5_10(given, eta, 10, error=1.0).total)


def test_the_printed_condition_cannot_hold_to_the_end():
    # g_min^2 > 2 b^2 while it holds; it fails before the gap is (sqrt 2 - 1)^2 of what the error leaves.
    shop, bias, eta = PricingDescent(6.0, 1.0), 0.5, 0.05
    model, gaps, smallest = shop.optimum + 3.0, [], []
    for _ in range(300):
        g = 2 * model - 6.0 + bias
        gaps.append((model - shop.optimum) ** 2)
        smallest.append(g**2 if not smallest else min(smallest[-1], g**2))
        model -= eta * g
    holds = np.asarray(smallest) / 2 > bias**2
    assert holds[0] and not holds[-1]
    assert np.all(np.asarray(gaps)[holds] > (math.sqrt(2) - 1) ** 2 * bias**2 / 4)
    given = shop.assumptions(shop.optimum + 3.0, 3.0, bias)
    refused = corollary_5_11(given, eta, 300, error=bias**2, smallest=smallest[-1], printed=True)
    assert "omega_D^2 < g_min^2 / 2" in refused.unmet[0] and np.all(np.isinf(refused.total))
    # Where it holds, the printed bound is that of exact gradients.
    early = corollary_5_11(given, eta, 5, error=bias**2, smallest=smallest[5], printed=True)
    assert not early.unmet and np.all(early.total >= np.asarray(gaps[:6]) - TINY)


# Lemma C.1


def assumptions_of(alpha, gamma):
    return PerformativeAssumptions(1.0, gamma, 1.0, 1.0, 1.0 + np.asarray(gamma), G=1.0, weights=alpha)


def test_lemma_c_1_as_printed_is_exceeded_and_the_corrected_is_attained():
    alpha, gamma = np.asarray([0.1, 0.9]), np.asarray([3.0, 0.0])
    walked = np.asarray([-1.0, 1.0])  # R = 2, eta = 1: one step at full speed, apart
    found = float(alpha @ ((1 + gamma) ** 2 * (walked - alpha @ walked) ** 2))
    given = assumptions_of(alpha, gamma)
    assert found == pytest.approx(5.22)
    assert lemma_c_1(given, 1.0, 2, printed=True).total == pytest.approx(2.5)
    assert lemma_c_1(given, 1.0, 2).total == pytest.approx(5.22)
    assert lemma_c_1(given, 1.0, 1).total == 0.0 == client_drift(given, 1.0, 1)


def test_lemma_c_1_and_the_drift_hold_for_any_walk():
    rng = np.random.default_rng(0)
    for _ in range(300):
        N, d, R, eta = rng.integers(2, 6), rng.integers(1, 4), rng.integers(2, 5), 0.3
        alpha, gamma = rng.dirichlet(np.ones(N)), rng.exponential(2.0, N)
        g = rng.standard_normal((R - 1, N, d))
        g /= np.linalg.norm(g, axis=-1, keepdims=True)
        walked = eta * g.sum(0)
        apart = walked - alpha @ walked
        given = assumptions_of(alpha, gamma)
        assert alpha @ ((1 + gamma) ** 2 * np.sum(apart**2, axis=1)) <= lemma_c_1(given, eta, int(R)).total + TINY
        assert alpha @ ((1 + gamma) * np.linalg.norm(apart, axis=1)) <= client_drift(given, eta, int(R)) + TINY


def test_lemma_c_1_refuses():
    free = PerformativeAssumptions(1.0, 1.0, 1.0, 1.0)
    found = lemma_c_1(free, 0.1, 3)
    assert found.total == math.inf and "G must be finite" in found.unmet[0] and "smoothness" in found.unmet[1]
    assert lemma_c_1(free, 0.1, 1).total == 0.0 and lemma_c_1(free, 0.1, 3, printed=True).unmet


# Lemma C.3

SLOPE = 0.1


def moved(gamma, low, high, scale=0.5, points=4001):
    """W_1 between two normals with shares 0.6 + SLOPE theta and the rest, under two models."""
    atoms = np.linspace(-4, 4, points)
    density = np.exp(-(atoms**2) / 2) / np.exp(-(atoms**2) / 2).sum()

    def law(theta):
        shares = (0.6 + SLOPE * theta, 0.4 - SLOPE * theta)
        values = [mean + gamma * theta + scale * atoms for mean in (1.0, 3.0)]
        return np.concatenate(values), np.concatenate([share * density for share in shares])

    (first, p), (second, q) = law(low), law(high)
    return wasserstein_distance(first, second, p, q)


def test_it_dominates_and_is_tight_for_fixed_groups():
    bound = mixture_sensitivity(0.0, distance=2.0, share_slope=SLOPE)
    found = moved(0.0, 0.5, 1.5)
    assert 0.99 * bound < found <= bound * (1 + 1e-9)


def test_it_dominates_where_groups_move_too():
    for gamma in (0.05, 0.3, -0.3):
        assert moved(gamma, 0.5, 1.5) <= mixture_sensitivity(abs(gamma), 2.0, SLOPE) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["group_sensitivity", "distance", "share_slope"])
def test_numbers_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be finite and not negative"):
        mixture_sensitivity(**{"group_sensitivity": 0.0, "distance": 1.0, "share_slope": 1.0, name: -1.0})
