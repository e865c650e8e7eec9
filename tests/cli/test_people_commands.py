"""`performative assess`, `stress`, `certify` and `scoreboard`: what they print, write and refuse."""

import importlib
import json

import joblib
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from performative.cli import app
from performative.report.section import Table

N = 200
TOML = """
[problem]
loss = "squared"
population = { name = "Gaussian", mean = [0.0, 1.0], sensitivity = 0.5, scale = 1.0 }
"""


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of people, and models that were fitted to it."""
    place, rng = tmp_path_factory.mktemp("people"), np.random.default_rng(0)
    frame = pd.DataFrame({"debt": rng.normal(5, 2, N), "usage": rng.normal(0, 1, N)})
    bad = 0.5 * (frame.debt - 5) + frame.usage + rng.logistic(size=N) > 0
    frame = frame.assign(sex=np.where(rng.random(N) < 0.5, "f", "m"), default=np.where(bad, "Yes", "No"))
    frame.to_csv(place / "people.csv", index=False)
    x = frame[["debt", "usage"]]
    joblib.dump(DecisionTreeClassifier(max_depth=3).fit(x, frame.default), place / "tree.joblib")
    joblib.dump(LogisticRegression().fit(x.to_numpy(), bad.astype(int)), place / "array.joblib")
    (place / "case.toml").write_text(TOML)
    return place


def test_tables_fit_in_80_columns(capsys):
    """Words of headings stay whole, and long names and numbers are continued, not cut off."""
    head = (
        "column",
        "share of the response",
        "moved by",
        "per spread",
        "trained once",
        "stable point",
        "optimal point",
    )
    row = ["hours_per_week_at_work", "72.7%", "-2.1e+04", "+1.71", "-2.11e-05", "+0.000139", ("50.0%", "1.2410")]
    Console(width=80).print(Table(head, [row]).terminal())
    shown = capsys.readouterr().out
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    assert "response" in shown and "-2.11e-05" in shown and "+0.000139" in shown and "(1.2410)" in shown


@pytest.mark.slow
def test_assess_as_text_page_and_json(folder, tmp_path, monkeypatch):
    # Each strength is a certificate; `performative.assess` is the function, so that modules go by their full name.
    monkeypatch.setattr(importlib.import_module("performative.assess.assessing"), "RANGE", (1.0, 2.0))
    words = ("assess", folder / "people.csv", "--label", "default", "--strategic", "debt,usage", "--group", "sex",
             "--who", "positive", "--strength", 0.3, "--page", tmp_path / "page.html", "--json")  # fmt: skip
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["status"] == "completed" and [one["strength"] for one in told["scenarios"]] == [0.3, 0.6]
    assert {one["code"] for one in told["findings"]} >= {"answer.change", "answer.settle", "answer.cost"}
    assert "Would retraining" in done.stderr and "Traceback" not in done.output
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--label", "defualt"), "Did you mean 'default'"),
        (("--label", "debt"), "must have two classes"),
        (("--label", "default", "--strategic", "dept"), "Did you mean 'debt'"),
        (("--label", "default", "--strategic", "sex"), "is categorical, so it has no direction"),
        (("--label", "default", "--client", "bank"), "client='bank' is not a column"),
        (("--label", "sex"), "specify which of them is 1"),
        (("--label", "default", "--page", "page.txt"), "pass a name that ends in .html"),
    ],
)
def test_assess_names_what_is_wrong(folder, words, told):
    done = invoke("assess", folder / "people.csv", *words)
    assert done.exit_code == 2 and told in " ".join(done.output.split()) and "Traceback" not in done.output


def test_files_that_are_not_there(folder):
    for words in (("assess", "none.csv", "--label", "y"), ("assess", folder, "--label", "y"),
                  ("stress", "none.joblib", folder / "people.csv", "--label", "default", "--trust"),
                  ("certify", "none.csv", "--label", "y"), ("certify", "none.toml"),
                  ("scoreboard", "none.toml")):  # fmt: skip
        done = invoke(*words)
        assert done.exit_code == 2 and "Traceback" not in done.output, (words, done.output)


def test_stress_of_a_model_in_a_file(folder):
    people = folder / "people.csv"
    asked = ("--label", "default", "--strategic", "usage", "--strengths", "0.2", "--group", "sex", "--trust", "--json")
    done = invoke("stress", folder / "tree.joblib", people, *asked)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["desired"] == "No" and not told["exact"] and len(told["table"]) == 6
    linear = invoke("stress", folder / "array.joblib", people, *asked, "--ignore", "sex", "--gain", "acceptance")
    assert linear.exit_code == 0, linear.output
    assert json.loads(linear.stdout)["exact"] and json.loads(linear.stdout)["desired"] == 0


@pytest.mark.parametrize(
    ("model", "words", "told"),
    [
        ("tree.joblib", ("--label", "default"), "Pass --trust"),
        ("people.csv", ("--label", "default", "--trust"), "a model must be one of"),
        ("tree.joblib", ("--label", "defualt", "--trust"), "Did you mean 'default'"),
        ("tree.joblib", ("--label", "default", "--trust", "--strengths", "much"), "comma-separated numbers"),
        ("tree.joblib", ("--label", "default", "--trust", "--desired", "Maybe"), "is not a class of the model"),
        ("tree.joblib", ("--label", "sex", "--trust"), "the model's classes are"),
        (
            "tree.joblib",
            ("--label", "default", "--trust", "--ignore", "usge"),
            "--ignore: there is no column 'usge'. Did",
        ),
        (
            "tree.joblib",
            ("--label", "default", "--trust", "--ignore", "default"),
            "--ignore default: this column is the",
        ),
        ("tree.joblib", ("--label", "default", "--trust", "--group", "default"), "--group default: this column is the"),
        ("array.joblib", ("--label", "default", "--trust"), "fitted on 2 columns without names"),
    ],
)
def test_stress_names_what_is_wrong(folder, model, words, told):
    done = invoke("stress", folder / model, folder / "people.csv", *words)
    assert done.exit_code == 2 and told in " ".join(done.output.split()) and "Traceback" not in done.output, done.output


def test_certify_of_a_file_and_of_a_table(folder):
    done = invoke("certify", folder / "case.toml", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["proved"] is True
    assert "this is proved" in done.stderr
    assert "--label NAME" in invoke("certify", folder / "people.csv").output
    assert "--label is for a table" in " ".join(invoke("certify", folder / "case.toml", "--label", "y").output.split())


@pytest.mark.slow
def test_certify_of_a_table_is_what_assess_says(folder):
    asked = ("--label", "default", "--strategic", "debt", "--who", "positive", "--ignore", "sex", "--json")
    verdict = json.loads(invoke("certify", folder / "people.csv", *asked).stdout)["verdict"]
    assert json.loads(invoke("assess", folder / "people.csv", *asked).stdout)["certificate"]["verdict"] == verdict


@pytest.mark.slow
def test_scoreboard_of_a_file(folder):
    path = folder / "run.toml"
    path.write_text(
        '[problem]\nframe = { path = "two.csv", client = "bank", label = "default", strategic = ["debt"] }\n'
        '[algorithm]\nrecipe = "p_fedavg"\nrate = 0.1\n[run]\nrounds = 5\n'
    )
    frame = pd.read_csv(folder / "people.csv")[["debt", "usage", "default"]]
    frame.assign(bank=np.arange(N) % 2, default=(frame.default == "Yes").astype(int)).to_csv(
        folder / "two.csv", index=False
    )
    done = invoke("scoreboard", path, "--repeats", 2, "--json")
    assert done.exit_code == 0, done.output
    names = [line["model"] for line in json.loads(done.stdout)["lines"]]
    assert names == ["majority class", "static baseline", "stable point", "optimal point", "p_fedavg"]
    bad = invoke("scoreboard", folder / "case.toml")
    assert bad.exit_code == 2 and "[algorithm] is missing" in bad.output


def test_a_model_exported_to_onnx_is_stressed_like_the_model_itself(folder):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    frame = pd.read_csv(folder / "people.csv")
    rows, bad = frame[["debt", "usage"]].to_numpy(np.float32), (frame.default == "Yes").astype(int)
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(rows, bad)
    joblib.dump(tree, folder / "same.joblib")
    exported = skl2onnx.to_onnx(tree, rows[:1], options={"zipmap": False})
    (folder / "same.onnx").write_bytes(exported.SerializeToString())
    words = ("--label", "default", "--strategic", "debt", "--ignore", "sex", "--trust", "--json")
    ours, theirs = (
        json.loads(invoke("stress", folder / f"same.{kind}", folder / "people.csv", *words).stdout)["table"]
        for kind in ("joblib", "onnx")
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["accuracy"] == pytest.approx(other["accuracy"], abs=0.02)
        assert mine["acceptance"] == pytest.approx(other["acceptance"], abs=0.02)
