"""Long files: exact moments, samples that do not depend on the reading, memory that does not grow."""

import hashlib
import json
import subprocess
import sys

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats

from performative.audit.draws import kept_rows
from performative.audit.queries import PRIME, fetch, with_hash
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


def test_moments_far_from_zero(tmp_path):
    """Mean 1e8, spread 1: sums of squares about 0 would have lost every digit of the variance (1e16 * 1e-16 = 1)."""
    rng = np.random.default_rng(0)
    x = 1e8 + rng.standard_normal((50_000, 2))
    pd.DataFrame({"deployment": "v", "x": x[:, 0], "y": x[:, 1]}).to_parquet(tmp_path / "data.parquet")
    (tmp_path / "deployments.csv").write_text("deployment,theta_x\nv,1\n")
    log = read_logs(tmp_path).clients["all"]
    from_origin = x - 1e8  # exact: both are multiples of the same power of two
    # Neighboring numbers at 1e8 lie 1.5e-8 apart.
    np.testing.assert_allclose(log.mean[0] - 1e8, from_origin.mean(axis=0), atol=3e-8)
    np.testing.assert_allclose(log.cov[0], np.cov(from_origin.T), rtol=1e-9, atol=1e-9)
    naive = (x**2).mean(axis=0) - x.mean(axis=0) ** 2
    assert np.all(np.abs(naive - 1) > 0.1)


def hashes(rows, seed=0):
    """What an engine gives rows of these numbers."""
    table = ibis.memtable(pa.table({"row": pa.array(rows)}))
    found = fetch(with_hash(table, "row", seed))
    return found["hash"][np.argsort(found["row"], kind="stable")]


def test_hashes_are_uniform_and_differ_by_file_and_seed():
    """Kolmogorov's test at 1e-3 each, and ranks of neighbors that are not related (4 standard errors)."""
    n = 100_000
    here, there = np.arange(n), np.arange(n) + 123_456 * (1 << 32)
    draws = [hashes(here), hashes(there), hashes(here, seed=1)]
    for h in draws:
        u = h / PRIME
        assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(n)
        assert len(np.unique(h)) == n  # one to one
    for other in draws[1:]:
        assert abs(np.corrcoef(draws[0], other)[0, 1]) < 4 / np.sqrt(n)


def test_what_is_kept_is_the_smallest_hashes(tmp_path):
    n = 20_000
    pd.DataFrame({"deployment": "v", "x": np.arange(1.0 * n)}).to_parquet(tmp_path / "data.parquet")
    (tmp_path / "deployments.csv").write_text("deployment,theta_x\nv,1\n")
    kept = read_logs(tmp_path, sample=100, seed=5).clients["all"].sample[0, :, 0]
    # DuckDB's md5_number_lower: the last eight bytes of the digest.
    number = int.from_bytes(hashlib.md5(b"data.parquet").digest()[8:], "little") % (1 << 20)
    np.testing.assert_array_equal(kept, np.argsort(hashes(np.arange(n) + number * (1 << 32), 5))[:100])


def test_equal_rows_are_drawn_like_others(tmp_path):
    """9 in 10 rows are the same row; the sample of 1000 must hold about 900 of them (4 standard errors)."""
    rows = pd.DataFrame({"deployment": "v", "x": np.where(np.arange(50_000) % 10 == 0, np.arange(50_000), -1.0)})
    rows.to_parquet(tmp_path / "data.parquet")
    (tmp_path / "deployments.csv").write_text("deployment,theta_x\nv,1\n")
    sample = read_logs(tmp_path, sample=1000).clients["all"].sample
    assert sample.shape == (1, 1000, 1)
    same = int(np.sum(sample == -1))
    assert abs(same - 900) < 4 * np.sqrt(1000 * 0.9 * 0.1)


@pytest.mark.slow
def test_nothing_depends_on_the_order_of_files(tmp_path, monkeypatch):
    folder = make_logs(tmp_path / "one", 20_000, clients=3, deployments=4)
    rows = pd.read_parquet(folder / "data" / "rows.parquet")
    whole = read_logs(folder, sample=50)
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
    monkeypatch.setattr("performative.audit.source.data_tables", lambda *args: data_tables(*args)[::-1])
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
    monkeypatch.setattr("performative.audit.draws.SAMPLE_BYTES", 8 * 3 * 100 * 7)
    assert kept_rows(50, 1, 100) == 7 and kept_rows(5, 1, 100) == 5 and kept_rows(5, 1, 10**9) == 1


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
