"""An option or entry that would have no effect is refused by name, with what to do instead."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from performative.cli.app import app
from performative.config.problems import load_problem


def refused(*words):
    ended = CliRunner().invoke(app, [str(word) for word in words])
    assert ended.exit_code == 2 and "Traceback" not in ended.output, ended.output
    return " ".join(ended.stderr.split())


@pytest.mark.parametrize("words", ["--strength 1.0", "--who everyone", "--scale robust", "--rows 100", "--label y"])
def test_certify_of_a_file_takes_no_options_of_tables(file, words):
    option, value = words.split()
    assert f"error: {option} is for a table of people; the file sets it" in refused("certify", file, option, value)


@pytest.mark.parametrize(
    ("name", "entry", "table"),
    [
        ("certify", "run.rounds=3", "run"),
        ("certify", "algorithm.rate=0.2", "algorithm"),
        ("plan", "run.rounds=3", "run"),
        ("plan", "design.effect=3", "design"),
        ("design", "plan.accuracy=3", "plan"),
        ("run", "plan.accuracy=3", "plan"),
        ("run", "federation.port=1", "federation"),
        ("scoreboard", "plan.accuracy=3", "plan"),
        ("scoreboard", "run.record.every=3", "run.record"),
        ("scoreboard", "run.checkpoint=here", "run.checkpoint"),
        ("privacy spent", "plan.accuracy=3", "plan"),
        ("privacy attack", "run.rounds=3", "run"),
    ],
)
def test_entries_of_other_tables_are_refused(file, name, entry, table):
    told = refused(*name.split(), file, "--set", entry)
    assert f"--set {entry}: this command does not use [{table}]; drop --set {entry.split('=')[0]}." in told


def test_certify_names_unknown_tables(file):
    assert "unknown key 'problm'. Did you mean 'problem'?" in refused("certify", file, "--set", "problm.loss=squared")
    file.write_text(file.read_text() + "[plann]\naccuracy = 0.5\n")
    assert "unknown key 'plann'. Did you mean 'plan'?" in refused("certify", file)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--yes", "--yes requires --explain"),
        ("--least 3", "--least requires --moments FILE"),
        ("--delta 0.1", "--delta requires --moments FILE"),
        ("--explain --moments sums.npz", "--explain and --moments do different things"),
        ("--explain --seed 3", "--seed has no effect with --explain"),
        ("--moments sums.npz --out there", "--out has no effect with --moments"),
        ("--moments sums.npz --cause", "--cause reads rows"),
        ("--merge --groups sex", "--groups reads rows, but --merge has only sums"),
        ("--merge --cause", "--cause reads rows, but --merge has only sums"),
    ],
)
def test_modes_of_an_audit(tmp_path, words, told):
    assert told in refused("audit", tmp_path, *words.split())


@pytest.mark.parametrize("words", ["--noise 1", "--steps 3", "--sampling poisson", "--batch 3", "--rows 90"])
def test_numbers_beside_a_private_file(file, words):
    option, value = words.split()
    assert f"error: {option} is set by the file" in refused("privacy", "spent", file, option, value)


def test_a_scoreboard_uses_what_the_file_says_about_its_run(tmp_path):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"debt": rng.normal(size=40), "bank": ["a", "b"] * 20})
    people.assign(late=(people.debt + rng.logistic(size=40) > 0).astype(int)).to_csv(tmp_path / "p.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(
        '[problem]\nframe = { path = "p.csv", client = "bank", label = "late", strategic = ["debt"] }\n'
        '[algorithm]\nrecipe = "p_fedavg"\nrate = 0.1\n'
        '[run]\nrounds = 2\nrepeats = 1\ndtype = "float64"\nrecord = { stable = "solve" }\n'
    )

    def errors(*words):
        done = CliRunner().invoke(app, ["scoreboard", str(path), "--json", *words])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["lines"][-1]["errors"]

    assert errors() == {}  # one repeat has no spread
    assert set(errors("--repeats", "2")) == set(errors("--set", "run.repeats=2")) != set()


def test_members_tables_are_part_of_what_is_certified(tmp_path):
    """[data] used to be ignored by certify, which judged another problem, and was an unknown key for plan."""
    rng = np.random.default_rng(0)
    for bank in ("north", "south"):
        debt = rng.normal(size=60)
        late = (debt + rng.logistic(size=60) > 0).astype(int)
        pd.DataFrame({"debt": debt, "late": late}).to_csv(tmp_path / f"{bank}.csv", index=False)
    file = tmp_path / "banks.toml"
    file.write_text(
        '[problem]\nloss = { name = "Logistic", penalty = 0.1 }\n'
        'population = { name = "Strategic", strength = 0.1 }\n'
        '[data]\nclients = ["north", "south"]\nfeatures = ["debt"]\nlabel = "late"\npath = "{client}.csv"\n'
    )
    rows = load_problem(file).population
    assert np.asarray(rows.count).tolist() == [60, 60] and np.std(rows.x) > 0.5
    done = CliRunner().invoke(app, ["certify", str(file), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["stable"], done.output


def test_a_table_or_a_plan_without_its_target_says_what_to_do(tmp_path, file):
    table = tmp_path / "people.csv"
    table.write_text("debt,late\n1,0\n")
    assert f"a table, not a TOML file; `performative init {table}` writes one" in refused("run", table)
    told = refused("plan", file, "--set", "plan={}")
    assert "plan: needs accuracy = ..., the target error in units of theta; or pass --accuracy." in told
