"""Drifting people in a file."""

import numpy as np

import performative as pf
from performative._base.describe import describe
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
