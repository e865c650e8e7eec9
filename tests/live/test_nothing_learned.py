"""A federation in which no answer is used has failed, and says the first reason; idle rounds are reported."""

import json

import numpy as np
import pandas as pd
import pytest
from federations import federation, transport
from typer.testing import CliRunner

import performative as pf
from performative.cli.app import app
from performative.live import Callback, Federation, Folder, Live, Observed, read_status, rehearse, serve

NOTHING = r"\[nothing-was-learned\]"


def without_version(tmp_path, rounds=2):
    """Rows that lack the column model_version: no client can tell what they answer to."""

    def source(client):
        folder = tmp_path / f"rows-{client}"
        folder.mkdir(exist_ok=True)
        table = pd.DataFrame({"a": [0.1, 0.2], "b": [1.0, 2.0], "default": [0, 1]})
        table.to_parquet(folder / "rows.parquet")
        return Live(Callback(lambda deployed: None), Folder(folder, features=["a", "b"], label="default"), minimum=2)

    stand_in = Observed(x=np.zeros((2, 1, 2)), y=np.zeros((2, 1), int), classes=2)
    problem = pf.Problem(pf.losses.logistic(0.1), stand_in)
    return Federation(problem, pf.p_fedavg(0.5, deploy="round"), rounds, source=source, timeout=20.0)


def test_rows_without_a_version(tmp_path):
    first = rf"round 1: client 0 failed: NoVersion: rows lack the version.* any of the 2 rounds.*{NOTHING}"
    with pytest.warns(UserWarning, match=first):
        history = rehearse(without_version(tmp_path), tmp_path / "books")
    assert history.status == "failed" and "failed" in repr(history)
    assert "NoVersion" in history.meta["failed"]
    assert np.all(history.theta == history.theta[:, :1])
    told = read_status(tmp_path / "books" / "server")
    assert told["state"] == "failed" and "NoVersion" in told["why"]
    # The details are the client's own: which column, in which file.
    assert "'model_version'" in (tmp_path / "books" / "clients" / "0" / "client.log").read_text()
    history.save(tmp_path / "history.nc")
    assert pf.History.load(tmp_path / "history.nc").status == "failed"


def mute(rounds):
    """Clients that fail in these rounds (0, 1, ...)."""

    def wrap(client, answer):
        seen = []

        def broken(request):
            seen.append(request)
            if len(seen) - 1 in rounds:
                raise OSError(f"disk of {client}")
            return answer(request)

        return broken

    return wrap


@pytest.mark.parametrize(
    ("idle", "status", "says"),
    [
        ({0, 1, 2, 3, 4}, "failed", r"^round 1: client 0 failed: .*; no answer was used in any of the 5 rounds"),
        ({2, 3, 4}, "failed", r"^round 3: client 0 failed: .*; no .* last 3 of 5 rounds, .* that of round 2\."),
        ({0, 1, 4}, "completed", r"3 of 5 rounds used no update .*; the first, round 1: client 0 failed: OSError"),
        (set(), "completed", None),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nothing-was-learned")
def test_which_idle_rounds_are_a_failure(idle, status, says, tmp_path):
    made = federation(rounds=5)
    history = serve(made, transport(made, tmp_path, mute(idle)), tmp_path / "server")
    assert history.status == status == read_status(tmp_path / "server")["state"]
    said = [history.meta.get("failed", ""), *history.meta.get("notes", [])]
    if says is None:
        assert said == [""]
    else:
        assert any(pd.Series([words]).str.contains(says).item() for words in said), said


def test_a_run_that_goes_on_and_is_heard_again_has_not_failed(tmp_path):
    made = federation(rounds=3)
    with pytest.warns(UserWarning, match=NOTHING):
        serve(made, transport(made, tmp_path, mute({0, 1, 2})), tmp_path / "server")
    again = serve(made, transport(made, tmp_path), tmp_path / "server", resume=True, rounds=4)
    assert again.status == "completed" and "3 of 4 rounds used no update" in again.meta["notes"][-1]


def test_a_quorum_that_is_never_there(tmp_path):
    made = federation(rounds=2, quorum=5)

    def one_is_gone(client, answer):
        return mute({0, 1})(client, answer) if client == 4 else answer

    with pytest.warns(
        UserWarning, match=rf"only 4 of the 5 answers required by quorum= arrived; client 4 failed.*{NOTHING}"
    ):
        assert serve(made, transport(made, tmp_path, one_is_gone), tmp_path / "server").status == "failed"


def test_models_that_are_all_refused(tmp_path):
    made = federation(rounds=2, before_deploy=lambda theta, report: "too harsh")
    with pytest.warns(UserWarning, match=rf"the new model was not deployed: too harsh; .*{NOTHING}"):
        assert rehearse(made, tmp_path).status == "failed"


APP = """
import numpy as np
import pandas as pd
import performative as pf
from pathlib import Path
from performative.live import Callback, Federation, Function, Live, Observed

def federation():
    stand_in = Observed(x=np.zeros((2, 1, 2)), y=np.zeros((2, 1), int), classes=2)
    def source(client):
        def rows(version):
            raise RuntimeError("the table of people is locked")
        return Live(Callback(lambda deployed: None), Function(rows, ["a", "b"], "default"), minimum=2)
    problem = pf.Problem(pf.losses.logistic(0.1), stand_in)
    return Federation(problem, pf.p_fedavg(0.5, deploy="round"), 2, source=source, timeout=20.0)
"""


def test_the_command_ends_with_code_1(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    result = CliRunner().invoke(app, ["federation", "rehearse", "--app", str(tmp_path), "--json"])
    told = json.loads(result.stdout)
    assert (result.exit_code, told["status"]) == (1, "failed")
    assert "client 0 failed: RuntimeError" in told["error"]["message"]
    assert "nothing-was-learned" not in result.stderr  # one message is enough


def test_status_tells_of_a_run_that_failed(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    made = federation(rounds=1)
    with pytest.warns(UserWarning, match=NOTHING):
        serve(made, transport(made, tmp_path, mute({0})), pf.live.app.server_folder(tmp_path))
    result = CliRunner().invoke(app, ["federation", "status", "--app", str(tmp_path), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (1, "failed")
    assert "client 0 failed: OSError" in result.stdout
