"""Results made by hand: pages need no run."""

import json
import re

import numpy as np

from performative.history import History
from performative.sweep import Sweep

BAD = '<script>alert("x")</script><b>&amp;%{y}</b>'
PANELS = """
[[panels]]
data = "distance"
title = "<b>Distance</b>"
x = "step"
y = "distance to theta_PS"
log = "xy"
marks = ["floor_of_noise"]

[[panels]]
data = "accuracy"
kind = "bars"
x = "accuracy once deployed"
log = "x"

[[panels]]
data = "final"
kind = "points"
x = "local steps"
y = "final distance"
"""


def history(seed=0, repeats=6, length=31, scale=1.0, diverged=False, **meta):
    """Distances that fall, a risk with rounds of its own, running totals, and three clients."""
    rng = np.random.default_rng(seed)
    falling = scale * np.exp(-0.05 * np.arange(length)) * np.exp(0.2 * rng.normal(size=(repeats, length)))
    stopped = np.full(repeats, -1)
    if diverged:
        falling[0, 5:], stopped[0] = np.inf, 50
    return History(
        theta=rng.normal(size=(repeats, length, 2)),
        rounds=10 * np.arange(length),
        records={
            "distance_to_stable": falling,
            "consensus": np.concatenate([np.full((repeats, 1), np.nan), falling[:, 1:] ** 2], axis=1),
            "samples": np.tile(40.0 * np.arange(length), (repeats, 1)),
            "time": np.zeros((repeats, length)),
        },
        risk_rounds=np.array([100, 200, 300]),
        risks={"performative_risk": 1 + falling[:, [10, 20, 30]] if length == 31 else np.ones((repeats, 3))},
        weights=np.array([0.5, 0.3, 0.2]),
        participation=rng.dirichlet([50, 30, 20], repeats),
        stopped_at=stopped,
        meta={
            "algorithm": "p_fedavg", "seed": 7, "dtype": "float32", "seconds": 1.5, "executor": "gather",
            "config": {"part": "Algorithm", "name": "p_fedavg", "participation": {"part": "SchemeOne", "k": 2}}, **meta,
        },
    )  # fmt: skip


def sweep(diverged=None):
    """Three rates by two numbers of local steps; the second setting ends lowest."""
    over = {"rate": [0.1, 0.2, 0.4], "local_steps": [1, 5]}
    settings = [{"rate": r, "local_steps": e} for r in over["rate"] for e in over["local_steps"]]
    scales = [1.0, 0.3, 2.0, 1.5, 4.0, 3.0]
    runs = [history(i, scale=s, diverged=i == diverged) for i, s in enumerate(scales)]
    return Sweep(over, settings, runs, 2)


def results(folder, experiments, count=4, points=50, series=("full", BAD, "static"), panels=3):
    """A folder of results, and the TOML files that say how they are drawn. Verdicts go round."""
    import xarray as xr

    verdicts = ["reproduced", "reproduced with corrections", "refuted", "not tested"]
    text = "[[panels]]".join(PANELS.split("[[panels]]")[: panels + 1])
    for i in range(count):
        paper, name = ("p_fedavg", "profl", "ours")[i % 3], f"fig{i}"
        place, rng = folder / paper / name, np.random.default_rng(i)
        place.mkdir(parents=True)
        (experiments / paper).mkdir(parents=True, exist_ok=True)
        (experiments / paper / f"{name}.toml").write_text(f'title = "t"\nnote = "Left open: {i}"\n{text}')
        x = np.arange(1.0, points + 1)
        falling = np.exp(rng.normal(size=(len(series), 4, points))) / np.sqrt(x)
        falling[0, :, 3] = np.nan
        sides = {"series": list(series)}
        data = {
            "distance": xr.DataArray(falling, dims=("series", "repeat", "x"), coords={**sides, "x": x}),
            "accuracy": xr.DataArray(rng.random((len(series), 4)), dims=("series", "repeat"), coords=sides),
            "final": xr.DataArray(
                rng.random((len(series), 4, 3)), dims=("series", "repeat", "x"), coords={**sides, "x": [1.0, 2.0, 8.0]}
            ),
        }
        tree = xr.DataTree.from_dict({key: array.to_dataset(name="value") for key, array in data.items()})
        tree.to_netcdf(place / "data.nc", engine="h5netcdf")
        (place / "figure.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
        claims = [
            {"id": f"c{k}", "claim": f"Claim {k} of {name}: {BAD}", "how": "by the slope", "place": f"Figure {i}",
             "number": "slope = -0.5", "verdict": verdicts[(i + k) % 4], "reason": "so it is"}
            for k in range(2)
        ]  # fmt: skip
        manifest = {
            "name": f"{paper}/{name}", "paper": paper, "title": f"Title of {name} {BAD}", "place": f"Figure {i}",
            "quick": i == 0, "status": "completed", "constants": {"clients": 25}, "seed": 0,
            "versions": {"jax": "0"}, "device": "cpu", "seconds": 2.0, "finished": "2026-01-01T00:00:00+00:00",
            "hash": "h", "numbers": {"floor_of_noise": [0.05, 0.001], "slope": -0.5, "no_limit": "inf"},
            "claims": claims,
        }  # fmt: skip
        (place / "manifest.json").write_text(json.dumps(manifest))
    return folder


def logs(folder):
    """Two clients of one number each, 0.5 and 0.9 per unit of the model, moved by hand; one has a bad name."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    theta = rng.normal(2.0, 1.0, 12)
    pd.DataFrame({"deployment": range(12), "theta_x": theta}).to_csv(folder / "deployments.csv", index=False)
    frames = [
        pd.DataFrame({"deployment": t, "client": name, "x": 1.0 + eps * theta[t] + rng.normal(size=200)})
        for t in range(12)
        for name, eps in (("north", 0.5), (BAD, 0.9))
    ]
    pd.concat(frames).to_csv(folder / "data.csv", index=False)
    return folder


def split(made):
    """(the page without the plotting library, the plots as the script gets them)."""
    text = made.decode() if isinstance(made, bytes) else made
    head, library, tail = re.fullmatch(r'(.*)(<script id="plotly">.*?</script>)(.*)', text, re.DOTALL).groups()
    assert len(library) > 1_000_000 and "plotly.js v" in library[:200] and "plotly.js v" not in head + tail
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', head, re.DOTALL).group(1)
    return head + tail, json.loads(data)["plots"]
