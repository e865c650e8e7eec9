"""Plans against the exact error of what they choose: is the accuracy reached, and was there anything faster?"""

import numpy as np
import pytest

import performative as pf
from performative.plan.choices import cohorts, settings
from performative.plan.near import look_around
from performative.plan.settings import LocalMaps

N = 4
# What a plan takes longer than the best of its own grid, at most: settings are ranked by a linear model first, and only
# those that lead are followed exactly.
MARGIN = 1.25


def scalar_world(seed):
    """Clients that follow the model with any sign; small steps settle though retraining need not."""
    rng = np.random.default_rng(seed)
    eps = rng.normal(float(rng.choice([-2.5, -0.5, 0.3, 0.8])), 0.3, N)
    p = rng.dirichlet(np.full(N, 3.0))
    eps += min(0.0, 0.9 - p @ eps)  # a stable point that small steps settle at
    mean, scale = rng.normal(0.0, 2.0, N), rng.uniform(0.2, 2.0, N)
    stable = p @ mean / (1 - p @ eps)
    start = stable + float(rng.choice([-3.0, 3.0]))
    return mean, eps, scale, p, start


def moments(world, setting, rounds):
    """Exact mean squares by the theory's recursion, which the planner does not use."""
    mean, eps, scale, p, start = world
    E = setting.local_steps
    return pf.theory.gaussian_moments(
        mean, eps, scale, setting.eta(np.arange(rounds * E)), local_steps=E, weights=p, batch=setting.batch,
        start=start, scheme=setting.scheme, k=setting.k,
    ).mse  # fmt: skip


def first_within(mse, accuracy):
    """The first round from which on the error stays within a twentieth of the accuracy, and is below it there."""
    error = np.sqrt(mse)
    outside = np.flatnonzero(~(error <= 1.05 * accuracy))
    inside = np.flatnonzero(error <= accuracy)
    later = inside[inside > outside[-1]] if len(outside) else inside
    return int(later[0]) if len(later) else None


def check(tally, seeds, local_steps):
    for seed in seeds:
        world = scalar_world(seed)
        mean, eps, scale, p, start = world
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, eps, scale), p)
        accuracy = float(np.random.default_rng(seed).choice([0.1, 0.4, 1.0]))
        cost = pf.Cost(communication=float(np.random.default_rng(seed + 1).choice([1.0, 30.0])))
        how = f"seed {seed}, eps_bar {p @ eps:.3g}, accuracy {accuracy}"
        try:
            plan = pf.plan(problem, cost, accuracy, theta=start, local_steps=local_steps, batches=(2,))
        except ValueError as refusal:
            assert "no setting reaches" in str(refusal), how
            tally("plan: the accuracy is reached", None, True, how)
            continue
        mse = moments(world, plan.choice.setting, 2 * plan.rounds)
        tally("plan: the accuracy is reached", bool(np.sqrt(mse[plan.rounds]) <= accuracy * (1 + 1e-9)), True, how)
        tally("plan: no sooner", first_within(mse, accuracy) == plan.rounds, True, how)
        tally("plan: the error that it names", bool(np.isclose(plan.reached, np.sqrt(mse[plan.rounds]))), True, how)
        best = plan.time
        with_near = LocalMaps(look_around(problem, start), "step")
        for setting in settings(with_near, local_steps, (2,), cohorts(N, False)):
            each = cost.round_time(setting.scheme, setting.k or N, setting.local_steps, 2, p)
            if (limit := int(best / each)) >= 1:
                found = first_within(moments(world, setting, limit + 2), accuracy)
                best = min(best, np.inf if found is None else found * each)
        tally(
            f"plan: within {MARGIN} of its grid", bool(plan.time <= MARGIN * best), True, f"{how}: {plan.time} {best}"
        )


def test_scalar_worlds(tally):
    check(tally, range(3), (2,))


@pytest.mark.slow
def test_many_scalar_worlds(tally):
    check(tally, range(3, 60), (1, 4, 16))


def simulate(rng, world, setting, rounds, runs=4000):
    """P-FedAvg on Gaussian vectors in NumPy: squares of the final distance to the stable point, [runs]."""
    mean, each, scale, p, start = world
    d = mean.shape[1]
    stable = np.linalg.solve(np.eye(d) - np.einsum("i,ijk->jk", p, each), p @ mean)
    theta = np.tile(start, (runs, 1))
    for r in range(rounds):
        if setting.scheme == "one":
            weight = rng.multinomial(setting.k, p, runs) / setting.k
        elif setting.scheme == "two":
            chosen = np.argsort(rng.random((runs, N)), axis=1)[:, : setting.k]
            weight = np.zeros((runs, N))
            np.put_along_axis(weight, chosen, p[chosen] * N / setting.k, axis=1)
        else:
            weight = np.tile(p, (runs, 1))
        local = np.repeat(theta[:, None], N, axis=1)
        for e in range(setting.local_steps):
            eta = float(setting.eta(r * setting.local_steps + e))
            data = mean + np.einsum("ijk,rik->rij", each, local)
            data = data + scale * rng.normal(size=data.shape) / np.sqrt(setting.batch)
            local = local - eta * (local - data)
        theta = theta + np.einsum("ri,rij->rj", weight, local - theta[:, None])
    return np.sum((theta - stable) ** 2, axis=1)


def check_vectors(tally, seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        each, p = rng.normal(0.0, 0.4, (N, 2, 2)), rng.dirichlet(np.full(N, 3.0))
        slope = np.eye(2) - np.einsum("i,ijk->jk", p, each)
        if np.linalg.eigvals(slope).real.min() < 0.1:
            continue
        mean, scale = rng.normal(0.0, 2.0, (N, 2)), rng.uniform(0.2, 2.0, (N, 2))
        start = np.linalg.solve(slope, p @ mean) + rng.normal(0.0, 3.0, 2)
        world = mean, each, scale, p, start
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, each, scale), p)
        how = f"seed {seed}"
        if np.linalg.norm(start - np.linalg.solve(slope, p @ mean)) <= 0.6:
            with pytest.raises(ValueError, match="the start is already"):
                pf.plan(problem, pf.Cost(), 0.6, theta=start, local_steps=(2,), batches=(2,))
            continue
        plan = pf.plan(problem, pf.Cost(), 0.6, theta=start, local_steps=(2,), batches=(2,))
        assert plan.method == "exact moments", how
        square = simulate(rng, world, plan.choice.setting, plan.rounds)
        # Five standard errors of 4,000 runs.
        away = abs(np.mean(square) - plan.reached**2) / (np.std(square) / np.sqrt(len(square)))
        tally("plan: vectors reach the accuracy", bool(plan.reached <= 0.6 and away < 5), True, f"{how}, {away:.3g}")


@pytest.mark.slow
def test_vector_worlds(tally):
    check_vectors(tally, range(60))
