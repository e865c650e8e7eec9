"""`performative init`, `schema`, `doctor`, and the help of every command."""

import copy
import json
import shlex
import tomllib
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from performative._base.checkup import Check
from performative.cli import app, init, installation
from performative.cli.manual import EXAMPLES
from performative.cli.output import at_terminal
from performative.config import load_experiment
from performative.config.schema import experiment_schema
from performative.config.start import describe_columns
from performative.papers.catalog import names
from performative.suite import ids
from performative.suite.methods import METHODS

FILES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.toml"))


def ask(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], **options)


def commands(group=None, path=""):
    """Each command that help lists, by its name."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        elif not command.hidden:
            yield f"{path}{name}", command


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table as people have it: an identifier, text, missing numbers, a label in words."""
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 240
    columns = {
        "id": range(1000, 1000 + n),
        "bank": rng.choice(["north", "south", "west"], n),
        "utilization": 100 * rng.normal(size=n),
        "debt": np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n)),
        "job": rng.choice(["clerk", "nurse", "smith"], n),
        "defaulted": rng.choice(["yes", "no"], n),
    }
    pd.DataFrame(columns).to_csv("people.csv", index=False)
    return tmp_path


@pytest.fixture(scope="module")
def schema():
    return experiment_schema()


def test_init_writes_a_file_that_is_read_and_valid(people, schema):
    answer = ask("init", "people.csv", "--json")
    assert answer.exit_code == 0, answer.output
    roles = json.loads(answer.stdout)["roles"]
    assert roles == {
        "label": "defaulted", "positive": "yes", "client": "bank", "strategic": ["utilization", "debt"],
        "ignore": ["id"],
    }  # fmt: skip
    found = load_experiment("experiment.toml")
    assert found.problem.population.clients == 3
    *numbers, first, second, last = found.problem.columns.names
    assert numbers == ["utilization", "debt"] and last == "intercept"
    assert {first, second} < {"job=clerk", "job=nurse", "job=smith"}
    jsonschema.validate(tomllib.loads(Path("experiment.toml").read_text()), schema)
    assert "experiment.toml: this file exists" in ask("init", "people.csv").stderr
    assert ask("init", "people.csv", "--force", "--client", "job").exit_code == 0
    assert load_experiment("experiment.toml").problem.columns.clients == ("clerk", "nurse", "smith")


def test_init_asks_at_a_terminal(people, monkeypatch):
    asked = []

    def answer(question, default=None, value_proc=str):
        asked.append((question.split("?")[0], default))
        if question.startswith("Which column is the label"):
            with pytest.raises(typer.BadParameter, match="Did you mean 'defaulted'"):
                value_proc("defaultd")
        if "people change" in question:  # asked again, too
            with pytest.raises(typer.BadParameter, match="Did you mean 'debt'"):
                value_proc("utilization,debts")
            with pytest.raises(typer.BadParameter, match="job: this column is not numeric"):
                value_proc("debt,job")
        if "names the client" in question:
            with pytest.raises(typer.BadParameter, match="defaulted: this column is the label"):
                value_proc("defaulted")
            with pytest.raises(typer.BadParameter, match=r"debt: .* of its entries are missing"):
                value_proc("debt")
        if question.startswith("Which column is the label"):  # it used to be refused after the last question
            with pytest.raises(typer.BadParameter, match="job: the label must have two classes"):
                value_proc("job")
        told = {"names the client": "none", "people change": "debt"}
        return value_proc(next((word for words, word in told.items() if words in question), default))

    monkeypatch.setattr(init.typer, "prompt", answer)
    frame = pd.read_csv("people.csv")
    columns = describe_columns(frame)
    roles = init._choose(columns, None, None, [], ask=True)
    assert (roles.label, roles.client, roles.strategic) == ("defaulted", None, ("debt",))
    assert init._positive(frame["defaulted"], None, ask=True) == "yes"
    assert [default for _, default in asked] == ["defaulted", "bank", "utilization,debt", "yes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--label", "defalted"), "--label 'defalted' is not a column of the table. Did you mean 'defaulted'?"),
        (("--label", "job"), "must have two classes"),
        (("--strategic", "debts"), "Did you mean 'debt'?"),
        (("--strategic", "job"), "--strategic job: this column is not numeric, so it has no direction"),
        (("--positive", "maybe"), "--positive 'maybe' is not one of the two classes of 'defaulted'."),
        (("--client", "defaulted"), "--client defaulted: this column is the label"),
        (("--out", "experiment.txt"), "pass a name that ends in .toml"),
    ],
)
def test_init_says_what_is_wrong_and_leaves_nothing_behind(people, words, said):
    answer = ask("init", "people.csv", *words)
    assert answer.exit_code == 2 and said in answer.stderr.replace("\n", " "), answer.output
    assert not list(people.glob("*.toml"))


def test_init_at_a_closed_or_interrupted_terminal(people, monkeypatch):
    monkeypatch.setattr(init, "at_terminal", lambda: True)
    stopped = ask("init", "people.csv", input="")  # the input ends at the first question
    assert stopped.exit_code == 130 and stopped.stderr.endswith("error: interrupted.\n")
    monkeypatch.undo()
    monkeypatch.setattr("sys.stdin", None)  # as Python sets it for `performative ... <&-`
    assert not at_terminal()


def test_init_reads_what_people_have(people):
    """Text of two values, blanks after commas, a missing label; a stray word among numbers is named."""
    rng, n = np.random.default_rng(1), 60
    rows = [f"{x:.3f}, {'high' if y > 0 else 'low'}, {int(z > 0)}" for x, y, z in rng.normal(size=(n, 3))]
    Path("hand.csv").write_text("\n".join(["debt, income, late", *rows, "0.5, low, "]))
    answer = ask("init", "hand.csv", "--label", "late", "--out", "hand.toml")
    assert answer.exit_code == 0 and f"{n} people, 1 client" in answer.stdout, answer.output
    assert load_experiment("hand.toml").problem.columns.names[0] == "debt"
    Path("stray.csv").write_text("\n".join(["debt, size, late", "n/k, 0.5, 1", *rows[1:]]).replace("low", "1.5"))
    Path("stray.csv").write_text(Path("stray.csv").read_text().replace("high", "2.5"))
    kept = Path("hand.toml").read_text()
    answer = ask("init", "stray.csv", "--force", "--out", "hand.toml", "--strategic", "late")
    assert "column 'debt' holds numbers, but also 'n/k'" in answer.stderr.replace("\n", " ")
    assert answer.exit_code == 2 and "error: --strategic late: this column is the label" in answer.stderr
    assert Path("hand.toml").read_text() == kept  # what cannot be read replaces nothing
    assert not list(people.glob(".*"))


def test_init_suggests_no_class_of_its_own(people):
    frame = pd.read_csv("people.csv")
    frame.replace({"defaulted": {"yes": "bad", "no": "good"}}).to_csv("words.csv", index=False)
    answer = ask("init", "words.csv", "--label", "defaulted", "--yes")
    said = " ".join(answer.stderr.split())
    assert answer.exit_code == 2 and "set --positive to the class that people try to avoid." in said
    assert "'good'" in said and "'bad'" in said and not Path("experiment.toml").exists()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_example_file_is_valid(schema, file):
    jsonschema.validate(tomllib.loads(file.read_text()), schema)


@pytest.mark.parametrize(
    ("where", "entry"),
    [
        ("", {"rnu": {}}),
        ("run", {"round": 3}),
        ("run", {"rounds": "many"}),
        ("algorithm", {"recipe": "pfedavg"}),
        ("algorithm", {"participation": {"name": "SchemeTwo"}}),
        ("algorithm", {"participation": {"name": "SchemeTwo", "k": "two"}}),
        ("algorithm", {"deploy": "steps"}),
        ("problem", {"case": "credti"}),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(schema, tmp_path, where, entry):
    jsonschema.Draft7Validator.check_schema(schema)
    document = tomllib.loads(next(file for file in FILES if file.stem == "credit").read_text())
    broken = copy.deepcopy(document)
    (broken[where] if where else broken).update(entry)
    assert jsonschema.Draft7Validator(schema).is_valid(document)
    assert not jsonschema.Draft7Validator(schema).is_valid(broken)


def test_schema_is_printed_and_written(tmp_path):
    printed = json.loads(ask("schema").stdout)
    assert printed["properties"]["algorithm"]["anyOf"]
    assert ask("schema", "--out", tmp_path / "s.json").exit_code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == printed


def test_doctor_finds_nothing_wrong_here(tmp_path):
    answer = ask("doctor", "--json", "--folder", tmp_path)
    checks = {check["name"]: check for check in json.loads(answer.stdout)["checks"]}
    wrong = [name for name, check in checks.items() if check["remedy"]]
    assert set(wrong) <= {"memory", "disk"}, checks  # a machine may be full
    assert "20 rounds of P-FedAvg" in checks["known answer"]["found"]


def test_doctor_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_JIT", "1")
    monkeypatch.setattr(installation.metadata, "requires", lambda name: ["numpy>=99", "no-such-package-here>=1"])
    monkeypatch.setattr(installation, "_known_answer", lambda: Check("known answer", "skipped"))
    answer = ask("doctor", "--folder", tmp_path / "nowhere")
    said = " ".join(answer.output.split())
    assert answer.exit_code == 1
    for words in ("no-such-package-here missing", "numpy>=99", "unset JAX_DISABLE_JIT", "choose a writable folder"):
        assert words in said, said


def test_every_command_has_examples_that_it_accepts(tmp_path):
    listed = dict(commands())
    assert set(EXAMPLES) == set(listed)
    for name, lines in EXAMPLES.items():
        for line in lines:
            words = shlex.split(line.split(" > ")[0])
            assert words[: len(name.split())] == name.split()
            listed[name].make_context(name, words[len(name.split()) :], resilient_parsing=False)
    experiments = {word for line in EXAMPLES["reproduce"] for word in line.split()[1:] if not word.startswith("--")}
    assert experiments and experiments <= set(names())
    (line,) = (line for line in EXAMPLES["suite run"] if "--envs" in line)
    chosen = dict(zip(line.split(), line.split()[1:], strict=False))
    assert chosen["--envs"] in ids() and set(chosen["--methods"].split(",")) <= set(METHODS)


@pytest.mark.parametrize("name", ["design", "run", "federation join"])
def test_help_is_a_plain_page(name):
    text = ask(*name.split(), "--help").stdout
    assert "Examples:\n    performative " in text and "Exit codes: 0" in text
    assert "\\[" not in text and "╭" not in text
    assert name != "design" or "TOML file with [problem] and [design]" in text


def test_lists_of_commands_are_not_cut_off():
    for words in ((), ("federation",), ("suite",), ("data",), ("privacy",)):
        assert "..." not in ask(*words, "--help").stdout.split("Commands:")[1]


def test_init_suggests_no_client_that_it_refuses(people):
    """A gap in a column called bank used to end `init --yes` with an error about its own suggestion."""
    frame = pd.read_csv("people.csv")
    frame.loc[3, "bank"] = None
    frame.to_csv("gap.csv", index=False)
    answer = ask("init", "gap.csv", "--yes", "--json")
    assert answer.exit_code == 0 and json.loads(answer.stdout)["roles"]["client"] is None, answer.output
    told = " ".join(ask("init", "gap.csv", "--force", "--client", "bank").stderr.split())
    assert "--client bank: 1 of its entries are missing; fill them, or choose another." in told


def test_init_uses_a_number_that_looks_like_an_identifier_if_it_is_named(people):
    answer = ask("init", "people.csv", "--strategic", "id", "--json")
    assert answer.exit_code == 0, answer.output
    roles = json.loads(answer.stdout)["roles"]
    assert roles["strategic"] == ["id"] and "id" not in roles["ignore"]
