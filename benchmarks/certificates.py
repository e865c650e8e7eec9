"""The cost of a certificate of a large table, in passes over the table. Ratios within one run; nothing is asserted."""

import time

import jax
import numpy as np
import pandas as pd

import performative as pf
from performative.solve.landscape import survey

ROWS, FEATURES, CLIENTS = 120_000, 10, 8


def _problem() -> pf.Problem:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES))
    chance = 1 / (1 + np.exp(-x @ rng.standard_normal(FEATURES)))
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(FEATURES)])
    frame["y"] = (rng.uniform(size=ROWS) < chance).astype(int)
    frame["bank"] = rng.integers(0, CLIENTS, ROWS)
    return pf.Problem.from_frame(frame, client="bank", label="y", strategic=["x0", "x1", "x2"])


def _seconds(function) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def certificate() -> dict:
    """`certify` and `stable_point` for 120,000 people, compared with one gradient over all of them."""
    problem = _problem()
    first = _seconds(lambda: pf.certify(problem, progress=False))
    again = _seconds(lambda: pf.certify(problem, progress=False))
    stable = _seconds(lambda: pf.stable_point(problem))
    with jax.enable_x64(True):
        land, x = survey(problem, None)
        gradient = min(_seconds(lambda: land.value(x, x)) for _ in range(10))
    return {
        "benchmark": f"certificate: {ROWS} rows, {CLIENTS} clients, {FEATURES} features and an intercept",
        "first_s": first,
        "again_s": again,
        "stable_s": stable,
        "gradient_s": gradient,
        "ratio": again / gradient,
        "stable_ratio": stable / gradient,
        "note": "first: with compilation; ratios are relative to one gradient over all rows",
    }


BENCHMARKS = {"certificate": certificate}
