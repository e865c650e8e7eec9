"""A watch compared with a test repeated at each look and ADWIN: false alarms, power, delay; and 100,000 looks.

`python -m benchmarks.watching` computes all tables of the page and writes them to `benchmarks/watching.json`.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.streams import World, adwin, repeated_test, simulate, watched
from performative.watch import watch

FILE = Path(__file__).with_suffix(".json")
# Drift of the world -> the drift that a watch allows for.
ALLOWED = {"none": "none", "linear": "linear", "walk": "walk", "bending": "smooth", "season": "smooth"}
EXPLORE = (0.0, 0.5, 1.0, 2.0)


def _share(found: np.ndarray) -> float:
    return float((found > 0).mean())


def false_alarms(streams: int = 10_000, looks: int = 500) -> list[dict]:
    """No reaction: how often each monitor ever raises a false alarm, by drift, retraining and kind of rows."""
    rows = []
    for law, allowed in ALLOWED.items():
        for explore, skewed in ((0.0, False), (1.0, False), (1.0, True)):
            made = simulate(World(law, 0.0, explore, skewed=skewed), streams, looks, seed=1)
            row = {"law": law, "allowed": allowed, "explore": explore, "skewed": skewed, "streams": streams,
                   "looks": looks, "watch": _share(watched(made, allowed)), "repeated": _share(repeated_test(made)),
                   "adwin": _share(adwin(made))}  # fmt: skip
            if explore:
                row["any"] = _share(watched(made, "any"))
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def power(streams: int = 1000, looks: int = 200, effect: float = 0.3) -> list[dict]:
    """A reaction: how often it is detected, and after how many looks."""
    rows = []
    for explore in EXPLORE:
        made = simulate(World("none", effect, explore), streams, looks, seed=2)
        for allowed in ("none", "linear", "walk", "smooth", "any"):
            if allowed == "any" and not explore:
                continue
            found = watched(made, allowed)
            row = {"explore": explore, "allowed": allowed, "effect": effect, "streams": streams, "looks": looks,
                   "shown": _share(found), "delay": _median(found)}  # fmt: skip
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
        for name, monitor in (("repeated", repeated_test), ("adwin", adwin)):
            found = monitor(made)
            rows.append({"explore": explore, "allowed": name, "effect": effect, "streams": streams, "looks": looks,
                         "shown": _share(found), "delay": _median(found)})  # fmt: skip
    return rows


def _median(found: np.ndarray) -> float | None:
    return float(np.median(found[found > 0])) if (found > 0).any() else None


def load(looks: int = 100_000, rows: int = 4) -> dict:
    """Many looks by one watch: seconds, memory and the size of the state, early and late."""
    rng = np.random.default_rng(0)
    made = watch(drift="walk")
    sizes, used = [], []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        for t in range(looks):
            theta = float(rng.normal())
            made.update({"x": rng.normal(size=rows)}, theta={"x": theta}, time=t, deployment=f"d{t}", id=f"b{t}")
            if t + 1 in (looks // 4, looks // 2, looks):
                made.save(state)
                sizes.append(os.path.getsize(state))
                used.append(_resident())
    return {
        "benchmark": f"{looks:,} looks of one watch",
        "looks": looks,
        "ours_s": time.perf_counter() - began,
        "ratio": sizes[-1] / sizes[-2],
        "state_bytes": sizes,
        "resident_bytes": used,
        "note": "ratio: size of the state at the end relative to halfway",
    }


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return 1024 * int(line.split()[1])
    return 0


def alarms() -> dict:
    """The table of false alarms, smaller: the largest false alarm rate of the watch relative to the allowed one."""
    began = time.perf_counter()
    rows = false_alarms(1000, 200)
    worst = max(row["watch"] for row in rows)
    other = max(row["repeated"] for row in rows)
    note = f"worst of {len(rows)} kinds: {100 * worst:.1f}% of streams, a repeated test {100 * other:.0f}%"
    return {"benchmark": "false alarms", "ours_s": time.perf_counter() - began, "ratio": worst / 0.05, "note": note}


BENCHMARKS = {"watch_alarms": alarms, "watch_load": load}

if __name__ == "__main__":
    whole = {"power": power(), "false_alarms": false_alarms(), "load": load()}
    FILE.write_text(json.dumps(whole, indent=1) + "\n")
