"""Stable and optimal points of the credit tables, each in a separate process: compilation takes most of the time."""

import subprocess
import sys
import time

import performative as pf

# Target time for computing the point of a table, so anything that needs the point starts quickly.
SECONDS = 3.0


def _table() -> pf.Problem:
    table = pf.cases.credit_table()
    return pf.Problem.from_frame(table, client="bank", label="default", strategic=["utilization"], strength=1.0)


TABLES = {"table": _table, "credit": pf.cases.credit}
SOLVERS = {"stable": pf.stable_point, "optimal": pf.optimal_point}


def cold(which: str, table: str) -> dict:
    """The first call of a process, and the second, which compiles nothing."""
    code = f"import benchmarks.points as p; p.tell({which!r}, {table!r})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    first, busy, second = map(float, told.split()[-3:])
    return {
        "benchmark": f"{which} point of {'a table as read from a frame' if table == 'table' else 'the credit case'}",
        "ours_s": first,
        "ratio": first / SECONDS,
        "note": f"relative to {SECONDS:.0f} s; {busy:.2f} s of processor time; the second call {second:.2f} s",
    }


def tell(which: str, table: str) -> None:
    """Print the seconds of the first call, its processor time, and the seconds of the second call."""
    problem, solve = TABLES[table](), SOLVERS[which]
    clocks = [(time.perf_counter(), time.process_time())]
    for _ in range(2):
        solve(problem)
        clocks.append((time.perf_counter(), time.process_time()))
    (began, idle), (middle, busy), (end, _) = clocks
    print(middle - began, busy - idle, end - middle)


BENCHMARKS = {
    "pt": lambda: cold("stable", "table"),
    "pc": lambda: cold("stable", "credit"),
    "po": lambda: cold("optimal", "table"),
}
