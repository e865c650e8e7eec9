"""What a folder of results holds: <paper>/<name>/ with manifest.json, data.nc and figure.svg."""

import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from performative.report.curves import MOST_POINTS, curve, digits
from performative.report.figure import Mark, Series, View

# Read as files: the package of experiments lies above this one.
EXPERIMENTS = Path(__file__).parent.parent / "papers"


@dataclass(frozen=True)
class Result:
    """One experiment: its manifest, what its TOML says of the figure, and the folder with the rest."""

    name: str
    paper: str
    manifest: dict[str, Any]
    setup: dict[str, Any]
    folder: Path

    @property
    def claims(self) -> list[dict[str, Any]]:
        return [claim for claim in self.manifest.get("claims", []) if isinstance(claim, dict)]

    @property
    def figure(self) -> bytes | None:
        file = self.folder / "figure.svg"
        return file.read_bytes() if file.is_file() else None


def read_results(folder: Path) -> list[Result]:
    """All experiments below a folder, sorted by name. A manifest that cannot be read is an error that names it."""
    found = []
    for file in sorted(folder.glob("*/*/manifest.json")):
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file}: expected the JSON that `performative reproduce` writes; {error}.") from error
        if not isinstance(manifest, dict):
            raise ValueError(f"{file}: expected a JSON object; got {type(manifest).__name__}.")
        paper, name = file.parent.parent.name, file.parent.name
        setup = _setup(paper, name)
        found.append(Result(f"{paper}/{name}", str(manifest.get("paper", paper)), manifest, setup, file.parent))
    if not found:
        raise ValueError(
            f"{folder} is no thing to report: expected results in <paper>/<name>/manifest.json; found none. "
            "`performative reproduce --all --quick` makes them."
        )
    return found


def without_results(results: list[Result]) -> list[str]:
    """Names of experiments of the package that the folder has no results of."""
    known = [f"{file.parent.name}/{file.stem}" for file in sorted(EXPERIMENTS.glob("*/*.toml"))]
    return [name for name in known if name not in {result.name for result in results}]


def _setup(paper: str, name: str) -> dict[str, Any]:
    """The experiment's own TOML, where the package has one: it says how the figure is drawn."""
    file = EXPERIMENTS / paper / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def panels_of(result: Result, arrays: dict[str, Any], most: int = MOST_POINTS) -> list[tuple[str, View]]:
    """(title, view) of each panel whose array is there; nothing without a TOML that says how."""
    numbers, panels = result.manifest.get("numbers", {}), result.setup.get("panels", [])
    made = []
    for panel in panels:
        if panel.get("data") in arrays:
            made.append((str(panel.get("title", "")), _view(panel, arrays[panel["data"]], numbers, most)))
    return made


def read_arrays(file: Path) -> dict[str, Any]:
    """{name: array} of a tree with one group for each array; empty where there is no such file."""
    import xarray as xr

    if not file.is_file():
        return {}
    try:
        opened = xr.open_datatree(file, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}); remove it and run `performative reproduce` again."
        ) from error
    with opened as tree:
        found = {}
        for node in tree.subtree:
            for variable, array in node.to_dataset(inherit=False).data_vars.items():
                # A group is called as its array; one that holds several keeps their own names.
                found[node.name if node.name and len(node.data_vars) == 1 else str(variable)] = array.load()
    return found


def _view(panel: dict[str, Any], array: Any, numbers: dict[str, Any], most: int) -> View:
    y, log = str(panel.get("y", panel["data"])), str(panel.get("log", ""))
    levels = [(str(name), _number(numbers, name)) for name in panel.get("marks", [])]
    marks = [Mark(name.replace("_", " "), level) for name, level in levels if level is not None]
    if "series" not in array.dims:
        array = array.expand_dims(series=[panel["data"]])
    if "repeat" not in array.dims:
        array = array.expand_dims(repeat=[0])
    others = [dim for dim in array.dims if dim not in ("series", "repeat")]
    names = [
        str(name) for name in (array["series"].values if "series" in array.coords else range(array.sizes["series"]))
    ]
    if not others:
        # Bars lie, so the axis along x is the value's.
        along = str(panel.get("x") or panel.get("y") or panel["data"])
        return _bars(names, array.transpose("series", "repeat").values, along, "y" if log else "", marks)
    array = array.transpose("series", "repeat", *others)
    across = others[0]
    x = array[across].values if across in array.coords else np.arange(array.sizes[across])
    values = np.asarray(array.values, np.float64).reshape(len(names), array.sizes["repeat"], len(x))
    series = [curve(name, x, values[i], most, joined=True) for i, name in enumerate(names)]
    label = str(panel.get("title", y))
    points = panel.get("kind") == "points"
    along = str(panel.get("x", across))
    return View(label, along, y, series, kind="points" if points else "lines", log=log, marks=marks)


def _bars(names: list[str], values: Any, y: str, log: str, marks: list[Mark]) -> View:
    values = np.asarray(values, np.float64)
    with_any = [i for i in range(len(names)) if np.any(np.isfinite(values[i]))]
    kept = [values[i][np.isfinite(values[i])] for i in with_any]
    low, high = (digits(float(np.quantile(v, q)) for v in kept) for q in (0.1, 0.9))
    ends: dict[str, Any] = {"low": low, "high": high} if values.shape[1] > 1 else {}
    at, y_values = list(range(len(kept))), digits(float(v.mean()) for v in kept)
    bars = Series(y, y_values, at=at, colors=[i % 7 for i in at], **ends)
    rows = [names[i] for i in with_any]
    return View(y, "", y, [bars] if kept else [], kind="bars", log=log, rows=rows, marks=marks)


def _number(numbers: dict[str, Any], name: str) -> float | None:
    value = numbers.get(name)
    value = value[0] if isinstance(value, list) and value else value
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
