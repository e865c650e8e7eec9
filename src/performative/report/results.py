"""The contents of a folder of results: <paper>/<name>/ with manifest.json, data.nc and figure.svg."""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from performative.plotting import BAND, COLORS
from performative.report.curves import MOST_POINTS, curve, digits
from performative.report.figure import Mark, Series, View
from performative.report.theme import GREY

# Numbers with a well-known symbol.
_SYMBOLS = {
    "stable_point": r"$\theta_{PS}$", "theta_ps": r"$\theta_{PS}$", "optimal_point": r"$\theta_{PO}$",
    "theta_po": r"$\theta_{PO}$",
}  # fmt: skip
# Read as files: the package of experiments is in a higher layer.
EXPERIMENTS = Path(__file__).parent.parent / "papers"


@dataclass(frozen=True)
class Result:
    """One experiment: its manifest, the figure settings of its TOML, and the folder with the rest."""

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
    """All experiments below a folder, sorted by name. Raises an error that names any unreadable manifest."""
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
            f"{folder}: expected results in <paper>/<name>/manifest.json; found none. Create them with "
            "`performative reproduce --all --quick`."
        )
    return found


def without_results(results: list[Result]) -> list[str]:
    """Names of the package's experiments that have no results in the folder."""
    known = [f"{file.parent.name}/{file.stem}" for file in sorted(EXPERIMENTS.glob("*/*.toml"))]
    return [name for name in known if name not in {result.name for result in results}]


def _setup(paper: str, name: str) -> dict[str, Any]:
    """The experiment's own TOML, if the package has one: it defines the figure."""
    file = EXPERIMENTS / paper / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def views_of(
    panels: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any], numbers: Mapping[str, Any], most: int = MOST_POINTS
) -> list[tuple[str, View]]:
    """(title, view) of each panel whose array exists. Bars take the color of the line with the same name."""
    there = [panel for panel in panels if panel.get("data") in arrays]
    lines: dict[str, int] = {}
    for panel in there:
        array = _whole(arrays[panel["data"]], panel)
        if len(array.dims) > 2:
            for i, name in enumerate(_names(array)):
                lines.setdefault(name, i % len(COLORS))
    return [(str(panel.get("title", "")), _view(panel, arrays[panel["data"]], numbers, most, lines)) for panel in there]


def read_arrays(file: Path) -> dict[str, Any]:
    """{name: array} of a tree with one group per array; empty if the file does not exist."""
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
                # A group is named after its array; arrays of a group with several keep their own names.
                found[node.name if node.name and len(node.data_vars) == 1 else str(variable)] = array.load()
    return found


def _whole(array: Any, panel: Mapping[str, Any]) -> Any:
    """The array with its series and repeat axes first, added with length 1 if missing."""
    for dim, only in (("series", panel["data"]), ("repeat", 0)):
        if dim not in array.dims:
            array = array.expand_dims({dim: [only]})
    return array.transpose("series", "repeat", ...)


def _names(array: Any) -> list[str]:
    return [str(name) for name in (array["series"].values if "series" in array.coords else range(len(array)))]


def _view(
    panel: Mapping[str, Any], array: Any, numbers: Mapping[str, Any], most: int, lines: Mapping[str, int]
) -> View:
    y, log = str(panel.get("y") or panel["data"]), str(panel.get("log", ""))
    levels = [(str(name), _number(numbers, name)) for name in panel.get("marks", [])]
    symbols = {name: _SYMBOLS.get(name.lower(), name.replace("_", " ")) for name, _ in levels}
    marks = [Mark(symbols[name], level) for name, level in levels if level is not None]
    array = _whole(array, panel)
    names = _names(array)
    if len(array.dims) == 2:
        # Bars are horizontal, so values lie along x.
        along = str(panel.get("x") or y)
        matched = any(name in lines for name in names)
        colors = [lines.get(name, GREY if matched else 0) for name in names]
        return _bars(names, array.values, along, "y" if log else "", marks, colors)
    across = array.dims[2]
    x = array[across].values if across in array.coords else np.arange(array.sizes[across])
    values = np.asarray(array.values, np.float64).reshape(len(names), array.sizes["repeat"], len(x))
    series = [curve(name, x, values[i], most, joined=True) for i, name in enumerate(names)]
    label, along = str(panel.get("title") or y), str(panel.get("x") or across)
    return View(
        label, along, y, series, kind="points" if panel.get("kind") == "points" else "lines", log=log, marks=marks
    )


def _bars(names: list[str], values: Any, y: str, log: str, marks: list[Mark], colors: list[int]) -> View:
    values = np.asarray(values, np.float64)
    there = [i for i in range(len(names)) if np.any(np.isfinite(values[i]))]
    kept = [values[i][np.isfinite(values[i])] for i in there]
    low, high = (digits(float(np.quantile(v, q)) for v in kept) for q in BAND)
    ends: dict[str, Any] = {"low": low, "high": high} if values.shape[1] > 1 else {}
    means = digits(float(v.mean()) for v in kept)
    bars = Series(y, means, at=list(range(len(kept))), colors=[colors[i] for i in there], **ends)
    rows = [names[i] for i in there]
    return View(y, "", y, [bars] if kept else [], kind="bars", log=log, rows=rows, marks=marks)


def _number(numbers: Mapping[str, Any], name: str) -> float | None:
    value = numbers.get(name)
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
