"""Tables that are read by rows give what the array would, cost what their rows cost, and say what is wrong."""

import os
import shutil
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.client_axis import take_clients
from performative._base.describe import describe
from performative.populations.rows import as_labels
from performative.tables import OnDisk, Packed, stored, write
from performative.testing import check_part
from performative.testing.uses import slice_client
from performative.types import as_numbers

N, M = 5, 7
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, M, 3)).astype(np.float32)
BYTES = RNG.integers(0, 256, (N, M, 2, 2)).astype(np.uint8)
Y = RNG.integers(0, 2, (N, M))
CLIENTS = np.asarray([4, 0, 0, 3])
SAMPLES = np.asarray([[6, 2, 2], [0, 1, 2], [3, 0, 6], [5, 4, 5]])


@pytest.fixture
def saved(tmp_path):
    """Save an array and open it as a table."""

    def save(array, **options):
        np.save(tmp_path / "x.npy", array)
        return OnDisk(tmp_path / "x.npy", **options)

    return save


def of_client(table, client):
    """One client's table, as a population's methods see it."""
    return slice_client(pf.populations.Static(table, Y), client).x


def looked_up(table):
    """SAMPLES of CLIENTS, as the executor that gathers looks them up."""
    population, axes = take_clients(pf.populations.Static(table, Y), jnp.asarray(CLIENTS, jnp.int32))
    each = jax.vmap(lambda mine, samples: jax.vmap(lambda j: mine.x[j])(samples), in_axes=(axes, 0))
    return np.asarray(jax.jit(each)(population, jnp.asarray(SAMPLES, jnp.int32)))


def expected(array):
    return array[CLIENTS[:, None], SAMPLES]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f4", ">f8", "u1", "?", "i8"])
@pytest.mark.parametrize("wide", [False, True])
def test_rows_are_the_arrays_own_in_the_precision_of_the_run(saved, kind, wide):
    array = (BYTES % 2 if kind == "?" else BYTES * 0.7).astype(kind)
    with jax.enable_x64(wide):
        table = as_numbers(saved(array))
        got = looked_up(table)
        assert got.dtype == table.dtype == (np.float64 if wide else np.float32)
        assert table.shape == array.shape and table.ndim == 4 and len(table) == N
        np.testing.assert_array_equal(got, expected(array).astype(got.dtype))


def test_bytes_are_scaled_on_the_device(saved):
    wanted = expected(BYTES / 256).astype(np.float32)
    for table in (saved(BYTES, scale=1 / 256), Packed(BYTES, 1 / 256), Packed(jnp.asarray(BYTES), 1 / 256)):
        assert table.dtype == np.float32 and table.shape == BYTES.shape
        np.testing.assert_array_equal(looked_up(table), wanted)


@pytest.mark.parametrize("kind", ["u1", "?", "i8"])
def test_whole_numbers_are_labels_where_labels_are_asked_for(saved, kind):
    for table in (saved(Y.astype(kind)), *([Packed(Y.astype(kind))] if kind != "i8" else [])):
        mine = slice_client(pf.populations.Static(X, as_labels(table)), 3)
        got = jax.jit(lambda m: m.y[jnp.arange(M)])(mine)
        assert got.dtype == table.dtype == np.int32
        np.testing.assert_array_equal(got, Y[3])
        assert as_numbers(table).dtype == np.float32


def test_indices_count_as_those_of_arrays(saved):
    mine, array = of_client(saved(X), 2), jnp.asarray(X[2])
    for index in (3, -1, 99, jnp.asarray([[0, -2], [1, 1]]), slice(1, 6, 2), jnp.zeros(0, int)):
        np.testing.assert_array_equal(mine[index], array[index])
    assert mine.shape == (M, 3) and mine.ndim == 2


def test_a_whole_table_is_not_taken_for_an_array(saved):
    table = saved(X)
    with pytest.raises(TypeError, match="only one client's table can be indexed"):
        table[0]
    with pytest.raises(TypeError, match="read row by row"):
        np.asarray(table)
    with pytest.raises(TypeError, match="not iterable"):
        list(table)


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_neighbors_are_read_together_and_each_row_once(saved, monkeypatch, block):
    file = saved(X).file
    monkeypatch.setattr(stored, "_BLOCK", block)
    pieces, read = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda f, to, at: pieces.append(at) or read(f, to, at))
    np.testing.assert_array_equal(file.read(CLIENTS[:, None], SAMPLES), expected(X))
    most = max(1, block // 12)
    assert len(pieces) == (5 if most >= 4 else 9)  # rows 0 1 2 3, 6, 25 26, 30, 34 of the file
    pieces.clear()
    np.testing.assert_array_equal(file.read(np.arange(N)[:, None], np.arange(M)), X)
    assert len(pieces) == -(-N * M // most)


def test_a_read_costs_its_rows(tmp_path):
    """100 rows of 100 kB from a file of 10 GB: at most three copies of them are held."""
    path, shape = tmp_path / "large.npy", (100, 1000, 100_000)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start = file.tell()
        file.seek(start + (99 * 1000 + 998) * 100_000)
        file.write(b"\7" * 100_000)
        file.truncate(start + 100 * 1000 * 100_000)
    table = OnDisk(path)
    rng = np.random.default_rng(0)
    clients, samples = np.append(rng.integers(0, 100, 99), 99), np.append(rng.integers(0, 998, 99), 998)
    tracemalloc.start()
    got = table.file.read(clients, samples)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * got.nbytes + 100_000
    assert np.all(got[-1] == 7) and not np.any(got[:-1])


def test_no_row_travels_in_64_bits(saved):
    """Whether a thread allows them is its own affair, and the host's may be another."""
    with jax.enable_x64(True):
        mine = of_client(saved(X.astype(float)), 1)
        (call,) = (e for e in jax.make_jaxpr(lambda j: mine[j])(3).eqns if e.primitive.name == "pure_callback")
        assert {v.aval.dtype.itemsize for v in (*call.invars, *call.outvars)} == {4}
        assert mine[3].dtype == np.float64


@pytest.mark.slow
def test_the_contract_of_populations_holds(saved, tmp_path):
    np.save(tmp_path / "y.npy", Y.astype(np.uint8))
    count, strength = [7, 3, 5, 7, 2], np.linspace(0, 1, N)
    for x in (saved(X), Packed(BYTES[..., 0], 0.01)):
        check_part(pf.populations.Strategic(x, OnDisk(tmp_path / "y.npy"), strength, count=count))


def test_a_file_that_changes_is_refused(saved):
    before = saved(X)
    assert OnDisk(before.path, scale=2.0).file == before.file
    os.utime(before.path, ns=(1, 1))
    after = OnDisk(before.path)
    assert after.file != before.file and hash(after.file) != hash(before.file)
    with pytest.raises(RuntimeError, match="has changed since the table was made"):
        before.file.read(0, 0)
    with pytest.raises(Exception, match="has changed since the table was made"):
        looked_up(before)
    np.testing.assert_array_equal(looked_up(after), expected(X))


def test_a_description_names_the_file_by_what_it_is_not_where(saved, tmp_path):
    table = saved(X)
    shutil.copy2(table.path, tmp_path / "elsewhere.npy")
    assert describe(OnDisk(tmp_path / "elsewhere.npy")) == describe(table)
    os.utime(tmp_path / "elsewhere.npy", ns=(1, 1))
    assert describe(OnDisk(tmp_path / "elsewhere.npy")) != describe(table)
    assert str(tmp_path) not in str(describe(table))


def test_written_by_client_and_padded(tmp_path):
    counts = [7, 3, 5, 1, 2]
    path = tmp_path / "x.npy"
    count = write(path, (X[i, :c] for i, c in enumerate(counts)), rows=M)
    np.testing.assert_array_equal(count, counts)
    written = np.load(path)
    real = np.arange(M) < np.asarray(counts)[:, None]
    np.testing.assert_array_equal(written, np.where(real[..., None], X, 0))
    assert written.dtype == X.dtype and [p.name for p in tmp_path.iterdir()] == ["x.npy"]
    write(path, (X[i].astype(float) for i in range(3)), rows=M, dtype="float16")
    np.testing.assert_array_equal(np.load(path), X[:3].astype(np.float16))


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([], "at least one client's rows"),
        ([X[0], X[1, :0]], r"1 to rows=7 rows; clients\[1\] has shape \(0, 3\)"),
        ([np.zeros((8, 3))], r"1 to rows=7 rows; clients\[0\] has shape \(8, 3\)"),
        ([X[0], X[1].astype(float)], r"clients\[1\] has float64"),
        ([X[0], X[1, :, :2]], r"clients\[1\] has float32 of shape \(2,\)"),
        ([X[0], X[1] * np.nan], r"clients\[1\] must be finite"),
        ([np.asarray(["a", "b"])], r"clients\[0\] must be numeric"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path, clients, words):
    with pytest.raises(ValueError, match=words):
        write(tmp_path / "x.npy", iter(clients), rows=M)
    assert not (tmp_path / "x.npy").exists()


def test_files_that_are_no_tables(saved, tmp_path):
    path = tmp_path / "x.npy"
    with pytest.raises(FileNotFoundError, match=r"absent.npy' is not a file"):
        OnDisk(tmp_path / "absent.npy")
    for array, words in (
        (np.asfortranarray(X), "Fortran"),
        (X[0, :, 0], r"must be \[clients, rows"),
        (X[:0], r"must be \[clients, rows"),
        (X * 1j, "numbers of up to 64 bits; it contains complex64"),
    ):
        with pytest.raises(ValueError, match=words):
            saved(array)
    path.write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"must be a .npy file"):
        OnDisk(path)
    np.save(path, X)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ValueError, match=r"truncated: \(5, 7, 3\) of float32 need 548 bytes, it has 547"):
        OnDisk(path)


def test_what_is_not_finite_is_found_where_it_is_looked_for(saved, monkeypatch):
    bad = X.copy()
    bad[3, 5, 1] = np.inf
    monkeypatch.setattr(stored, "_BLOCK", 30)  # two rows
    assert saved(bad).shape == X.shape
    with pytest.raises(ValueError, match=r"\(3, 5, 1\) is the first entry that is NaN or infinite"):
        saved(bad, check=True)
    saved(X, check=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Packed(X), "whole numbers of up to 32 bits; got float32"),
        (lambda: Packed(BYTES[0, 0, 0]), r"\[clients, rows, ...\]"),
        (lambda: Packed(Y), "up to 32 bits; got int64"),
        (lambda: Packed(BYTES, np.ones(3)), "scale must be one number"),
        (lambda: Packed(BYTES, np.nan), "scale must be finite"),
    ],
)
def test_what_cannot_be_packed(make, words):
    with pytest.raises(ValueError, match=words):
        make()
