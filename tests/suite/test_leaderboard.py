"""The leaderboard: what is measured, kept, checked and ranked."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from performative.privacy.certification import guarantee
from performative.suite import campaign as campaign_part
from performative.suite.campaign import campaign, chosen
from performative.suite.methods import METHODS, means_of
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
    assert found["wild"].score.mean == pytest.approx(-0.05) and found["wild"].failures == 1
    assert found["absent"].score.mean == 0.0 and found["absent"].absent == 1
    assert [one.method for one in rank(results).standings] == ["good", "absent", "wild"]


def test_the_oracle_and_never_retraining_are_one_and_zero():
    env = make(ENV)
    assert measure(env, "oracle", QUICK).scores == pytest.approx((1.0, 1.0))
    assert measure(env, "stable", QUICK).facts["contraction"] == pytest.approx(0.5)
    assert measure(env, "never", QUICK).scores == pytest.approx((0.0, 0.0))


def test_what_is_there_is_not_run_again(tmp_path):
    pairs = [(ENV, ("never", "rgd"))]
    assert campaign(pairs, QUICK, tmp_path, say=lambda text: None).measured == 2
    kept = (tmp_path / ENV / "rgd.json").read_bytes()
    assert campaign(pairs, QUICK, tmp_path, say=lambda text: None).measured == 0
    (tmp_path / ENV / "rgd.json").unlink()
    assert campaign(pairs, QUICK, tmp_path, say=lambda text: None).measured == 1
    again = json.loads((tmp_path / ENV / "rgd.json").read_bytes())
    assert again | {"seconds": 0} == json.loads(kept) | {"seconds": 0}
    found = Store(tmp_path).results()[1]
    assert 0.9 < np.mean(found.scores) <= 1.0
    assert found.path[-1] == (found.deployments, pytest.approx(np.mean(found.scores))) and found.path[0][0] == 1
    # What was tuned quickly is not enough for a whole campaign.
    assert Store(tmp_path).has(ENV, "rgd", QUICK) and not Store(tmp_path).has(ENV, "rgd", Effort(2))


def test_a_fault_in_one_environment_does_not_stop_the_others(tmp_path, monkeypatch):
    from performative.suite import campaign as module

    def make_some(env):
        if env == "broken":
            raise RuntimeError("out of order")
        if env == "absent":
            raise FileNotFoundError("no such table")
        return make(env)

    monkeypatch.setattr(module, "make", make_some)
    pairs = [("broken", ("never",)), ("absent", ("never",)), (ENV, ("never",))]
    found = campaign(pairs, QUICK, tmp_path, say=lambda text: None)
    assert found.measured == 1 and found.left_out == {"absent": "no such table"}
    assert found.broken == {"broken": "RuntimeError: out of order"}


@pytest.mark.slow
def test_who_never_retrains_has_seen_what_a_learner_meets():
    """Means 4.5 and no drift yet; with outliers 0.9 * 4.5 + 0.1 * 40."""
    assert make("drift-linear-v1").never == pytest.approx(4.5)
    assert make("contaminated-gaussian-v1").never == pytest.approx(0.9 * 4.5 + 0.1 * 40.0)


@pytest.mark.slow
def test_a_promise_of_privacy_is_kept_or_the_method_left_out():
    env = make("private-quadratic-v1")
    assert env.promise == (1.0, 1e-5) and make("private-means-v1").promise is None
    assert "requires epsilon = 1 for each person, but this method has no guarantee" in measure(env, "rgd", QUICK).why
    kept = measure(env, "pcsgd", QUICK)
    assert kept.why is None and kept.failures == 0
    means = means_of(env)
    algorithm = METHODS["pcsgd"].make(means, **kept.tuned)
    assert 0.99 < guarantee(env.problem, algorithm).spent(means.rounds, 1e-5).epsilon <= 1.0


@pytest.mark.slow
def test_methods_play_games():
    found = measure(make("game-linear-v1"), "rgd", QUICK)
    assert found.why is None and np.mean(found.scores) > 0.5


@pytest.mark.slow
def test_methods_learn_from_noisy_means():
    found = measure(make("private-means-v1"), "rgd", QUICK)
    assert found.why is None and np.mean(found.scores) > 0.4


def test_slow_clients_do_fewer_local_steps():
    means = means_of(make("unequal-work-v1"))
    assert means.slots(5)["participation"].steps_of(10, 1).tolist() == [1, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert means.slots(1)["batch"].n == 10, "all wait for the slowest"


def test_flags_that_xla_does_not_know_are_seen():
    assert not campaign_part._starts("--xla_there_is_no_such_flag=1")


def test_a_model_that_is_far_away_has_diverged():
    from performative.suite.protocol import _risks

    env = make(ENV)
    assert _risks(env, np.array([2.0, 1e5, np.nan])) == pytest.approx([0.5, np.inf, np.inf])


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
        "whose score is": dataclasses.replace(good, scores=(0.999999,) * 10, risks=(risk + 1.0,) * 10),
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
