"""Groups in folders of logs: who was accepted, before and after, and what censoring hides."""

import json

import numpy as np
import pandas as pd
import pytest

from performative.audit.group_logs import groups_of_logs
from performative.audit.reading import read_logs

DEPLOYMENTS = "deployment,theta_x,theta_intercept\nv1,1,0\nv2,2,-1\n"


def bank(tmp_path, rows, toml="", deployments=DEPLOYMENTS):
    (tmp_path / "deployments.csv").write_text(deployments)
    rows.to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "audit.toml").write_text(toml)
    return tmp_path


def applicants():
    """v1: model x, v2: model 2x - 1; threshold 1. Accepted by hand."""
    return pd.DataFrame(
        [
            ("v1", "a", 0.5, 1, 0), ("v1", "a", 1.5, 1, 1), ("v1", "a", 1.0, 0, 1), ("v1", "b", 0.9, 1, 0),
            ("v1", "b", 0.0, 0, 0), ("v1", "b", 0.2, 1, 0),
            ("v2", "a", 1.1, 1, 1), ("v2", "a", 0.9, 0, 0), ("v2", "b", 1.0, 1, 1),
            ("v2", "b", 1.4, 0, 1), ("v2", "b", 0.3, 1, 0),
        ],
        columns=["deployment", "group", "x", "label", "accepted"],
    )  # fmt: skip


def test_rates_of_logs_by_hand(tmp_path):
    report = groups_of_logs(read_logs(bank(tmp_path, applicants(), "[decision]\nthreshold = 1\n")))
    a, b = report.by_deployment["v1"]
    assert (a.group, a.acceptance.hits, a.acceptance.trials, a.tpr.value, a.tnr.value) == ("a", 2, 3, 0.5, 0.0)
    assert (b.group, b.acceptance.hits, b.acceptance.trials, b.tpr.value, b.tnr.value) == ("b", 0, 3, 0.0, 1.0)
    a, b = report.after
    assert (a.acceptance.hits, a.acceptance.trials, a.tpr.value, a.tnr.value) == (1, 2, 1.0, 1.0)
    assert (b.acceptance.hits, b.acceptance.trials, b.tpr.value, b.tnr.value) == (2, 3, 0.5, 0.0)
    # v1's people under v2's model: 2x - 1 >= 1 where x >= 1, which is the same rule.
    a, b = report.before
    assert (a.acceptance.hits, b.acceptance.hits) == (2, 0) and "sample" in report.before_is
    x = applicants().x[:6].to_numpy()
    gap = np.array([[0.5, 0.0], [0.1, 0.8]]) / x.std()
    assert [v.value for v in report.burden] == pytest.approx(gap.mean(axis=1).tolist())
    assert report.bears == "b" and "standard deviations" in report.cost
    json.dumps(report.to_dict(), allow_nan=False)


def test_before_is_under_the_last_model(tmp_path):
    """v2's model is now 2x + 0.2 >= 1, so x >= 0.4: of v1's people 3 of group a and 1 of group b."""
    models = DEPLOYMENTS.replace("v2,2,-1", "v2,2,0.2")
    report = groups_of_logs(read_logs(bank(tmp_path, applicants(), "[decision]\nthreshold = 1\n", models)))
    a, b = report.before
    assert (a.acceptance.hits, b.acceptance.hits) == (3, 1)
    assert (a.tpr.value, b.tpr.value, a.tnr.value, b.tnr.value) == (1.0, 0.5, 0.0, 1.0)
    spread = applicants().x[:6].to_numpy().std()
    assert [v.value for v in report.burden] == pytest.approx([0.0, 0.5 * 0.2 / spread])


@pytest.mark.parametrize("source", ["accepted", "score", "theta"])
def test_who_was_accepted_may_come_from_three_places(tmp_path, source):
    rows = applicants()
    if source != "accepted":
        rows = rows.drop(columns="accepted")
    if source == "score":
        rows["score"] = np.where(rows.deployment == "v1", rows.x, 2 * rows.x - 1)
    logs = read_logs(bank(tmp_path, rows, "[decision]\nthreshold = 1\n"))
    assert logs.decides == source and logs.features == ("x",)
    np.testing.assert_array_equal(
        logs.groups.counts.sum(axis=(0, 1)), [[[1, 1, 0], [1, 2, 0], [0, 0, 0]], [[1, 3, 0], [1, 1, 0], [0, 0, 0]]]
    )


def test_a_low_score_may_be_the_good_one(tmp_path):
    rows = applicants().drop(columns="accepted")
    toml = '[decision]\nthreshold = 1\naccept = "below"\nqualified = 0\n'
    counts = read_logs(bank(tmp_path, rows, toml)).groups.counts.sum(axis=(0, 1))
    # Group b: scores 0.9, 0, 0.2 and 1 (on the line), 1.8, -0.4; labels 1 0 1 and 1 0 1; qualified are the 0s.
    np.testing.assert_array_equal(counts[1], [[0, 1, 0], [4, 1, 0], [0, 0, 0]])


def test_no_rule_and_no_decision(tmp_path):
    rows = applicants()
    report = groups_of_logs(read_logs(bank(tmp_path, rows)))
    assert report.before == report.by_deployment["v1"] and "as logged" in report.before_is
    assert not report.burden and report.bears is None
    assert any("No linear model with a threshold" in w for w in report.warnings)
    logs = read_logs(bank(tmp_path, rows.drop(columns="accepted")))
    assert any("It is unknown who was accepted" in note for note in logs.notes)
    assert groups_of_logs(logs).after[0].acceptance.trials == 0
    logs = read_logs(bank(tmp_path, rows.drop(columns=["accepted", "group"])))
    assert logs.groups is None
    with pytest.raises(ValueError, match="contain neither decisions nor groups"):
        groups_of_logs(logs)


def test_another_column_as_group(tmp_path):
    rows = applicants().assign(sex=["m", "w"] * 5 + [""])
    logs = read_logs(
        bank(tmp_path, rows.rename(columns={"group": "area"}), '[columns]\nignore = ["area"]\n'), groups="sex"
    )
    assert logs.groups.names == ("m", "w") and logs.groups.counts.sum() == 10
    assert any("1 rows have no group" in note for note in logs.notes)
    with pytest.raises(ValueError, match=r"no column 'sexx'. Did you mean 'sex'"):
        read_logs(tmp_path, groups="sexx")


def test_a_persons_id_is_no_group(tmp_path):
    rows = pd.DataFrame({"deployment": "v1", "x": np.arange(200.0), "group": np.arange(200), "accepted": 1})
    with pytest.raises(ValueError, match="more than 128 distinct groups"):
        read_logs(bank(tmp_path, rows))


def credit(rng, n, shift, censored):
    x = rng.normal(shift, 1.0, n)
    group = rng.choice(["a", "b"], n)
    accepted = (x > 0.5).astype(int)
    label = (rng.random(n) < 1 / (1 + np.exp(-x + shift))).astype(float)
    frame = pd.DataFrame({"x": x, "group": group, "accepted": accepted, "label": label})
    if censored:
        frame.loc[frame.accepted == 0, "label"] = np.nan
    return frame


@pytest.mark.parametrize("censored", [False, True])
def test_censored_outcomes_are_warned_of(tmp_path, censored):
    rng = np.random.default_rng(6)
    rows = pd.concat([credit(rng, 3000, s, censored).assign(deployment=v) for v, s in (("v1", 0.0), ("v2", 0.4))])
    logs = read_logs(bank(tmp_path, rows, "[decision]\nthreshold = 0.5\n"))
    report = groups_of_logs(logs, reaction=True)
    assert logs.censoring.censored == report.censoring.censored == censored
    assert any("WARNING: Outcomes are censored: 100% of the rejected" in note for note in logs.notes) == censored
    assert bool(report.warnings) == censored
    if censored:
        assert logs.label is None
        assert all(r.tpr is None and r.tnr is None for r in (*report.before, *report.after))
        assert all(0 < r.tpr_bounds[0] < 0.7 and r.tpr_bounds[1] == 1.0 for r in report.after)
        assert not report.improvement and "cannot be told apart" in report.assumption
    else:
        # Features rose by 0.4 and the chance of a good outcome did not: gaming, in both groups.
        assert [c.verdict for c in report.improvement] == ["gaming", "gaming"]
        assert all(r.tpr is not None for r in report.after)
    json.dumps(report.to_dict(), allow_nan=False)
