"""Tables of exactly two rows for many clients: as users compile, XLA 0.10 crashes on their second derivatives."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np, performative as pf
rng = np.random.default_rng(0)
x, y = rng.normal(size=(33, 2, 2)), np.tile([0, 1], (33, 1))
two = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(x, y, 0.5))
four = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(np.tile(x, (1, 2, 1)), np.tile(y, 2), 0.5))
np.testing.assert_allclose(pf.stable_point(two), pf.stable_point(four), rtol=1e-9)
"""


@pytest.mark.slow
def test_two_rows_per_client():
    """The same people twice: the same stable point."""
    environ = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
