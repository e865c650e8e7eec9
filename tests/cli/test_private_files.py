"""The problems of private learning, tables that react and Poisson batches, from files."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import performative as pf
from performative._base.describe import describe
from performative.cli import app
from performative.config import load_experiment

X, Y = np.random.default_rng(0).standard_normal((30, 2)), np.arange(30) % 2
TABLE = [[1.0, 2.0, 4.0], [0.0, 5.0, 3.0]]
PROBLEMS = {
    'case = { name = "quadratic", beta = 0.05, rows = 40, clients = 2 }': (
        lambda: pf.cases.quadratic(0.05, rows=40, clients=2)
    ),
    'case = { name = "credit_default", x = { file = "x.npy" }, y = { file = "y.npy" }, beta = 0.1, clients = 2 }': (
        lambda: pf.cases.credit_default(X, Y, beta=0.1, clients=2)
    ),
    f"""
loss = {{ name = "quadratic", scale = -1.0 }}
[problem.population]
name = "Database"
z = {TABLE}
count = [3, 2]
noise = 0.1
shift = {{ name = "Linear", sensitivity = [0.1, 0.2] }}
""": (
        lambda: pf.Problem(
            pf.losses.quadratic(-1.0),
            pf.populations.Database(TABLE, pf.populations.shifts.Linear([0.1, 0.2]), 0.1, [3, 2]),
        )
    ),
}
FILE = """
[problem]
PROBLEM
[algorithm]
recipe = "p_fedavg"
rate = 0.05
batch = { name = "Poisson", rate = 0.3, n_max = 6 }
[run]
rounds = 4
record = { risks = false }
"""


def write(folder, problem):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    file = folder / "case.toml"
    file.write_text(FILE.replace("PROBLEM", problem))
    return file


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("problem", PROBLEMS, ids=["quadratic", "credit_default", "Database"])
def test_each_can_be_written_in_a_file(problem, tmp_path):
    file = write(tmp_path, problem)
    experiment = load_experiment(file)
    assert describe(experiment.problem) == describe(PROBLEMS[problem]())
    assert describe(experiment.algorithm) == describe(pf.p_fedavg(0.05, batch=pf.Poisson(0.3, 6)))


QUADRATIC, CREDIT, DATABASE = PROBLEMS


@pytest.mark.parametrize(
    "problem",
    [DATABASE, *(pytest.param(other, marks=pytest.mark.slow) for other in (QUADRATIC, CREDIT))],
    ids=["Database", "quadratic", "credit_default"],
)
def test_each_runs(problem, tmp_path):
    result = invoke("run", write(tmp_path, problem), "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["status"] == "completed"


MISTAKES = {
    "case": (QUADRATIC, '"quadratic"', '"quadratc"', "problem.case.name", "Did you mean 'quadratic'?"),
    "argument of a case": (QUADRATIC, "rows", "row", "problem.case", "Did you mean 'rows'?"),
    "range of a case": (QUADRATIC, "beta = 0.05", "beta = 0.5", "problem.case", "a * beta < 1"),
    "shift": (DATABASE, '"Linear"', '"Liner"', "problem.population.shift.name", "Did you mean 'Linear'?"),
    "not a shift": (DATABASE, '"Linear"', '"Constant"', "problem.population.shift.name", "there is no shift"),
    "argument of a shift": (
        DATABASE, "sensitivity =", "sensitivty =", "problem.population.shift", "Did you mean 'sensitivity'?",
    ),
    "count": (DATABASE, "[3, 2]", "[3, 9]", "problem.population.count", "count must lie in 1..3"),
    "rate": (DATABASE, "rate = 0.3", "rate = 3.0", "algorithm.batch.rate", "0 < rate <= 1"),
    "n_max": (DATABASE, ", n_max = 6", "", "algorithm.batch", "Poisson needs n_max"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_file_key_and_the_nearest_name(mistake, tmp_path):
    problem, old, new, key, says = MISTAKES[mistake]
    file = write(tmp_path, problem)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    result = invoke("run", file)
    assert result.exit_code == 2, result.exception
    assert result.stderr.startswith(f"error: {file}: {key}"), result.stderr
    assert says in result.stderr and len(result.stderr.splitlines()) == 1
