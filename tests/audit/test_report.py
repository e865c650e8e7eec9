"""The whole audit of a folder: its numbers are those of the functions, its words follow from them."""

import html
import io
import json
import re
import sys

import findings_schema
import folders
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import performative as pf
from performative import audit
from performative._base.messages import warn
from performative.audit import sections
from performative.audit.advice import Advice
from performative.audit.client_report import pool, rows_far_out
from performative.audit.figures import pictures
from performative.audit.page import page
from performative.audit.prospect import largest_step
from performative.audit.words import WORDS


@pytest.fixture(scope="module")
def strong(tmp_path_factory):
    """A report on three clients that react, and the true stable point."""
    folder = tmp_path_factory.mktemp("strong")
    true = folders.squared_folder(folder)
    return audit.audit_logs(folder, drift="linear", seed=3), true


@pytest.mark.slow
def test_rows_far_out_that_hide_a_reaction_are_told(tmp_path):
    """One person in five hundred has an income in another currency; without them the reaction is seen."""
    rows = folders.applicants_folder(tmp_path, react=0.5, T=12, rows=500, clients=1, every=True)
    rng = np.random.default_rng(0)
    far = rng.random(len(rows)) < 0.002
    rows["income"] = np.where(far, 1000.0 * rng.normal(size=len(rows)), rows["income"])
    rows["debt"] = np.where(far, 1000.0 * rng.normal(size=len(rows)), rows["debt"])
    rows["label"] = np.where(far, 0.0, rows["label"])
    rows.drop(columns="outcome").to_parquet(tmp_path / "data.parquet", index=False)
    report = audit.audit_logs(tmp_path)
    assert not report.effect
    assert any("outliers-hide-effect" in line and "under [clip] in audit.toml" in line for line in report.warnings)
    (tmp_path / "audit.toml").write_text("[clip]\nincome = [-12, 12]\ndebt = [-12, 12]\n")
    assert audit.audit_logs(tmp_path).effect


def test_numbers_are_those_of_the_functions(strong):
    report, _ = strong
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    findings_schema.check(told["findings"], WORDS)
    logs = audit.read_logs(report.logs.folder, seed=3)
    assert list(told["clients"]) == ["bank-0", "bank-1", "bank-2"]
    for i, (name, log) in enumerate(logs.clients.items()):
        mine = told["clients"][name]
        for drift in ("none", "linear", "walk", "smooth"):
            assert mine["p_by_drift"][drift] == audit.effect_test(log, drift).p_value
        test = audit.effect_test(log, "linear")
        assert mine["p_value"] == test.p_value
        np.testing.assert_allclose(mine["effect"]["detectable"], test.detectable)
        for key, method in (("response", "exact"), ("least_squares", "least squares")):
            found = audit.response(log, "linear", method=method, seed=3 + i)
            np.testing.assert_allclose(mine[key]["B"], found.B)
            np.testing.assert_allclose(mine[key]["upper"], found.upper)
            assert mine[key]["sensitivity_upper"] == found.sensitivity_upper
            assert [line["column"] for line in mine[key]["directions"]] == [line.column for line in found.directions]
        distances = audit.shift_distances(log, seed=3 + i)
        assert mine["distances"]["sensitivity"] == distances.sensitivity
        assert mine["distances"]["pairs"][0]["floor"] == distances.pairs[0].floor
    outlook = audit.outlook(list(logs.clients.values()), list(logs.weights.values()), drift="linear", seed=3)
    np.testing.assert_allclose(told["outlook"]["stable"], outlook.stable)
    np.testing.assert_allclose(told["outlook"]["stable_limits"], outlook.stable_limits)
    assert told["outlook"]["contraction"] == outlook.contraction
    assert told["outlook"]["deployments"] == outlook.deployments
    assert [line["name"] for line in told["outlook"]["drivers"]] == ["bank-1", "bank-2", "bank-0"]
    # Half of the level goes to all together, half to the clients.
    smallest = min(mine["p_value"] for mine in told["clients"].values())
    assert told["p_value"] == min(1.0, 2 * min(3 * smallest, told["pooled"]["p_value"]))


def test_the_stable_point_is_found(strong):
    report, true = strong
    assert report.effect and all(one.reacts for one in report.clients)
    found = report.prospect.outlook
    assert np.linalg.norm(found.stable - true) < 0.02 * np.linalg.norm(true)
    low, high = found.contraction_limits
    assert low <= 0.6 <= high
    assert "Retraining settles" in report.verdict and "3 of 3 clients" in report.verdict


def test_the_risk_at_the_optimum_is_that_of_the_problem(strong):
    """Closed form of the squared loss against the mean loss of the rows kept, moved to the optimum."""
    report, _ = strong
    logs = [one.log for one in report.clients]
    fits = [audit.fit(log, "linear") for log in logs]
    optimal = report.prospect.outlook.optimal
    squares = []
    for log, fit in zip(logs, fits, strict=True):
        rows, t = log.rows_kept()
        moved = rows - fit.means[t] + fit.level + fit.B @ (optimal - fit.here)
        squares.append(np.mean(np.sum((optimal - moved) ** 2, axis=1)))
    # 1,000 rows of each of 15 deployments: the mean of squares is known to about 1%.
    assert report.prospect.risk == pytest.approx(0.5 * np.dot(report.prospect.weights, squares), rel=0.03)


@pytest.mark.slow
def test_the_call_that_is_suggested_goes_where_it_says(strong):
    """Full retraining and POFL, run on the fitted problem, end at the stable point and near the optimum."""
    report, _ = strong
    found = report.prospect.outlook
    assert report.advice.kind == "optimize" and report.advice.otherwise is not None
    logs = [one.log for one in report.clients]
    fits = [audit.fit(log, "linear") for log in logs]
    problem = audit.fitted_problem(logs, fits, pf.losses.squared, np.array(report.prospect.weights), rows=2000)
    settings = {"theta": report.prospect.here, "seed": 0}
    retrained = pf.run(problem, eval(report.advice.otherwise[1], {"pf": pf}), rounds=40, **settings)
    np.testing.assert_allclose(retrained.theta[0, -1], found.stable, rtol=1e-3)
    optimized = pf.run(problem, eval(report.advice.code, {"pf": pf}), rounds=120, repeats=4, **settings)
    # The last third wanders about the optimum.
    end = np.asarray(optimized.theta)[:, -40:].mean(axis=(0, 1))
    assert np.linalg.norm(end - found.optimal) < 0.3 * found.gap


def test_no_effect_is_said_and_nothing_beyond(tmp_path):
    folders.squared_folder(tmp_path, eps=(0.0, 0.0), T=12, rows=300, columns=1)
    report = audit.audit_logs(tmp_path)
    assert report.effect is False and not any(one.reacts for one in report.clients)
    assert "ordinary retraining" in report.verdict
    findings_schema.check(report.to_dict()["findings"], WORDS)
    assert report.prospect.outlook is None and report.to_dict()["outlook"]["computed"] is False
    assert (report.advice.kind, report.advice.code) == ("ordinary", None)
    said = report.client_verdicts[report.clients[0].name]
    smallest = (report.clients[0].effect.detectable / report.clients[0].log.spread[:, None]).min()
    assert said.startswith("No reaction found") and f"{smallest:.3g}" in said


def test_a_response_too_small_for_one_client_is_seen_in_all_together(tmp_path):
    """Twelve clients of 60 rows: none by itself, but their mean is one of 720 rows."""
    folders.squared_folder(tmp_path, eps=(0.5,) * 12, rows=60, columns=1)
    report = audit.audit_logs(tmp_path, drift="linear")
    assert report.effect and report.pooled is not None
    assert sum(bool(one.reacts) for one in report.clients) < 12
    assert report.p_value == min(1.0, 2 * report.pooled.effect.p_value)


def test_pooling_is_the_weighted_mean(strong):
    report, _ = strong
    logs, w = [one.log for one in report.clients], np.array([0.2, 0.3, 0.5])
    together = pool(logs, w.tolist())
    y, variance = together.series
    np.testing.assert_allclose(y, sum(p * log.series[0] for p, log in zip(w, logs, strict=True)))
    np.testing.assert_allclose(variance, sum(p**2 * log.series[1] for p, log in zip(w, logs, strict=True)))
    assert pool(logs[:1], [1.0]) is None
    short = audit.ClientLog(*(getattr(logs[2], name)[:9] for name in ("theta", "time", "count", "mean", "cov")))
    assert pool([logs[0], short], [0.5, 0.5]) is None


def test_one_deployment_explores(tmp_path):
    folders.squared_folder(tmp_path, T=1, rows=50)
    report = audit.audit_logs(tmp_path)
    assert report.effect is None and report.prospect.outlook is None
    assert report.advice.kind == "explore" and "standard_normal(2)" in report.advice.code
    assert "cannot tell" in report.verdict
    assert all(name.encode() in page(report) for name in report.logs.clients)
    findings_schema.check(report.to_dict()["findings"], WORDS)
    json.dumps(report.to_dict(), allow_nan=False)


def test_clients_with_different_deployments(tmp_path):
    """One client saw four deployments only: it is not tested, and not in the outlook; the rest go on without it."""
    folders.squared_folder(tmp_path, T=12, rows=800)
    data = pd.read_parquet(tmp_path / "data.parquet")
    late = (data.client == "bank-2") & ~data.deployment.isin(["v0", "v1", "v2", "v3"])
    data[~late].to_parquet(tmp_path / "data.parquet", index=False)
    report = audit.audit_logs(tmp_path, drift="linear")
    assert [one.reacts for one in report.clients] == [True, True, None]
    assert report.prospect.clients == ("bank-0", "bank-1")
    assert sum(report.prospect.weights) == pytest.approx(1.0)
    assert any("Not in the outlook: bank-2" in note for note in report.notes)
    assert "1 could not be tested" in report.verdict


def test_retraining_that_overshoots_gets_small_steps(tmp_path):
    """eps = -1.5: retraining has factor 1.5, a step of 1 / 2.5 lands on the stable point at once."""
    folders.squared_folder(tmp_path, eps=(-1.5, -1.5), T=10, rows=800, explore=0.3)
    report = audit.audit_logs(tmp_path, drift="linear")
    assert not report.prospect.outlook.contracts and report.advice.kind == "damp"
    assert report.prospect.rate == pytest.approx(0.4, rel=0.05) and report.prospect.stepped < 0.2
    assert "does not settle" in report.verdict
    assert re.fullmatch(r"pf\.p_fedavg\(rate=0\.4\d*, batch=pf\.Whole\(\)\)", report.advice.code)


def test_largest_step():
    rate, factor = largest_step(np.diag([0.5, 2.5]))
    assert (rate, factor) == (pytest.approx(0.4), pytest.approx(0.8))
    turning = np.array([[1.0, -2.0], [2.0, 1.0]])
    rate, factor = largest_step(turning)
    assert rate == pytest.approx(1 / 5)
    assert factor == pytest.approx(np.abs(np.linalg.eigvals(np.eye(2) - rate * turning)).max())
    assert largest_step(np.diag([1.0, -0.1]))[0] is None


def test_rows_that_lie_far_out_get_a_filter(tmp_path):
    folders.squared_folder(tmp_path, T=10, rows=400)
    data = pd.read_parquet(tmp_path / "data.parquet")
    spoilt = (np.arange(len(data)) % 50 == 0) & (data.client == "bank-1")
    data.loc[spoilt, "f0"] += 40.0
    data.to_parquet(tmp_path / "data.parquet", index=False)
    report = audit.audit_logs(tmp_path, drift="none")
    (client, column, share), *rest = report.advice.far_out
    assert (client, column) == ("bank-1", "f0") and share == pytest.approx(0.02, abs=0.003) and not rest
    assert rows_far_out(report.clients[0].log)["f0"] == 0.0
    assert "profl" in report.advice.code or "Filtered" in report.advice.code
    eval(report.advice.code, {"pf": pf})


@pytest.mark.slow
def test_groups_decisions_and_censored_labels(tmp_path):
    folders.lending_folder(tmp_path, censored=True)
    report = audit.audit_logs(tmp_path, drift="linear")
    assert any(warning.startswith("Outcomes are censored") for warning in report.warnings)
    assert report.groups is not None and {rates.group for rates in report.groups.after} == {"old", "young"}
    told = report.to_dict()
    findings_schema.check(told["findings"], WORDS)
    assert told["groups"] == audit.groups_of_logs(report.logs, reaction=report.groups.reaction).to_dict()
    # Three people in ten have no label: the outlook says what it assumes of them, and its limits span both extremes.
    outlook = report.prospect.outlook
    assert report.effect and outlook.contraction_limits[0] < outlook.contraction < outlook.contraction_limits[1] < 1
    assert "missing at random" in report.verdict and report.advice.kind == "retrain"
    extremes = re.search(r"([\d.]+) if they were all 0, ([\d.]+) if they were all 1", report.verdict)
    assert all(outlook.contraction < float(one) < outlook.contraction_limits[1] for one in extremes.groups())
    made = page(report).decode()
    assert made.index("Outcomes are censored") < made.index("Do the data react")
    for text in ("bank-0", "bank-1", "young", "color-scheme: dark", "Groups before and after"):
        assert text in made
    assert made.count("<picture>") == len(pictures(report)) == 9
    assert not loaded(made)


def loaded(made):
    """What a page would have to fetch."""
    links = re.findall(r'(?:src|srcset|href)="([^"]{0,40})', made)
    assert links
    inside = "data:image/svg+xml;base64,"
    return [link for link in links if not link.startswith(inside)] + re.findall(r"<script|<link|@import|url\(", made)


@pytest.mark.slow
def test_a_page_with_an_outlook(strong):
    report, _ = strong
    made = page(report).decode()
    assert "It settles" in made and report.advice.code in made and not loaded(made)
    assert all(name in made for name in report.logs.clients)
    assert set(pictures(report)) == {"short", "models", "effect", "directions", "sensitivity", "distances", "drivers"}


def test_page_and_terminal_say_the_same(strong):
    """Both show one description; of many clients and directions the terminal has the largest."""
    report, _ = strong
    made = html.unescape(page(report).decode()).replace("\u00a0", " ")
    moved = max((line for one in report.reacting for line, _ in one.directions), key=lambda line: abs(line.in_sd))
    assert f"{moved.column} {'rises' if moved.slope > 0 else 'falls'} by" in made and "No direction stands" not in made
    console = Console(width=200, file=io.StringIO())
    for section in sections.sections(report, short=True):
        for line in section.terminal():
            console.print(line)
        for table in section.tables:
            cells = [cell if isinstance(cell, str) else cell[0] for row in table.rows for cell in row]
            assert all(cell in made and cell in console.file.getvalue() for cell in cells)
            assert all(note in made for note in table.notes)
    assert report.verdict in made and report.verdict in " ".join(console.file.getvalue().split())
    assert all(f"{name}: {said}"[:60] in console.file.getvalue() for name, said in report.client_verdicts.items())


@pytest.mark.slow
def test_a_logistic_audit(tmp_path):
    """Labels and an intercept: the test counts covariances with the label, the outlook minimizes the logistic loss."""
    folders.lending_folder(tmp_path)
    report = audit.audit_logs(tmp_path, drift="linear")
    log = report.logs.clients["bank-1"]
    assert report.clients[1].p_value == audit.effect_test(audit.with_covariances(log), "linear").p_value
    found = report.prospect.outlook
    assert found.contracts and found.excess >= 0 and report.prospect.drivers[0].name == "bank-1"
    # The penalty is the least that the risk curves.
    assert np.all(np.linalg.eigvalsh(report.prospect.hessian) > 0.1)
    assert isinstance(report.advice, Advice) and report.advice.code is not None
    eval(report.advice.code, {"pf": pf})


def test_no_outlook_where_the_relation_to_the_label_changes(tmp_path):
    """y = (2 - 0.8 theta) x + noise, E x = 0: no mean moves, and rows that move would promise a factor of 0."""
    rng, frames, models = np.random.default_rng(5), [], []
    for t, theta in enumerate(rng.normal(1.0, 0.6, 12)):
        x = rng.normal(size=600)
        y = (2 - 0.8 * theta) * x + 0.5 * rng.normal(size=600)
        models.append([f"v{t}", theta])
        frames.append(pd.DataFrame({"deployment": f"v{t}", "client": "only", "x": x, "label": y}))
    folders.write(tmp_path, models, ["x"], frames)
    report = audit.audit_logs(tmp_path, drift="linear")
    assert report.logs.loss == "ridge" and report.effect
    assert report.clients[0].effect.column == "cov(x, label)" and "relation between x and label" in report.to_dict()[
        "clients"]["only"]["verdict"]  # fmt: skip
    assert report.prospect.outlook is None and "relation to the label changes" in report.prospect.reasons[0]
    assert report.advice.kind == "look closer"


def test_bad_settings(tmp_path):
    folders.squared_folder(tmp_path, T=2, rows=5)
    with pytest.raises(ValueError, match="drift must be one of"):
        audit.audit_logs(tmp_path, drift="smoth")
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        audit.audit_logs(tmp_path, level=5.0)
    with pytest.raises(audit.LogError, match="no such folder"):
        audit.audit_logs(tmp_path / "nowhere")


def test_parameters_are_matched_by_name_alone(tmp_path):
    """In the wrong order the stable point would be wrong, without a word."""
    folders.squared_folder(tmp_path / "logs")
    table = pd.read_csv(tmp_path / "logs" / "deployments.csv")
    table.rename(columns={"theta_f0": "theta_one", "theta_f1": "theta_two"}).to_csv(
        tmp_path / "logs" / "deployments.csv", index=False
    )
    report = audit.audit_logs(tmp_path / "logs", drift="linear")
    assert report.prospect.outlook is None and "a feature for each parameter" in report.prospect.reasons[0]


@pytest.mark.slow
def test_a_missing_optimum_leaves_the_stable_point(tmp_path, monkeypatch):
    def none(*args, **options):
        raise ValueError("optimal_point: it keeps falling far out.")

    monkeypatch.setattr(sys.modules["performative.audit.outlook"], "optimal_point", none)
    folders.lending_folder(tmp_path / "logs")
    report = audit.audit_logs(tmp_path / "logs", drift="linear")
    found = report.prospect.outlook
    assert found is not None and found.optimal is None and np.all(np.isfinite(found.stable))
    assert "No optimum of the fitted risk was found" in " ".join(report.advice.reasons)
    assert "nan" not in " ".join(report.advice.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("code", ["risk-falls-far-out", "lower-elsewhere", None])
def test_a_local_optimum_is_told_in_the_report(tmp_path, monkeypatch, code):
    """The solver's warning names arguments that a reader of the report does not have."""

    def local(problem, start):
        if code is not None:
            warn(code, "optimal_point: the point is a local minimum.")
        return np.array([0.48, 0.48, 0.25])

    monkeypatch.setattr(sys.modules["performative.audit.outlook"], "optimal_point", local)
    folders.lending_folder(tmp_path / "logs")
    report = audit.audit_logs(tmp_path / "logs", drift="linear")
    told = code is not None
    assert report.prospect.optimal_is_local is told and report.to_dict()["outlook"]["optimal_is_local"] is told
    assert any("The optimum is local" in note for note in report.notes) is told
    facts = dict(sections.outlook_facts(report))
    assert ("the optimum" in facts) is told and ("nearby" in facts["risk left on the table"]) is told
    assert ("of the least risk nearby" in " ".join(report.advice.reasons)) is told


@pytest.mark.slow
def test_a_fit_whose_risk_falls_far_out_is_told(tmp_path):
    """The fitted label moves in proportion to the model, beyond 0 and 1: far out the fitted risk has no bound."""
    folders.lending_folder(tmp_path / "logs")
    report = audit.audit_logs(tmp_path / "logs", drift="linear")
    assert report.prospect.optimal_is_local and any("The optimum is local" in note for note in report.notes)


@pytest.mark.slow
def test_a_minimum_above_the_stable_point_is_no_optimum(tmp_path, monkeypatch):
    def above(problem, start):
        warn("risk-falls-far-out", "optimal_point: the point is a local minimum.")
        return np.full(3, 3.0)

    monkeypatch.setattr(sys.modules["performative.audit.outlook"], "optimal_point", above)
    folders.lending_folder(tmp_path / "logs")
    report = audit.audit_logs(tmp_path / "logs", drift="linear")
    found = report.prospect.outlook
    assert found.optimal is None and np.isnan(found.excess) and not report.prospect.optimal_is_local
    assert "No optimum of the fitted risk was found" in " ".join(report.advice.reasons)


def test_signs_that_start_a_formula_are_drawn_as_they_are(tmp_path):
    folders.squared_folder(tmp_path / "logs", T=8, rows=100, columns=1)
    for file in ("deployments.csv", "data.csv"):
        if file == "data.csv":
            table = pd.read_parquet(tmp_path / "logs" / "data.parquet").replace("bank-0", "a$_$")
            (tmp_path / "logs" / "data.parquet").unlink()
        else:
            table = pd.read_csv(tmp_path / "logs" / file)
        table = table.rename(columns={"f0": "$\\foo$", "theta_f0": "theta_$\\foo$"})
        table.to_csv(tmp_path / "logs" / file, index=False)
    assert pictures(audit.audit_logs(tmp_path / "logs", drift="linear"))
