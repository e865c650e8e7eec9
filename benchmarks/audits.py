"""What an audit of a large log costs, beside one pass of Arrow over the same file. Nothing is asserted."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS, DEPLOYMENTS, CLIENTS = 10_000_000, 20, 10

# A process of its own, so that its peak memory is the audit's.
AUDIT = """
import json, resource, sys, time
began = time.perf_counter()
from performative.audit import audit_logs
audit_logs(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - began, "peak": peak}))
"""


def _write(file: Path) -> None:
    """Rows in blocks, one a deployment."""
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
    """`performative audit` on ten million rows, with the start of Python."""
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


BENCHMARKS = {"audit": audit}
