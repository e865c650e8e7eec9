"""`performative audit FOLDER`."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from performative import audit
from performative.cli import app


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two clients of one number each, 0.5 and 0.9 per unit of the model, moved by hand."""
    folder, rng = tmp_path_factory.mktemp("logs"), np.random.default_rng(1)
    theta = rng.normal(2.0, 1.0, 12)
    pd.DataFrame({"deployment": range(12), "theta_x": theta}).to_csv(folder / "deployments.csv", index=False)
    frames = [
        pd.DataFrame({"deployment": t, "client": name, "x": 1.0 + eps * theta[t] + rng.normal(size=300)})
        for t in range(12)
        for name, eps in (("north", 0.5), ("[south]", 0.9))
    ]
    pd.concat(frames).to_csv(folder / "data.csv", index=False)
    return folder


def test_summary_json_and_page(folder, tmp_path):
    out = tmp_path / "out"
    result = invoke("audit", folder, "--out", out, "--drift", "linear", "--seed", 2, "--json")
    assert result.exit_code == 0, result.output
    # With --json the summary for people goes to standard error.
    for text in ("The data react to the model at 2 of 2 clients", "north: Reacts", "[south]: Reacts", "Next: "):
        assert text in result.stderr
    told = json.loads(result.stdout)
    assert told.pop("status") == "completed"
    assert told.pop("files") == {"page": str(out / "audit.html"), "json": str(out / "audit.json")}
    assert told == json.loads((out / "audit.json").read_text())
    assert told == audit.audit_logs(folder, drift="linear", seed=2).to_dict()
    assert sorted(path.name for path in out.iterdir()) == ["audit.html", "audit.json"]
    made = (out / "audit.html").read_text()
    assert "north" in made and "[south]" in made
    assert told["outlook"]["stable"][0] == pytest.approx(1 / (1 - 0.7), rel=0.1)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nothing", "there is no such folder"),
        ("empty", "needs deployments.csv or deployments.parquet"),
        ("text", "line 3: column 'x': must be a number; got 'many'"),
        ("group", "there is no column 'race'"),
    ],
)
def test_bad_input_ends_with_two_and_writes_nothing(folder, tmp_path, fault, message):
    logs, out, more = tmp_path / "logs", tmp_path / "out", []
    if fault != "nothing":
        logs.mkdir()
    if fault in ("text", "group"):
        (logs / "deployments.csv").write_text("deployment,theta_x\n0,1\n1,2\n")
        (logs / "data.csv").write_text("deployment,x\n0,1\n0,many\n" if fault == "text" else "deployment,x\n0,1\n0,2\n")
    if fault == "group":
        more = ["--groups", "race"]
    result = invoke("audit", logs, "--out", out, "--json", *more)
    assert result.exit_code == 2
    assert message in json.loads(result.stdout)["error"]["message"]
    assert not out.exists()


def test_out_must_be_a_folder(folder, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    result = invoke("audit", folder, "--out", file)
    assert result.exit_code == 2 and "pass a folder" in result.stderr
    assert file.read_text() == "mine"
    assert invoke("audit", folder, "--drift", "wave").exit_code == 2
