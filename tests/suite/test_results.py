"""From results to differences, fronts, words and pages."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from performative.deploy import Explore, Growing, as_deployment
from performative.suite import published
from performative.suite.front import curve, front, on_front, score_after
from performative.suite.page import leaderboard_page
from performative.suite.pairs import interval, paired
from performative.suite.protocol import Result, deployments_of
from performative.suite.ranking import rank
from performative.suite.verdicts import verdicts

ENVS = ("gaussian-contracting-v1", "gaussian-federation-v1", "pricing-demand-v1")


def made(env, method, scores, **more):
    failures = sum(not math.isfinite(score) for score in scores)
    return Result(env, method, tuple(scores), tuple(-score for score in scores), failures, **more)


def board_of(table, stable=0.5, contraction=0.5):
    """Results of {method: [score of each environment]}, four seeds around each."""
    found = []
    noise = np.array([-0.01, 0.0, 0.0, 0.01])
    for method, scores in table.items():
        for env, score in zip(ENVS, scores, strict=True):
            path = ((1, score / 2), (10, score))
            found.append(made(env, method, score + noise, path=path, deployments=10, seconds=60.0, quick=True))
    facts = {"contraction": contraction, "gap": 0.2, "deployments": 10}
    return [*found, *(made(env, "stable", [stable] * 4, facts=facts, quick=True) for env in ENVS)]


def test_differences_are_paired_by_seed():
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 0.3, (2, 6))  # shared by both, so that it cancels
    one = [made(f"e{i}-v1", "a", 0.5 + luck[i] + 0.01 * rng.normal(size=6)) for i in range(2)]
    other = [made(f"e{i}-v1", "b", 0.4 + luck[i]) for i in range(2)]
    found = paired(one, other)
    each = np.mean([np.array(a.scores) - np.array(b.scores) for a, b in zip(one, other, strict=True)], axis=0)
    low, high = stats.t.interval(0.95, 5, each.mean(), stats.sem(each))
    assert (found.mean, found.low, found.high) == pytest.approx((each.mean(), low, high))
    assert not found.holds_zero and found.high - found.low < 0.05
    assert paired(other, other).holds_zero
    with pytest.raises(ValueError, match="same environments"):
        paired(one, other[:1])
    assert interval([1.0]).low == -math.inf


def test_a_run_that_diverged_counts_in_differences():
    good, wild = made("e-v1", "a", [0.9, 0.9]), made("e-v1", "b", [0.9, -math.inf])
    assert paired([good], [wild]).mean == pytest.approx((0.0 + 1.9) / 2)
    absent = Result("e-v1", "c", (), (), why="it needs data")
    assert paired([good], [absent]).mean == pytest.approx(0.9)


def test_the_front_is_what_nothing_dominates():
    slow = made("e-v1", "slow", [0.9] * 2, path=((1, 0.0), (4, 0.2), (16, 0.9)))
    lazy = made("e-v1", "lazy", [0.5] * 2, path=((1, 0.1), (4, 0.5)))
    poor = made("e-v1", "poor", [0.4] * 2, path=((1, -0.3), (4, 0.1), (16, 0.4)))
    assert front([slow, lazy, poor]) == [(1, "lazy", 0.1), (4, "lazy", 0.5), (16, "slow", 0.9)]
    assert on_front([slow, lazy, poor]) == {"lazy", "slow"}
    assert score_after(lazy, 100) == 0.5 and score_after(slow, 5) == 0.2 and score_after(slow, 0) == -1.0
    assert curve([slow], [16])[-1] == 0.9


@pytest.mark.parametrize(
    ("deploy", "expected"),
    [
        ("round", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("never", [0, 1, 1, 1, 1, 1, 1, 1]),
        (Growing(2, 1.0), [0, 1, 1, 2, 2, 2, 2, 3]),  # in rounds 0, 2, 6, 12, ...
        (Explore(0.5), [0, 1, 2, 3, 4, 5, 6, 7]),
        (Explore(0.5, rounds=3), [0, 1, 2, 3, 3, 3, 3, 3]),
    ],
)
def test_deployments_are_counted_as_made(deploy, expected):
    assert deployments_of(as_deployment(deploy), 7).tolist() == expected


def test_words_follow_from_scores():
    foreseen = verdicts(board_of({"pofl": [0.9, 0.95, 0.9], "rgd": [0.5, 0.5, 0.5], "qffl": [0.1, 0.1, 0.1]}))
    assert [one.family for one in foreseen] == ["all", "gaussian", "pricing"]
    assert foreseen[0].best == "pofl" and foreseen[0].ties == () and len(foreseen[0].envs) == 3
    assert "`pofl` closes 0.92" in foreseen[0].words and "Anticipating the reaction pays off" in foreseen[0].words
    assert "`rgd`, closes 0.50, 0.42 (0.42 to 0.42) less" in foreseen[0].words
    close = verdicts(board_of({"pofl": [0.9, 0.9, 0.93], "rgd": [0.9, 0.9, 0.9], "afl": [0.1, 0.1, 0.1]}))
    wild = [
        made(ENVS[2], "pofl", [0.0, 0.9, 1.4, 1.4]) if (r.env, r.method) == (ENVS[2], "pofl") else r
        for r in board_of({"pofl": [0.9] * 3, "rgd": [0.9] * 3, "afl": [0.1] * 3})
    ]
    assert "Anticipating the reaction pays off:" in close[0].words
    assert "It is unclear whether anticipating the reaction pays off" in verdicts(wild)[0].words
    enough = verdicts(board_of({"pofl": [0.1] * 3, "rgd": [0.95] * 3}, stable=0.96))[0]
    assert "retraining is enough" in enough.words and "diverged" not in enough.words
    passing = verdicts(board_of({"pofl": [0.1] * 3, "rgd": [0.95] * 3}, stable=0.3, contraction=1.5))[0]
    assert "stops on the way" in passing.words and "does not contract in 3 of 3" in passing.words
    alike = verdicts(board_of({"rgd": [0.9] * 3, "fedprox": [0.9] * 3}))[0]
    assert len(alike.ties) == 1 and "not significantly different" in alike.words


def test_who_does_not_apply_does_not_win():
    table = [made(ENVS[0], "pcsgd", [-0.5] * 4, path=((1, -0.5),)), Result(ENVS[0], "rgd", (), (), why="it may not")]
    found = verdicts(table)[0]
    assert found.best == "pcsgd" and found.ties == () and "No method that applies here" in found.words


def test_failures_are_in_the_words():
    table = [one for one in board_of({"rgd": [0.9] * 3, "pofl": [0.5] * 3}) if one.env == ENVS[0]]
    wild = made(ENVS[0], "one_point", [-math.inf, -math.inf, 0.3, 0.2], path=((1, -1.0),))
    words = verdicts([*table, wild])[0].words
    assert "2 of 12 runs diverged, most of them with `one_point`" in words


def test_environments_in_which_nothing_applies_have_no_ranks():
    table = board_of({"rgd": [0.9] * 3, "pofl": [0.5] * 3})
    table = [one if one.env != ENVS[2] else dataclasses.replace(one, scores=(), why="no") for one in table]
    board = rank(table)
    assert board.unused == (ENVS[2],) and board.envs == ENVS[:2]
    first, second = board.standings
    assert first.behind.mean == 0.0 and second.behind.mean == pytest.approx(0.4)
    assert (first.wins, first.front, second.front, second.harms) == (2, 2, 0, 0)


def test_a_method_from_elsewhere_in_one_environment_does_not_shrink_the_board():
    table = board_of({"rgd": [0.9] * 3, "pofl": [0.5] * 3})
    board = rank([*table, made(ENVS[0], "mine", [0.99] * 4)])
    assert board.envs == ENVS and board.partial == ("mine",) and "too few environments" in str(board)


def test_results_go_into_one_file_and_come_back(tmp_path):
    results = [*board_of({"rgd": [0.9, 0.123456, 0.4]}), made(ENVS[0], "one_point", [-math.inf, 0.5])]
    published.pack(published.collect(results), tmp_path / "all.json")
    back = published.unpack((tmp_path / "all.json").read_text())
    assert back.quick and back.seeds == 2 and back.minutes == 3.0 and len(back.results) == len(results)
    for one, other in zip(results, back.results, strict=True):
        assert (one.env, one.method, one.failures, one.facts) == (other.env, other.method, other.failures, other.facts)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-3)
    with pytest.raises(ValueError, match="not a results file"):
        published.unpack("[1]")
    with pytest.raises(ValueError, match="there are no results"):
        published.collect([])


def test_the_page_holds_everything_and_fetches_nothing():
    results = board_of({"pofl": [0.9, 0.95, 0.9], "rgd": [0.5, -0.5, 0.5]})
    page = leaderboard_page(published.collect(results)).decode()
    for text in ("What wins where", "Pareto fronts", "Anticipating the reaction pays off", *ENVS, "<code>pofl</code>"):
        assert text in page, text
    assert not re.search(r"<(?:script|img|link)\b[^>]*\b(?:src|href)=", page)


def test_shipped_results_are_of_this_suite():
    """Made by `performative suite run --quick` and `performative suite pack`."""
    from performative.suite.methods import METHODS
    from performative.suite.registry import ids
    from performative.suite.store import everything

    found = published.shipped()
    measured = {(one.env, one.method) for one in found.results}
    assert {env for env, _ in measured} == set(ids())
    assert measured == {(env, method) for env in ids() for method in everything()}
    assert found.seeds >= 4 and len(rank(found.results).standings) == len(METHODS) >= 18


def test_pages_are_made_from_the_shipped_results(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "docs" / "_ext"))
    import page_tables

    found = published.shipped()
    board, told = rank(found.results), verdicts(found.results)
    for page in ("choose.md", "suite.md"):
        shown = page_tables.generate((root / "docs" / page).read_text())
        assert "<!-- generate" not in shown
        for one in told:
            assert f"| {len(one.envs)} | `{one.best}` closes {one.score} of the gap" in shown, (page, one.family)
    for one in board.standings:
        assert f"| `{one.method}` | {one.rank:.1f} | {one.score} | {one.behind} |" in shown
    assert f"{found.minutes:.0f} minutes of CPU time" in shown
