"""A raw table of decisions and a file that says which column is what."""

import json
import pickle
import sys
import types

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from performative.audit.draft import draft, guess, look
from performative.audit.reading import read_logs
from performative.audit.schema import LogError
from performative.audit.source import open_source
from performative.cli import app

MONTHS = 8


def decisions(folder, rows=150, seed=0, models=True):
    """Loans by date; a new scorecard every month, fitted and pickled; people react to it; words for yes and no."""
    rng = np.random.default_rng(seed)
    frames = []
    for t in range(MONTHS):
        weights = np.array([0.8, -0.5]) + 0.5 * rng.normal(size=2)
        train = rng.normal(size=(400, 2)) * [10, 1] + [40, 3]
        chance = 1 / (1 + np.exp(-((train - [40, 3]) / [10, 1]) @ weights))
        model = make_pipeline(StandardScaler(), LogisticRegression())
        model.fit(pd.DataFrame(train, columns=["income", "debts"]), rng.random(400) < chance)
        month = f"2024-{t + 1:02d}"
        if models:
            (folder / f"card-{month}-01.pkl").write_bytes(pickle.dumps(model))
        x = rng.normal(size=(rows, 2)) * [10, 1] + [40, 3] + [4 * weights[0], weights[1]]
        score = model.predict_proba(pd.DataFrame(x, columns=["income", "debts"]))[:, 1]
        approved = score > 0.4
        frames.append(
            pd.DataFrame(
                {
                    "application_id": [f"a{t}-{i}" for i in range(rows)],
                    "applied_at": [f"{month}-{d:02d}" for d in rng.integers(1, 29, rows)],
                    "branch": rng.choice(["north", "south"], rows),
                    "income": x[:, 0],
                    "debts": x[:, 1],
                    "job": rng.choice(["clerk", "nurse", "smith"], rows, p=[0.5, 0.3, 0.2]),
                    "owner": rng.choice(["Yes", "No"], rows),
                    "score": score,
                    "approved": np.where(approved, "approved", "declined"),
                    "repaid": np.where(rng.random(rows) < score, "good", "bad"),
                    "sex": rng.choice(["f", "m"], rows),
                }
            )
        )
    table = pd.concat(frames, ignore_index=True)
    table.to_parquet(folder / "loans.parquet", index=False)
    return table


TOML = """
[columns]
time = "applied_at"
client = "branch"
label = "repaid"
accepted = "approved"
group = "sex"
ignore = ["application_id"]
[categories]
columns = ["job"]
[deployments]
every = "month"
[decision]
threshold = 0.4
"""
PLAIN = TOML.replace('"application_id"', '"application_id", "job", "owner"').replace(
    '[categories]\ncolumns = ["job"]\n', ""
)
FILES = '[models]\nfiles = "card-{deployment}.pkl"\n'


def test_dates_words_categories_and_pickled_models(tmp_path):
    table = decisions(tmp_path)
    (tmp_path / "audit.toml").write_text(PLAIN + FILES)
    with pytest.raises(LogError, match=r"is a pickle, and loading it runs the code.*--trust"):
        read_logs(tmp_path / "loans.parquet")
    logs = read_logs(tmp_path / "loans.parquet", trust=True)
    assert logs.deployments.names == tuple(f"2024-{t + 1:02d}-01" for t in range(MONTHS))
    assert logs.deployments.time[:3].tolist() == [0.0, 31.0, 60.0] and logs.deployments.unit == "days"
    # The model's own coefficients: logit(score) = coef . (x - mean) / scale + intercept, exactly.
    model = pickle.loads((tmp_path / "card-2024-03-01.pkl").read_bytes())
    scale = model[0].scale_
    np.testing.assert_allclose(logs.deployments.theta[2, :2], model[1].coef_[0] / scale, rtol=1e-7)
    assert logs.features == ("income", "debts") and logs.label == "repaid" and logs.binary
    mine = table[(table.branch == "north") & table.applied_at.str.startswith("2024-02")]
    log = logs.clients["north"]
    np.testing.assert_allclose(log.mean[1], [mine.income.mean(), mine.debts.mean(), (mine.repaid == "good").mean()])
    assert logs.groups.counts.sum() == len(table) and logs.decides == "accepted"
    accepted = logs.groups.counts.sum(axis=(0, 1, 2))[1].sum()
    assert accepted == (table.approved == "approved").sum()


def test_categories_become_shares_and_flags_numbers(tmp_path):
    table = decisions(tmp_path, models=False)
    (tmp_path / "audit.toml").write_text(TOML + "[models]\nscores = true\n")
    logs = read_logs(tmp_path / "loans.parquet")
    assert logs.features == ("income", "debts", "job=nurse", "job=smith", "owner")
    mine = table[(table.branch == "south") & table.applied_at.str.startswith("2024-01")]
    shares = [(mine.job == "nurse").mean(), (mine.job == "smith").mean(), (mine.owner == "Yes").mean()]
    np.testing.assert_allclose(logs.clients["south"].mean[0, 2:5], shares)
    (tmp_path / "audit.toml").write_text(TOML.replace('["job"]', '["job"]\nmost = 2') + "[models]\nscores = true\n")
    with pytest.raises(
        LogError, match=r"column 'job': contains more than 2 distinct values; raise \[categories\] most"
    ):
        read_logs(tmp_path / "loans.parquet")
    (tmp_path / "audit.toml").write_text(TOML.replace('[categories]\ncolumns = ["job"]', "") + FILES)
    with pytest.raises(LogError, match=r"column 'job': must be numeric; .*1200 rows are not numbers, such as .*ignore"):
        read_logs(tmp_path / "loans.parquet")


def test_scores_alone_give_back_linear_models(tmp_path):
    decisions(tmp_path)
    toml = TOML.replace('"application_id"', '"application_id", "job", "owner"').replace(
        '[categories]\ncolumns = ["job"]\n', ""
    )
    (tmp_path / "audit.toml").write_text(toml + "[models]\nscores = true\n")
    by_scores = read_logs(tmp_path / "loans.parquet")
    (tmp_path / "audit.toml").write_text(toml + FILES)
    by_files = read_logs(tmp_path / "loans.parquet", trust=True)
    np.testing.assert_allclose(by_scores.deployments.theta, by_files.deployments.theta, rtol=1e-6, atol=1e-8)
    assert any("known only through their scores" in note for note in by_scores.notes)


def test_models_exported_as_onnx_need_no_trust(tmp_path):
    convert = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    decisions(tmp_path)
    for file in tmp_path.glob("card-*.pkl"):
        model = pickle.loads(file.read_bytes())
        floats = [("input", convert.common.data_types.FloatTensorType([None, 2]))]
        made = convert.convert_sklearn(model, initial_types=floats, target_opset=17)
        file.with_suffix(".onnx").write_bytes(made.SerializeToString())
    (tmp_path / "audit.toml").write_text(PLAIN + FILES)
    by_files = read_logs(tmp_path / "loans.parquet", trust=True)
    (tmp_path / "audit.toml").write_text(PLAIN + FILES.replace(".pkl", ".onnx"))
    by_onnx = read_logs(tmp_path / "loans.parquet")
    # Exported models compute in single precision.
    np.testing.assert_allclose(by_onnx.deployments.theta, by_files.deployments.theta, rtol=1e-3, atol=1e-4)


def test_versions_of_a_registry_are_deployments(tmp_path, monkeypatch):
    """MLflow's part is to give the model of a version; that is stood in for."""
    table = decisions(tmp_path).drop(columns=["job", "owner", "application_id"])
    table["version"] = table.applied_at.str[5:7].astype(int)
    table.to_parquet(tmp_path / "loans.parquet", index=False)
    asked = []

    def load_model(uri):
        asked.append(uri)
        file = tmp_path / f"card-2024-{int(uri.rsplit('/', 1)[1]):02d}-01.pkl"
        return types.SimpleNamespace(get_raw_model=lambda: pickle.loads(file.read_bytes()))

    monkeypatch.setitem(
        sys.modules, "mlflow", types.SimpleNamespace(pyfunc=types.SimpleNamespace(load_model=load_model))
    )
    (tmp_path / "audit.toml").write_text(
        '[columns]\ndeployment = "version"\nclient = "branch"\nlabel = "repaid"\naccepted = "approved"\n'
        'group = "sex"\nignore = ["applied_at"]\n[models]\nregistry = "card"\n'
    )
    with pytest.raises(LogError, match=r"MLflow unpickles models.*--trust"):
        read_logs(tmp_path / "loans.parquet")
    logs = read_logs(tmp_path / "loans.parquet", trust=True)
    assert asked == [f"models:/card/{t + 1}" for t in range(MONTHS)]
    model = pickle.loads((tmp_path / "card-2024-02-01.pkl").read_bytes())
    np.testing.assert_allclose(logs.deployments.theta[1, :2], model[1].coef_[0] / model[0].scale_, rtol=1e-7)


def test_a_tree_is_summarized_and_said_to_be_bent(tmp_path):
    table = decisions(tmp_path, models=False)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    tree.fit(table[["income", "debts"]], table.repaid == "good")
    (tmp_path / "tree.joblib").write_bytes(pickle.dumps(tree))
    files = ", ".join(f'"2024-{t + 1:02d}-01" = "tree.joblib"' for t in range(MONTHS))
    toml = TOML.replace('"application_id"', '"application_id", "job", "owner"').replace(
        '[categories]\ncolumns = ["job"]\n', ""
    )
    (tmp_path / "audit.toml").write_text(toml + f"[models]\nfiles = {{{files}}}\n")
    logs = read_logs(tmp_path / "loans.parquet", trust=True)
    assert any("not close to linear" in note for note in logs.notes)
    assert any("The model is the same in all deployments" in note for note in logs.notes)


def test_model_versions_and_starts_are_deployments_too(tmp_path):
    table = decisions(tmp_path, models=False).drop(columns=["job", "owner", "application_id"])
    table["card"] = table.applied_at.str[:7]
    table.to_parquet(tmp_path / "loans.parquet", index=False)
    names = '[columns]\nclient = "branch"\nlabel = "repaid"\naccepted = "approved"\ngroup = "sex"\n'
    versions = tmp_path / "versions.toml"
    versions.write_text(names + 'deployment = "card"\nignore = ["applied_at"]\n[models]\nscores = true\n')
    assert len(read_logs(tmp_path / "loans.parquet", map=versions).deployments.names) == MONTHS
    starts = tmp_path / "starts.toml"
    starts.write_text(
        names + 'time = "applied_at"\nignore = ["card"]\n[deployments]\nstarts = ["2024-02-01", "2024-05-01"]\n'
        "[models]\nscores = true\n"
    )
    logs = read_logs(tmp_path / "loans.parquet", map=starts)
    assert logs.deployments.names == ("2024-02-01", "2024-05-01")
    assert logs.dropped == {"no deployment": int((table.applied_at < "2024-02-01").sum())}


def test_the_word_that_is_one(tmp_path):
    table = decisions(tmp_path, models=False).assign(
        repaid=lambda t: np.where(t.repaid == "bad", "charged off", "current")
    )
    table.drop(columns=["job", "owner", "application_id"]).to_parquet(tmp_path / "loans.parquet", index=False)
    toml = TOML.replace('ignore = ["application_id"]\n', "").replace('[categories]\ncolumns = ["job"]\n', "")
    (tmp_path / "audit.toml").write_text(toml + '[models]\nscores = true\n[labels]\none = "charged off"\n')
    logs = read_logs(tmp_path / "loans.parquet")
    share = (table.repaid == "charged off").mean()
    mean = sum(log.count @ log.mean[:, -1] for log in logs.clients.values()) / len(table)
    assert mean == pytest.approx(share)


def test_labels_that_have_not_come_yet(tmp_path):
    table = decisions(tmp_path, models=False).drop(columns=["job", "owner", "application_id"])
    table.loc[table.applied_at >= "2024-07", "repaid"] = None
    table.to_parquet(tmp_path / "loans.parquet", index=False)
    toml = TOML.replace('ignore = ["application_id"]\n', "").replace('[categories]\ncolumns = ["job"]\n', "")
    (tmp_path / "audit.toml").write_text(toml + "[models]\nscores = true\n")
    logs = read_logs(tmp_path / "loans.parquet")
    assert any("DROPPED 300 rows of '2024-07-01', '2024-08-01': they have no labels yet" in note for note in logs.notes)
    assert logs.label == "repaid" and len(logs.clients["north"].time) == 6
    (tmp_path / "audit.toml").write_text(toml + '[models]\nscores = true\n[labels]\ndelayed = "keep"\n')
    assert len(read_logs(tmp_path / "loans.parquet").clients["north"].time) == 8


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[deploymets]\n", "unknown table .deploymets.. Did you mean 'deployments'"),
        ("[deployments]\nevry = 'month'\n", "no key 'evry'. Did you mean 'every'"),
        ("[deployments]\nevery = 'fortnight'\n", "deployments.every must be one of 'day', 'week', 'month'"),
        ("[deployments]\nstarts = ['2024-05-01', '2024-01-01']\n", "two or more dates, in order"),
        ("[models]\nfiles = 'a.pkl'\n", "a path with {deployment} in it"),
        ("[models]\nscores = true\nregistry = 'a'\n", "accepts one of"),
        ("[categories]\nmost = 0\n", "a whole number > 0"),
        ("[labels]\ndelayed = 'wait'\n", "one of 'drop', 'keep'"),
    ],
)
def test_faults_of_the_mapping(tmp_path, toml, message):
    (tmp_path / "audit.toml").write_text(toml)
    with pytest.raises(LogError, match=message):
        open_source(tmp_path, map=tmp_path / "audit.toml")


def test_models_that_are_not_there(tmp_path):
    decisions(tmp_path)
    (tmp_path / "audit.toml").write_text(TOML + '[models]\nfiles = "{deployment}.pkl"\n')
    with pytest.raises(LogError, match=r"no file '2024-01-01.pkl' for deployment"):
        read_logs(tmp_path / "loans.parquet", trust=True)


def test_the_draft_is_a_mapping_that_works(tmp_path):
    decisions(tmp_path)
    columns = look(open_source(tmp_path / "loans.parquet"))
    roles = guess(columns)
    assert roles == {
        "time": "applied_at", "client": "branch", "label": "repaid", "score": "score", "accepted": "approved",
        "group": "sex",
    }  # fmt: skip
    text = draft(columns, roles, None, False)
    assert 'ignore = ["application_id"]' in text and 'columns = ["job"]' in text and 'every = "month"' in text
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "loans.parquet"), "--explain", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["roles"] == roles and (tmp_path / "audit.toml").read_text() == text
    assert read_logs(tmp_path / "loans.parquet").features == ("income", "debts", "job=nurse", "job=smith", "owner")
    again = CliRunner().invoke(app, ["audit", str(tmp_path / "loans.parquet"), "--explain", "--yes"])
    assert again.exit_code == 2 and "already exists" in again.stderr


def test_a_table_of_a_database_is_explained(tmp_path):
    table = decisions(tmp_path, models=False)
    connection = ibis.sqlite.connect(tmp_path / "bank.sqlite")
    connection.create_table("loans", ibis.memtable(pa.Table.from_pandas(table, preserve_index=False)))
    connection.disconnect()
    done = CliRunner().invoke(app, ["audit", f"{tmp_path / 'bank.sqlite'}#loans", "--explain", "--yes"])
    assert done.exit_code == 0, done.output
    assert 'table = "loans"' in (tmp_path / "audit.toml").read_text()
    logs = read_logs(tmp_path / "bank.sqlite")
    assert len(logs.deployments.names) == MONTHS and logs.used == len(table)
