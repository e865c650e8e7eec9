"""A mistake in a file is answered with file, key, rule and what came; nothing runs and nothing is written."""

import pytest
from typer.testing import CliRunner

from performative.cli import app

GOOD = """
title = "a mean that follows the model"
[problem]
loss = "squared"
population = { name = "Gaussian", mean = [0.0, 1.0, 2.0], sensitivity = 0.5, scale = 1.0 }
weights = [0.2, 0.3, 0.5]
domain = { name = "Box", lo = -9, hi = 9 }
[algorithm]
recipe = "p_fedavg"
rate = { name = "harmonic", scale = 20, offset = 200 }
local_steps = 2
batch = { name = "Fixed", n = 1 }
participation = { name = "SchemeTwo", k = 2 }
deploy = "step"
[run]
rounds = 4
theta = 0.0
"""

WHO, DATA = "algorithm.participation", "problem.population"
MISTAKES = {
    # what to replace, by what, the key, what the message says
    "a number of 5,000 digits": ("rounds = 4", f"rounds = {'9' * 5000}", "", "more than a few thousand digits"),
    "lists in lists": ("theta = 0.0", f"theta = {'[' * 3000}{']' * 3000}", "", "nested too deeply"),
    "more rounds than can be counted": ("rounds = 4", "rounds = 1000000000000", "run.rounds", "exceed the 2^31"),
    "more repeats than fit": ("rounds = 4", "rounds = 4\nrepeats = 10000000000", "run.repeats", "far-too-large"),
    "unknown table": ("[run]", "[runs]", "", "unknown key 'runs'. Did you mean 'run'?"),
    "unknown key": ("rounds = 4", "round = 4", "run", "unknown key 'round'. Did you mean 'rounds'?"),
    "missing key": ("rounds = 4\n", "", "run", "needs rounds"),
    "text for a number": ("rounds = 4", 'rounds = "4"', "run.rounds", "expected a whole number; got '4'"),
    "true for a number": ("rounds = 4", "rounds = true", "run.rounds", "expected a whole number; got True"),
    "out of range": ("rounds = 4", "rounds = 0", "run.rounds", "whole number >= 1; got 0"),
    "wrong type at the top": ('title = "a mean that follows the model"', "title = 3", "title", "expected text; got 3"),
    "unknown recipe": ('"p_fedavg"', '"pfedavg"', "algorithm.recipe", "Did you mean 'p_fedavg'?"),
    "unknown part": ("SchemeTwo", "SchemTwo", f"{WHO}.name", "Did you mean 'SchemeTwo'?"),
    "part of another slot": ("SchemeTwo", "Fixed", f"{WHO}.name", "no participation 'Fixed'"),
    "number for a part": ('{ name = "SchemeTwo", k = 2 }', "2", WHO, "expected a part"),
    "unknown argument": ("k = 2", "kk = 2", WHO, "unknown key 'kk'. Did you mean 'k'?"),
    "missing argument": (", k = 2", "", WHO, "SchemeTwo needs k"),
    "argument of a wrong type": ("k = 2", "k = 2.5", f"{WHO}.k", "whole number; got 2.5"),
    "K > N": ("k = 2", "k = 7", WHO, "1 <= k <= 3"),
    "E < 1": ("local_steps = 2", "local_steps = 0", "algorithm.local_steps", ">= 1; got 0"),
    "unknown word": ('"step"', '"often"', "algorithm.deploy", "got 'often'"),
    "unknown schedule": ("harmonic", "harmonics", "algorithm.rate.name", "Did you mean 'harmonic'?"),
    "unknown loss": ('"squared"', '"sqared"', "problem.loss", "Did you mean 'squared'?"),
    "loss that takes nothing": ('"squared"', '{ name = "squared", a = 1 }', "problem.loss", "no arguments"),
    "loss that does not fit": ('"squared"', '"logistic"', "problem", "are incompatible"),
    "weights that sum to more": ("0.5]", "0.6]", "problem.weights", "must sum to one"),
    "too few weights": ("[0.2, 0.3, 0.5]", "[0.5, 0.5]", "problem.weights", "each of the 3 clients"),
    "negative weights": ("[0.2, 0.3, 0.5]", "[-0.2, 0.7, 0.5]", "problem.weights", "must not be negative"),
    "NaN": ("[0.0, 1.0, 2.0]", "[0.0, nan, 2.0]", f"{DATA}.mean", "must be finite"),
    "rows of two lengths": ("[0.0, 1.0, 2.0]", "[[0.0], [1.0, 2.0]]", f"{DATA}.mean", "equal length"),
    "text in data": ("sensitivity = 0.5", 'sensitivity = "half"', f"{DATA}.sensitivity", "got 'half'"),
    "client axes that differ": ("scale = 1.0", "scale = [1.0, 1.0]", DATA, "one row per client"),
    "box upside down": ("lo = -9", "lo = 10", "problem.domain", "lo <= hi"),
    "theta of a wrong shape": ("theta = 0.0", "theta = [0.0, 1.0]", "run.theta", "must have shape ()"),
    "unknown precision": ("theta = 0.0", 'dtype = "float16"', "run.dtype", "got 'float16'"),
    "point that is no point": ("theta = 0.0", 'record = { stable = "sovle" }', "run.record.stable", "got 'sovle'"),
    "no such file": ("[0.2, 0.3, 0.5]", '{ file = "w.npy" }', "problem.weights.file", "there is no file"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_gets_one_message(mistake, tmp_path):
    old, new, key, says = MISTAKES[mistake]
    assert old in GOOD
    file = tmp_path / "case.toml"
    file.write_text(GOOD.replace(old, new))
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "out.nc")])
    message = result.stderr
    assert result.exit_code == 2, result.exception
    assert message.startswith(f"error: {file}: {key}")
    assert says in message
    assert len(message.splitlines()) == 1 and result.stdout == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["case.toml"]


def test_syntax_error_names_the_line(tmp_path):
    file = tmp_path / "case.toml"
    file.write_text(GOOD.replace("rounds = 4", "rounds = = 4"))
    result = CliRunner().invoke(app, ["run", str(file)])
    line = GOOD.splitlines().index("rounds = 4") + 1
    assert result.exit_code == 2
    assert f"{file}: not valid TOML" in result.stderr and f"line {line}" in result.stderr


def test_a_column_that_a_table_names_twice(tmp_path):
    """pandas would call the second one income.1."""
    (tmp_path / "people.csv").write_text("bank,income,income,default\na,1.0,9.0,0\nb,2.0,9.0,1\n")
    (tmp_path / "case.toml").write_text(
        '[problem.frame]\npath = "people.csv"\nclient = "bank"\nlabel = "default"\n'
        '[algorithm]\nrecipe = "p_fedavg"\nrate = 0.1\n[run]\nrounds = 2\n'
    )
    result = CliRunner().invoke(app, ["run", str(tmp_path / "case.toml")])
    assert result.exit_code == 2
    assert "problem.frame.path: people.csv: column 'income' occurs twice; keep one." in result.stderr


@pytest.mark.parametrize("label", ["deflt", "job"])
def test_table_without_the_column_or_with_text(label, tmp_path):
    (tmp_path / "people.csv").write_text("bank,job,income,default\na,baker,1.0,0\nb,clerk,2.0,1\n")
    (tmp_path / "case.toml").write_text(
        f'[problem.frame]\npath = "people.csv"\nclient = "bank"\nlabel = "{label}"\n'
        '[algorithm]\nrecipe = "p_fedavg"\nrate = 0.1\n[run]\nrounds = 2\n'
    )
    result = CliRunner().invoke(app, ["run", str(tmp_path / "case.toml")])
    assert result.exit_code == 2
    assert "problem.frame.label: label=" in result.stderr
