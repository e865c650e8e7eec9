"""The cost of auditing a large log, compared with one pass of Arrow or DuckDB over the file. Nothing is asserted."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS, DEPLOYMENTS, CLIENTS = 10_000_000, 20, 10

# A separate process, so its peak memory is that of the audit.
AUDIT = """
import json, resource, sys, time
began = time.perf_counter()
from performative.audit import audit_logs
audit_logs(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - began, "peak": peak}))
"""


def _write(file: Path) -> None:
    """Write rows in blocks, one per deployment."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    random, rows, writer = np.random.default_rng(0), ROWS // DEPLOYMENTS, None
    for deployment in range(DEPLOYMENTS):
        table = pa.table(
            {
                "deployment": np.full(rows, deployment),
                "client": random.integers(0, CLIENTS, rows),
                "income": random.standard_normal(rows) + 0.1 * deployment,
                "age": random.standard_normal(rows),
                "debt": random.standard_normal(rows),
                "label": random.integers(0, 2, rows),
            }
        )
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    writer.close()


def _one_pass(file: Path) -> None:
    """Means and variances of every client and deployment."""
    from pyarrow import parquet

    table = parquet.read_table(file)
    asked = [(name, what) for name in ("income", "age", "debt") for what in ("mean", "variance")]
    table.group_by(["deployment", "client"]).aggregate(asked)


def audit() -> dict:
    """`performative audit` on ten million rows, including Python's startup."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.parquet"
        _write(file)
        lines = [f"{i},{0.1 * i},{0.02 * (i % 5)},{0.01 * (i % 7)}" for i in range(DEPLOYMENTS)]
        (Path(folder) / "deployments.csv").write_text(
            "\n".join(["deployment,theta_income,theta_age,theta_debt", *lines, ""])
        )
        done = subprocess.run([sys.executable, "-c", AUDIT, folder], check=True, capture_output=True, text=True)
        told = json.loads(done.stdout)
        began = time.perf_counter()
        _one_pass(file)
        reference = time.perf_counter() - began
    return {
        "benchmark": f"audit: {ROWS:,} rows of {CLIENTS} clients, {DEPLOYMENTS} deployments, a Parquet file",
        "ours_s": told["seconds"],
        "reference_s": reference,
        "ratio": told["seconds"] / reference,
        "peak_gib": told["peak"] / 2**30,
        "note": "ours: the whole audit in a new process; reference: means and variances by Arrow",
    }


LONG_ROWS, LONG_DEPLOYMENTS, LONG_COLUMNS = 50_000_000, 12, 10

READ = """
import json, resource, sys, time
from performative.audit.reading import read_logs
began, cpu = time.perf_counter(), time.process_time()
logs = read_logs(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
told = {"rows": logs.rows, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "peak": peak}
print(json.dumps(told))
"""


def _write_long(folder: Path) -> None:
    """Write fifty million rows with DuckDB itself: 3.8 GB of Parquet, in about a minute."""
    import duckdb

    (folder / "data").mkdir()
    columns = ", ".join(
        f"(random() + random() + random() - 1.5) * 2 + 0.1 * (i % {LONG_DEPLOYMENTS}) AS x{j}"
        for j in range(LONG_COLUMNS)
    )
    duckdb.sql(
        f"COPY (SELECT 'v' || (i % {LONG_DEPLOYMENTS}) AS deployment, {columns} FROM range({LONG_ROWS}) t(i)) "
        f"TO '{folder}/data/rows.parquet' (FORMAT parquet)"
    )
    models = [f"v{t},{0.1 * t},{0.02 * (t % 5)}" for t in range(LONG_DEPLOYMENTS)]
    (folder / "deployments.csv").write_text("\n".join(["deployment,theta_x0,theta_x1", *models, ""]))


def audit_rows() -> dict:
    """Read fifty million rows: sums by the engine, and a sample of rows."""
    import duckdb

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_long(folder)
        done = subprocess.run([sys.executable, "-c", READ, name], check=True, capture_output=True, text=True)
        told = json.loads(done.stdout)
        began = time.perf_counter()
        means = ", ".join(f"avg(x{j}), var_samp(x{j})" for j in range(LONG_COLUMNS))
        duckdb.sql(f"SELECT deployment, {means} FROM '{folder}/data/rows.parquet' GROUP BY deployment").fetchall()
        reference = time.perf_counter() - began
    return {
        "benchmark": f"audit_rows: {LONG_ROWS:,} rows, {LONG_COLUMNS} columns, {LONG_DEPLOYMENTS} deployments, Parquet",
        "ours_s": told["seconds"],
        "reference_s": reference,
        "ratio": told["seconds"] / reference,
        "cpu_s": told["cpu"],
        "peak_gib": told["peak"] / 2**30,
        # Measured once, before it was removed: a block reader with NumPy products, on the same two cores.
        "note": (
            "audit_rows, ours: sums, cross products and a sample of rows; reference: means and variances by DuckDB. "
            "The previous reader took 1.9 s for 1 and 2.7 s for 2 million such rows, with a peak of 0.45 GiB."
        ),
    }


BENCHMARKS = {"audit": audit, "audit_rows": audit_rows}
