"""The leaderboard: what is measured, kept, checked and ranked."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from performative.suite.campaign import campaign, chosen
from performative.suite.protocol import Effort, Result, measure
from performative.suite.ranking import rank
from performative.suite.registry import make
from performative.suite.store import Store, check_result, read_result

ENV = "gaussian-contracting-v1"
QUICK = Effort(2, quick=True)


def made(env, method, scores, **more):
    return Result(env, method, tuple(scores), tuple(-score for score in scores), **more)


def test_ranks_are_those_of_friedman():
    rng = np.random.default_rng(0)
    table = rng.uniform(size=(7, 4)) + np.asarray([0.0, 0.2, 0.4, 0.6])
    results = [made(f"e{i}-v1", f"m{k}", [table[i, k]] * 3) for i in range(7) for k in range(4)]
    board = rank(results)
    places = stats.rankdata(-table, axis=1).mean(axis=0)
    assert {one.method: one.rank for one in board.standings} == pytest.approx({f"m{k}": places[k] for k in range(4)})
    assert board.chance == pytest.approx(stats.friedmanchisquare(*table.T).pvalue)
    # Demsar 2006, Table 5: q = 2.569 for four methods.
    assert board.difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 7)), rel=1e-3)


def test_failures_count_and_absence_is_never_retraining():
    results = [
        made("e-v1", "good", [0.9, 0.9]),
        made("e-v1", "wild", [0.9, -np.inf], failures=1),
        made("e-v1", "absent", [], why="it needs data"),
    ]
    found = {one.method: one for one in rank(results).standings}
    assert found["wild"].score == pytest.approx(-0.05) and found["wild"].failures == 1
    assert found["absent"].score == 0.0 and found["absent"].absent == 1
    assert [one.method for one in rank(results).standings] == ["good", "absent", "wild"]


def test_the_oracle_and_never_retraining_are_one_and_zero():
    env = make(ENV)
    assert measure(env, "oracle", QUICK).scores == pytest.approx((1.0, 1.0))
    assert measure(env, "never", QUICK).scores == pytest.approx((0.0, 0.0))


def test_what_is_there_is_not_run_again(tmp_path):
    pairs = [(ENV, ("never", "rgd"))]
    assert campaign(pairs, QUICK, tmp_path, say=lambda text: None) == 2
    kept = (tmp_path / ENV / "rgd.json").read_bytes()
    assert campaign(pairs, QUICK, tmp_path, say=lambda text: None) == 0
    (tmp_path / ENV / "rgd.json").unlink()
    assert campaign(pairs, QUICK, tmp_path, say=lambda text: None) == 1
    again = json.loads((tmp_path / ENV / "rgd.json").read_bytes())
    assert again | {"seconds": 0} == json.loads(kept) | {"seconds": 0}
    assert 0.9 < np.mean(Store(tmp_path).results()[1].scores) <= 1.0


def test_results_from_elsewhere_are_checked(tmp_path):
    env = make(ENV)
    risk = env.risk(env.stable.theta)
    good = Result(ENV, "mine", (env.score(env.stable.theta),) * 10, (risk,) * 10, 0, {}, 50, 20_000)
    Store(tmp_path).put(good)
    assert read_result(tmp_path / ENV / "mine.json") == good
    assert check_result(good) == []
    cases = {
        "no environment": dataclasses.replace(good, env="gaussian-contracting-v9"),
        "protocol 0": dataclasses.replace(good, protocol=0),
        "seeds": dataclasses.replace(good, scores=good.scores[:3], risks=good.risks[:3]),
        "over the budget": dataclasses.replace(good, deployments=51),
        "which is a score of": dataclasses.replace(good, scores=(0.999999,) * 10, risks=(risk + 1.0,) * 10),
        "failures": dataclasses.replace(good, failures=2),
    }
    for text, bad in cases.items():
        assert text in " ".join(check_result(bad)), text
    (tmp_path / "bad.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="not a result of the suite"):
        read_result(tmp_path / "bad.json")


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="p_fedavg"):
        chosen("p_fedavgg", ENV)
    with pytest.raises(ValueError, match=ENV):
        chosen("rgd", ENV[:-1] + "2")
