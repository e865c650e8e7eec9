"""`performative watch` over a table: deployments are batches, read once they are over."""

import json
import sqlite3

import duckdb
import pandas as pd
import pytest
from batches_to_watch import batches
from typer.testing import CliRunner

import performative as pf
from performative.cli.app import app
from performative.watch.following import Follower
from performative.watch.tables import TableBatches

MAP = '[source]\ntable = "decisions"\nmodels = "scores"\n[columns]\ndeployment = "version"\nclient = "bank"\n'


def tables(looks=30, effect=0.9):
    """Decisions and models as a database has them, with columns of its own names."""
    rows, models = [], []
    for columns, told in batches(looks, effect, rows=40, clients=2):
        frame = pd.DataFrame({"version": told["deployment"], "bank": columns["client"], "income": columns["income"]})
        rows.append(frame)
        models.append({"version": told["deployment"], "time": told["time"], "theta_income": told["theta"]["income"]})
    return rows, pd.DataFrame(models)


def in_duckdb(path, frame, table="decisions", mode="create"):
    with duckdb.connect(str(path)) as database:
        database.register("frame", frame)
        database.execute(f"create table {table} as select * from frame" if mode == "create" else
                         f"insert into {table} select * from frame")  # fmt: skip


def in_sqlite(path, frame, table="decisions", mode="create"):
    with sqlite3.connect(path) as database:
        frame.to_sql(table, database, index=False, if_exists="append")
    database.close()


@pytest.fixture(
    params=[
        pytest.param(("duckdb", in_duckdb), id="duckdb"),
        pytest.param(("sqlite", in_sqlite), id="sqlite", marks=pytest.mark.slow),
    ]
)
def store(request, tmp_path):
    kind, write = request.param
    (tmp_path / "audit.toml").write_text(MAP)
    return tmp_path / f"bank.{kind}", write


def test_a_table_says_what_its_batches_say(store, tmp_path):
    path, write = store
    rows, models = tables()
    write(path, pd.concat(rows))
    write(path, models, "scores")
    ended = CliRunner().invoke(
        app, ["watch", str(path), "--state", str(tmp_path / "state"), "--once", "--drift", "none", "--json"]
    )
    told = json.loads(ended.stdout)
    assert ended.exit_code == 0 and told["reacts"] and told["looks"] == 30
    assert set(told["input"]["quarantined"]) == set() and "alarm: reaction" in ended.stderr
    by_hand = pf.watch(drift="none")
    for t, (frame, model) in enumerate(zip(rows, models.theta_income, strict=True)):
        frame = frame.rename(columns={"bank": "client"}).drop(columns="version")
        by_hand.update(frame, theta={"income": model}, time=float(t), deployment=f"d{t}", id=f"d{t}")
    ours = pf.watch(tmp_path / "state")
    assert ours.log_evidence() == pytest.approx(by_hand.log_evidence(), rel=1e-9)


@pytest.mark.slow
def test_a_deployment_is_read_when_the_next_has_rows_and_late_rows_once(store, tmp_path):
    path, write = store
    rows, models = tables(6)
    write(path, pd.concat(rows[:3]))
    write(path, models, "scores")
    follower = Follower(pf.watch(drift="none"), TableBatches(path), tmp_path / "state")
    assert follower.pass_over() == 2 and follower.watch.tally.looks == 2  # the third may still grow
    assert follower.pass_over() == 0
    write(path, pd.concat(rows[3:5]), mode="append")
    assert follower.pass_over() == 2 and follower.watch.tally.looks == 4
    write(path, rows[0].head(3), mode="append")  # three people of the first deployment, late
    for _ in range(2):
        follower.pass_over()
    assert follower.watch.tally.late_rows == 3 and follower.watch.tally.looks == 4
    again = Follower(pf.watch(tmp_path / "state"), TableBatches(path), tmp_path / "state")
    assert again.pass_over() == 4 and again.watch.tally.looks == 4  # known by their ids
    assert again.pass_over(once=True) == 1 and again.watch.tally.looks == 5


def test_a_database_that_is_gone_for_a_while_is_named(store, tmp_path):
    path, write = store
    rows, models = tables(3)
    write(path, pd.concat(rows))
    write(path, models, "scores")
    follower = Follower(pf.watch(drift="none"), TableBatches(path), tmp_path / "state")
    moved = path.rename(path.with_suffix(".aside"))
    with pytest.raises(ValueError, match="no such folder"):
        follower.pass_over()
    moved.rename(path)
    assert follower.pass_over() == 2


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        (MAP.replace("decisions", "decision"), "there is no table 'decision'"),
        (MAP.replace("version", "model"), "model"),
        ("[columns]\nclint = 1\n", "clint"),
    ],
)
def test_what_is_wrong_with_a_map_is_said_at_once(tmp_path, mapping, told):
    path = tmp_path / "bank.sqlite"
    rows, models = tables(3)
    in_sqlite(path, pd.concat(rows))
    in_sqlite(path, models, "scores")
    (tmp_path / "map.toml").write_text(mapping)
    words = ["watch", str(path), "--map", str(tmp_path / "map.toml"), "--state", str(tmp_path / "s"), "--once"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2 and told in " ".join(ended.stderr.split()) and "Traceback" not in ended.stderr
