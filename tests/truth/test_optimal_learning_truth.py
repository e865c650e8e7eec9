"""Where learners of the optimal point end, in worlds whose stable and optimal points are known exactly.

A verdict is the point that the late models lie nearer to. All worlds of a test run as one compiled program.
"""

import warnings

import numpy as np
import pytest

import performative as pf

CLIENTS, REPEATS = 6, 3


def gaussian(seed, d=None, alike=False):
    """Clients whose levels go with their reactions, so that the two points lie apart; and the points."""
    rng = np.random.default_rng(seed)
    eps = np.full(CLIENTS, rng.uniform(0.3, 0.8)) if alike else rng.uniform(-0.5, 0.9, CLIENTS)
    mean = rng.normal(0, 1, (CLIENTS, d or 1)) + 4 * rng.choice([-1, 1], d or 1) * eps[:, None]
    p = rng.dirichlet(np.full(CLIENTS, 5.0))
    population = pf.populations.Gaussian(mean if d else mean[:, 0], eps, rng.uniform(0.5, 1.5))
    stable = p @ mean / (p @ (1 - eps))
    optimal = (p * (1 - eps)) @ mean / (p @ (1 - eps) ** 2)
    return pf.Problem(pf.losses.squared, population, p), stable, optimal


def pricing(seed):
    """Shops that learn a price. Retraining raises it to the end of the box."""
    rng = np.random.default_rng(seed)
    demand, slope, p = rng.uniform(5, 8, CLIENTS), rng.uniform(0.7, 3, CLIENTS), rng.dirichlet(np.full(CLIENTS, 5.0))
    population = pf.populations.Pricing(demand, slope, rng.uniform(0.5, 1.5))
    problem = pf.Problem(pf.losses.negative_revenue, population, p, domain=pf.Box(0.0, 9.0))
    return problem, np.asarray([9.0]), np.asarray([p @ demand / (2 * p @ slope)])


def late_models(worlds, algorithm, rounds, repeats=REPEATS):
    """Means over the second half of each run, [worlds, repeats, d]; and the histories."""
    problems = [{"problem": problem} for problem, *_ in worlds]
    start = np.zeros_like(np.asarray(worlds[0][1])) if worlds[0][0].population.model_shape() else 0.0
    found = pf.sweep(
        worlds[0][0],
        algorithm,
        problems,
        rounds,
        theta=start,
        repeats=repeats,
        record=pf.Record(consensus=False, risks=False),
    )
    assert found.programs == 1
    paths = np.stack([np.asarray(history.theta) for history in found.histories])
    late = paths[:, :, rounds // 2 :].mean(axis=2)
    return late.reshape(*late.shape[:2], -1), found.histories


def judge(tally, name, worlds, late):
    """Which point each run ended at, where chance lets one tell; and how far all of them are on the way to PS."""
    stable, optimal = (np.stack([world[i] for world in worlds]) for i in (1, 2))
    limit, error = late.mean(axis=1), late.std(axis=1, ddof=1) / np.sqrt(late.shape[1])
    apart = np.linalg.norm(stable - optimal, axis=1)
    unsure = apart < 8 * np.linalg.norm(error, axis=1)
    nearer = np.linalg.norm(limit - optimal, axis=1) < np.linalg.norm(limit - stable, axis=1)
    for i in range(len(worlds)):
        said = None if unsure[i] else "optimal" if nearer[i] else "stable"
        tally(f"settles at: {name}", said, "optimal", world=f"seed {i}: {limit[i]}, {stable[i]} and {optimal[i]}")
    way = np.sum((limit - optimal) * (stable - optimal), axis=1) / apart**2
    way = way[apart > np.median(apart) / 2]  # of two points in one place none is on the way to the other
    return way.mean(), way.std(ddof=1) / np.sqrt(len(way))


@pytest.mark.slow
@pytest.mark.parametrize("who", [pf.Full(), pf.SchemeTwo(3)], ids=["everyone", "some"])
def test_pooling_reaches_the_optimum_of_clients_that_react_differently(who, tally):
    worlds = [gaussian(seed) for seed in range(24)]
    algorithm = pf.pofl(
        0.15, window=10, batch=pf.Fixed(8), participation=who, aggregator=pf.aggregators.PooledJacobian()
    )
    late, _ = late_models(worlds, algorithm, 500)
    way, error = judge(tally, f"PooledJacobian, {type(who).__name__}", worlds, late)
    # After t steps a client's df/dtheta is the server's for 10 / (t + 10), which leads that part of the way to PS.
    steps = np.arange(250, 500) * who.size(CLIENTS) / CLIENTS
    assert abs(way - np.mean(10 / (steps + 10))) < 4 * error and error < 0.05


SETTINGS = {
    "window, everyone": {},
    "window, some": {"participation": pf.SchemeTwo(3)},
    "pooled, clusters": {"aggregator": pf.aggregators.PooledJacobian(clusters=2)},
    "pooled, clusters, some": {
        "aggregator": pf.aggregators.PooledJacobian(clusters=2),
        "participation": pf.SchemeOne(4),
    },
    "pooled, memory": {"aggregator": pf.aggregators.PooledJacobian(memory=200)},
    "pooled, round": {"aggregator": pf.aggregators.PooledJacobian(), "deploy": "round"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", ["scalar", "plane", "price"])
def test_learners_reach_the_optimum(name, kind, tally):
    make = {"scalar": gaussian, "plane": lambda seed: gaussian(seed, 2), "price": pricing}[kind]
    worlds = [make(seed) for seed in range(100, 200)]
    rate = pf.schedules.harmonic(20.0, 100.0) if kind == "price" else 0.15
    algorithm = pf.pofl(rate, window=10, batch=pf.Fixed(32), **SETTINGS[name])
    late, _ = late_models(worlds, algorithm, 1000)
    way, error = judge(tally, f"{kind}, {name}", worlds, late)
    assert abs(way) < 0.05 + 4 * error


@pytest.mark.slow
def test_one_reaction_for_all_is_checked_against_the_clients_own(tally):
    """alike=True: is it right? It is for clients that react alike, and for prices. Or the run does not know."""
    kinds = [gaussian(seed, alike=bool(seed % 2)) for seed in range(40)], [pricing(seed) for seed in range(16)]
    verdicts = []
    for worlds, rate in zip(kinds, (0.05, 0.02), strict=True):
        algorithm = pf.pofl(rate, window=10, batch=pf.Fixed(100), aggregator=pf.aggregators.PooledJacobian(alike=True))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _, histories = late_models(worlds, algorithm, 60, repeats=1)
        for seed, history in enumerate(histories):
            code = history.meta.get("notes", ["[]"])[0].split("[")[-1]
            verdict = {"]": True, "clients-react-differently]": False, "alike-not-tested]": None}[code]
            truth = worlds is kinds[1] or bool(seed % 2)
            tally("one df/dtheta for all", verdict, truth, world=f"{worlds[seed][0].population} seed {seed}")
            verdicts.append(verdict)
        told = [str(warning.message) for warning in said if "PooledJacobian(alike=True)" in str(warning.message)]
        assert len(told) == sum("notes" in history.meta for history in histories)
    assert np.mean([verdict is None for verdict in verdicts]) < 0.5
