"""A run killed at any moment goes on to the same bits."""

import json
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.describe import describe

# Kills itself in the middle of its second checkpoint: the arrays are there, the file that names them is not yet renamed
# into its place. With two folders it goes on in the first, and runs without a break in the second.
SCRIPT = """
import os, signal, sys
import numpy as np
import performative as pf


def run(folder):
    inner = pf.populations.Gaussian(np.arange(6.0), 0.6, 1.0)
    problem = pf.Problem(pf.losses.squared, pf.populations.Sluggish(inner, 0.3))
    algorithm = pf.p_fedavg(rate=pf.schedules.harmonic(5.0, 50.0), local_steps=2, participation=pf.SchemeOne(3))
    kept = pf.Checkpoint(folder, every=8, resume=True)
    return pf.run(problem, algorithm, 60, theta=0.0, repeats=2, checkpoint=kept, record=pf.Record(risks=4))


def replace(part, path, named=[], real=os.replace):
    named += [path] if str(path).endswith("state.json") else []
    if len(named) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    real(part, path)


if len(sys.argv) == 2:
    os.replace = replace
for folder in sys.argv[1:]:
    run(folder).save(folder + ".nc")
"""


def same(first: pf.History, second: pf.History) -> bool:
    a, b = first.to_xarray(), second.to_xarray()
    return set(a) == set(b) and all(np.array_equal(a[n], b[n], equal_nan=True) for n in a)


def test_sigkill_and_resume_give_the_same_bits(tmp_path):
    """tests/faults kills at moments of chance, and more often."""
    broken, whole = str(tmp_path / "broken"), str(tmp_path / "whole")
    assert subprocess.run([sys.executable, "-c", SCRIPT, broken]).returncode == -signal.SIGKILL
    assert json.loads((tmp_path / "broken" / "state.json").read_text())["notes"]["round"] == 8
    assert any(path.name.endswith(".part") for path in (tmp_path / "broken").iterdir())
    subprocess.run([sys.executable, "-c", SCRIPT, broken, whole], check=True)
    assert same(*(pf.History.load(f"{folder}.nc") for folder in (broken, whole)))


PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(3.0), 0.5, 1.0))


def test_a_folder_of_another_run_is_refused(tmp_path):
    pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=4, theta=0.0, checkpoint=tmp_path, record=pf.Record(risks=False))
    with pytest.raises(ValueError, match="already contains a run"):
        pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=4, theta=0.0, checkpoint=tmp_path, record=pf.Record(risks=False))
    with pytest.raises(ValueError, match=r"algorithm\.rate\.value: 0\.1 -> 0\.2"):
        pf.run(
            PROBLEM,
            pf.p_fedavg(rate=0.2),
            rounds=4,
            theta=0.0,
            checkpoint=pf.Checkpoint(tmp_path, resume=True),
            record=pf.Record(risks=False),
        )


def test_a_finished_run_can_be_extended(tmp_path):
    def run(rounds, folder):
        kept = pf.Checkpoint(tmp_path / folder, every=2, resume=True)
        return pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds, theta=0.0, checkpoint=kept, record=pf.Record(risks=False))

    run(4, "cut")
    np.testing.assert_array_equal(run(8, "cut").theta, run(8, "whole").theta)


def test_no_pickle_and_nothing_half_written(tmp_path):
    pf.run(
        PROBLEM,
        pf.p_fedavg(rate=0.1),
        rounds=6,
        theta=0.0,
        checkpoint=pf.Checkpoint(tmp_path, every=2),
        record=pf.Record(risks=False),
    )
    book = json.loads((tmp_path / "state.json").read_text())
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == sorted([*book["records"], book["state"], "state.json", "lock"])
    for name in (*book["records"], book["state"]):
        with np.load(tmp_path / name, allow_pickle=False) as file:
            assert all(file[key].dtype != object for key in file.files)


def test_history_saves_and_loads(tmp_path):
    history = pf.run(PROBLEM, pf.p_fedavg(rate=0.1, participation=pf.SchemeOne(2)), rounds=5, theta=0.0, repeats=2)
    loaded = pf.History.load(history.save(tmp_path / "history.nc"))
    assert same(history, loaded)
    assert loaded.meta == history.meta
    assert [p.name for p in tmp_path.iterdir()] == ["history.nc"]
    with pytest.raises(FileNotFoundError, match="there is no history"):
        pf.History.load(tmp_path / "absent.nc")
    with pytest.raises(KeyError, match="was recorded; choose from"):
        history["loss"]


@pytest.mark.slow
def test_models_with_any_keys_are_saved(tmp_path):
    """A slash parts the names of a NetCDF file, a dot those of nested keys."""

    def loss(theta, z):
        return sum(jnp.sum((leaf - z) ** 2) for leaf in jax.tree.leaves(theta))

    problem = pf.Problem(loss, pf.populations.Database(np.zeros((2, 3))))
    start = {"a/b": np.float32(1), "c%2F": np.float32(2), "d.e": np.float32(3)}
    history = pf.run(problem, pf.p_fedavg(0.1), 2, theta=start, record=pf.Record(risks=False))
    loaded = pf.History.load(history.save(tmp_path / "one.nc"))
    assert set(loaded.theta) == set(start) and all(np.all(loaded.theta[n] == history.theta[n]) for n in start)
    nested = {"a.b": np.float32(1), "a": {"b": np.float32(2)}}
    history = pf.run(problem, pf.p_fedavg(0.1), 2, theta=nested, record=pf.Record(risks=False))
    loaded = pf.History.load(history.save(tmp_path / "two.nc"))
    assert np.all(loaded.theta["a%2Eb"] == history.theta["a.b"])
    assert np.all(loaded.theta["a.b"] == history.theta["a"]["b"])


def test_a_diverged_run_stays_where_it_ended(tmp_path):
    options = {"rounds": 400, "theta": 1.0, "record": pf.Record(risks=5)}
    options["checkpoint"] = pf.Checkpoint(tmp_path, every=7, resume=True)
    with pytest.warns(UserWarning, match="run-diverged"):
        first = pf.run(PROBLEM, pf.p_fedavg(rate=9.0), **options)
    assert first.status == "diverged"
    with pytest.warns(UserWarning, match="run-diverged"):
        assert same(first, pf.run(PROBLEM, pf.p_fedavg(rate=9.0), **options))


def test_other_targets_are_another_run(tmp_path):
    options = {"rounds": 4, "theta": 0.0, "checkpoint": pf.Checkpoint(tmp_path, resume=True)}
    pf.run(PROBLEM, pf.p_fedavg(rate=0.1), record=pf.Record(risks=False, stable=2.0), **options)
    with pytest.raises(ValueError, match=r"distance_to_stable\.function\.point"):
        pf.run(PROBLEM, pf.p_fedavg(rate=0.1), record=pf.Record(risks=False, stable=50.0), **options)


def test_a_thinned_run_is_made_longer_only_at_a_record(tmp_path):
    options = {"theta": 0.0, "record": pf.Record(risks=False, every=3)}
    options["checkpoint"] = pf.Checkpoint(tmp_path, resume=True)
    pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=7, **options)
    with pytest.raises(ValueError, match="ended at round 7, which is not a multiple of every=3"):
        pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=20, **options)


def test_a_run_does_not_go_back(tmp_path):
    options = {"theta": 0.0, "record": pf.Record(risks=False)}
    options["checkpoint"] = pf.Checkpoint(tmp_path, every=2, resume=True)
    pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=10, **options)
    with pytest.raises(ValueError, match="rounds=5: the run in the checkpoint is already at round 10"):
        pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=5, **options)


def scaled_loss(scale):
    def custom(theta, z):
        return scale * 0.5 * (theta - z) ** 2

    return custom


def test_another_closure_is_another_loss(tmp_path):
    options = {"theta": 0.0, "record": pf.Record(risks=False), "checkpoint": pf.Checkpoint(tmp_path, resume=True)}
    pf.run(pf.Problem(scaled_loss(1.0), PROBLEM.population), pf.p_fedavg(rate=0.1), rounds=4, **options)
    with pytest.raises(ValueError, match=r"problem\.loss\.holds"):
        pf.run(pf.Problem(scaled_loss(7.0), PROBLEM.population), pf.p_fedavg(rate=0.1), rounds=8, **options)


def test_a_docstring_is_no_part_of_a_run():
    """The description that a checkpoint stores changes with what a function computes, not with what is said of it."""

    def plain(x):
        return x + 1

    def explained(x):
        """One more."""
        return x + 1

    explained.__qualname__ = plain.__qualname__
    assert describe(plain)["code"] == describe(explained)["code"] != describe(lambda x: x + 2)["code"]
    assert describe(lambda x: x["a"])["code"] != describe(lambda x: x["b"])["code"]
