"""Whatever a user combines is run, or refused in our own words before anything is compiled.

The search runs in a process of its own, without the type checks that the other tests run with: see `driver.py`.
"""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from calls import ALL

import performative as pf

QUICK = {"calls": 500, "analyses": 60, "files": 12, "uses": 8, "runs": 8, "sweeps": 2, "whole_runs": 1}
LONG = {"calls": 20_000, "analyses": 3000, "files": 1000, "uses": 1500, "runs": 1500, "sweeps": 500, "whole_runs": 60}
# What only we make: results, records of results, and hooks that are called by position.
MADE_BY_US = {
    "History", "Certificate", "Plan", "Scoreboard", "Solution", "Finding", "Images", "StrategicTables", "Network",
    "Guarantee", "Spending", "certified_rows", "protection", "Selection", "weighted_sum", "FromOptax",
    "batch_gradient", "count_samples",
    "number", "per_client", "whole", "cite",
    "Beside", "Bound", "Choice", "Contraction", "ErrorBound", "Extremes", "Floor", "GaussianPoints", "GradientBound",
    "LocalSteps", "Moments", "Numbered", "PointGap", "RiskBound", "SelectionBound", "Theorem",
    "News", *pf.types.__all__,
}  # fmt: skip
# Losses of one sample, which problems are made of, cases that need data sets, and what writes where it is told to.
NOT_CALLED = {
    "linear_scores", "negative_revenue", "squared", "zero_one", "strategic_adult", "strategic_credit",
    "Checkpoint", "CSV", "MLflow", "WandB", "TensorBoard",
}  # fmt: skip


def searched(**examples):
    """What the driver says of each property."""
    command = [sys.executable, str(Path(__file__).with_name("driver.py")), *(f"{k}={n}" for k, n in examples.items())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def show(failures):
    return "\n\n".join(f"{f['kind']}: {f['error']}\n  {f['call']}" for f in failures)


@pytest.fixture(scope="module")
def quick():
    return searched(**QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_run_or_refused(quick, name, survived):
    found = quick[name]
    for _ in range(sum(found["answers"].values())):
        with survived("an input that was made up"):
            assert not found["failures"]
    assert not found["failures"], show(found["failures"])
    if QUICK[name] >= 8:  # fewer may all be of one kind
        assert found["answers"]["run"] and found["answers"]["refused"], found["answers"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_run_or_refused_for_long(name, survived):
    found = searched(**{name: LONG[name], "seed": 1})[name]
    for _ in range(sum(found["answers"].values())):
        with survived("an input that was made up"):
            assert not found["failures"], show(found["failures"])
    assert not found["failures"], show(found["failures"])


def test_every_public_callable_is_searched():
    """Abstract classes and losses of one sample aside, a new public name gets a call that works in `calls.py`."""
    known = {name.split(".")[-1] for name in ALL} | MADE_BY_US | NOT_CALLED
    for module in (pf, *(getattr(pf, name) for name in pf.__all__ if inspect.ismodule(getattr(pf, name)))):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not inspect.isabstract(thing) and not name.startswith("Abstract"):
                assert name in known, f"{module.__name__}.{name} has no call in tests/fuzz/calls.py"
