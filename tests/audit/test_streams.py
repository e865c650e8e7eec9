"""Long files in one pass: exact moments, samples that do not depend on the reading, memory that does not grow."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from performative.audit.streams import Moments, Reservoir, row_hashes

from performative.audit.reading import read_logs
from performative.audit.roles import data_tables


def make_logs(folder, rows, kind="parquet", rng_seed=0, deployments=20, clients=10):
    """Six numeric columns of people in batches of a million, so that making them takes little memory as well."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    rng = np.random.default_rng(rng_seed)
    (folder / "data").mkdir(parents=True)
    theta = rng.standard_normal(deployments)
    listed = "".join(f"v{t},{theta[t]}\n" for t in range(deployments))
    (folder / "deployments.csv").write_text("deployment,theta_x0\n" + listed)
    writer = None
    for start in range(0, rows, 1_000_000):
        n = min(1_000_000, rows - start)
        t, c = rng.integers(0, deployments, n), rng.integers(0, clients, n)
        words = {
            "deployment": pa.DictionaryArray.from_arrays(
                pa.array(t, pa.int32()), [f"v{i}" for i in range(deployments)]
            ),
            "client": pa.DictionaryArray.from_arrays(pa.array(c, pa.int32()), [f"bank {i}" for i in range(clients)]),
        }
        columns = {name: column.cast(pa.string()) for name, column in words.items()}
        columns |= {f"x{j}": pa.array(rng.standard_normal(n) + theta[t]) for j in range(3)}
        columns["label"] = pa.array(rng.integers(0, 2, n))
        table = pa.table(columns)
        if writer is None:
            path = folder / "data" / f"rows.{kind}"
            writer = pq.ParquetWriter(path, table.schema) if kind == "parquet" else pc.CSVWriter(path, table.schema)
        writer.write_table(table)
    writer.close()
    return folder


def test_moments_far_from_zero():
    """Mean 1e8, spread 1: sums of squares about 0 would have lost every digit of the variance (1e16 * 1e-16 = 1)."""
    rng = np.random.default_rng(0)
    x = 1e8 + rng.standard_normal((50_000, 2))
    moments = Moments(2)
    moments.grow(1)
    for part in np.array_split(x, 17):
        moments.add(np.zeros(len(part), np.int64), part)
    from_origin = x - 1e8  # exact: both are multiples of the same power of two
    # Neighboring numbers at 1e8 lie 1.5e-8 apart.
    np.testing.assert_allclose(moments.mean[0] - 1e8, from_origin.mean(axis=0), atol=3e-8)
    np.testing.assert_allclose(moments.cov()[0], np.cov(from_origin.T), rtol=1e-9, atol=1e-9)
    naive = (x**2).mean(axis=0) - x.mean(axis=0) ** 2
    assert np.all(np.abs(naive - 1) > 0.1)


def test_moments_of_many_cells_in_any_order():
    rng = np.random.default_rng(1)
    cell, x = rng.integers(0, 50, 5000), rng.standard_normal((5000, 3))
    moments = Moments(3)
    for part in np.array_split(np.arange(5000), 9):
        moments.grow(51)
        moments.add(cell[part], x[part])
    frame = pd.DataFrame(x).groupby(cell)
    np.testing.assert_allclose(moments.mean[:50], frame.mean())
    np.testing.assert_allclose(moments.cov()[:50].reshape(150, 3), frame.cov())
    np.testing.assert_array_equal(moments.count[:50], frame.size())
    assert moments.count[50] == 0 and np.all(np.isnan(moments.cov()[50]))


def test_what_is_kept_is_the_smallest_hashes():
    rng = np.random.default_rng(2)
    cell, x = rng.integers(0, 4, 300_000), rng.standard_normal((300_000, 1))
    hashes = row_hashes("data.csv", 0, len(x), seed=5)
    kept = Reservoir(1, 100)
    for part in np.array_split(np.arange(len(x)), 11):
        kept.add(cell[part], hashes[part], x[part])
    for k, rows in enumerate(kept.of(np.arange(4))):
        mine = np.flatnonzero(cell == k)
        expected = x[mine[np.argsort(hashes[mine])[:100]]]
        np.testing.assert_array_equal(rows, expected)


def test_hashes_are_uniform_and_differ_by_file_and_seed():
    """Kolmogorov's test at 1e-3 each, and ranks of neighbors that are not related (4 standard errors)."""
    n = 100_000
    draws = {key: row_hashes(*key) for key in [("a", 0, n, 0), ("b", 0, n, 0), ("a", 0, n, 1)]}
    for h in draws.values():
        u = h.astype(np.float64) / 2.0**64
        assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(n)
    a, b, other = (h.astype(np.float64) for h in draws.values())
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(n)
    assert abs(np.corrcoef(a, other)[0, 1]) < 4 / np.sqrt(n)
    np.testing.assert_array_equal(row_hashes("a", 40, 10, 0), draws["a", 0, n, 0][40:50])


def test_equal_rows_are_drawn_like_others(tmp_path):
    """9 in 10 rows are the same row; the sample of 1000 must hold about 900 of them (4 standard errors)."""
    rows = pd.DataFrame({"deployment": "v", "x": np.where(np.arange(50_000) % 10 == 0, np.arange(50_000), -1.0)})
    rows.to_parquet(tmp_path / "data.parquet")
    (tmp_path / "deployments.csv").write_text("deployment,theta_x\nv,1\n")
    sample = read_logs(tmp_path, sample=1000).clients["all"].sample
    assert sample.shape == (1, 1000, 1)
    same = int(np.sum(sample == -1))
    assert abs(same - 900) < 4 * np.sqrt(1000 * 0.9 * 0.1)


def test_nothing_depends_on_block_size_or_order_of_files(tmp_path, monkeypatch):
    folder = make_logs(tmp_path / "one", 20_000, clients=3, deployments=4)
    rows = pd.read_parquet(folder / "data" / "rows.parquet")
    whole = read_logs(folder, sample=50)
    for log, other in zip(
        whole.clients.values(), read_logs(folder, sample=50, batch=777).clients.values(), strict=True
    ):
        np.testing.assert_array_equal(log.sample, other.sample)
        np.testing.assert_allclose(log.mean, other.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(log.cov, other.cov, rtol=1e-10, atol=1e-12)
    # The same rows of the same file are kept whatever stands beside it.
    extra = rows.assign(client="new")
    for name in ("a.parquet", "z.parquet"):
        extra.to_parquet(folder / "data" / name)
        more = read_logs(folder, sample=50)
        for client, log in whole.clients.items():
            np.testing.assert_array_equal(log.sample, more.clients[client].sample)
        (folder / "data" / name).unlink()
    rows[::2].to_parquet(folder / "data" / "a.parquet")
    forwards = read_logs(folder, sample=50)
    monkeypatch.setattr("performative.audit.reading.data_tables", lambda *args: data_tables(*args)[::-1])
    backwards = read_logs(folder, sample=50)
    assert list(forwards.clients) == list(backwards.clients)
    for client, log in forwards.clients.items():
        np.testing.assert_array_equal(log.sample, backwards.clients[client].sample)
        np.testing.assert_allclose(log.cov, backwards.clients[client].cov, rtol=1e-10, atol=1e-12)
    (folder / "data" / "a.parquet").unlink()
    other = read_logs(folder, sample=50, seed=1).clients["bank 0"].sample
    assert not np.array_equal(other, whole.clients["bank 0"].sample)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_two_hundred_thousand_rows(tmp_path, kind):
    logs = read_logs(make_logs(tmp_path / "logs", 200_000, kind), sample=200)
    assert logs.rows == logs.used == 200_000 and len(logs.clients) == 10
    for log in logs.clients.values():
        # x_j ~ N(theta_t, 1): 20 deployments by 3 columns by 10 clients, so 5 standard errors.
        error = np.sqrt(1 / log.count)[:, None]
        assert np.all(np.abs(log.mean[:, :3] - log.theta) < 5 * error)
        assert log.sample.shape == (20, 200, 4) and np.all(np.isfinite(log.sample))
        assert np.all(np.abs(np.mean(log.sample[:, :, :3], axis=1) - log.theta) < 5 / np.sqrt(200))


def test_many_cells_keep_fewer_rows(monkeypatch):
    monkeypatch.setattr("performative.audit.streams.SAMPLE_BYTES", 8 * 3 * 100 * 7)
    kept = Reservoir(1, 50)
    cell = np.repeat(np.arange(100), 40)
    hashes = row_hashes("f", 0, 4000, 0)
    for part in np.array_split(np.arange(4000), 5):
        kept.add(cell[part], hashes[part], np.ones((len(part), 1)))
    assert kept.of(np.arange(100)).shape == (100, 7, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_ten_million_rows_in_two_gibibytes(tmp_path, kind):
    make_logs(tmp_path / "logs", 10_000_000, kind)
    program = (
        "import json, resource, sys\n"
        "from performative.audit.reading import read_logs\n"
        "logs = read_logs(sys.argv[1])\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "print(json.dumps({'rows': logs.used, 'peak': peak}))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "logs")], check=True, capture_output=True, text=True
    )
    found = json.loads(out.stdout)
    assert found["rows"] == 10_000_000
    assert found["peak"] < 2 * 2**30
