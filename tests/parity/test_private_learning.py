"""Private learning: the same in every executor, with every other part, in pieces and in sweeps."""

import numpy as np
import pytest

import performative as pf

CLIENTS, ROWS = 5, 12
RNG = np.random.default_rng(1)
P = np.asarray([0.3, 0.25, 0.2, 0.15, 0.1])
TABLES = pf.populations.Database(RNG.normal(1.0, 1.0, (CLIENTS, ROWS)), pf.populations.shifts.Linear(0.3))
PROBLEM = pf.Problem(pf.losses.squared, TABLES, P, domain=pf.Box(-5.0, 5.0))


COMPANY = {
    "poisson, Scheme I, work": dict(
        batch=pf.Poisson(0.3, 8), participation=pf.LocalWork(pf.SchemeOne(3), [1, 2, 3, 2, 1])
    ),
    "uniform, Scheme II, Varp": dict(
        batch=pf.Uniform(3), participation=pf.SchemeTwo(3), aggregator=pf.aggregators.Varp(), local_steps=2
    ),
    "shuffled, client noise, round": dict(
        batch=pf.Shuffled(4), channel=pf.channels.ClippedNoise(0.5, 0.3), deploy="round", local_steps=2
    ),
    "first K, every": dict(
        participation=pf.FirstK(3, pf.participation.Exponential(np.ones(CLIENTS))), deploy=pf.Every(2)
    ),
}
RECIPES = {
    "pcsgd": lambda **parts: pf.pcsgd(0.1, clip=0.5, noise_multiplier=0.7, **parts),
    "dicesgd": lambda **parts: pf.dicesgd(0.1, clip=0.5, memory_clip=2.0, noise_multiplier=0.7, **parts),
}


PAIRS = [(r, c) for r in RECIPES for c in COMPANY]
# One of each kind in every run of the tests, the others in the long one.
SOON = [("pcsgd", "poisson, Scheme I, work"), ("dicesgd", "uniform, Scheme II, Varp")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "company"), [pytest.param(*pair, marks=() if pair in SOON else pytest.mark.slow) for pair in PAIRS]
)
def test_executors_agree(recipe, company):
    algorithm = RECIPES[recipe](**COMPANY[company])
    runs = {
        executor: pf.run(
            PROBLEM, algorithm, 5, theta=1.0, dtype="float64", executor=executor, record=pf.Record(risks=False)
        )
        for executor in ("gather", "dense", "loop")
    }
    assert np.all(runs["gather"]["clipped"][:, -1] > 0) and np.all(runs["gather"]["rejected"] == 0)
    for executor in ("dense", "loop"):
        np.testing.assert_allclose(runs[executor].theta, runs["gather"].theta, rtol=1e-10)
        for name, values in runs["gather"].records.items():
            np.testing.assert_allclose(runs[executor][name], values, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_a_run_that_stopped_goes_on(tmp_path):
    algorithm = RECIPES["dicesgd"](**COMPANY["shuffled, client noise, round"])
    options = dict(theta=1.0, dtype="float64", record=pf.Record(risks=False))
    pf.run(PROBLEM, algorithm, 6, checkpoint=pf.Checkpoint(tmp_path / "a", every=3), **options)
    resumed = pf.run(PROBLEM, algorithm, 12, checkpoint=pf.Checkpoint(tmp_path / "a", every=3, resume=True), **options)
    np.testing.assert_array_equal(resumed.theta, pf.run(PROBLEM, algorithm, 12, **options).theta)


@pytest.mark.slow
def test_noise_and_clip_can_be_swept():
    algorithm = RECIPES["dicesgd"](batch=pf.Uniform(3))
    grid = {"estimator.noise_multiplier": [0.0, 2.0], "estimator.clip": [0.5, 1.0]}
    found = pf.sweep(PROBLEM, algorithm, over=grid, rounds=4, theta=1.0)
    for setting, history in zip(found.settings, found.histories, strict=True):
        estimator = pf.estimators.Dice(setting["estimator.clip"], 2.0, setting["estimator.noise_multiplier"])
        alone = pf.run(
            PROBLEM,
            pf.p_fedavg(0.1, estimator=estimator, batch=pf.Uniform(3)),
            4,
            theta=1.0,
            record=pf.Record(risks=False),
        )
        np.testing.assert_allclose(history.theta, alone.theta, rtol=1e-5)


@pytest.mark.slow
def test_robust_optimal_and_private_for_clients():
    """PROFL whose updates are clipped and noisy: what no paper has, in one line."""
    problem = pf.cases.pricing_demands(clients=4, goods=1, contamination=0.1)
    channel = pf.channels.ClippedNoise(0.5, 0.1)
    algorithm = pf.profl(0.05, window=5, batch=pf.Fixed(100), channel=channel)
    history = pf.run(problem, algorithm, 60, record=pf.Record(risks=False), privacy=pf.Privacy(1e-5))
    clean = pf.cases.pricing_demands(clients=4, goods=1)
    stable, optimal = pf.stable_point(clean), pf.optimal_point(clean)
    assert np.all(np.abs(history.final - optimal) < 0.5 * np.abs(history.final - stable))
    assert history.meta["privacy"]["unit"] == "client" and np.isfinite(history["epsilon"][0, -1])


def test_a_clipped_model_stops_at_the_lower_bound():
    """Where a full step would go below the least loss, it is cut to just reach it in the linear model."""
    table = pf.Problem(pf.losses.squared, pf.populations.Database(np.full((1, 3), 2.0)))
    algorithm = pf.p_fedavg(10.0, estimator=pf.estimators.ClippedModel())
    theta = pf.run(table, algorithm, 3, theta=0.0, record=pf.Record(risks=False)).theta[0]
    # l = (theta - 2)^2 / 2 and |g|^2 = (theta - 2)^2: half of the way to 2 each time.
    np.testing.assert_allclose(theta, [0.0, 1.0, 1.5, 1.75], rtol=1e-6)
