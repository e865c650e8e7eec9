"""Banks that never show a row: sums of each, merged, say what all rows together say."""

import dataclasses
import json

import folders
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from performative.audit.leaving import summarize
from performative.audit.merging import merge_summaries
from performative.audit.moments import Moments, merge
from performative.audit.noise import bounds_of, noisy, sensitivity
from performative.audit.report import audit_logs, audit_summaries
from performative.audit.schema import LogError
from performative.audit.travel import read_summaries, write_summaries
from performative.cli import app
from performative.privacy import calibrate

RULE = "[decision]\nthreshold = 0\n"


def split(folder, place, by):
    """The rows of a folder in several, each with the deployments and audit.toml."""
    rows = pd.read_parquet(folder / "data.parquet")
    made = []
    for key, mine in rows.groupby(by(rows)):
        bank = place / f"bank-{key}"
        bank.mkdir()
        for name in ("deployments.csv", "audit.toml"):
            if (folder / name).exists():
                (bank / name).write_text((folder / name).read_text())
        mine.to_parquet(bank / "data.parquet", index=False)
        made.append(bank)
    return made


def check_same(report, central):
    """p-values, responses and the outlook to 1e-9."""
    assert report.verdict == central.verdict
    assert report.p_value == pytest.approx(central.p_value, rel=1e-9, abs=1e-12)
    for one, other in zip(report.clients, central.clients, strict=True):
        assert (one.name, one.reacts, one.tested) == (other.name, other.reacts, other.tested)
        assert one.adjusted == pytest.approx(other.adjusted, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(one.response.B, other.response.B, rtol=1e-9, atol=1e-9)
    if central.prospect.outlook is not None:
        np.testing.assert_allclose(report.prospect.outlook.stable, central.prospect.outlook.stable, rtol=1e-9)
        assert report.prospect.outlook.contraction == pytest.approx(central.prospect.outlook.contraction, rel=1e-9)


@pytest.mark.parametrize(("kind", "cut"), [("json", "clients"), pytest.param("npz", "rows", marks=pytest.mark.slow)])
def test_merged_sums_say_what_all_rows_say(tmp_path, kind, cut):
    folder = tmp_path / "all"
    folders.squared_folder(folder, T=10, rows=150)
    by = {"clients": lambda rows: rows.client, "rows": lambda rows: np.arange(len(rows)) % 3}[cut]
    files = [
        write_summaries(summarize(bank), tmp_path / f"{bank.name}.{kind}")
        for bank in split(folder, tmp_path, by)
    ]  # fmt: skip
    check_same(audit_summaries(files), audit_logs(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toml", "chance", "drop"),
    [
        (RULE, 0.2, ("propensity",)),
        ("", 0.2, ()),
        (RULE, None, ("score", "propensity")),
        ("", None, ("propensity",)),
    ],
)
def test_labels_of_the_accepted_are_judged_over_all_banks(tmp_path, toml, chance, drop):
    """Weights by decision, by a logged chance, people whom every model accepts, and labels that cannot be used."""
    folder = tmp_path / "all"
    folders.applicants_folder(folder, toml, T=8, rows=400, chance=chance, drop=drop)
    banks = [summarize(bank) for bank in split(folder, tmp_path, lambda rows: rows.client)]
    report, central = audit_summaries(banks), audit_logs(folder)
    check_same(report, central)
    mine, theirs = report.logs.selection, central.logs.selection
    assert (mine.kind, mine.method, mine.by) == (theirs.kind, theirs.method, theirs.by)
    assert mine.coverage == pytest.approx(theirs.coverage, nan_ok=True)
    for name, log in central.logs.outcomes.items():
        np.testing.assert_allclose(report.logs.outcomes[name].mean, log.mean, rtol=1e-9)
        np.testing.assert_allclose(report.logs.outcomes[name].cov, log.cov, rtol=1e-8, atol=1e-12)


def test_moments_of_parts_are_those_of_the_whole():
    """Far from zero, in parts of one row: Chan's rule loses nothing."""
    rng = np.random.default_rng(0)
    rows = 1e7 + rng.standard_normal((40, 2))

    def of(part):
        d = part - part.mean(axis=0)
        where = np.zeros(1, np.int64)
        return Moments(
            ("a",), ("v",), ("x", "y"), where, where, where, np.array([float(len(part))]), part.mean(axis=0)[None],
            (d.T @ d)[None],
        )  # fmt: skip

    merged = of(rows[:1])
    for row in rows[1:]:
        merged = merge(merged, of(row[None]))
    np.testing.assert_allclose(merged.mean[0] - 1e7, rows.mean(axis=0) - 1e7, atol=1e-8)
    np.testing.assert_allclose(merged.squares[0], 39 * np.cov(rows.T), rtol=1e-8, atol=1e-8)


def test_small_cells_are_left_out_and_counted(tmp_path):
    rows = pd.DataFrame(
        {"deployment": ["a"] * 30 + ["b"] * 30 + ["b"] * 4, "client": ["n"] * 60 + ["few"] * 4, "x": np.arange(64.0)}
    )
    rows.to_parquet(tmp_path / "data.parquet")
    (tmp_path / "deployments.csv").write_text("deployment,theta_x\na,0\nb,1\n")
    whole, kept = summarize(tmp_path), summarize(tmp_path, least=5)
    assert whole.suppressed == (0, 0) and kept.suppressed == (1, 4)
    assert kept.labeled.rows == 60 and min(kept.labeled.count) >= 5
    file = write_summaries(kept, tmp_path / "sums.json")
    told = json.loads(file.read_text())
    assert told["suppressed"] == [1, 4] and min(told["arrays"]["labeled.count"]) >= 5
    assert any("SUPPRESSED 1 cells" in note for note in audit_summaries([kept]).notes)


def test_few_people_of_a_decision_keep_their_place_in_totals(tmp_path):
    """Two accepted against the rule are not told apart, and the means of all are what they were."""
    folders.applicants_folder(tmp_path, RULE, T=3, rows=200, every=True)
    table = pd.read_parquet(tmp_path / "data.parquet")
    table.loc[table.index[:2], "accepted"] = 1 - table.loc[table.index[:2], "accepted"]
    table.to_parquet(tmp_path / "data.parquet", index=False)
    whole, kept = summarize(tmp_path), summarize(tmp_path, least=10)
    assert whole.labeled.count.min() < 10 <= kept.labeled.count.min() and kept.labeled.rows == whole.labeled.rows
    for part in (0, 1, 2):
        np.testing.assert_allclose(kept.labeled.by_cell()[part], whole.labeled.by_cell()[part], rtol=1e-12)


CLIP = "[clip]\nincome = [-6, 6]\ndebt = [-6, 6]\n"


def test_noise_is_calibrated_and_its_size_is_as_stated(tmp_path):
    """Sums in units of the bounds differ from the true ones by noise of the stated deviation (4 standard errors)."""
    folders.applicants_folder(tmp_path, CLIP, T=6, rows=4000, every=True, drop=("score", "propensity", "accepted"))
    whole = summarize(tmp_path)
    middle, half = bounds_of(whole)
    made = noisy(whole, 1.0, 1e-6, 1)
    q = 3
    assert sensitivity(q) == pytest.approx(np.sqrt(1 + 3 + 6))
    assert made.noise == pytest.approx(calibrate(1.0, 1e-6, 1) * sensitivity(q), rel=2e-3)
    assert made.promise == (1.0, 1e-6) and made.counts == {} and made.decides is None
    (count, mean, _), (noisy_count, noisy_mean, _) = whole.labeled.by_cell(), made.labeled.by_cell()
    u, noisy_u = (mean - middle) / half, (noisy_mean - middle) / half
    off = np.concatenate([noisy_count - count, (noisy_count[:, None] * noisy_u - count[:, None] * u).ravel()])
    assert np.mean(off**2) == pytest.approx(made.noise**2, rel=4 * np.sqrt(2 / len(off)))
    assert np.all(np.linalg.eigvalsh(made.labeled.squares) > -1e-6)


def test_noise_takes_bounds_of_every_column(tmp_path):
    folders.applicants_folder(tmp_path, "[clip]\nincome = [-6, 6]\n", T=3, rows=100, every=True)
    with pytest.raises(LogError, match=r"bounds for every feature; there are none for 'debt'.*\[clip\]"):
        summarize(tmp_path, epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="both epsilon and delta"):
        summarize(tmp_path, epsilon=1.0)


@pytest.mark.slow
def test_noise_invents_no_reaction(tmp_path):
    """Nobody reacts; with noise of each run's own the test at 0.05 may say so by chance, 5 in 40 at the most."""
    found = 0
    for seed in range(40):
        folder = tmp_path / str(seed)
        folders.applicants_folder(
            folder, CLIP, T=10, rows=3000, every=True, seed=seed, drift=0.0, drop=("score", "propensity", "accepted")
        )
        found += bool(audit_summaries([summarize(folder, epsilon=2.0, delta=1e-5)], drift="none").effect)
    assert found <= 5


def test_sums_that_mean_different_things_are_refused(tmp_path):
    folder = tmp_path / "all"
    folders.squared_folder(folder, T=6, rows=30)
    seen = summarize(folder)
    models = dataclasses.replace(seen.deployments, theta=seen.deployments.theta + 0.1)
    with pytest.raises(LogError, match="the model of 'v0' is"):
        merge_summaries([seen, dataclasses.replace(seen, deployments=models)])
    columns = dataclasses.replace(seen.columns, features=("f0", "g"))
    with pytest.raises(LogError, match="features must be the same"):
        merge_summaries([seen, dataclasses.replace(seen, columns=columns)])
    with pytest.raises(LogError, match="no such file of moments"):
        read_summaries(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(LogError, match="is not a file of moments"):
        read_summaries(tmp_path / "bad.json")


def test_the_command_writes_and_merges(tmp_path):
    folder = tmp_path / "all"
    folders.squared_folder(folder, T=8, rows=60, eps=(0.5, 0.9))
    banks = split(folder, tmp_path, lambda rows: rows.client)
    files = []
    for bank in banks:
        rows = pd.read_parquet(bank / "data.parquet")
        rows.drop(columns="client").to_parquet(bank / "data.parquet", index=False)
        files.append(str(tmp_path / f"{bank.name}.json"))
        done = CliRunner().invoke(
            app, ["audit", str(bank), "--moments", files[-1], "--least", "3", "--client", bank.name, "--json"]
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["clients"] == [bank.name]
    done = CliRunner().invoke(app, ["audit", "--merge", *files, "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert list(told["clients"]) == [bank.name for bank in banks]
    assert told["p_value"] == pytest.approx(audit_logs(folder).p_value, rel=1e-9)
    assert CliRunner().invoke(app, ["audit", *files]).exit_code == 2
    assert CliRunner().invoke(app, ["audit", str(folder), "--epsilon", "1"]).exit_code == 2
