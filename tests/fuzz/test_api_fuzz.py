"""Whatever a user combines is run, or refused in our own words before anything is compiled.

The search runs in a process of its own, without the type checks that the other tests run with: see `driver.py`.
"""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from calls import ALL, SCOPE
from judge import judge
from part_examples import first_examples
from public_parts import exported, is_part
from tracing import traced
from uses import use_of

import performative as pf

QUICK = {"calls": 150, "analyses": 30, "files": 12, "uses": 8, "runs": 8, "sweeps": 2, "whole_runs": 1}
LONG = {"calls": 20_000, "analyses": 3000, "files": 1000, "uses": 1500, "runs": 1500, "sweeps": 500, "whole_runs": 60}
# What only we make: results, records of results, and hooks that are called by position.
MADE_BY_US = {
    "History", "Certificate", "Plan", "Tracking", "Scoreboard", "SharedPoint", "Solution", "Outlook", "Verdict",
    "CohortMoments", "Confidence", "Forecast", "Interval",
    "Finding", "Images", "StrategicTables", "Guarantee", "Spending", "certified_rows", "protection", "Selection",
    "weighted_sum", "batch_gradient", "count_samples",
    "number", "per_client", "whole", "cite",
    "Beside", "Bound", "Contraction", "DriftError", "Extremes", "Floor", "GaussianPoints",
    "LocalSteps", "Moments", "Numbered", "Radii", "RetentionPoint", "Stability", "Stationary", "Theorem",
    "Tuned", "Design", "Assessment", "Watch", "WatchReport",
    "News", *pf.types.__all__,
}  # fmt: skip
# Losses of one sample, which problems are made of, cases that need data sets, and what writes where it is told to.
NOT_CALLED = {
    "PerformativeWarning",
    "linear_scores", "negative_revenue", "squared", "zero_one", "strategic_adult", "strategic_credit",
    "Checkpoint", "CSV", "MLflow", "WandB", "TensorBoard",
    *pf.executors.__all__,  # for authors of executors, who hand over what the engine made
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
    if QUICK[name] >= 12:  # fewer may all be of one kind, and a new part changes which ones are drawn
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
    """Parts by their examples (`tests/test_public_parts.py` says which has none), what else is public by `calls.py`."""
    known = {name.split(".")[-1] for name in ALL} | MADE_BY_US | NOT_CALLED
    for name, thing in exported():
        if callable(thing) and not is_part(thing) and not inspect.isabstract(thing):
            word = name.split(".")[-1]
            assert word in known or word.startswith("Abstract"), f"{name} has no call in tests/fuzz/calls.py"


def test_every_part_has_a_run_around_it():
    for example in first_examples():
        run = use_of(example.name)
        assert run is not None and run.count("{}") == 1, (example.name, run)


@pytest.mark.slow
@pytest.mark.parametrize("example", first_examples(), ids=lambda example: example.name)
def test_the_run_around_a_part_works(example):
    """Before anything in it is made wrong."""
    with traced():
        assert judge(use_of(example.name).format(example.call), SCOPE) == "run"
