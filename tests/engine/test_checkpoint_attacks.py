"""Checkpoint folders that somebody altered, damaged or shares: refused by name, and nothing of others is touched."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import performative as pf
from performative._base.files import Damaged, digest_of, only_one, read_sealed, write_sealed

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(3.0), 0.5, 1.0))
HOLD = "import sys, time; from pathlib import Path; from performative._base.files import only_one\n"
HOLD += "with only_one(Path(sys.argv[1]), 'held'):\n    print('held', flush=True); time.sleep(60)"


def run(folder, rounds=6, resume=False, **options):
    algorithm = pf.p_fedavg(rate=0.1)
    return pf.run(
        PROBLEM,
        algorithm,
        rounds,
        0.0,
        checkpoint=pf.Checkpoint(folder, every=2, resume=resume),
        record=pf.Record(risks=False),
        **options,
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done") / "checkpoint"
    run(folder)
    return folder


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done, tmp_path / "copy")


def rewrite(folder, **changes):
    """Alter the book and make its own digest anew, as an attacker would."""
    book = json.loads((folder / "state.json").read_text())
    book = {**book, **changes}
    book.pop("digest")
    book["digest"] = digest_of(json.dumps(book, sort_keys=True).encode())
    (folder / "state.json").write_text(json.dumps(book))


@pytest.mark.slow
@pytest.mark.parametrize("trials", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_noticed(trials, done, tmp_path, survived):
    rng = np.random.default_rng(trials)
    files = sorted(path.name for path in done.iterdir() if path.name != "lock")
    for trial in range(trials):
        folder = shutil.copytree(done, tmp_path / str(trial))
        path = folder / files[trial % len(files)]
        content = bytearray(path.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        noticed = pytest.raises(ValueError, match=r"altered|was not written by a run|belongs to another run")
        with survived("a checkpoint with a flipped bit"), noticed:
            run(folder, rounds=8, resume=True)
        shutil.rmtree(folder)


def test_swapped_chunks_and_strange_paths_are_refused(copy, tmp_path):
    first, second = copy / "records-000000.npz", copy / "records-000001.npz"
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    with pytest.raises(Damaged, match="records-000000"):
        run(copy, resume=True)
    book = json.loads((copy / "state.json").read_text())
    shutil.copy(copy / book["state"], tmp_path / "state-000009.npz")
    for name in ("../state-000009.npz", str(tmp_path / "state-000009.npz"), "state-000009.npz"):
        rewrite(copy, state=name)
        with pytest.raises(Damaged, match="which does not exist"):
            run(copy, resume=True)


def test_a_state_with_nan_put_into_it_is_refused(copy):
    book = json.loads((copy / "state.json").read_text())
    with np.load(copy / book["state"]) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["leaf0"] = np.full_like(arrays["leaf0"], np.nan)
    np.savez(copy / book["state"], **arrays)
    with pytest.raises(Damaged, match="altered or damaged"):
        run(copy, rounds=8, resume=True)


def test_only_own_files_are_ever_removed(done, tmp_path):
    """A start that is refused removes nothing at all; one that goes on removes what a kill of ours left."""
    folder = shutil.copytree(done, tmp_path / "mine")
    others = [".thesis.part", "state-alabama.npz", "notes.txt", ".state-01.npz.part", "state-0000001.npz"]
    ours = [".state.json.part", ".records-000003.npz.part", ".ledger.json.part"]
    for name in others + ours:
        (folder / name).write_text("x")
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ValueError, match="already contains a run"):
        run(folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    run(folder, rounds=8, resume=True)
    there = {path.name for path in folder.iterdir()}
    assert set(others) <= there and not set(ours) & there


def test_two_runs_never_share_a_folder(done, tmp_path):
    folder = shutil.copytree(done, tmp_path / "shared")
    with only_one(folder, "held"), pytest.raises(ValueError, match=r"another run is writing there.*\(process \d+\)"):
        run(folder, resume=True)
    run(folder, rounds=8, resume=True)  # given back at once, also by a run that failed
    with pytest.raises(ValueError, match="already contains a run"):
        run(folder)
    run(folder, rounds=9, resume=True)


@pytest.mark.slow
def test_a_killed_owner_leaves_no_lock(done, tmp_path):
    folder = shutil.copytree(done, tmp_path / "killed")
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"process {child.pid}"):
        run(folder, resume=True)
    child.kill()
    child.wait()
    child.stdout.close()
    run(folder, rounds=8, resume=True)


def test_a_sealed_file_tells_of_every_change(tmp_path):
    path = tmp_path / "model.bin"
    write_sealed(path, b"weights")
    assert read_sealed(path) == b"weights"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(Damaged, match="altered or damaged"):
            read_sealed(path)
