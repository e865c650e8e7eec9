"""The scoreboard against the same figures worked out by hand."""

import functools
import re

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import performative as pf
from performative.scoreboard import COLUMNS, Scoreboard, making, scoreboard

PENALTY, ROUNDS, REPEATS = 0.05, 60, 4
STRENGTH = np.array([0.2, 1.4])
# One structure for all, so that it compiles once.
STEPS = functools.partial(pf.p_fedavg, local_steps=2, batch=pf.Fixed(8))
NAMES = ["majority class", "static baseline", "stable point", "optimal point"]


def people(seed, rows=60):
    """Two clients; 30% are ones; two features that matter and a column of ones."""
    rng = np.random.default_rng(seed)
    y = (np.arange(rows)[None, :].repeat(2, axis=0) < 0.3 * rows).astype(int)
    x = rng.standard_normal((2, rows, 2)) + y[..., None] * np.array([1.5, 1.0])
    return np.concatenate([x, np.ones((2, rows, 1))], axis=2), y


def problem_of(x, y, strength=STRENGTH, weights=None):
    population = pf.populations.Strategic(x, y, strength, features=(0, 1))
    return pf.Problem(pf.losses.logistic(PENALTY, intercept=2), population, weights=weights)


def reacted(x, theta):
    """What people show once theta is deployed."""
    return x - STRENGTH[:, None, None] * theta * np.array([1.0, 1.0, 0.0])


def rates(x, y, theta):
    """Accuracy, TPR and TNR on rows as they are."""
    told = x @ theta > 0
    return np.mean(told == (y == 1)), np.mean(told[y == 1]), np.mean(~told[y == 0])


def risk(x, y, theta):
    score = x @ theta
    return np.mean(np.logaddexp(0, score) - y * score) + 0.5 * PENALTY * np.sum(theta[:2] ** 2)


@pytest.fixture(scope="module")
def board():
    algorithms = {
        "steps": STEPS(0.3),
        "blind": pf.fedavg(0.3, local_steps=2, batch=pf.Fixed(8)),
    }
    return scoreboard(
        problem_of(*people(0)), algorithms, ROUNDS, held_out=problem_of(*people(1, 50)), repeats=REPEATS, seed=3
    )


def test_the_rows_are_all_there(board):
    assert [line.name for line in board.lines] == [*NAMES, "steps", "blind"]
    assert all(tuple(line.values) == COLUMNS for line in board.lines)
    assert board.people == 100 and board.held_out and board.notes == ()


def test_the_majority_class_is_the_share_of_the_commoner_label(board):
    line = board["majority class"]
    assert line.values["accuracy"] == line.values["believed"] == pytest.approx(0.7, abs=1e-12)
    assert (line.values["true_positive"], line.values["true_negative"]) == (0, 1)
    assert np.isnan(line.values["performative_risk"]) and line.errors == {}


def test_the_static_baseline_is_an_ordinary_logistic_fit(board):
    x, y = people(0)
    fit = LogisticRegression(C=1 / (y.size * PENALTY), tol=1e-10, max_iter=10_000).fit(
        x.reshape(-1, 3)[:, :2], y.reshape(-1)
    )
    np.testing.assert_allclose(board.points["static"], [*fit.coef_[0], fit.intercept_[0]], atol=1e-5)


def test_rates_and_risk_are_those_of_people_who_reacted(board):
    (x, y), (unseen, answers) = people(0), people(1, 50)
    for name, theta in zip(NAMES[1:], board.points.values(), strict=True):
        values = board[name].values
        seen = rates(reacted(unseen, theta), answers, theta)
        np.testing.assert_allclose([values[c] for c in ("accuracy", "true_positive", "true_negative")], seen)
        assert values["believed"] == pytest.approx(rates(unseen, answers, theta)[0], abs=1e-12)
        assert values["performative_risk"] == pytest.approx(risk(reacted(x, theta), y, theta), rel=1e-9)
        for point in ("stable", "optimal"):
            wanted = np.linalg.norm(theta - board.points[point])
            assert values[f"distance_to_{point}"] == pytest.approx(wanted, abs=1e-12)


def test_the_points_are_what_they_are_called(board):
    x, y = people(0)

    def moved(theta):
        return risk(reacted(x, theta), y, theta)

    stable, optimal = board.points["stable"], board.points["optimal"]
    # Retraining on the data that the stable point brings about gives it back; nothing beats the optimal point.
    retrained = minimize(lambda theta: risk(reacted(x, stable), y, theta), np.zeros(3), tol=1e-10).x
    np.testing.assert_allclose(stable, retrained, atol=1e-4)
    np.testing.assert_allclose(optimal, minimize(moved, stable, tol=1e-10).x, atol=1e-4)
    assert moved(optimal) < moved(stable) < moved(board.points["static"])


def test_algorithms_have_the_mean_and_error_of_their_repeats(board):
    (x, y), (unseen, answers) = people(0), people(1, 50)
    for name in ("steps", "blind"):
        ends = np.asarray(board.histories[name].final, float)
        accuracy = [rates(reacted(unseen, end), answers, end)[0] for end in ends]
        risks = [risk(reacted(x, end), y, end) for end in ends]
        for column, values in (("accuracy", accuracy), ("performative_risk", risks)):
            assert board[name].values[column] == pytest.approx(np.mean(values), rel=1e-9)
            assert board[name].errors[column] == pytest.approx(np.std(values, ddof=1) / np.sqrt(REPEATS), rel=1e-6)


def test_where_repeats_end_between_static_and_stable(board):
    static, line = board.points["static"], board.points["stable"] - board.points["static"]
    assert board.gap == pytest.approx(np.linalg.norm(line))
    for name, way in board.ways.items():
        place = (np.asarray(board.histories[name].final, float) - static) @ line / (line @ line)
        half = stats.t.ppf(1 - 0.025 / len(board.ways), REPEATS - 1) * stats.sem(place)  # all of them together
        assert (way.mean, way.half) == (pytest.approx(place.mean()), pytest.approx(half))
    # Those who watch the data go to the stable point, those who do not stay where no one reacted.
    assert board.detectable and board.ways["steps"].resolves
    assert abs(board.ways["steps"].mean - 1) < 0.3 and abs(board.ways["blind"].mean) < 0.3


def test_the_gain_in_accuracy_is_paired_by_person(board):
    unseen, answers = people(1, 50)
    right = [
        (reacted(unseen, theta) @ theta > 0) == (answers == 1)
        for theta in (board.points["stable"], board.points["static"])
    ]
    gain = right[0].astype(float) - right[1]
    assert board.accuracy_gain == pytest.approx(gain.mean(), abs=1e-12)
    wanted = np.sqrt(np.sum(0.25 * gain.var(axis=1) / 50))  # two clients of one weight
    assert board.accuracy_error == pytest.approx(wanted, abs=1e-12)


def test_the_table_in_words(board):
    table, words = str(board).split("\n\n")
    rows = table.split("\n")
    assert [row.split("  ")[0] for row in rows[1:]] == [*NAMES, "steps", "blind"]
    # Every column ends where its heading does.
    ends = [match.end() for match in re.finditer(r"\S+( \S+)*", rows[0])]
    for row in rows[1:]:
        assert len(row) == ends[-1] and all(row[end - 1] != " " and row[end : end + 2] in ("", "  ") for end in ends)
    assert "0.7000" in rows[1] and "±" in rows[5] and "±" not in rows[2]
    assert "100 people, held out" in words and "the performative effect is detectable" in words
    assert "NOT" not in words and f"steps {board.ways['steps'].mean:.2f} ±" in words


def test_the_frame_has_one_row_a_line(board):
    frame = board.frame()
    assert list(frame.index) == [*NAMES, "steps", "blind"]
    assert list(frame.columns) == [*COLUMNS, *(f"{column}_error" for column in COLUMNS)]
    assert frame.loc["steps", "accuracy"] == board["steps"].values["accuracy"]
    assert frame["accuracy_error"].isna().tolist() == [True] * 4 + [False] * 2
    with pytest.raises(KeyError, match="not a row"):
        board["nobody"]


def quick(problem, algorithms, rounds=1, **options):
    """A scoreboard whose points are given: nothing is solved but the static baseline."""
    return scoreboard(problem, algorithms, rounds, stable=[0.1, 0.1, 0.0], optimal=np.zeros(3), **options)


def test_an_effect_smaller_than_the_noise_is_not_detectable():
    problem = problem_of(*people(0), strength=STRENGTH / 100)
    board = scoreboard(problem, {"noisy": STEPS(1.0)}, ROUNDS, repeats=REPEATS, theta="static")
    assert 0 < board.gap < 0.05 and not board.detectable and board.ways["noisy"].half > 0.5
    assert "NOT detectable" in str(board) and "(inconclusive)" in str(board)


@pytest.mark.slow
def test_one_repeat_cannot_tell_and_what_a_run_warns_of_is_noted():
    dice = pf.dicesgd(0.1, clip=0.1, memory_clip=1e-3, noise_multiplier=0.0)
    board = quick(problem_of(*people(0)), {"once": dice}, repeats=1)
    assert not board.detectable and board["once"].errors == {}
    assert "requires repeats >= 2" in str(board) and "±" not in str(board).split("\n\n")[0]
    assert any(note.startswith("once: Dice(memory_clip=0.001) is too small") for note in board.notes)


def test_without_algorithms_the_four_rows_stand_alone():
    board = quick(problem_of(*people(0)), {})
    assert [line.name for line in board.lines] == NAMES and not board.detectable and not board.held_out
    assert board.people == 120


def test_clients_count_by_their_weights():
    x, y = people(0)
    y = np.stack([y[0], 1 - y[1]])  # 30% and 70% ones
    board = quick(problem_of(x, y, weights=np.array([0.9, 0.1])), {})
    assert board["majority class"].values["accuracy"] == pytest.approx(0.9 * 0.7 + 0.1 * 0.3)
    theta = board.points["static"]
    right = ((reacted(x, theta) @ theta > 0) == (y == 1)).mean(axis=1)
    assert board["static baseline"].values["accuracy"] == pytest.approx(right @ [0.9, 0.1])


def test_the_majority_is_that_of_those_who_are_trained_on():
    x, y = people(1)
    board = quick(problem_of(*people(0)), {}, held_out=problem_of(x, 1 - y))
    assert board["majority class"].values["accuracy"] == pytest.approx(0.3)


def test_repeats_that_diverge_are_left_out_and_named():
    board = quick(problem_of(*people(0)), {"wild": STEPS(1e9)}, ROUNDS, repeats=REPEATS, record=pf.Record(limit=10.0))
    assert any("wild: 4 of 4 repeats diverged" in note for note in board.notes)
    assert np.isnan(board["wild"].values["accuracy"]) and not board.detectable


def test_a_point_that_is_not_found_leaves_a_gap_and_a_note(monkeypatch):
    def nothing(*_, **__):
        raise ValueError("stable_point: no stable point was found.")

    monkeypatch.setattr(making, "equilibria", nothing)
    board = scoreboard(problem_of(*people(0)), {}, 1, optimal=np.zeros(3))
    assert np.isnan(board["stable point"].values["accuracy"]) and np.isnan(board.gap)
    assert "no row for the stable point. stable_point: no stable point was found." in str(board)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (pf.cases.house_pricing(), "has samples of shapes"),
        (pf.cases.pricing_demands(), "has samples of shapes"),
        (
            pf.Problem(pf.losses.ridge(0.1), pf.populations.Static(np.ones((1, 4, 2)), np.arange(4.0)[None])),
            r"labels y of 0 and 1; those of Static take other values too, such as \[2.0, 3.0\]",
        ),
    ],
    ids=["a slope", "no labels", "a quantity"],
)
def test_what_is_no_linear_classifier_is_refused(problem, message):
    start = np.zeros(2) if problem.population.model_shape() is None and "labels" in message else None
    with pytest.raises(ValueError, match=message):
        scoreboard(problem, {}, 1, theta=start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithms": [pf.p_fedavg(0.1)]}, "algorithms must be named"),
        ({"algorithms": {"stable point": pf.p_fedavg(0.1)}}, "already rows of the table"),
        ({"algorithms": {"ours": 3}}, "algorithms must be named"),
        ({"rounds": {"theirs": 3}}, r"one for each of the algorithms \['ours'\]"),
        ({"rounds": 0}, "rounds of ours must be a whole number"),
        ({"repeats": 0}, "repeats must be a whole number"),
        ({"theta": "stable"}, 'or "static"'),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    asked = {"algorithms": {"ours": pf.p_fedavg(0.1)}, "rounds": 1, "repeats": 2, "theta": None, **arguments}
    with pytest.raises(ValueError, match=message):
        making._check_arguments(**asked)  # the tests' own type checks would stop some before `scoreboard` does
    if "rounds" in arguments:
        with pytest.raises(ValueError, match=message):
            scoreboard(pf.cases.strategic_classes(), asked["algorithms"], asked["rounds"])


@pytest.mark.slow
def test_made_up_problems_of_other_kinds():
    """Fixed draws in the place of a table, and clients of different sizes."""
    board = scoreboard(pf.cases.strategic_classes(), {}, 1)
    assert isinstance(board, Scoreboard) and board.people is None and np.isnan(board.accuracy_error)
    assert board["majority class"].values["accuracy"] == pytest.approx(0.5)
    # Zheng et al. 2024, Table 2: 62.44 and 92.50%.
    assert board["stable point"].values["accuracy"] == pytest.approx(0.6244, abs=0.02)
    assert board["optimal point"].values["accuracy"] == pytest.approx(0.9250, abs=0.015)
    assert any("repels retraining" in note for note in board.notes)
    made_up = scoreboard(pf.cases.credit(), {}, 1)
    table = pf.cases.credit_table()
    assert made_up.people == len(table)
    assert made_up["majority class"].values["accuracy"] == pytest.approx(1 - table["default"].mean())
