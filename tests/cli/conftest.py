"""A small experiment in a file."""

import pytest

FILE = """
[problem]
loss = "squared"
[problem.population]
name = "Gaussian"
mean = [0.0, 1.0]
sensitivity = 0.5
scale = 1.0
[algorithm]
recipe = "p_fedavg"
rate = 0.1
[run]
rounds = 5
theta = 0.0
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "first.toml"
    path.write_text(FILE)
    return path
