"""Drifting people in a file."""

import json

import numpy as np
from typer.testing import CliRunner

import performative as pf
from performative._base.describe import describe
from performative.cli.app import app
from performative.config import load_experiment

FILE = """
[problem]
loss = "squared"
[problem.population]
name = "Drifting"
inner = { name = "Gaussian", mean = [0.0, 1.0], sensitivity = 0.5, scale = 1.0 }
path = { name = "Sum", paths = [{ name = "Linear", velocity = [0.1, 0.2] }, { name = "Jump", when = 3.0, size = 1.0 }] }
[algorithm]
recipe = "p_fedavg"
rate = 0.05
[run]
rounds = 4
theta = 0.0
"""


def test_paths_can_be_written_in_a_file(tmp_path):
    file = tmp_path / "drift.toml"
    file.write_text(FILE)
    path = pf.paths.Linear([0.1, 0.2]) + pf.paths.Jump(3.0, 1.0)
    people = pf.populations.Drifting(pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0), path)
    found = load_experiment(file).problem
    assert describe(found) == describe(pf.Problem(pf.losses.squared, people))
    np.testing.assert_allclose(pf.stable_point(found, time=4.0), (0.5 + 0.15 * 4 + 1) / 0.5)


def test_a_file_can_be_planned_for(tmp_path):
    file = tmp_path / "drift.toml"
    file.write_text(FILE + "[plan]\naccuracy = 0.1\nbatches = [8]\ncost = { step = 1, communication = 0 }\n")
    result = CliRunner().invoke(app, ["plan", str(file), "--json"])
    told = json.loads(result.stdout)
    found = pf.plan(load_experiment(file).problem, pf.Cost(step=1.0, communication=0.0), 0.1, batches=(8,))
    assert told["status"] == "completed" and told["reachable"] is False and told["better"] == "steps"
    assert told["reached"] == found.error and told["why"] == list(found.why)
    assert told["since"] == 3.0 and "0.1 is out of reach" in " ".join(result.stderr.split())
    file.write_text(file.read_text() + "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n")
    result = CliRunner().invoke(app, ["plan", str(file)])
    assert result.exit_code == 2 and "privacy= and clip= are not supported" in " ".join(result.stderr.split())
