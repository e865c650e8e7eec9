"""Play in runs, against the same play by hand on the linear game; who moves when; banks that people leave."""

import os
import subprocess
import sys

import numpy as np
import pytest

import performative as pf

B = np.array([1.0, 2.0, 1.5])
M = np.array([[-1.0, 0.3, 0.2], [0.1, -1.5, 0.4], [0.3, 0.2, -0.8]])
PENALTY, RATE = 0.5, 0.1
QUIET = pf.Record(risks=False, consensus=False)


def game(play="simultaneous", movers=1, scale=0.0):
    return pf.cases.linear_game(B, M, PENALTY, scale, play, movers)


def by_hand(rounds, movers_of, steps=1, deploy="step", foresees=False):
    """[rounds + 1, 3], without noise."""
    p = np.zeros(3)
    path = [p]
    for r in range(rounds):
        new = p.copy()
        for i in movers_of(r):
            own, data = p[i], B[i] + M[i] @ p
            for _ in range(steps):
                if deploy == "step":
                    data = B[i] + M[i] @ p + M[i, i] * (own - p[i])
                own -= RATE * (-data - foresees * M[i, i] * own + PENALTY * own)
            new[i] = own
        p = new
        path.append(p)
    return np.stack(path)


def everybody(r):
    return range(3)


def one_by_one(r):
    return [r % 3]


def two_by_two(r):
    return [2 * r % 3, (2 * r + 1) % 3]


@pytest.mark.parametrize(
    ("play", "movers", "turn", "deploy"),
    [
        pytest.param("simultaneous", 1, everybody, "step", marks=pytest.mark.slow),
        ("simultaneous", 1, everybody, "round"),
        ("alternating", 1, one_by_one, "step"),
        pytest.param("alternating", 2, two_by_two, "round", marks=pytest.mark.slow),
    ],
)
def test_play_is_what_it_says(play, movers, turn, deploy):
    algorithm = pf.p_fedavg(RATE, local_steps=2, deploy=deploy)
    history = pf.run(game(play, movers), algorithm, 12, dtype="float64", record=QUIET)
    assert history.theta.shape == (1, 13, 3)
    np.testing.assert_allclose(history.theta[0], by_hand(12, turn, 2, deploy), rtol=1e-12)


def test_random_play_moves_so_many_players_a_round():
    algorithm = pf.p_fedavg(RATE)
    history = pf.run(game("random", 2), algorithm, 60, dtype="float64", record=QUIET, repeats=2)
    moved = np.diff(history.theta, axis=1) != 0
    assert np.all(moved.sum(axis=-1) == 2)
    share = moved.mean(axis=(0, 1))
    np.testing.assert_allclose(share, 2 / 3, atol=4 * np.sqrt(2 / 9 / 120))
    for path, who in zip(history.theta, moved, strict=True):
        np.testing.assert_allclose(path, by_hand(60, lambda r, who=who: np.flatnonzero(who[r])), rtol=1e-12)


@pytest.mark.slow
def test_the_whole_gradient_plays_nash():
    known = pf.p_fedavg(RATE, estimator=pf.estimators.Performative(None, term="pathwise"))
    history = pf.run(game(), known, 12, dtype="float64", record=QUIET)
    np.testing.assert_allclose(history.theta[0], by_hand(12, everybody, foresees=True), rtol=1e-12)


def test_risks_are_those_of_all_models_together():
    history = pf.run(game(), pf.p_fedavg(RATE), 40, dtype="float64", record=pf.Record(risks=1))
    p = history.theta[0, -1]
    each = -p * (B + M @ p) + PENALTY * p**2 / 2
    np.testing.assert_allclose(history["performative_risk"][0, -1], each.mean(), rtol=1e-9)
    np.testing.assert_allclose(history["risk_spread"][0, -1], each.std(), rtol=1e-9)


@pytest.mark.parametrize("deploy", [pytest.param("step", marks=pytest.mark.slow), pf.Every(3)])
def test_models_that_stay_with_clients_play_alike(deploy):
    """`PerClient` on a plain problem: the same play, the models at the end."""
    rounds, problem = 9, game().problem
    at_home = pf.p_fedavg(RATE, sharing=pf.sharing.PerClient(), deploy=deploy)
    alone = pf.run(problem, at_home, rounds, dtype="float64", record=QUIET)
    shared = pf.run(game(), pf.p_fedavg(RATE, deploy=deploy), rounds, dtype="float64", record=QUIET)
    np.testing.assert_allclose(alone.models[0], shared.theta[0, -1], rtol=1e-12)


@pytest.mark.slow
def test_executors_agree():
    found = [
        pf.run(game("alternating", 2, 1.0), pf.p_fedavg(RATE), 5, executor=name, dtype="float64", record=QUIET).theta
        for name in ("gather", "dense", "loop")
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-12)


@pytest.mark.slow
def test_a_federation_shares_its_model():
    """Two markets of one seller and one of another; the first seller steps along the mean of its gradients."""
    weights = np.array([0.2, 0.3, 0.5])
    m = np.array([[-1.0, 0.2], [-1.4, 0.1], [0.3, -1.0]])
    problem = pf.Problem(pf.losses.revenue(PENALTY), pf.populations.Market(B, m, 0.0), weights)
    one = pf.Game(problem, [0, 0, 1], play="alternating")
    history = pf.run(one, pf.p_fedavg(RATE), 10, dtype="float64", record=QUIET)
    mean = np.array([[0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
    p = np.zeros(2)
    for r in range(10):
        p[r % 2] += RATE * ((mean @ (B + m @ p))[r % 2] - PENALTY * p[r % 2])
    np.testing.assert_allclose(history.theta[0, -1], p, rtol=1e-12)


@pytest.mark.slow
def test_many_players_run_in_one_program(optimized_programs):
    """200 here, 1,000 in `benchmarks`; two rates are one program, which numbers do not compile again."""
    rng = np.random.default_rng(0)
    m = 0.2 * rng.standard_normal((200, 200)) / np.sqrt(200) - np.diag(rng.uniform(0.5, 1.0, 200))
    b = rng.uniform(1.0, 2.0, 200)
    many = pf.cases.linear_game(b, m, 1.0, 1e-3)
    swept = pf.sweep(many, pf.p_fedavg(0.2), {"rate": [0.2, 0.4]}, 60, record=QUIET)
    assert swept.programs == 1
    point = np.linalg.solve(np.eye(200) - m, b)
    for history in swept.histories:
        np.testing.assert_allclose(history.final[0], point, atol=5e-3)


@pytest.mark.slow
def test_a_population_that_reads_no_models_keeps_its_program():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0))
    assert not problem.population.reads_models and problem.population.player_count is None
    assert pf.populations.Sluggish(game().problem.population, 0.5).reads_models
    both = [
        pf.run(each, pf.p_fedavg(0.1, sharing=sharing), 5, record=QUIET)
        for each, sharing in ((problem, pf.sharing.Groups([0, 1])), (pf.Game(problem), pf.sharing.OneModel()))
    ]
    np.testing.assert_array_equal(both[0].theta, both[1].theta)


DEVICES = """
import numpy as np
import performative as pf

game = pf.cases.linear_game([1.0, 2.0, 1.5], 0.2 - np.eye(3), 0.5, 1.0, {play!r})
record = pf.Record(risks=1, consensus=False)
for parts in ({{}}, {{"sharing": pf.sharing.PerClient()}}):
    one, two = (
        pf.run(game, pf.p_fedavg(0.1, **parts), 5, dtype="float64", executor=name, record=record)
        for name in ("gather", "sharded")
    )
    assert two.meta["executor"] == "sharded over 2 devices"
    np.testing.assert_allclose(one.models, two.models, rtol=1e-12)
    np.testing.assert_allclose(one["performative_risk"], two["performative_risk"], rtol=1e-12)
"""


@pytest.mark.slow
@pytest.mark.parametrize("play", ["simultaneous", "alternating"])
def test_over_devices(play):
    """Three players on two devices: the rows that fill up are nobody's model."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", DEVICES.format(play=play)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_players_may_begin_apart():
    own = np.array([0.5, -1.0, 2.0])
    problem = game().problem
    apart = pf.Game(problem, start=own)
    history = pf.run(apart, pf.p_fedavg(RATE), 3, record=pf.Record(theta="all", risks=False, consensus=False))
    assert np.allclose(history.theta[0, 0], own)
    first = own - RATE * (-(B + M @ own) + PENALTY * own)
    assert np.allclose(history.theta[0, 1], first, atol=1e-6)
    whole = pf.Record(theta="all", risks=False)
    swept = pf.sweep(apart, pf.p_fedavg(RATE), over={"rate": [RATE]}, rounds=3, record=whole)
    assert np.allclose(swept.histories[0].theta[0], history.theta[0])
    with pytest.raises(ValueError, match="the game sets where its players start; leave theta out"):
        pf.run(apart, pf.p_fedavg(RATE), 3, 0.0)
    with pytest.raises(ValueError, match="start must have a leading axis of 3 players; got shape"):
        pf.Game(problem, start=np.zeros(2))
    with pytest.raises(ValueError, match=r"sharing=PerClient with Game\(start=...\): leave sharing out"):
        pf.run(apart, pf.p_fedavg(RATE, sharing=pf.sharing.PerClient()), 3)
