"""The rates of the slides: bounds with constants dominate exact errors, orders are those of exact limits."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from performative.theory import (
    CyclicAssumptions,
    FederatedAssumptions,
    SelectionAssumptions,
    biased_selection,
    cycle_point,
    cyclic_orders,
    effective_steps,
    extrapolation,
    fedavg,
    fedvarp,
    gaussian_moments,
    inconsistency,
    objective_weights,
    participation_variance,
    quadratic_floor,
    selection_floor,
    selection_orders,
    settled_point,
    tuned_orders,
)

TINY = 1e-12
MEAN = np.asarray([1.0, -2.0, 3.0, 5.0, 0.5])
EQUAL, UNEQUAL = np.full(5, 0.8), np.asarray([0.5, 1.3, 0.2, 0.8, 1.1])  # slopes 1 - eps_i


def exact_error(slope, eta, tau, rounds, sigma=0.0, k=None, start=8.0):
    """E |grad F(x_t)|^2 of each round, exactly, and the assumptions that hold on the way."""
    run = gaussian_moments(
        MEAN, 1 - slope, sigma, np.full(rounds * tau, eta), local_steps=tau, start=start,
        scheme="full" if k is None else "two", k=k,
    )  # fmt: skip
    lam, level = slope.mean(), MEAN.mean()
    apart, off = slope - lam, MEAN - level
    spread = [np.mean((apart * x - off) ** 2 + apart**2 * v) for x, v in zip(run.mean, run.variance, strict=True)]
    gap = lam / 2 * (start - level / lam) ** 2
    return lam**2 * run.mse, FederatedAssumptions(float(slope.max()), sigma, math.sqrt(max(spread)), gap, 5)


# FedAvg


@pytest.mark.parametrize("slope", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("sigma", [0.0, 1.5])
def test_the_bound_dominates_the_exact_error(slope, k, sigma):
    for tau, eta, rounds in itertools.product((1, 3, 8), (0.005, 0.02), (10, 400)):
        errors, given = exact_error(slope, eta, tau, rounds, sigma, k)
        found = fedavg(given, eta, tau, rounds, k)
        assert not found.unmet
        assert found.total >= errors[:rounds].mean() - TINY >= errors[:rounds].min() - TINY


def test_constants_by_hand():
    given = FederatedAssumptions(2.0, 3.0, 0.5, 7.0, 10)
    eta, tau, T, K = 0.01, 4, 50, 5
    w = 0.5 / (0.5 * 9)
    assert participation_variance(10, 5) == pytest.approx(w)
    slide = fedavg(given, eta, tau, T, K, printed=True)
    assert slide.transient == pytest.approx(7 / 2) and slide.participation == pytest.approx(0.04 * 2 * w * 0.25)
    assert slide.noise == pytest.approx(0.01 * 2 * 9 / 5 + 1e-4 * 4 * 3 * 9)
    assert slide.drift == pytest.approx(1e-4 * 4 * 12 * 0.25)
    full = fedavg(given, eta, tau, T, K)
    A = 1 + 4 * 0.04 * 2 * w
    assert full.total == pytest.approx(
        4 * 3.5 + 4 * 0.036 + 4 * A * 1e-4 * 4 * 27 + 8 * slide.participation + 8 * A * slide.drift
    )
    assert fedavg(given, eta, tau, T).participation == 0.0


def test_long_steps_are_refused_and_do_diverge():
    given = FederatedAssumptions(1.0, 1.0, 1.0, 1.0, 5)
    found = fedavg(given, 0.6, 1, 100)
    assert "eta tau L <= 1/2" in found.unmet[0] and found.total == math.inf
    assert "8 (1 + 4 eta tau L w)" in fedavg(given, 0.05, 10, 100).unmet[0]
    errors, steep = exact_error(EQUAL, 2.6, 1, 50)
    assert errors[-1] > errors[0] and fedavg(steep, 2.6, 1, 50).total == math.inf
    for wrong in ({"participants": 6}, {"rounds": 0}, {"eta": 0.0}, {"local_steps": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            fedavg(given, **{"eta": 0.1, "local_steps": 1, "rounds": 5, **wrong})
    with pytest.raises(ValueError, match="L must be a positive number"):
        FederatedAssumptions(0.0, 1.0, 1.0, 1.0, 5)


def test_the_floors_are_those_of_the_exact_recursion():
    # Drift: the exact fixed point.
    for tau, eta in ((1, 0.1), (4, 0.1), (10, 0.05)):
        errors, _ = exact_error(UNEQUAL, eta, tau, 2000)
        assert errors[-1] == pytest.approx(quadratic_floor(MEAN, UNEQUAL, eta, tau).drift, rel=1e-9, abs=1e-20)
    assert quadratic_floor(MEAN, EQUAL, 0.1, 7).drift == pytest.approx(0.0, abs=1e-25)
    # Noise and participation: limits as eta -> 0, with an error of order eta.
    for sigma, k, name in ((2.0, None, "noise"), (0.0, 2, "participation")):
        off = []
        for eta in (0.02, 0.01, 0.005):
            errors, _ = exact_error(EQUAL, eta, 3, int(20 / eta), sigma, k)
            off.append(errors[-1] / getattr(quadratic_floor(MEAN, EQUAL, eta, 3, sigma, k), name) - 1)
        off = np.abs(off)
        assert off[-1] < 0.02 and np.all(off[1:] < 0.6 * off[:-1])


def test_the_orders_of_the_slide():
    # Each printed term against the exact floor: the ratio has a limit, so the order is right, and here it is small.
    given = exact_error(UNEQUAL, 0.001, 5, 100, 1.0, 2)[1]
    for tau in (2, 10):
        small = [
            quadratic_floor(MEAN, UNEQUAL, eta, tau).drift / fedavg(given, eta, tau, 1, printed=True).drift
            for eta in (1e-3, 1e-4, 1e-5)
        ]
        assert small[1] == pytest.approx(small[2], rel=0.01) and 0 < small[2] <= 0.25
        g = UNEQUAL * (MEAN.mean() / UNEQUAL.mean()) - MEAN
        limit = ((tau - 1) * 1e-5 / 2 * np.mean(UNEQUAL * g)) ** 2
        assert quadratic_floor(MEAN, UNEQUAL, 1e-5, tau).drift == pytest.approx(limit, rel=1e-3)
        exact = quadratic_floor(MEAN, EQUAL, 1e-4, tau, 1.0, 2)
        equal = FederatedAssumptions(0.8, 1.0, float(np.std(MEAN)), 0.0, 5)
        slide = fedavg(equal, 1e-4, tau, 1, 2, printed=True)
        assert exact.participation == pytest.approx(slide.participation / 2)
        assert exact.noise == pytest.approx(0.8 * 1e-4 / 2 / 2) and exact.noise <= slide.noise


def test_tuned_orders_follow_from_the_terms():
    # eta = sqrt(M / (tau T)): the drift is M tau / T, where the slide has 1 / T.
    for M, tau, T in ((2, 3, 10**6), (4, 9, 10**8)):
        eta, m = math.sqrt(M / (tau * T)), 1000 * M
        slide = fedavg(FederatedAssumptions(1.0, 1.0, 1.0, 1.0, m), eta, tau, T, M, printed=True)
        noise, participation, drift = tuned_orders(tau, T, M)
        assert slide.transient == pytest.approx(noise) and eta / M == pytest.approx(noise)
        assert slide.participation == pytest.approx(participation, rel=1e-2)
        assert slide.drift == pytest.approx(drift * (tau - 1) / tau)


# FedVARP


def varp(slope, eta, tau, k, rounds, repeats=200, start=8.0, mean=MEAN, seed=0):
    """Plain NumPy, no noise: the models of the last round."""
    rng = np.random.default_rng(seed)
    m = len(mean)
    work = (1 - (1 - eta * slope) ** tau) / slope
    x, memory = np.full(repeats, start), np.zeros((repeats, m))
    for _ in range(rounds):
        chosen = np.argsort(rng.random((repeats, m)), axis=1)[:, :k]
        delta = -work * (slope * x[:, None] - mean)
        ours, theirs = (np.take_along_axis(rows, chosen, 1) for rows in (delta, memory))
        x = x + (ours - theirs).mean(1) + memory.mean(1)
        np.put_along_axis(memory, chosen, ours, 1)
    return x


def test_fedvarp_has_no_participation_error_and_keeps_the_drift():
    eta, tau, k = 0.05, 6, 2
    ends = varp(UNEQUAL, eta, tau, k, 600)
    floor = quadratic_floor(MEAN, UNEQUAL, eta, tau)
    np.testing.assert_allclose(ends, floor.point, rtol=1e-6)  # every run: no variance is left
    error = (UNEQUAL.mean() * ends[0] - MEAN.mean()) ** 2
    assert error == pytest.approx(floor.drift, rel=1e-4) and error > 1e-3
    given = exact_error(UNEQUAL, eta, tau, 600, 0.0, k)[1]
    ours, slide = (fedvarp(given, eta, tau, 10**9, k, printed=flag) for flag in (False, True))
    assert ours.participation == slide.participation == slide.drift == 0.0
    assert slide.total < error < ours.total  # the slide strikes out the drift; as an order it is there
    assert fedavg(given, eta, tau, 10**9, k, printed=True).participation > 0


def test_fedvarp_bears_shorter_steps():
    like, one = np.zeros(10), np.ones(10)
    assert np.mean(varp(one, 1.2, 1, 1, 150, mean=like) ** 2) > 10 * 8.0**2
    assert np.mean(varp(one, 0.5, 1, 1, 150, mean=like) ** 2) < 1e-3
    fedavg_end = gaussian_moments(like, 0.0, 0.0, np.full(150, 1.2), start=8.0, scheme="two", k=1).mse[-1]
    assert fedavg_end < 1e-3


# FedExP


def test_extrapolation_brings_nearer_where_all_sets_meet():
    rng = np.random.default_rng(0)
    for _ in range(100):
        m, d = rng.integers(2, 8), rng.integers(2, 10)
        target, x = rng.standard_normal(d), 3 * rng.standard_normal(d)
        normals = rng.standard_normal((m, d))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        deltas = (normals @ (target - x))[:, None] * normals  # onto hyperplanes through the target
        squares, mean = np.sum(deltas**2, axis=1), deltas.mean(0)
        widest = squares.mean() / (mean @ mean)
        step = float(extrapolation(squares, mean @ mean))
        assert widest >= 1 - TINY and step == pytest.approx(max(1.0, widest / 2))
        for s in (step, widest, 1.99 * widest):
            after = np.sum((x + s * mean - target) ** 2)
            promised = np.sum((x - target) ** 2) - s * (2 - s / widest) * squares.mean()
            assert after <= promised + 1e-9 < np.sum((x - target) ** 2)
        assert extrapolation(squares, mean @ mean, printed=True) == 1.0
    # Without a common point it may lead away: two clients that pull apart.
    deltas = np.asarray([1.0, -0.9])
    step = float(extrapolation(deltas**2, deltas.mean() ** 2))
    assert step > 100 and extrapolation(deltas**2, deltas.mean() ** 2, eps=1.0) == 1.0


# FedNova


P, TAU = np.asarray([0.4, 0.3, 0.2, 0.1]), np.asarray([5, 1, 3, 2])
M4, SLOPE4 = np.asarray([1.0, -2.0, 3.0, 5.0]), np.asarray([0.5, 1.3, 0.2, 0.8])


@pytest.mark.slow
def test_where_unequal_work_settles():
    for nova in (False, True):
        x = 0.0
        for _ in range(4000):  # the algorithm itself
            local = np.full(4, x)
            for k in range(5):
                local = np.where(k < TAU, local - 0.1 * (SLOPE4 * local - M4), local)
            x += float((P / TAU * effective_steps(P, TAU) if nova else P) @ (local - x))
        assert settled_point(M4, SLOPE4, P, 0.1, TAU, nova) == pytest.approx(x, rel=1e-9)
        # Small steps: the weights of the objective.
        w = P if nova else objective_weights(P, TAU)
        limit = (w @ M4) / (w @ SLOPE4)
        off = [abs(settled_point(M4, SLOPE4, P, eta, TAU, nova) - limit) for eta in (1e-3, 1e-4)]
        assert off[0] / off[1] == pytest.approx(10, rel=0.05)
    assert objective_weights(P, TAU) == pytest.approx(P * TAU / 3.1) and effective_steps(P, TAU) == pytest.approx(3.1)
    with pytest.raises(ValueError, match="tau_i >= 1"):
        objective_weights(P, [1, 2, 0, 4])


def test_inconsistency_bounds_the_gradient_and_is_attained():
    w = objective_weights(P, TAU)
    x = (w @ M4) / (w @ SLOPE4)
    gradients = SLOPE4 * x - M4
    bound = inconsistency(P, TAU, float(w @ gradients**2))
    assert 0 < (P @ gradients) ** 2 <= bound
    assert inconsistency(P, [3, 3, 3, 3], 10.0) == pytest.approx(0.0, abs=TINY)
    # Equality where the gradients are (p_i - w_i) / w_i.
    worst = (P - w) / w
    assert w @ worst == pytest.approx(0.0, abs=TINY)
    assert (P @ worst) ** 2 == pytest.approx(inconsistency(P, TAU, float(w @ worst**2)))


# Selection


CENTERS = np.asarray([0.0, 0.2, 0.4, 0.6, 0.8, 4.0])  # F_i = (x - center_i)^2 / 2


def ranked_weights(x, d):
    """E[weights] of the client with the highest loss among d of N drawn, by counting subsets."""
    losses = np.abs(CENTERS - x)
    weights = np.zeros(len(CENTERS))
    subsets = list(itertools.combinations(range(len(CENTERS)), d))
    for ids in subsets:
        weights[max(ids, key=lambda i: losses[i])] += 1 / len(subsets)
    return weights


def skew(d, models):
    regrets = (CENTERS - models[:, None]) ** 2 / 2
    best = CENTERS.mean()
    at_best = (CENTERS - best) ** 2 / 2
    chosen = np.stack([ranked_weights(x, d) for x in models])
    rho = (chosen @ regrets.T) / regrets.mean(axis=1)  # [chosen at, judged at]
    return rho.diagonal().min(), rho.min(), float(np.max(chosen @ at_best) / at_best.mean()), float(at_best.mean())


@pytest.mark.parametrize("d", [1, 2, 6])
def test_biased_selection_is_bounded_and_its_floor_too(d):
    models = np.linspace(-1.0, 5.0, 61)
    rho_bar, printed_rho_bar, rho_tilde, Gamma = skew(d, models)
    best, start, repeats = CENTERS.mean(), 4.9, 2000
    G = float(np.max(np.sqrt([ranked_weights(x, d) @ (CENTERS - x) ** 2 for x in models])))
    given = SelectionAssumptions(1.0, G, float(rho_bar), rho_tilde, Gamma, (start - best) ** 2)
    eta = 2 / (20 + np.arange(300))
    rng = np.random.default_rng(0)
    x, errors, models_met = np.full(repeats, start), [np.full(repeats, (start - best) ** 2)], []
    for step in eta:
        drawn = np.argsort(rng.random((repeats, 6)), axis=1)[:, :d]
        losses = np.abs(CENTERS[drawn] - x[:, None])
        chosen = np.take_along_axis(drawn, losses.argmax(1)[:, None], 1)[:, 0]
        x = x - step * (x - CENTERS[chosen])
        errors.append((x - best) ** 2)
        models_met += [x.min(), x.max()]
    assert models[0] <= min(models_met) and max(models_met) <= models[-1]
    errors = np.stack(errors)
    found = biased_selection(given, eta)
    assert not found.unmet
    assert np.all(found.total >= errors.mean(1) - 4 * errors.std(1) / math.sqrt(repeats) - TINY)
    # Where it settles: the mean model, since F - min F = (x - best)^2 / 2.
    floor = (x.mean() - best) ** 2 / 2
    assert floor <= selection_floor(given) + 1e-3
    if d == 1:
        assert (rho_bar, rho_tilde) == pytest.approx((1.0, 1.0)) and found.bias[-1] == pytest.approx(0.0, abs=1e-9)
    else:
        assert floor > 0.1 and 1 <= rho_bar < rho_tilde
    # With the slide's rho_bar, over all pairs, the bound is looser, and empty where the highest loss of all is chosen.
    pairs = biased_selection(dataclasses.replace(given, rho_bar=float(printed_rho_bar)), eta)
    assert bool(pairs.unmet) == (d == 6) and pairs.total[-1] >= found.total[-1] - TINY
    assert printed_rho_bar == 0 if d == 6 else printed_rho_bar > 0


def test_the_order_of_the_rate_in_rounds_and_skew():
    def last(rho, rounds, c=40.0):
        given = SelectionAssumptions(1.0, 1.0, rho, rho, 1.0, 1.0)
        return biased_selection(given, c / (c + np.arange(rounds))).total[-1]

    assert last(1.0, 20000) / last(1.0, 80000) == pytest.approx(4.0, rel=0.05)  # 1 / T
    assert last(1.0, 80000) / last(2.0, 80000) == pytest.approx(2.0, rel=0.05)  # 1 / rho_bar
    given = SelectionAssumptions(1.0, 1.0, 1.25, 2.0, 0.5, 1.0)
    assert selection_orders(given, 100) == pytest.approx((1 / 125, 0.5 * 0.6))
    assert selection_floor(given) == pytest.approx(0.3)


def test_selection_that_gives_no_guarantee_is_refused():
    # The lowest loss alone: at a client's own optimum nothing else is heard, rho_bar = 0.
    blind = SelectionAssumptions(1.0, 1.0, 0.0, 1.0, 0.5, 1.0)
    found = biased_selection(blind, [0.1, 0.1])
    assert "rho_bar > 0" in found.unmet[0] and np.all(np.isinf(found.total)) and selection_floor(blind) == math.inf
    flat = biased_selection(SelectionAssumptions(0.0, 1.0, 1.0, 1.0, 0.5, 1.0), [0.1])
    assert "strongly convex" in flat.unmet[0] and np.all(np.isinf(flat.total))
    assert selection_orders(blind, 10)[0] == math.inf
    with pytest.raises(ValueError, match="Gamma must be finite"):
        SelectionAssumptions(1.0, 1.0, 1.0, 1.0, -0.5, 1.0)


# Cyclic participation


def test_the_cycle_returns_to_its_point():
    groups, p = [[0], [1, 2, 3]], np.asarray([0.1, 0.2, 0.3, 0.4])
    x = 0.0
    for _ in range(2000):
        for ids in groups:
            local = np.full(len(ids), x)
            for _ in range(3):
                local = local - 0.1 * (SLOPE4[ids] * local - M4[ids])
            x = float(p[ids] / p[ids].sum() @ local)
    assert cycle_point(M4, SLOPE4, groups, 0.1, 3, p) == pytest.approx(x, rel=1e-10)
    # Unequal groups: what is left is not of order eta.
    stable = (p @ M4) / (p @ SLOPE4)
    assert abs(cycle_point(M4, SLOPE4, groups, 1e-6, 1, p) - stable) > 0.5


def test_equal_groups_have_the_order_of_the_slide():
    # F - min F after T rounds with eta ~ log(T) / T: within a constant of (log T / T)^2, as the slide's second term.
    groups = [[0, 1], [2, 3]]
    lam, level = SLOPE4.mean(), M4.mean()
    scaled = []
    for T in (200, 2000, 20000):
        eta = 4 * math.log(T) / (lam * T)
        a = [1 - eta * SLOPE4[ids].mean() for ids in groups]
        b = [eta * M4[ids].mean() for ids in groups]
        slope, point = a[0] * a[1], cycle_point(M4, SLOPE4, groups, eta)
        x = point + slope ** (T // 2) * (8.0 - point)
        assert b[0] * a[1] + b[1] == pytest.approx(point * (1 - slope))
        scaled.append(lam / 2 * (x - level / lam) ** 2 * (T / math.log(T)) ** 2)
    assert max(scaled) / min(scaled) < 1.5
    given = CyclicAssumptions(0.7, 1.3, 1.0, 2.0, 3.0, 4, 2, 2)
    orders = [cyclic_orders(given, T)[0] for T in (100, 200)]
    assert orders[0][0] == pytest.approx(4 / (4 * 1e4)) and orders[0][1] / orders[1][1] == pytest.approx(4.0)
    assert orders[0][2] == 0.0  # all of a group take part
    alone = cyclic_orders(CyclicAssumptions(0.7, 1.3, 1.0, 2.0, 3.0, 4, 1, 4), 100)[0]
    assert alone[1] == 0.0  # one group: no cycle


def test_the_last_factor_is_the_variance_of_a_draw_within_a_group():
    # 12 clients in 3 groups of 4, 2 of them a round: by counting all pairs.
    values = np.asarray([1.0, -2.0, 0.5, 0.5])
    values = values - values.mean()
    drawn = np.var([np.mean(pair) for pair in itertools.combinations(values, 2)])
    gamma2, C, K, m = np.mean(values**2), 2 / 12, 3, 12
    assert drawn == pytest.approx(gamma2 / C * (1 / K - C) / (m / K - 1))
    given = CyclicAssumptions(1.0, 2.0, 1.0, 2.0, math.sqrt(gamma2), 12, 3, 2)
    assert cyclic_orders(given, 50)[0][2] == pytest.approx(K * 2.0 / 50 * drawn)


def test_groups_that_do_not_fit_are_refused():
    for clients, groups, participants, mu, words in (
        (10, 3, 2, 1.0, "groups of equal size"), (12, 3, 5, 1.0, "C <= 1 / K-bar"), (12, 3, 2, 0.0, "PL condition"),
    ):  # fmt: skip
        orders, unmet = cyclic_orders(CyclicAssumptions(mu, 2.0, 1.0, 1.0, 1.0, clients, groups, participants), 10)
        assert words in unmet[0] and all(math.isinf(order) for order in orders)
