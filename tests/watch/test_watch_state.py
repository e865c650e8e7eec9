"""The state survives: saved and loaded to the bit, damaged files refused, processes killed at any moment."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from batches_to_watch import as_csv, batches, feed

import performative as pf
from performative._base.files import Damaged
from performative.watch import Watch, tally
from performative.watch.following import Follower

LOOKS = 40


def told(watch):
    """All but how often batches came."""
    report = watch.report().to_dict()
    for name in ("batches", "seen_again"):
        report["input"].pop(name)
    return json.dumps(report)


@pytest.mark.parametrize(
    "drift",
    ["none", "any", pytest.param("walk", marks=pytest.mark.slow), pytest.param("smooth", marks=pytest.mark.slow)],
)
def test_a_watch_goes_on_from_its_file_to_the_bit(drift, tmp_path):
    whole, halved = pf.watch(drift=drift), pf.watch(drift=drift)
    for t, (columns, facts) in enumerate(batches(16, 0.5, clients=2)):
        whole.update(columns, **facts)
        halved.update(columns, **facts)
        if t in (0, 7):
            halved.save(tmp_path / "state")
            halved = pf.watch(tmp_path / "state")
    assert told(whole) == told(halved)


def test_a_damaged_file_is_refused(tmp_path):
    watch = pf.watch(drift="none")
    feed(watch, 3)
    path = tmp_path / "state"
    watch.save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match="altered or damaged"):
        Watch.load(path)


def test_a_state_whose_shares_have_changed_is_refused(tmp_path, monkeypatch):
    """An earlier version let clients join rows that name none; a state of such rows alone goes on."""
    watch = pf.watch(drift="none")
    feed(watch, 3)
    watch.save(tmp_path / "state")
    assert Watch.load(tmp_path / "state").share("all") == 1.0
    monkeypatch.setattr(Watch, "_check_size", lambda *_: None)
    monkeypatch.setattr(Watch, "share", lambda *_: 0.05)
    watch.update({"income": [1.0], "client": ["a"]}, theta={"income": 0.0}, time=9)
    watch.save(tmp_path / "state")
    with pytest.raises(Damaged, match=r"the first batches named no client and later ones did.*Start a new state"):
        Watch.load(tmp_path / "state")


def write_batches(folder, looks=LOOKS, **options):
    folder.mkdir(exist_ok=True)
    for t, (columns, facts) in enumerate(batches(looks, 0.5, **options)):
        (folder / f"batch-{t}.csv").write_text(as_csv(columns, facts))


def run_through(folder, state):
    follower = Follower(pf.watch(state, drift="none"), folder, state)
    follower.pass_over(once=True)
    return follower.watch


def test_a_killed_watch_ends_with_the_same_state(tmp_path):
    """Killed by SIGKILL twice while it reads and saves; what is left to read is read by the next one."""
    write_batches(tmp_path / "rows")
    expected = told(run_through(tmp_path / "rows", tmp_path / "whole"))
    state = tmp_path / "state"
    code = (
        "import sys; from pathlib import Path; import performative as pf; from performative.watch.following import "
        "Follower; folder, state = map(Path, sys.argv[1:]); f = Follower(pf.watch(state, drift='none'), folder, state);"
        "print('ready', flush=True); [f.pass_over(once=True) or f.read.clear() for _ in range(10**6)]"
    )
    kills = 0
    environment = os.environ | {"PYTHONPATH": str(Path(pf.__file__).parents[1])}
    for attempt in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "rows"), str(state)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout.readline() == b"ready\n"
        before = state.stat().st_mtime_ns if state.exists() else None
        while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
            time.sleep(0.002)  # until it has saved once more, so that the kill meets it at work
        time.sleep(0.003 * attempt)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        kills += 1
        Watch.load(state)  # whole, whatever happened
    assert kills == 2
    assert told(run_through(tmp_path / "rows", state)) == expected


def test_files_are_read_once_they_stop_growing_and_never_twice(tmp_path):
    write_batches(tmp_path / "rows", 3)
    follower = Follower(pf.watch(drift="none"), tmp_path / "rows", tmp_path / "state")
    assert follower.pass_over() == 0  # seen for the first time: may still be written
    assert follower.pass_over() == 3
    assert follower.pass_over() == follower.pass_over() == 0
    (tmp_path / "rows" / "batch-3.csv").write_text("theta_income,income\n1,oops\n")
    (tmp_path / "rows" / "batch-4.parquet").write_bytes(b"no parquet")
    (tmp_path / "rows" / ".hidden.csv").write_text("")
    assert follower.pass_over(once=True) == 2
    assert dict(follower.watch.tally.quarantined) == {"type": 1, "unreadable": 1}
    again = Follower(pf.watch(tmp_path / "state"), tmp_path / "rows", tmp_path / "state")
    again.pass_over(once=True)
    assert again.watch.tally.looks == 3 and sum(again.watch.tally.quarantined.values()) == 2


def test_names_older_than_the_memory_are_not_read_again(tmp_path):
    write_batches(tmp_path / "rows", 12)
    state = tmp_path / "state"
    watch = pf.watch(drift="none", window=5)
    Follower(watch, tmp_path / "rows", state).pass_over(once=True)
    assert watch.tally.looks == 12 and watch.seen.forgotten_id == "batch-6.csv"
    again = Follower(pf.watch(state), tmp_path / "rows", state)
    again.pass_over(once=True)
    assert again.watch.tally.looks == 12


def test_models_may_stand_beside_the_rows(tmp_path):
    """deployments.csv or .parquet as an audit has it, and one file of rows."""
    (tmp_path / "deployments.csv").write_text("deployment,time,theta_x\na,1,0.5\nb,2,0.7\n")
    (tmp_path / "rows.csv").write_text("deployment,x\na,1\na,2\nb,3\nb,4\n")
    watch = run_through(tmp_path / "rows.csv", tmp_path / "state")
    assert watch.tally.looks == 2 and watch.last_time == 2 and watch.schema.parameters == ("x",)
    (tmp_path / "rows.csv").write_text("deployment,x\nc,1\n")
    follower = Follower(pf.watch(drift="none"), tmp_path / "rows.csv")
    follower.pass_over(once=True)
    assert "'c' is not in deployments.csv" in follower.watch.tally.recent[-1]["message"]
    pd.read_csv(tmp_path / "deployments.csv").to_parquet(tmp_path / "deployments.parquet")
    (tmp_path / "deployments.csv").unlink()
    follower = Follower(pf.watch(drift="none"), tmp_path / "rows.csv")
    follower.pass_over(once=True)
    assert "'c' is not in deployments.parquet" in follower.watch.tally.recent[-1]["message"]


@pytest.mark.slow
def test_a_thousand_looks_do_not_grow_the_state(tmp_path, monkeypatch):
    """A hundred thousand of them are a benchmark, `watch_load`."""
    monkeypatch.setattr(tally, "POINTS", 20)
    watch = pf.watch(drift="none", window=200)
    sizes = []
    for t in range(1200):
        watch.update({"x": [0.1, 0.3, t % 7]}, theta={"x": float(t % 5)}, time=t, deployment=f"d{t}", id=f"b{t}")
        if t in (500, 1199):
            watch.save(tmp_path / "state")
            sizes.append((tmp_path / "state").stat().st_size)
    assert sizes[1] < 1.05 * sizes[0]
