"""Executors are objects; one's own is run like ours."""

import ast
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import performative as pf
import performative.live
from performative._engine.executors import check_executor
from performative.executors import AbstractExecutor, Dense, Gather, Loop, Sharded

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(5.0), 0.5, 1.0))
SOME = pf.p_fedavg(rate=0.1, local_steps=2, participation=pf.SchemeTwo(3))


def run(executor):
    return pf.run(PROBLEM, SOME, 5, theta=1.0, dtype="float64", executor=executor, record=pf.Record(risks=False))


@pytest.mark.parametrize(
    "executor",
    [pytest.param(Dense(), marks=pytest.mark.slow), Gather(), Loop(), pytest.param(Sharded(), marks=pytest.mark.slow)],
    ids=lambda one: one.name,
)
def test_a_name_is_an_object(executor):
    by_name, by_object = run(executor.name), run(executor)
    np.testing.assert_array_equal(by_name.theta, by_object.theta)
    assert by_name.meta["executor"] == by_object.meta["executor"]
    assert by_name.meta["executor"].startswith(executor.name)


class Counting(AbstractExecutor):
    """Runs the cohort as `Gather` does, and is seen by the run."""

    compiled: ClassVar[bool] = False
    seen: ClassVar[list] = []

    def run(self, setup, cohort, broadcast, memory, keys, drawn=None):
        self.seen.append(int(broadcast.round))
        return Gather().run(setup, cohort, broadcast, memory, keys, drawn)


class Twice(AbstractExecutor):
    """Compiled into the loop."""

    def run(self, setup, cohort, broadcast, memory, keys, drawn=None):
        return Gather().run(setup, cohort, broadcast, memory, keys, drawn)


@pytest.mark.parametrize("executor", [Counting(), Twice()], ids=["python", "compiled"])
def test_ones_own_gives_the_same_run(executor):
    Counting.seen.clear()
    mine, usual = run(executor), run("gather")
    np.testing.assert_allclose(mine.theta, usual.theta, rtol=1e-13)
    for name in usual.records:
        np.testing.assert_allclose(mine[name], usual[name], rtol=1e-12, err_msg=name)
    assert mine.meta["executor"] == type(executor).__name__
    assert Counting.seen == (list(range(5)) if isinstance(executor, Counting) else [])


def test_what_is_none_is_refused():
    with pytest.raises(ValueError, match='"loop", a custom executor, or None; got <class'):
        check_executor(Gather)
    with pytest.raises(ValueError, match="sweep runs settings in one batch"):
        pf.sweep(PROBLEM, SOME, {"rate": [0.1, 0.2]}, 2, 1.0, executor=Counting())


def test_a_live_federation_needs_none_of_them():
    for path in Path(performative.live.__file__).parent.rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_text()))
        names = [node.module or "" for node in tree if isinstance(node, ast.ImportFrom)]
        assert not [name for name in names if "executors" in name or name == "performative._engine.loop"], path
