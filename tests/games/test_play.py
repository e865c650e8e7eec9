"""What is said of play before and after a run, against what play does."""

import dataclasses

import numpy as np
import pytest

import performative as pf

# Two sellers: each follows the other (q) in opposite directions, so that play turns.
QUIET = pf.Record(risks=False, consensus=False)


def turning(q, play="simultaneous", penalty=0.0, own=0.0):
    return pf.cases.linear_game([1.0, 0.5], [[-own, q], [-q, -own]], penalty, 0.0, play)


def ways(game, rate, steps=1, deploy="step"):
    """Spectral radius of the recursion, by hand."""
    m = np.asarray(game.problem.population.coupling)
    penalty = float(game.problem.loss.penalty)
    slope = penalty * np.eye(2) - m
    whole = np.eye(2)
    for movers in [(0, 1)] if game.play == "simultaneous" else [(0,), (1,)]:
        new = whole.copy()
        for i in movers:
            row = np.eye(2)[i]
            frozen = -m[i].copy()
            if deploy == "step":
                frozen[i] = 0.0
            own = slope[i, i] if deploy == "step" else penalty
            mine = row
            for _ in range(steps):
                mine = mine - rate * (own * mine + frozen)
            new[i] = mine @ whole
        whole = new
    return float(np.max(np.abs(np.linalg.eigvals(whole)))) ** (1 if game.play == "simultaneous" else 0.5)


CASES = {
    "settles": (turning(0.5, penalty=0.5, own=0.5), 0.2, 1, "step"),
    "turns out": (turning(1.0), 0.2, 1, "step"),
    "local steps": (turning(0.8, penalty=1.0), 0.3, 4, "round"),
    "too long": (turning(0.1, penalty=1.0, own=1.0), 1.2, 1, "step"),
    "alternating": (turning(0.7, "alternating", 0.3), 0.2, 3, "step"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_outlook_is_the_radius_of_the_recursion(name):
    game, rate, steps, deploy = CASES[name]
    found = pf.play_outlook(game, pf.p_fedavg(rate, local_steps=steps, deploy=deploy))
    radius = ways(game, rate, steps, deploy)
    np.testing.assert_allclose(found.radius, radius, rtol=1e-8)
    assert found.verdict == ("settles" if radius < 1 else "leaves")
    m, b = (np.asarray(getattr(game.problem.population, name)) for name in ("coupling", "demand"))
    point = np.linalg.solve(float(game.problem.loss.penalty) * np.eye(2) - m, b)
    np.testing.assert_allclose(found.point, point, rtol=1e-8, atol=1e-9)


def test_turning_is_seen():
    found = pf.play_outlook(turning(1.0), pf.p_fedavg(0.2))
    assert found.verdict == "leaves" and found.turns
    np.testing.assert_allclose(found.period, 2 * np.pi / np.arctan(0.2), rtol=1e-8)
    straight = pf.play_outlook(turning(0.0, penalty=1.0), pf.p_fedavg(0.2))
    assert straight.verdict == "settles" and straight.turns is False and straight.period == np.inf


def test_the_edge_is_not_known():
    """Gradient play in turn circles for ever where nobody reacts to itself."""
    edge = pf.play_outlook(turning(1.0, "alternating"), pf.p_fedavg(0.2))
    assert edge.verdict == "unknown" and edge.turns
    np.testing.assert_allclose(edge.radius, 1.0, atol=1e-9)


def test_random_play_is_judged_in_mean_square():
    settles = pf.play_outlook(turning(0.5, "random", 0.5, 0.5), pf.p_fedavg(0.2))
    assert settles.verdict == "settles" and settles.radius < 1
    leaves = pf.play_outlook(turning(0.1, "random", 1.0, 1.0), pf.p_fedavg(2.5))
    assert leaves.verdict == "leaves"
    between = pf.play_outlook(turning(0.0, "random", 1.0), pf.p_fedavg(2.2))
    # The mean of 1 and -1.2 shrinks, their square does not.
    np.testing.assert_allclose(between.radius, np.sqrt((1 + 1.2**2) / 2), rtol=1e-8)
    assert between.verdict == "unknown"


def test_what_is_not_known_is_said():
    game = turning(0.5, penalty=0.5)
    adam = pf.aggregators.ServerOpt(pf.aggregators.Mean(), pf.optimizers.Momentum(0.5))
    reasons = {
        "ServerOpt": pf.p_fedavg(0.1, aggregator=adam),
        "rate changes": pf.p_fedavg(pf.schedules.harmonic(1.0, 10.0)),
        "not deployed each step": pf.p_fedavg(0.1, deploy=pf.Every(3)),
        "different amounts of work": pf.p_fedavg(0.1, participation=pf.LocalWork(pf.Full(), [1, 2])),
    }
    for reason, algorithm in reasons.items():
        found = pf.play_outlook(game, algorithm)
        assert found.verdict == "unknown" and reason in found.reason and np.isnan(found.radius)
    off = pf.play_outlook(game, pf.p_fedavg(0.1), point=np.array([5.0, 5.0]))
    assert off.verdict == "unknown" and "does not rest" in off.reason
    slow = pf.populations.Sluggish(game.problem.population, 0.5)
    late = pf.play_outlook(pf.Game(dataclasses.replace(game.problem, population=slow)), pf.p_fedavg(0.1))
    assert late.verdict == "unknown" and "remember" in late.reason


def made(path, stopped=-1, models=None):
    """A history of this mean path [records, ...]."""
    theta = np.asarray(path, float)[None]
    rounds = np.arange(theta.shape[1])
    return pf.History(
        theta=theta, rounds=rounds, records={}, risk_rounds=rounds[:0], risks={}, weights=np.ones(2) / 2,
        participation=None, stopped_at=np.array([stopped]), meta={}, models=models,
    )  # fmt: skip


T = np.arange(400.0)


def circle(radius, angle=0.17):
    return np.stack([radius * np.cos(angle * T), radius * np.sin(angle * T)], axis=1)


PATHS = {
    "settled": [1 - np.exp(-T / 20)[:, None] * np.ones(2), circle(np.exp(-T / 40)) + 3.0 * np.exp(-T / 30)[:, None]],
    "cycles": [circle(1.0 + 0 * T), np.stack([(-1.0) ** T, 0 * T], axis=1), circle(1 + np.exp(-T / 30), 0.31)],
    "diverged": [circle(np.exp(T / 40))],
    "unknown": [
        circle(np.exp(-T / 400)),  # closes in slowly
        circle(np.exp(T / 400)),  # opens slowly
        np.stack([T, 0 * T], axis=1),  # walks on
        np.stack([np.log(1 + T), 0 * T], axis=1),
        np.random.default_rng(0).standard_normal((400, 2)),  # noise alone
        np.cumsum(np.random.default_rng(1).standard_normal((400, 2)), axis=0),
        np.stack([1 / (1 + np.exp(-(T - 380) / 15)), 0 * T], axis=1),  # leaves a saddle at last
        circle(1.0 + 0 * T)[:30],
    ],
}


@pytest.mark.parametrize(("kind", "number"), [(kind, i) for kind, paths in PATHS.items() for i in range(len(paths))])
def test_a_path_is_recognized_or_not_known(kind, number):
    assert pf.play_verdict(made(PATHS[kind][number])).kind == kind


def test_the_period_is_told():
    found = pf.play_verdict(made(circle(1.0 + 0 * T, 2 * np.pi / 25)))
    assert found.kind == "cycles" and found.period == 25
    assert pf.play_verdict(made(circle(1.0 + 0 * T), stopped=7)).kind == "diverged"
    still = made(np.ones((400, 2)), models=np.ones((1, 2)))
    assert pf.play_verdict(still).kind == "unknown" and "kept their models" in pf.play_verdict(still).reason


@pytest.mark.slow
def test_runs_do_what_was_foretold():
    """Turning play in one program: two that settle or diverge, and one on the edge, which cycles."""
    algorithm = pf.p_fedavg(0.3)
    ends = {}
    for name, play, penalty in (("in", "alternating", 0.3), ("edge", "alternating", 0.0), ("out", "simultaneous", 0.0)):
        game = turning(1.0, play, penalty)
        history = pf.run(game, algorithm, 300, dtype="float64", record=QUIET)
        ends[name] = pf.play_outlook(game, algorithm).verdict, pf.play_verdict(history).kind
    assert ends == {"in": ("settles", "settled"), "edge": ("unknown", "cycles"), "out": ("leaves", "diverged")}
