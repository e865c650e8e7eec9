"""Continuous integration leaves no slow test out: each is run by every commit, in rotation, or by `make faults`."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LOADER = importlib.machinery.SourceFileLoader("rotation", str(ROOT / ".ci" / "rotation"))
rotation = importlib.util.module_from_spec(importlib.util.spec_from_loader("rotation", _LOADER))
_LOADER.exec_module(rotation)


def test_every_slow_file_is_in_one_shard_or_run_elsewhere():
    rotated = Counter(part for shard in rotation.shards() for part in shard)
    elsewhere = {name for name in rotation.slow_files() if name.startswith(rotation.ELSEWHERE)}
    left = set(rotation.slow_files()) - elsewhere
    assert rotated == Counter(part for name in left for part in rotation.parts(name))
    assert {part.split("::")[0] for part in rotated} == left
    assert all(rotation.shards())


def test_no_mark_is_overlooked():
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("tests/**/*.py")
        if rotation.MARK in path.read_text(encoding="utf-8")
    }
    assert marked == set(rotation.slow_files())


def test_a_file_that_is_split_loses_no_test():
    for name in rotation.SPLIT:
        text = (ROOT / name).read_text(encoding="utf-8")
        names = {part.split("[")[0] for part in rotation.parts(name)}
        assert len(names) == text.count("\ndef test_") > 1 and "\nclass Test" not in text


@pytest.mark.slow
def test_groups_hold_every_parameter():
    for test, (count, _) in rotation.MANY.items():
        rows = [word for part in rotation.parts(test.split("::")[0]) for word in part.split() if word.startswith(test)]
        assert rows == [f"{test}[{k}]" for k in range(count)]
        run = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", test]
        told = subprocess.run(run, cwd=ROOT, capture_output=True, text=True).stdout
        assert f": {count}\n" in told or told.count("::") == count


def test_what_runs_elsewhere_does_and_times_are_of_what_there_is():
    makefile, run = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/run"))
    for name in rotation.ELSEWHERE:
        assert (ROOT / name).exists() and name.rstrip("/") in makefile, f"no target of the Makefile runs {name}"
    assert "make test-contracts" in run and "make examples" in run and ".ci/rotation" in run
    assert set(rotation.MINUTES) <= {part for shard in rotation.shards() for part in shard}


def test_shards_are_alike():
    minutes = [sum(map(rotation.minutes_of, shard)) for shard in rotation.shards()]
    assert max(minutes) <= 1.5 * rotation.SHARD and min(minutes) >= 0.5 * rotation.SHARD
