"""Points of `pf.theory` compared with the recursion they speak of, round by round: does it settle, and where?"""

import numpy as np
import pytest

from performative.theory import (
    ClippedQuadratic,
    PricingDescent,
    cycle_point,
    gaussian_points,
    linear_rate,
    quadratic_floor,
    settled_point,
)

WORLDS = [pytest.param(150, id="some"), pytest.param(3000, id="many", marks=pytest.mark.slow)]


def follow(step):
    """Where x <- step(x), affine, leads to after 2^60 rounds (by doubling), None where it does not settle."""
    b = float(step(0.0))
    a = float(step(1.0)) - b
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(60):
            a, b = np.float64(a) * a, np.float64(a) * b + b
    return float(b) if a < 0.5 else None


def descend(x, slope, mean, eta, steps):
    for _ in range(int(steps)):
        x = x - eta * (slope * x - mean)
    return x


def said(call):
    """What a function of the theory names, and its code where it refuses."""
    try:
        return call(), None
    except ValueError as refusal:
        return None, str(refusal).rsplit("[", 1)[-1].rstrip("]")


def draw(rng, clients=4):
    mean, slope = rng.normal(size=clients), rng.uniform(-1.5, 2.0, clients)
    eta = rng.choice([0.02, 0.1, 0.3, 1.0])
    return mean, slope, rng.dirichlet(np.ones(clients)), eta, rng.integers(1, 7, clients)


def judge(tally, name, answer, code, end, world):
    tally(f"{name}: settles", code is None, end is not None, world)
    if code is None and end is not None:
        tally(f"{name}: where", bool(abs(answer - end) <= 1e-8 * (1 + abs(end))), True, f"{world} {answer} {end}")
    if code is not None:
        tally(f"{name}: why not", code, "diverging-iteration", world)


def unequal_work(seed, nova, tally):
    mean, slope, p, eta, tau = draw(np.random.default_rng(seed))
    work = p * (p @ tau) / tau if nova else p

    def rounds(x):
        ends = [descend(x, s, m, eta, t) for s, m, t in zip(slope, mean, tau, strict=True)]
        return x + work @ (np.asarray(ends) - x)

    answer, code = said(lambda: settled_point(mean, slope, p, eta, tau, nova))
    judge(tally, "settled_point", answer, code, follow(rounds), f"seed {seed} nova {nova}")
    if code is not None:
        # The point that it runs away from is a fixed point all the same.
        point = settled_point(mean, slope, p, eta, tau, nova, attracting=False)
        off = abs(rounds(point) - point)
        tally("settled_point: repelling point", bool(off <= 1e-7 * (1 + abs(point))), True, f"seed {seed}")


@pytest.mark.parametrize("worlds", WORLDS)
def test_rounds_of_unequal_work(worlds, tally):
    for seed in range(worlds):
        unequal_work(seed, bool(seed % 2), tally)


def taking_turns(seed, tally):
    rng = np.random.default_rng(seed)
    mean, slope, p, eta, tau = draw(rng)
    groups = np.split(rng.permutation(4), [int(rng.integers(1, 4))])

    def cycle(x):
        for ids in groups:
            ends = np.asarray([descend(x, slope[i], mean[i], eta, tau[0]) for i in ids])
            x = x + p[ids] / p[ids].sum() @ (ends - x)
        return x

    answer, code = said(lambda: cycle_point(mean, slope, groups, eta, int(tau[0]), p))
    judge(tally, "cycle_point", answer, code, follow(cycle), f"seed {seed}")


@pytest.mark.parametrize("worlds", WORLDS)
def test_cycles_of_groups(worlds, tally):
    for seed in range(worlds):
        taking_turns(seed, tally)


def equal_work(seed, tally):
    mean, slope, _, eta, tau = draw(np.random.default_rng(seed))
    answer, code = said(lambda: quadratic_floor(mean, slope, eta, int(tau[0])).point)
    end = follow(lambda x: np.mean([descend(x, s, m, eta, tau[0]) for s, m in zip(slope, mean, strict=True)]))
    if slope.mean() <= 0:
        end = None  # rounds may settle, but there is no optimum that the floor could be measured from
    judge(tally, "quadratic_floor", answer, code, end, f"seed {seed}")


@pytest.mark.parametrize("worlds", WORLDS)
def test_rounds_of_equal_work(worlds, tally):
    for seed in range(worlds):
        equal_work(seed, tally)


def gaussian_means(seed, tally):
    rng = np.random.default_rng(seed)
    mean, eps, p = rng.normal(size=3), rng.uniform(-2.5, 2.5, 3), rng.dirichlet(np.ones(3))
    if seed % 5 == 0:  # on the edge: the mean sensitivity is 1 or -1, and now and then the mean of the data is 0
        eps = eps - p @ eps + (1.0 if seed % 10 else -1.0)
        mean = mean - (p @ mean if seed % 20 == 5 else 0.0)
        ends = {5: "every theta is stable", 15: "no stable point"}
        truth = ends.get(seed % 20, "one stable point, which neither attracts nor repels")
    else:
        end = follow(lambda x: p @ (mean + eps * x))
        truth = f"one stable point, which {'repels' if end is None else 'attracts'}"
    found = gaussian_points(mean, eps, p)
    tally("gaussian_points: verdict", found.verdict, truth, f"seed {seed}")
    if truth.startswith("one"):
        off = abs(p @ (mean + eps * found.stable) - found.stable)
        tally("gaussian_points: where", bool(off <= 1e-9 * (1 + abs(found.stable))), True, f"seed {seed}")
    # theta_PO: nowhere in sight is the performative risk smaller.
    risks = [p @ (x - mean - eps * x) ** 2 for x in found.optimal + np.array([0.0, -1.0, -1e-3, 1e-3, 1.0])]
    tally("gaussian_points: optimum", bool(np.argmin(risks) == 0), True, f"seed {seed}")


@pytest.mark.parametrize("worlds", WORLDS)
def test_retraining_of_gaussian_means(worlds, tally):
    for seed in range(worlds):
        gaussian_means(seed, tally)


@pytest.mark.parametrize("worlds", WORLDS)
def test_clipped_descent(worlds, tally):
    rng = np.random.default_rng(0)
    a, b, p, clip = (rng.uniform(*ends, worlds) for ends in ((0.2, 3.0), (0.2, 5.0), (0.02, 0.48), (0.1, 5.0)))
    beta = rng.uniform(0.0, 0.95, worlds) / a
    x = np.zeros(worlds)
    # It contracts by at least 1 - 0.5 (1 - p)(1 - a beta) a step once near, 0.987: 4000 of them leave nothing.
    for _ in range(4000):
        few, many = ((1 - a * beta) * x + a * b * large for large in (1, 0))
        x = x - 0.5 * (p * np.clip(few, -clip, clip) + (1 - p) * np.clip(many, -clip, clip))
    for i in range(worlds):
        limit = ClippedQuadratic(p[i], a[i], b[i], beta[i]).pcsgd_limit(clip[i])
        tally("pcsgd_limit: where", bool(abs(x[i] - limit) <= 1e-9 * (1 + abs(limit))), True, f"{i}: {x[i]} {limit}")


@pytest.mark.parametrize("worlds", WORLDS)
def test_pricing_by_noisy_gradients(worlds, tally):
    for seed in range(worlds // 3):
        rng = np.random.default_rng(seed)
        descent = PricingDescent(rng.uniform(1.0, 5.0, 3), rng.uniform(0.2, 2.0, 3), rng.dirichlet(np.ones(3)))
        eta, bias, variance = rng.uniform(0.05, 1.5), rng.normal(), rng.uniform(0.0, 2.0)
        limit, gaps = descent.limit(eta, bias, variance), descent.gaps(eta, 400, 3.0, bias=bias, variance=variance)
        grows = bool(gaps[-1] > gaps[200] * 1.5)
        tally("pricing limit: settles", bool(np.isfinite(limit)), not grows, f"seed {seed}")
        if not grows:
            # What is left after 400 steps of the start: (1 - 2 eta gamma)^400, measured by the last change.
            left = abs(gaps[-1] - gaps[-2]) * 1e3 + 1e-9 * (1 + limit)
            tally("pricing limit: where", bool(abs(gaps[-1] - limit) <= left), True, f"seed {seed} {gaps[-1]} {limit}")


def test_the_rate_near_a_stable_point(tally):
    rng = np.random.default_rng(0)
    H, root = rng.normal(size=(80, 3, 3)) + 1.5 * np.eye(3), rng.normal(size=(80, 3, 3))
    S, beta = root @ np.swapaxes(root, 1, 2), rng.uniform(0.3, 3.0, 80)
    # x <- (I - beta H / t) x + noise beta / t: its second moment step by step.
    P = np.zeros((80, 3, 3))
    for t in range(200, 4200):
        keep = np.eye(3) - beta[:, None, None] * H / t
        P = keep @ P @ np.swapaxes(keep, 1, 2) + (beta**2)[:, None, None] * S / t**2
    for i in range(80):
        found, least = linear_rate(H[i], S[i], beta[i]), beta[i] * np.linalg.eigvals(H[i]).real.min()
        tally("linear_rate: finite", bool(np.isfinite(found)), bool(least > 0.5), f"{i}")
        if least > 0.7:
            # What the start still owes after a factor of 21 in t: 21^(1 - 2 least), and 1 / t.
            owed = 10 * 21.0 ** (1 - 2 * least) + 0.02
            tally("linear_rate: value", bool(abs(4200 * np.trace(P[i]) / found - 1) < owed), True, f"{i}")
