"""Tables that stay with the members of a federation: the trajectory of a simulation, and every failure by its cause."""

import sqlite3

import numpy as np
import pandas as pd
import pytest
from member_files import FILE, frames, problem, write
from typer.testing import CliRunner

import performative as pf
from performative.cli.app import app
from performative.config.document import load_experiment
from performative.live import Deployed, load, read_events, rehearse, rollback

SQL = 'sql = "SELECT debt, cards, \\"default\\" FROM people ORDER BY id"\npath = "bank-{client}.url"'


def simulated(made, **options):
    return pf.run(problem(), made.algorithm, rounds=4, dtype="float64", executor="loop", **options)


def as_csv(folder):
    return FILE


def as_parquet(folder):
    for client, frame in enumerate(frames()):
        frame.to_parquet(folder / f"bank-{client}.parquet")
    return FILE.replace(".csv", ".parquet")


def as_sql(folder):
    for client, frame in enumerate(frames()):
        with sqlite3.connect(folder / f"{client}.db") as database:
            frame.to_sql("people", database, index=False)
        database.close()
        (folder / f"bank-{client}.url").write_text(f"sqlite:///{folder}/{client}.db\n")
    return FILE.replace('path = "bank-{client}.csv"', SQL)


def as_names(folder):
    for client, frame in enumerate(frames()):
        said = frame.assign(default=frame["default"].map({0: "paid", 1: "lost"}))
        said.to_csv(folder / f"{('north', 'south')[client]}.csv", index=False)
    text = FILE.replace("clients = 2", 'clients = ["north", "south"]\npositive = "lost"')
    return text.replace("bank-{client}", "{client}")


@pytest.mark.parametrize(
    "store",
    [as_csv, pytest.param(as_parquet, marks=pytest.mark.slow), as_sql, pytest.param(as_names, marks=pytest.mark.slow)],
)
def test_the_trajectory_is_that_of_the_same_table(store, tmp_path):
    path = write(tmp_path)
    path.write_text(store(tmp_path))
    made = load(path)
    live = rehearse(made, tmp_path / "records")
    assert live.status == "completed" and not read_events(tmp_path / "records" / "server")
    assert np.array_equal(live.theta, simulated(made).theta)


def test_members_with_tables_follow_a_rollback(tmp_path):
    """A table's people meet no model: being told of one again is no failure."""
    made = load(write(tmp_path))
    rehearse(made, tmp_path / "records", rounds=3)
    rollback(made, tmp_path / "records" / "server", 1)
    assert rehearse(made, tmp_path / "records", rounds=4, resume=True).status == "completed"
    assert {event["what"] for event in read_events(tmp_path / "records" / "server")} == {"rollback"}


@pytest.mark.slow
def test_epochs_give_the_same_bits(tmp_path):
    made = load(write(tmp_path, FILE.replace('{ name = "Fixed", n = 8 }', '{ name = "Shuffled", n = 5 }')))
    assert np.array_equal(rehearse(made).theta, simulated(made).theta)


@pytest.mark.slow
def test_whole_tables_give_the_same_but_for_the_order_of_sums(tmp_path):
    """A simulation pads tables to one length, a member has its own: XLA adds up in another order."""
    made = load(write(tmp_path, FILE.replace('{ name = "Fixed", n = 8 }', '"Whole"')))
    np.testing.assert_allclose(rehearse(made).theta, simulated(made).theta, rtol=0, atol=1e-15)


def test_the_file_simulates_where_all_tables_are_at_hand(tmp_path):
    path = write(tmp_path)
    assert np.array_equal(load_experiment(path).run(executor="loop").theta, simulated(load(path)).theta)


def test_the_server_needs_no_table_and_agrees_with_members_on_what_is_learned(tmp_path):
    here, there = load(write(tmp_path / "member")), tmp_path / "server"
    there.mkdir()
    (there / "federation.toml").write_text(FILE)
    server = load(there / "federation.toml")
    assert not np.asarray(server.problem.population.x).any()
    with server.precision():
        assert server.ready.identity == here.ready.identity


def test_rows_that_do_not_react(tmp_path):
    still = FILE.replace('[problem.population]\nname = "Strategic"\nstrength = [0.2, 0.6]\nfeatures = ["cards"]\n', "")
    made = load(write(tmp_path, still))
    moved = problem().population
    fixed = pf.populations.Static(moved.x, moved.y, moved.count)
    still = pf.Problem(problem().loss, fixed)
    run = pf.run(still, made.algorithm, rounds=4, theta=np.zeros(3), dtype="float64", executor="loop")
    assert np.array_equal(rehearse(made).theta, run.theta)


def without(frame, **columns):
    """The table with other values in some of its rows."""
    frame = frame.astype(dict.fromkeys(columns, object))
    for name, value in columns.items():
        frame.loc[7, name] = value
    return frame


FAILURES = {
    "missing file": (lambda f: None, "there is no file path = 'bank-1.csv' in", "bank-1.csv is not"),
    "wrong column": (lambda f: f.rename(columns={"debt": "Debt"}), "there is no column 'debt'", "'Debt'"),
    "a column twice": (lambda f: f.rename(columns={"cards": "debt"}), "cannot be read", "occurs twice"),
    "nothing in a cell": (lambda f: without(f, debt=None), "column 'debt' is missing or non-finite", "1 of 41 rows"),
    "infinity": (lambda f: without(f, debt=np.inf), "column 'debt' is missing or non-finite", "row 8"),
    "text": (lambda f: without(f, debt="Ada"), "column 'debt' contains text, not numbers", "row 8 is 'Ada'"),
    "text label": (lambda f: f.assign(default="lost"), "label 'default' contains text, not numbers; pos", "'lost'"),
    "half a class": (lambda f: f.assign(default=0.5), "label 'default' contains numbers that are not classes", ""),
    "no label of the loss": (lambda f: f.assign(default=3), "do not fit the loss", "labels 0 and 1"),
    "too few rows": (lambda f: f[:9], "fewer rows than rows = 10", "it has 9"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_says_its_cause_and_nothing_of_the_rows(name, tmp_path):
    spoil, said, owner = FAILURES[name]
    path = write(tmp_path)
    frame = spoil(frames()[1])
    (tmp_path / "bank-1.csv").unlink() if frame is None else frame.to_csv(tmp_path / "bank-1.csv", index=False)
    live = rehearse(load(path), tmp_path / "records", rounds=1)
    (event,) = read_events(tmp_path / "records" / "server")
    assert (event["what"], event["client"]) == ("failed", 1)
    assert said in event["reason"]
    for private in ("Ada", "lost'", "41", str(tmp_path), "'Debt'"):
        assert private not in event["reason"]
    assert owner in (tmp_path / "records" / "clients" / "1" / "client.log").read_text()
    assert live["missing"][0, -1] == 1


def test_a_failure_of_all_is_in_the_first_line(tmp_path):
    """Of the command as the user meets it: the first round's line has the cause."""
    from performative.live.app import write_app

    write_app(tmp_path / "app", 2)
    write(tmp_path / "app")
    (tmp_path / "data").mkdir()
    words = ["federation", "rehearse", "--app", str(tmp_path / "app"), "--data", str(tmp_path / "data")]
    result = CliRunner().invoke(app, [*words, "--rounds", "1"])
    assert result.exit_code == 1
    assert "client 0 failed: there is no file path = 'bank-0.csv'" in result.output.splitlines()[0]
    assert "Traceback" not in result.output


def test_a_table_that_changes_is_read_again(tmp_path):
    from performative.live.sources.tables import ClientTable

    made = load(write(tmp_path))
    table, model = ClientTable(made.source.tables, tmp_path, 0), Deployed(0, np.zeros(3), 0)
    assert len(table.people(model, made.problem).x[0]) == 30
    frames()[0][:20].to_csv(tmp_path / "bank-0.csv", index=False)
    assert len(table.people(model, made.problem).x[0]) == 20


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('path = "bank-{client}.csv"', 'path = "bank.xlsx"', "data.path: path: 'bank.xlsx' must end in .csv"),
        ('path = "bank-{client}.csv"', 'path = ["a.csv"]', "one for each of 2 clients; got 1"),
        ('path = "bank-{client}.csv"', 'path = "url"\nsql = "SELECT 1"', "data.sql: sql must contain ORDER BY"),
        ("clients = 2", 'clients = ["../x", "y"]', "data.clients: clients: '../x'"),
        ("clients = 2", "clients = 0", "data.clients: clients must be a whole number >= 1"),
        ('label = "default"', 'label = "debt"', "data.features: features must be distinct columns"),
        ('label = "default"', 'lable = "default"', "data: unknown key 'lable'"),
        ("debt = [40, 10]", "dept = [40, 10]", "data.scales: scales: 'dept' is not a feature"),
        ("debt = [40, 10], ", "", "scales must give mean and standard deviation of every feature, such as { debt"),
        ("debt = [40, 10]", "debt = [40, 0]", "scales: 'debt' needs (mean, standard deviation > 0); got [40, 0]"),
        ('features = ["cards"]', 'features = ["card"]', "problem.population.features: expected names among"),
        ("strength = [0.2, 0.6]", "strength = 0.1\nx = [[[1.0]]]", "problem.population: [data] provides x"),
        ('name = "Strategic"\nstrength = [0.2, 0.6]', 'name = "Gaussian"', "problem.population"),
        ("rows = 10", "rows = 10\nlabels = 'real'\npositive = 1", "data.positive: positive"),
        ('{ name = "Fixed", n = 8 }', '{ name = "Uniform", n = 11 }', "algorithm.batch"),
    ],
)  # fmt: skip
def test_what_the_shared_file_may_not_say(old, new, says, tmp_path):
    assert old in FILE
    path = write(tmp_path, FILE.replace(old, new))
    with pytest.raises(ValueError) as error:
        load(path)
    assert says in str(error.value)


def test_a_second_source_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"data: both \[data\] and source= define where rows come from"):
        load(write(tmp_path), source=lambda client: None)


def test_targets_that_are_any_numbers(tmp_path):
    text = FILE.replace('"logistic"', '"ridge"').replace("rows = 10", 'rows = 10\nlabels = "real"')
    path = write(tmp_path, text)
    for client in (0, 1):
        frame = pd.read_csv(tmp_path / f"bank-{client}.csv")
        frame.assign(default=frame["cards"] / 3).to_csv(tmp_path / f"bank-{client}.csv", index=False)
    live = rehearse(load(path), tmp_path / "records")
    assert not read_events(tmp_path / "records" / "server")
    assert np.array_equal(live.theta, load_experiment(path).run(executor="loop").theta)
