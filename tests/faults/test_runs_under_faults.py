"""Runs that are killed, disks that fill up, files that are cut short, and processes that run for long."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import performative as pf
from performative._base import files

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(3.0), 0.5, 1.0))
SCRIPT = """
import sys, numpy as np, performative as pf
inner = pf.populations.Gaussian(np.arange(6.0), 0.6, 1.0)
problem = pf.Problem(pf.losses.squared, pf.populations.Sluggish(inner, 0.3))
algorithm = pf.p_fedavg(rate=0.05, local_steps=2, participation=pf.SchemeOne(3))
options = dict(rounds=40_000, theta=0.0, record=pf.Record(risks=False, theta="last"))
folder = pf.Checkpoint(sys.argv[1], every=50, resume=True)
pf.run(problem, algorithm, checkpoint=folder, **options).save(sys.argv[2])
"""


def run(folder, rounds=8, **options):
    return pf.run(
        PROBLEM,
        pf.p_fedavg(0.1),
        rounds,
        0.0,
        checkpoint=pf.Checkpoint(folder, every=2, resume=True),
        record=pf.Record(risks=False),
        **options,
    )


@pytest.mark.slow
def test_thirty_kills_change_no_bit(tmp_path, survived):
    def start(folder, out):
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / folder), str(tmp_path / out)])

    assert start("calm", "calm.nc").wait(600) == 0
    rng, kills, book = np.random.default_rng(0), 0, tmp_path / "wild" / "state.json"
    while kills < 30:
        child = start("wild", "wild.nc")
        for _ in range(rng.integers(1, 5)):  # so many checkpoints later, at any moment of the next ones
            before = book.read_bytes() if book.exists() else b""
            while child.poll() is None and (book.read_bytes() if book.exists() else b"") == before:
                time.sleep(0.005)
        time.sleep(float(rng.uniform(0.0, 0.02)))
        if child.poll() is not None:
            break
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        kills += 1
    assert start("wild", "wild.nc").wait(600) == 0
    calm, wild = (pf.History.load(tmp_path / name) for name in ("calm.nc", "wild.nc"))
    for _ in range(kills):
        with survived("kill -9 of a run"):
            assert np.array_equal(calm.theta, wild.theta) and np.array_equal(calm["time"], wild["time"])
    assert kills == 30


FAILURES = {"disk full": errno.ENOSPC, "input and output": errno.EIO}


@pytest.mark.parametrize(
    ("at", "failure"),
    [
        pytest.param(at, failure, marks=() if at % 2 == i else pytest.mark.slow, id=f"{at}-{name}")
        for at in range(1, 9)
        for i, (name, failure) in enumerate(FAILURES.items())
    ],
)
def test_a_disk_that_fails_at_any_write(at, failure, tmp_path, monkeypatch, survived):
    """The run ends with the system's error, nothing half written stays, and it goes on to the same bits."""
    whole, writes, real = run(tmp_path / "calm"), 0, files.os.fsync

    def fail(number):
        nonlocal writes
        writes += 1
        if writes == at:
            raise OSError(failure, os.strerror(failure))
        return real(number)

    monkeypatch.setattr(files.os, "fsync", fail)
    with survived("a disk that fails"):
        with pytest.raises(OSError, match=os.strerror(failure)):
            run(tmp_path / "wild")
        monkeypatch.setattr(files.os, "fsync", real)
        assert not [path for path in (tmp_path / "wild").iterdir() if path.name.endswith(".part")]
        assert np.array_equal(run(tmp_path / "wild").theta, whole.theta)


@pytest.mark.parametrize("trials", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_files_that_are_cut_short_or_gone(trials, tmp_path, survived):
    run(tmp_path / "done")
    rng = np.random.default_rng(trials)
    names = sorted(path.name for path in (tmp_path / "done").iterdir() if path.name != "lock")
    for trial in range(trials):
        folder = shutil.copytree(tmp_path / "done", tmp_path / "copy")
        path = folder / names[trial % len(names)]
        if trial % 3 == 0 and path.name != "state.json":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: rng.integers(path.stat().st_size)])
        with (
            survived("a file cut short or gone"),
            pytest.raises(ValueError, match=r"altered|not written by a run|does not exist"),
        ):
            run(folder, rounds=12)
        shutil.rmtree(folder)


def standing():
    """Memory in MiB, open files and mappings of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = len(Path("/proc/self/maps").read_bytes().splitlines())
    return np.array([pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd")), maps])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_two_thousand_runs_of_different_shapes_leave_the_process_as_it_was(survived):
    """Mappings rise and fall with the programs that are let go; none of the three grows from one half to the next."""
    seen = []
    for shape in range(2000):
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros((2, shape + 1)), 0.1, 1.0))
        with survived("a run of another shape, in one process"):
            pf.run(
                problem, pf.p_fedavg(0.1), 1, theta=np.zeros(shape + 1), record=pf.Record(risks=False, consensus=False)
            )
        if shape >= 500:
            seen.append(standing())
    first, last = np.split(np.array(seen), 2)
    assert last.max(axis=0)[0] < 1.25 * first.max(axis=0)[0] + 100
    assert last.max(axis=0)[1] <= first.max(axis=0)[1] + 2
    assert max(first[:, 2].max(), last[:, 2].max()) < 60_000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_five_thousand_rehearsed_rounds_leave_the_process_as_it_was(tmp_path, survived):
    from performative.live import Federation, rehearse

    made = Federation(PROBLEM, pf.p_fedavg(0.05, deploy="round"), rounds=5000, theta=0.0, timeout=60.0)
    seen = []

    def look(told):
        with survived("a rehearsed round"):
            if told["round"] % 100 == 0:
                seen.append(standing())

    history = rehearse(made, tmp_path, on_round=look)
    assert history.status == "completed"
    first, last = np.array(seen[10:25]), np.array(seen[-15:])
    assert last.max(axis=0)[0] < 1.25 * first.max(axis=0)[0] + 50
    assert np.all(last.max(axis=0)[1:] <= 1.1 * first.max(axis=0)[1:] + 5)
