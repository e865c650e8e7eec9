"""Scoreboards and comparisons against the truth; verdicts with a level by how often they raise a false alarm."""

import numpy as np
import pytest
from logistic_fit import fit, risk
from scipy import stats

import performative as pf
from performative.history import History
from performative.scoreboard.bench import sign_test
from performative.scoreboard.making import way


def at_most(alarms, worlds, level):
    """Whether so many false alarms are what a test of that level gives, but for one time in ten thousand."""
    return stats.binomtest(alarms, worlds, level, alternative="greater").pvalue > 1e-4


def history(values, theta=None):
    """A run that ended with these values, one a repeat."""
    repeats = len(values)
    records = {"loss": np.stack([np.zeros(repeats), values], axis=1)}
    models = np.stack([np.zeros(repeats), values if theta is None else theta], axis=1)
    return History(
        models, np.array([0, 1]), records, np.zeros(0, int), {}, np.ones(1), None, np.full(repeats, -1), {"seed": 0}
    )


LAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "heavy tails": lambda rng, shape: rng.standard_t(3, shape),
    "counts": lambda rng, shape: rng.binomial(4, 0.5, shape) / 4.0,
    "yes or no": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
}


@pytest.mark.parametrize(
    ("law", "repeats"),
    [
        pytest.param(law, repeats, marks=() if (i + j) % 3 == 0 else pytest.mark.slow)
        for i, law in enumerate(LAWS)
        for j, repeats in enumerate((2, 3, 8))
    ],
)
def test_two_methods_alike_are_told_apart_no_more_often_than_promised(law, repeats):
    """Three methods with one law: any pair that is told apart is a false alarm."""
    rng = np.random.default_rng(repeats)
    worlds = 300
    alarms = 0
    for _ in range(worlds):
        values = LAWS[law](rng, (3, repeats))
        runs = {name: history(v, rng.normal(size=repeats)) for name, v in zip("abc", values, strict=True)}
        found = pf.compare(runs, "loss")
        alarms += any(d.verdict != "no difference shown" for d in found.differences)
    assert at_most(alarms, worlds, 0.05), alarms


def test_methods_that_differ_are_ranked_the_right_way(tally):
    rng = np.random.default_rng(0)
    for number in range(300):
        gap, repeats = float(rng.choice([-2.0, -0.5, 0.5, 2.0])), int(rng.choice([3, 10, 30]))
        shared = rng.normal(size=repeats)
        runs = {"a": history(shared + gap + 0.3 * rng.normal(size=repeats)), "b": history(shared)}
        (d,) = pf.compare(runs, "loss", level=0.999).differences
        said = None if d.verdict == "no difference shown" else d.verdict == "a is smaller"
        tally("compare: which is better", said, gap < 0, f"world {number}, gap {gap}, {repeats} repeats")


def test_runs_without_chance_are_compared_exactly(tally):
    for a, b in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0)):
        runs = {"a": history(np.full(2, a)), "b": history(np.full(2, b))}
        (d,) = pf.compare(runs, "loss").differences
        said = {"a is smaller": -1, "b is smaller": 1, "no difference shown": 0}[d.verdict]
        tally("compare: without chance", said, int(np.sign(a - b)), f"{a} and {b}")


def test_equal_differences_of_random_runs_are_no_certainty():
    """Two repeats that both differ by one count: chance does so every other time."""
    models = np.array([0.3, 0.7])
    runs = {"a": history(np.array([1.0, 3.0]), models), "b": history(np.array([2.0, 4.0]), models + 1)}
    (d,) = pf.compare(runs, "loss").differences
    assert d.verdict == "no difference shown" and d.p_value == 0.5 and np.isinf(d.low)


@pytest.mark.parametrize(
    "people", [pytest.param(3, marks=pytest.mark.slow), 20, pytest.param(400, marks=pytest.mark.slow)]
)
def test_a_gain_in_accuracy_that_is_none_is_seldom_called_one(people):
    """Those whose answer changes gain or lose by the toss of a coin."""
    rng = np.random.default_rng(people)
    weight = rng.dirichlet(np.ones(3))
    worlds = 1000
    alarms = 0
    for _ in range(worlds):
        better = rng.binomial(people, 0.5, 3)
        alarms += sign_test(better, people - better, weight) <= 0.05
    assert at_most(alarms, worlds, 0.05), alarms


def test_the_sign_test_is_mcnemars_where_all_weigh_the_same():
    for better, worse in ((5, 0), (9, 3), (30, 31), (0, 0)):
        exact = stats.binomtest(better, better + worse, 0.5).pvalue if better + worse else 1.0
        found = sign_test(np.array([better]), np.array([worse]), np.ones(1))
        # Four standard errors of 9,999 draws.
        assert abs(found - exact) <= 4 * np.sqrt(exact * (1 - exact) / 9999) + 2e-4


@pytest.mark.parametrize("repeats", [2, 4, 16])
def test_intervals_on_the_way_hold_together(repeats):
    """Three algorithms that end at 0.3 on the way on average: a miss is an interval that leaves 0.3 out."""
    rng = np.random.default_rng(repeats)
    points = {"static": np.zeros(2), "stable": np.array([3.0, 4.0])}
    worlds, misses = 600, 0
    for _ in range(worlds):
        ends = 0.3 * points["stable"] + rng.normal(size=(3, repeats, 2))
        found = [way(list(e), points, 3) for e in ends]
        misses += any(abs(w.mean - 0.3) > w.half for w in found)
    assert at_most(misses, worlds, 0.05), misses


@pytest.mark.slow
def test_boards_of_strategic_people(tally):
    """Static, stable and their accuracies by Newton's method written here."""
    rng = np.random.default_rng(0)
    for number in range(30):
        x = rng.normal(size=(2, 60, 2))
        y = (rng.uniform(size=(2, 60)) < 1 / (1 + np.exp(-2 * x[..., 0]))).astype(int)
        strength, penalty = float(rng.uniform(0.1, 3.0)), 0.1
        problem = pf.Problem(pf.losses.logistic(penalty), pf.populations.Strategic(x, y, strength))
        board = pf.scoreboard(problem, {}, 1)
        world = f"number {number}, strength {strength:.3g}"
        static = fit(x, y, penalty, np.zeros(2))
        stable = static
        for _ in range(500):
            stable = fit(x - strength * stable, y, penalty, stable)
        right = bool(np.allclose(board.points["static"], static, atol=1e-8))
        tally("scoreboard: the static baseline", right, True, world)
        if np.allclose(fit(x - strength * stable, y, penalty, stable), stable, atol=1e-10):  # retraining did settle
            tally(
                "scoreboard: the stable point",
                bool(np.allclose(board.points["stable"], stable, atol=1e-6)),
                True,
                world,
            )
            accuracy = [np.mean(((x - strength * t) @ t > 0) == (y > 0)) for t in (stable, static)]
            gain = bool(abs(board.accuracy_gain - (accuracy[0] - accuracy[1])) < 1e-9)
            tally("scoreboard: the gain in accuracy", gain, True, world)
            risks = [risk(x - strength * t, y, penalty, t) for t in (static, stable)]
            found = [board[f"{n}"].values["performative_risk"] for n in ("static baseline", "stable point")]
            tally("scoreboard: risks", bool(np.allclose(found, risks, atol=1e-9)), True, world)
