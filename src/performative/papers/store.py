"""What an experiment writes to its folder: data.nc, figure.png, .svg, .pdf and, last, manifest.json."""

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.papers import figure
from performative.papers.catalog import Experiment
from performative.papers.outcome import Numbers, Outcome
from performative.report import drawing, results

_KINDS = ("png", "svg", "pdf")
# Keys that a manifest must have.
_KEPT = frozenset({"name", "paper", "quick", "hash", "numbers", "claims"})


def write(folder: Path, experiment: Experiment, outcome: Outcome, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write everything and return the manifest as written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").unlink(missing_ok=True)  # no valid result while the other files change
    if outcome.data:
        import xarray as xr

        tree = xr.DataTree.from_dict({key: array.to_dataset(name="value") for key, array in outcome.data.items()})
        part = folder / ".data.nc.part"
        tree.to_netcdf(part, engine="h5netcdf")
        part.replace(folder / "data.nc")
    return _finish(folder, experiment, outcome, manifest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of an earlier run; None if it is missing or damaged."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    whole = isinstance(manifest, dict) and manifest.keys() >= _KEPT and isinstance(manifest["claims"], list)
    return manifest if whole else None


def read_done(folder: Path, experiment: Experiment) -> dict[str, Any] | None:
    """The manifest of a run, if its data are present too."""
    manifest = read_manifest(folder)
    return None if experiment.panels and not (folder / "data.nc").is_file() else manifest


def read_numbers(manifest: dict[str, Any]) -> Numbers:
    """The numbers as the experiment returned them."""
    return {
        name: tuple(map(float, number)) if isinstance(number, list) else float(number)  # type: ignore[misc]  # pairs
        for name, number in manifest["numbers"].items()
    }


def refresh(folder: Path, experiment: Experiment, manifest: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Update the manifest for the same data; redraw the figure if it would look different."""
    drawn = not experiment.panels or all((folder / f"figure.{kind}").is_file() for kind in _KINDS)
    if drawn and known.get("figure") == _look(experiment):
        if manifest != known:
            _write_manifest(folder, manifest)
        return manifest
    return _finish(
        folder, experiment, Outcome(read_numbers(manifest), results.read_arrays(folder / "data.nc")), manifest
    )


def _finish(folder: Path, experiment: Experiment, outcome: Outcome, manifest: dict[str, Any]) -> dict[str, Any]:
    """The figure, then the manifest."""
    if experiment.panels:
        from performative.report.theme import saved

        drawn = figure.draw(experiment.panels, outcome, experiment.title, experiment.place)
        for kind in _KINDS:
            write_whole(folder / f"figure.{kind}", saved(drawn, kind, dpi=150))
    manifest = manifest | {"figure": _look(experiment)}
    _write_manifest(folder, manifest)
    return manifest


def _look(experiment: Experiment) -> str:
    """A digest of everything that determines how the same data are drawn."""
    panels = [panel.model_dump(mode="json") for panel in experiment.panels]
    drawn = [inspect.getsource(module) for module in (figure, drawing, results)]
    return digest([experiment.title, experiment.place, panels, *drawn])


def digest(told: Any) -> str:
    """A digest of sixteen hex digits."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    write_whole(folder / "manifest.json", json.dumps(manifest, indent=1, allow_nan=False).encode())
