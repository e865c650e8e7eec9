"""A federation of two banks whose tables are files of their own, for the tests of this folder."""

from pathlib import Path

import numpy as np
import pandas as pd

import performative as pf

ROWS, CENTER, SPREAD, STRENGTH = (30, 41), np.array([40.0, 0.0]), np.array([10.0, 1.0]), (0.2, 0.6)
FILE = """
[problem]
loss = { name = "logistic", penalty = 0.1 }
[problem.population]
name = "Strategic"
strength = [0.2, 0.6]
features = ["cards"]
[data]
clients = 2
path = "bank-{client}.csv"
features = ["debt", "cards"]
label = "default"
scales = { debt = [40, 10], cards = [0, 1] }
intercept = true
rows = 10
[algorithm]
recipe = "p_fedavg"
rate = 0.1
local_steps = 3
batch = { name = "Fixed", n = 8 }
[run]
rounds = 4
dtype = "float64"
[federation]
timeout = 120
"""


def frames() -> list[pd.DataFrame]:
    """One table a bank, with a column that no model sees."""
    rng, made = np.random.default_rng(0), []
    for count in ROWS:
        x = CENTER + SPREAD * rng.normal(size=(count, 2))
        y = (x[:, 1] + rng.normal(size=count) > 0).astype(int)
        made.append(pd.DataFrame({"id": range(count), "debt": x[:, 0], "default": y, "cards": x[:, 1]}))
    return made


def write(folder: Path, text: str = FILE) -> Path:
    """federation.toml and the tables beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for client, frame in enumerate(frames()):
        frame.to_csv(folder / f"bank-{client}.csv", index=False)
    (folder / "federation.toml").write_text(text)
    return folder / "federation.toml"


def problem() -> pf.Problem:
    """The same from arrays: what is learned must not depend on where rows lay."""
    x, y = np.zeros((2, max(ROWS), 3)), np.zeros((2, max(ROWS)), int)
    for client, frame in enumerate(frames()):
        raw = frame[["debt", "cards"]].to_numpy()
        x[client, : len(raw)] = np.column_stack([(raw - CENTER) / SPREAD, np.ones(len(raw))])
        y[client, : len(raw)] = frame["default"]
    people = pf.populations.Strategic(x, y, STRENGTH, features=(1,), count=ROWS)
    return pf.Problem(pf.losses.logistic(penalty=0.1, intercept=2), people)
