"""Whose outcome is seen: where the model decides, labeled rows change with it and are not taken for everybody."""

import dataclasses
import json

import folders
import numpy as np
import pandas as pd
import pytest

from performative.audit.fillings import ALIKE, EVERY, NONE
from performative.audit.reading import read_logs
from performative.audit.report import audit_logs

pytestmark = pytest.mark.usefixtures("optimized_programs")

RULE = "[decision]\nthreshold = 0\n"
LABELLED = '[labels]\nmissing = "labeled"\n'
HIDDEN = ("score", "propensity")


def said(report):
    return json.dumps(report.to_dict())


@pytest.mark.parametrize("toml", [pytest.param("", marks=pytest.mark.slow), LABELLED])
def test_labels_of_the_accepted_invent_no_reaction(tmp_path, toml):
    """Nobody reacts; rows with a label are those that the model of the day accepted, and their means move with it."""
    folders.applicants_folder(tmp_path, toml, drop=HIDDEN)
    report = audit_logs(tmp_path)
    assert report.effect is None and not any(one.reacts for one in report.clients)
    assert report.warnings[0].startswith(
        "The model decided whose label is known: 100.0% of the accepted have one, 0.0%"
    )
    assert report.warnings[0].endswith("[selection-by-model]") and "no overlap" in report.warnings[0]
    assert "No reaction of the features was found" in report.verdict and "the label reacts is unknown" in report.verdict
    assert report.logs.selection.method == "withheld" and report.logs.label is None
    assert report.clients[0].tested == ("income", "debt")
    # The advice is to see others' outcomes, never to look at the accepted alone.
    assert report.advice.kind == "label" and "propensity" in report.advice.reasons[1]
    assert 'Say [labels] missing = "labeled"' not in said(report)


@pytest.mark.slow
def test_the_outlook_says_what_it_takes_for_labels_that_nobody_saw(tmp_path):
    """Labels follow the features alike for all, so the estimate is near what all labels give; the ends span it."""
    options = {"react": 0.5, "T": 14, "rows": 1500, "drop": HIDDEN, "drift": 0.0}
    folders.applicants_folder(tmp_path / "all", every=True, **options)
    folders.applicants_folder(tmp_path / "seen", **options)
    truth, report = audit_logs(tmp_path / "all"), audit_logs(tmp_path / "seen")
    # Features are tested where labels are not.
    assert report.effect and all(one.reacts for one in report.clients)
    assert "The label was not tested: the model decided whose label is known" in report.verdict
    found, known = report.prospect.outlook, truth.prospect.outlook
    assert [one.name for one in report.prospect.fillings] == [ALIKE, NONE, EVERY] and not truth.prospect.fillings
    # The contraction factor's own limits are 0.06 wide on either side; the points differ by sampling alone.
    assert found.contraction == pytest.approx(known.contraction, abs=0.06)
    np.testing.assert_allclose(found.stable, known.stable, atol=0.06)
    low, high = found.contraction_limits
    assert low < known.contraction < high and found.settles is None
    ends = np.array([one.stable for one in report.prospect.fillings])
    assert np.all((ends.min(axis=0) < known.stable) & (known.stable < ends.max(axis=0)))
    assert "57.2% of the people have no label, and theirs are assumed to be as labeled people" in report.verdict
    assert "(missing at random)" in report.verdict and "if they were all 1" in report.verdict
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))["outlook"]
    assert [one["name"] for one in told["fillings"]] == [ALIKE, NONE, EVERY]


def test_fillings_of_sums_are_those_of_rows(tmp_path):
    """All 0 and all 1 need no rows: means and covariances are those of the table filled in."""
    rows = folders.applicants_folder(tmp_path, T=4, rows=300, drop=HIDDEN)
    logs = read_logs(tmp_path)
    for name, value in ((NONE, 0.0), (EVERY, 1.0)):
        filled = rows.assign(label=np.where(rows.accepted == 1, rows.outcome, value))
        for client, log in logs.fillings[name].items():
            mine = filled[filled.client == client].groupby("deployment", sort=False)[["income", "debt", "label"]]
            np.testing.assert_allclose(log.mean, mine.mean(), rtol=1e-9)
            np.testing.assert_allclose(log.cov.reshape(-1, 3), mine.cov(), rtol=1e-9, atol=1e-12)


def test_people_whom_every_model_accepts(tmp_path):
    """A threshold leaves no overlap below it; above all thresholds everybody has a label, under every model."""
    rows = folders.applicants_folder(tmp_path, RULE, drop=HIDDEN)
    logs = read_logs(tmp_path)
    theta = pd.read_csv(tmp_path / "deployments.csv").to_numpy()[:, 1:].astype(float)
    always = np.all(rows[["income", "debt"]].to_numpy() @ theta[:, :2].T + theta[:, 2] >= 0, axis=1)
    found = logs.selection
    by = ["client", "deployment"]
    assert found.method == "always accepted"
    assert found.coverage == pytest.approx(
        always.mean() if not by else rows.assign(a=always).groupby(by).a.mean().min()
    )
    for name, log in logs.outcomes.items():
        kept = rows[always & (rows.client == name)].groupby("deployment", sort=False)
        np.testing.assert_allclose(log.mean, kept[["income", "debt", "outcome"]].mean(), rtol=1e-9)
        np.testing.assert_allclose(log.cov[3], kept[["income", "debt", "outcome"]].cov().to_numpy()[9:12], rtol=1e-9)
        np.testing.assert_array_equal(log.count, kept.size())
    report = audit_logs(tmp_path)
    assert report.effect is False and "people whom every deployed model accepts" in report.verdict
    assert report.clients[0].tested == ("income", "debt", "label", "cov(income, label)", "cov(debt, label)")


@pytest.mark.parametrize(
    ("drop", "toml"),
    [
        ((), ""),
        pytest.param(("propensity",), RULE, marks=pytest.mark.slow),
        pytest.param(("propensity", "score"), RULE, marks=pytest.mark.slow),
    ],
)
def test_accepted_at_random_stand_for_the_rejected(tmp_path, drop, toml):
    """A fifth of those below the threshold are accepted by lot: weighted, the labeled have everybody's means."""
    rows = folders.applicants_folder(tmp_path, toml, chance=0.2, rows=2000, drop=drop)
    logs = read_logs(tmp_path)
    found = logs.selection
    assert (found.kind, found.by, found.method, found.coverage) == ("model", "acceptance", "weighted", 1.0)
    assert ("logged as 'propensity'" in found.source) == (not drop)
    for name, log in logs.outcomes.items():
        mine = rows[rows.client == name].groupby("deployment", sort=False)
        truth = mine[["income", "debt", "outcome"]].mean().to_numpy()
        error = np.sqrt(log.column_variances / log.count[:, None])
        # 30 means each: four standard errors, of all rows and of the weighted ones together.
        assert np.all(np.abs(log.mean - truth) < 4 * error)
        kept = rows[(rows.client == name) & (rows.accepted == 1)].groupby("deployment", sort=False).outcome.mean()
        assert np.mean(kept - truth[:, 2]) > 4 * np.mean(error[:, 2]) / np.sqrt(len(truth))
        assert np.all(log.count < mine.size().to_numpy()) and np.all(log.count > 20)
        drawn = log.rows_kept()[0]
        spread = drawn.std(axis=0) / np.sqrt(len(drawn))
        assert np.all(
            np.abs(drawn.mean(axis=0) - rows[rows.client == name][["income", "debt", "outcome"]].mean()) < 5 * spread
        )


def test_labels_of_a_few_rejected_stand_for_them(tmp_path):
    """All accepted and a random tenth of the rejected have a label: acceptance itself is what it goes with."""
    rows = folders.applicants_folder(tmp_path, drop=HIDDEN, rows=1500, every=True)
    rng = np.random.default_rng(1)
    table = rows.drop(columns=["outcome", *HIDDEN])
    table["label"] = np.where((table.accepted == 1) | (rng.random(len(table)) < 0.1), rows.outcome, np.nan)
    table.to_parquet(tmp_path / "data.parquet", index=False)
    found = read_logs(tmp_path).selection
    assert found.method == "weighted" and "among the accepted and the rejected" in found.source
    assert found.rejected == pytest.approx(0.1, abs=0.01) and 20 <= found.effective[0] < found.effective[1]


def test_chances_that_are_wrong_are_found_out(tmp_path):
    """Logged chances of one half where they were one in five: weighted rows do not look like everybody."""
    folders.applicants_folder(tmp_path, chance=0.2, rows=2000, drop=("score",))
    table = pd.read_parquet(tmp_path / "data.parquet")
    table.loc[table.propensity < 1, "propensity"] = 0.5
    table.to_parquet(tmp_path / "data.parquet", index=False)
    found = read_logs(tmp_path).selection
    assert found.method == "withheld" and "still differ" in found.why


@pytest.mark.parametrize("value", [1.5, -0.1])
def test_chances_are_from_0_to_1(tmp_path, value):
    folders.applicants_folder(tmp_path, T=2, rows=20)
    table = pd.read_parquet(tmp_path / "data.parquet")
    table.loc[table.index[3], "propensity"] = value
    table.to_parquet(tmp_path / "data.parquet", index=False)
    with pytest.raises(ValueError, match=r"row 4: column 'propensity': must be a probability from 0 to 1"):
        read_logs(tmp_path)


@pytest.mark.parametrize("drop", [("accepted", "score", "propensity"), ("accepted", "propensity")])
def test_a_pattern_that_changes_with_the_model_is_seen_without_decisions(tmp_path, drop):
    folders.applicants_folder(tmp_path, LABELLED, drop=drop)
    logs = read_logs(tmp_path)
    assert (logs.selection.kind, logs.selection.method, logs.label) == ("model", "withheld", None)
    assert logs.selection.p_value < 1e-6 and "was ignored" in " ".join(logs.notes)


@pytest.mark.slow
def test_labels_missing_by_chance_are_no_selection(tmp_path):
    """A third has no label, by lot: features of all rows and labels of the others are tested."""
    rows = folders.applicants_folder(tmp_path, every=True, blind=0.33, drop=HIDDEN)
    logs = read_logs(tmp_path)
    assert (logs.selection.kind, logs.selection.method) == ("chance", "labeled") and logs.label is None
    mine = rows[rows.client == "bank-0"].groupby("deployment", sort=False)
    np.testing.assert_allclose(logs.clients["bank-0"].mean, mine[["income", "debt"]].mean())
    report = audit_logs(tmp_path)
    assert report.effect is False and "label" in report.clients[0].tested and not report.warnings
    (tmp_path / "audit.toml").write_text('[labels]\nmissing = "features"\n')
    left = audit_logs(tmp_path)
    assert left.effect is False and "No reaction of the features to the model" in left.verdict


def test_labels_that_go_with_people_and_not_with_the_model(tmp_path):
    """Who has debts answers no survey, under any model: rows with a label differ, but do not move with the model."""
    rows = folders.applicants_folder(tmp_path, drop=("accepted", *HIDDEN), every=True, drift=0.0)
    rng = np.random.default_rng(2)
    table = rows.drop(columns=["outcome", "accepted", *HIDDEN])
    table["label"] = np.where(rng.random(len(table)) < 1 / (1 + np.exp(rows.debt)), rows.outcome, np.nan)
    table.to_parquet(tmp_path / "data.parquet", index=False)
    found = read_logs(tmp_path)
    assert (found.selection.kind, found.selection.by, found.selection.method) == ("people", "debt", "withheld")
    (tmp_path / "audit.toml").write_text(LABELLED)
    asked = read_logs(tmp_path)
    assert asked.label == "label" and asked.selection.method == "labeled"


def test_one_missing_label_in_a_hundred_may_be_selected_too(tmp_path):
    """Up to 1% of rows without a label were dropped without a look; here they are the rejected."""
    rows = folders.applicants_folder(tmp_path, drop=HIDDEN, every=True)
    worst = rows.score.rank(pct=True) < 0.008
    table = rows.drop(columns=["outcome", *HIDDEN]).assign(accepted=(~worst).astype(int))
    table["label"] = np.where(worst, np.nan, rows.outcome)
    table.to_parquet(tmp_path / "data.parquet", index=False)
    logs = read_logs(tmp_path)
    assert logs.selection.share < 0.01 and logs.selection.kind == "model" and logs.label is None


def test_logs_of_the_accepted_alone(tmp_path):
    folders.applicants_folder(tmp_path, drop=HIDDEN, drift=0.0)
    table = pd.read_parquet(tmp_path / "data.parquet")
    table[table.accepted == 1].to_parquet(tmp_path / "data.parquet", index=False)
    report = audit_logs(tmp_path)
    assert report.effect is None and report.p_value == 1.0 and report.warnings[0].endswith("[rows-selected-by-model]")
    assert all(one.reacts is None and not one.effect.identified for one in report.clients)
    assert "which rows they contain changes with it" in report.verdict and report.advice.title == "Log everyone first"
    # With the rule, people whom every model accepts are the same kind of people under all models.
    (tmp_path / "audit.toml").write_text(RULE)
    logs = read_logs(tmp_path)
    assert not logs.blocked and any("contain only the accepted" in note for note in logs.notes)
    assert logs.used < 0.8 * logs.rows


@pytest.mark.slow
def test_a_feature_that_is_empty_for_the_rejected(tmp_path):
    """Debt is looked up only for those who pass: rows without it are dropped, and who is left goes with the model."""
    rows = folders.applicants_folder(tmp_path, drop=HIDDEN, every=True, drift=0.0)
    table = rows.drop(columns=["outcome", *HIDDEN])
    table.loc[rows.score < 0, "debt"] = np.nan
    table.to_parquet(tmp_path / "data.parquet", index=False)
    report = audit_logs(tmp_path)
    assert report.effect is None and report.warnings[0].endswith("[features-missing-by-model]")
    assert "`ignore`" in report.warnings[0]
    (tmp_path / "audit.toml").write_text('[columns]\nignore = ["debt"]\n')
    assert not read_logs(tmp_path).blocked
    # The same share, by lot, is no reason to stop.
    table["debt"] = np.where(np.random.default_rng(3).random(len(table)) < 0.3, np.nan, rows.debt)
    table.to_parquet(tmp_path / "data.parquet", index=False)
    (tmp_path / "audit.toml").write_text("")
    assert not read_logs(tmp_path).blocked


def test_selection_in_json(tmp_path):
    folders.applicants_folder(tmp_path, T=6, rows=200, drop=HIDDEN)
    told = json.loads(json.dumps(read_logs(tmp_path).to_dict(), allow_nan=False))["selection"]
    assert told["method"] == "withheld" and told["coverage"] is None and told["accepted"] == 1.0
    assert set(told) == {field.name for field in dataclasses.fields(read_logs(tmp_path).selection)}
