"""Data on disk train to the same bits as data in memory, and 20 GB of them train within 2 GB of memory."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import performative as pf
from performative.tables import OnDisk, Packed, write
from performative.tables.stored import RowFile

N, M, D = 6, 9, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, M, D)).astype(np.float32)
BYTES = RNG.integers(0, 256, (N, M, D)).astype(np.uint8)
Y = RNG.integers(0, 2, (N, M))
COUNT = np.asarray([9, 5, 7, 9, 4, 8])
LOSS = pf.losses.logistic(0.1)
ALGORITHM = pf.p_fedavg(rate=0.1, local_steps=3, batch=pf.Fixed(4), participation=pf.SchemeOne(3))


def on_disk(folder, array, **options):
    """The rows that count, written client by client."""
    path = folder / f"{array.dtype}.npy"
    write(path, (rows[:count] for rows, count in zip(array, COUNT, strict=True)), rows=M)
    return OnDisk(path, **options)


def assert_same(first, second):
    a, b = first.to_xarray(), second.to_xarray()
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def run(x, y=Y, executor="gather", rounds=4, **options):
    problem = pf.Problem(LOSS, pf.populations.Static(x, y, COUNT))
    options = {"theta": np.zeros(D), "repeats": 2, "record": pf.Record(risks=False)} | options
    return pf.run(problem, ALGORITHM, rounds, executor=executor, **options)


@pytest.mark.slow
def test_the_same_bits_as_in_memory_by_one_read_a_step(tmp_path, monkeypatch):
    asked, read = [], RowFile.read

    def counted(self, client, sample):
        asked.append(np.broadcast_shapes(np.shape(client), np.shape(sample)))
        return read(self, client, sample)

    monkeypatch.setattr(RowFile, "read", counted)
    table, labels = on_disk(tmp_path, BYTES, scale=1 / 256), on_disk(tmp_path, Y)
    found = run(table, labels, record=pf.Record(risks=2))
    # Repeats, clients and samples at once, for features and labels, in 4 rounds of 3 steps; all rows for the risks.
    assert asked.count((2, 3, 4)) == 2 * 4 * 3
    assert {shape[-2:] for shape in asked if shape != (2, 3, 4)} == {(N, M)}
    assert {"decoupled_risk", "performative_risk", "risk_spread"} <= set(found.to_xarray())
    assert_same(run(BYTES / 256, record=pf.Record(risks=2)), found)


@pytest.mark.slow
def test_the_same_bits_where_everyone_computes(tmp_path):
    assert_same(run(X, executor="dense"), run(on_disk(tmp_path, X), executor="dense"))


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["dense", "gather", "loop"])
def test_the_same_bits_by_every_executor(tmp_path, executor):
    labels = on_disk(tmp_path, Y)
    for array, tables in (
        (X, [on_disk(tmp_path, X)]),
        (BYTES / 256, [on_disk(tmp_path, BYTES, scale=1 / 256), Packed(BYTES, 1 / 256)]),
    ):
        in_memory = run(array, executor=executor, record=pf.Record(risks=2))
        for table in tables:
            assert_same(in_memory, run(table, labels, executor=executor, record=pf.Record(risks=2)))


@pytest.mark.slow
def test_the_same_bits_in_double_precision(tmp_path):
    assert_same(*(run(x, dtype="float64") for x in (X.astype(float), on_disk(tmp_path, X.astype(float)))))


@pytest.mark.slow
def test_a_sweep_and_data_that_react(tmp_path):
    def sweep(x):
        population = pf.populations.Strategic(x, Y, 0.2, (0, 2), count=COUNT)
        over = {"rate": [0.1, 0.2], "population.strength": [0.1, 0.5]}
        return pf.sweep(pf.Problem(LOSS, population), ALGORITHM, over, rounds=3, repeats=2)

    in_memory, found = sweep(X), sweep(on_disk(tmp_path, X))
    assert found.programs == in_memory.programs == 1
    for first, second in zip(in_memory.histories, found.histories, strict=True):
        assert_same(first, second)


@pytest.mark.slow
def test_points_are_found_in_double_precision(tmp_path):
    """Through the derivatives of risks over all rows, in blocks of clients too."""
    points = []
    for x in (X.astype(float), on_disk(tmp_path, X.astype(float))):
        population = pf.populations.Strategic(x, Y, 0.2, count=COUNT)
        points.append(pf.optimal_point(pf.Problem(LOSS, population)))
    np.testing.assert_array_equal(*points)


@pytest.mark.slow
def test_class_weights_follow_losses_of_rows_in_the_order_of_classes(tmp_path):
    np.save(tmp_path / "x.npy", X)
    loss = pf.losses.cross_entropy(pf.losses.linear_scores)
    runs = []
    for x in (X, OnDisk(tmp_path / "x.npy")):
        problem = pf.Problem(loss, pf.populations.Reweighted(x, np.sort(Y, axis=1), 2.0))
        runs.append(pf.run(problem, ALGORITHM, rounds=3, theta=np.zeros((2, D)), record=pf.Record(risks=False)))
    assert_same(*runs)


@pytest.mark.slow
def test_a_run_goes_on_where_the_file_was_moved_and_not_where_it_changed(tmp_path):
    def go_on(path, rounds, resume):
        return run(OnDisk(path), rounds=rounds, checkpoint=pf.Checkpoint(tmp_path / "run", every=2, resume=resume))

    first, moved = on_disk(tmp_path, X).path, tmp_path / "moved.npy"
    go_on(first, 2, False)
    shutil.move(first, moved)
    longer = go_on(moved, 4, True)
    assert longer.rounds[-1] == 4
    os.utime(moved, ns=(1, 1))
    with pytest.raises(ValueError, match=r"belongs to another run.*population.x.file.modified"):
        go_on(moved, 6, True)


LARGE = """
import json, resource, sys

LIMIT = 2 * 10**9
resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))  # what this process may allocate

import jax
import numpy as np
import performative as pf
from performative.tables import OnDisk

pixels, labels = sys.argv[1:]
whole = "loaded"
try:
    np.load(pixels)
except MemoryError:
    whole = "refused"

def model(theta, image):
    return theta["out"] @ jax.nn.relu(theta["in"] @ image.reshape(-1))

rng = np.random.default_rng(0)
theta = {"in": rng.standard_normal((64, 784)) * 0.03, "out": rng.standard_normal((10, 64)) * 0.1}
population = pf.populations.Static(OnDisk(pixels, scale=1 / 255), OnDisk(labels))
history = pf.run(
    pf.Problem(pf.losses.cross_entropy(model), population),
    pf.p_fedavg(rate=0.05, local_steps=10, batch=pf.Fixed(32), participation=pf.SchemeOne(10)),
    rounds=8, theta=theta, record=pf.Record(risks=False, theta="last"),
)
moved = float(sum(np.abs(v[0, -1] - theta[k]).max() for k, v in history.theta.items()))
peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"peak": peak, "whole": whole, "samples": float(history["samples"].sum()), "moved": moved}))
"""


def sparse(path, shape):
    """A file of zeros that takes no room, but for some ones far into it."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start, size = file.tell(), int(np.prod(shape, dtype=np.int64))
        file.truncate(start + size)
        file.seek(start + size - 1)
        file.write(b"\1")
    return path


@pytest.mark.slow
def test_20_gb_of_client_data_train_within_2_gb_of_memory(tmp_path):
    """The process may not allocate 2 GB, and all that it has in memory never reaches 2 GB, what it has mapped included.

    What the system keeps of files that were read is not the process's: it is given back when memory is short.
    """
    clients, rows = 250, 102_041
    pixels = sparse(tmp_path / "pixels.npy", (clients, rows, 28, 28))
    labels = sparse(tmp_path / "labels.npy", (clients, rows))
    if pixels.stat().st_blocks * 512 > 10**8:
        pytest.skip("this file system writes the zeros of sparse files")
    assert pixels.stat().st_size > 20 * 10**9
    last = OnDisk(pixels).file.read(clients - 1, [rows - 2, rows - 1])
    assert last.sum() == last[1, 27, 27] == 1
    # Tests switch the compiler's optimizations off and type checks on; a process of its own has neither.
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(pixels), str(labels)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["whole"] == "refused"
    assert found["samples"] > 0 and found["moved"] > 0
    assert found["peak"] < 2 * 10**9
