"""Files of sums: what a bank sends, and what a server merges."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.files import write_by, write_whole
from performative.audit.deployments import Deployments
from performative.audit.missing import Sums
from performative.audit.moments import Moments
from performative.audit.roles import Columns
from performative.audit.schema import Decision, LogError, Settings
from performative.audit.scoring import ScoringFit
from performative.audit.summaries import Summaries
from performative.audit.weighted import Weighted

FORMAT = 1
_NO_SUMS = "is not a file of moments written by `performative audit --moments`"
KINDS = (".json", ".npz")
_KINDS: dict[str, Any] = {"moments": Moments, "sums": Sums, "weighted": Weighted}
_COUNTERS = ("dropped", "empty", "unknown")
_NUMBERS = ("rows", "undecided", "no_group", "no_chance", "noise", "decides")
# The settings that an audit of sums needs; file locations are not shared.
_SETTINGS = ("loss", "penalty", "parameters", "missing_labels", "weights", "clip", "delayed")


def write_summaries(seen: Summaries, file: str | Path) -> Path:
    """Write sums to one file, JSON or NumPy's npz depending on its extension; it contains no rows."""
    file = Path(file)
    if file.suffix not in KINDS:
        raise LogError(f"moments are written as {' or '.join(KINDS)}; got {file.suffix or 'no extension'!r}.", file)
    if not file.absolute().parent.is_dir():
        raise LogError(f"there is no folder {file.absolute().parent} to write to.", file)
    header, arrays = pack_summaries(seen)
    if file.suffix == ".json":
        whole = {**header, "arrays": {name: value.tolist() for name, value in arrays.items()}}
        write_whole(file, json.dumps(whole, allow_nan=False).encode())
    else:
        told: dict[str, Any] = {"header": np.array(json.dumps(header, allow_nan=False)), **arrays}
        write_by(file, lambda open_file: np.savez_compressed(open_file, **told))
    return file


def read_summaries(file: str | Path) -> Summaries:
    """Read what `write_summaries` wrote."""
    file = Path(file)
    if not file.is_file():
        raise LogError("there is no such file of moments.", file)
    try:
        if file.suffix == ".json":
            header = json.loads(file.read_text())
            arrays = {name: np.array(value) for name, value in header.pop("arrays").items()}
        else:
            with np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            header = json.loads(str(arrays.pop("header")))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise LogError(f"{_NO_SUMS}: {error}", file) from error
    return unpack_summaries(header, arrays, file)


def unpack_summaries(header: dict[str, Any], arrays: dict[str, np.ndarray], file: str | Path = "sums") -> Summaries:
    """Restore what `pack_summaries` returned, from any sender: wrong fields and impossible numbers are refused."""
    try:
        if header["format"] != FORMAT:
            raise LogError(f"has format {header['format']}; this version reads {FORMAT}.", file)
        seen = _unpacked(header, arrays)
    except LogError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise LogError(f"{_NO_SUMS}: {error}", file) from error
    for name, value in arrays.items():
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise LogError(f"{_NO_SUMS}: {name} contains non-finite numbers.", file)
        # Noise may make a count negative.
        if not seen.noise and name.endswith((".count", ".rows", ".n")) and np.any(value < 0):
            raise LogError(f"{_NO_SUMS}: {name} contains negative counts.", file)
    return seen


def _parts(seen: Summaries) -> dict[str, tuple[str, Any]]:
    parts: dict[str, tuple[str, Any]] = {
        "labeled": ("moments", seen.labeled), "unlabeled": ("moments", seen.unlabeled),
        "scores_labeled": ("sums", seen.scores[0]), "scores_unlabeled": ("sums", seen.scores[1]),
        "incomplete": ("sums", seen.incomplete),
    }  # fmt: skip
    if seen.always is not None:
        parts |= {"always_labeled": ("moments", seen.always[0]), "always_unlabeled": ("moments", seen.always[1])}
    if seen.weighted is not None:
        parts["weighted"] = ("weighted", seen.weighted)
    return parts


def pack_summaries(seen: Summaries) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Sums as JSON-compatible fields and arrays; they contain no rows."""
    arrays: dict[str, np.ndarray] = {}
    names: dict[str, Any] = {}
    for part, (kind, value) in _parts(seen).items():
        names[part] = {"kind": kind}
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            if isinstance(held, np.ndarray):
                arrays[f"{part}.{field.name}"] = held
            else:
                names[part][field.name] = list(held)
    d = seen.deployments
    header = {
        "format": FORMAT,
        "columns": dataclasses.asdict(seen.columns),
        "deployments": {
            "names": list(d.names), "time": d.time.tolist(), "theta": d.theta.tolist(),
            "parameters": list(d.parameters), "unit": d.unit, "notes": list(d.notes),
            "scoring": [dataclasses.asdict(fit) for fit in d.scoring],
        },
        "settings": {name: getattr(seen.settings, name) for name in _SETTINGS},
        "decision": dataclasses.asdict(seen.settings.decision),
        **{name: getattr(seen, name) for name in _NUMBERS},
        **{name: dict(getattr(seen, name)) for name in _COUNTERS},
        # Which label is odd, and where, would reveal something about one person.
        "odd": seen.odd is not None,
        "suppressed": list(seen.suppressed),
        "promise": None if seen.promise is None else list(seen.promise),
        "counts": [[*key, n] for key, n in seen.counts.items()],
        "parts": names,
    }  # fmt: skip
    return header, arrays


def _unpacked(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Summaries:
    parts: dict[str, Any] = {}
    for part, told in header["parts"].items():
        kind = _KINDS[told.pop("kind")]
        made: dict[str, Any] = {name: tuple(value) for name, value in told.items()}
        width = len(header["columns"]["features"])
        for field in dataclasses.fields(kind):
            if field.name not in made:
                made[field.name] = _shaped(arrays[f"{part}.{field.name}"], field.name, kind, made, part, width)
        parts[part] = kind(**made)
    d, s = header["deployments"], header["settings"]
    clip = {name: (float(low), float(high)) for name, (low, high) in s["clip"].items()}
    decision = {**header["decision"]}
    decision["movable"] = None if decision["movable"] is None else tuple(decision["movable"])
    columns: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in header["columns"].items()}
    counted: dict[str, Any] = {name: header[name] for name in _NUMBERS}
    counted |= {name: Counter(header[name]) for name in _COUNTERS}
    always = None
    if "always_labeled" in parts:
        always = (parts["always_labeled"], parts["always_unlabeled"])
    return Summaries(
        columns=Columns(**columns),
        deployments=Deployments(
            tuple(d["names"]), np.array(d["time"], np.float64),
            np.array(d["theta"], np.float64).reshape(len(d["names"]), -1), tuple(d["parameters"]), d["unit"],
            tuple(ScoringFit(**fit) for fit in d["scoring"]), tuple(d["notes"]),
        ),
        settings=dataclasses.replace(Settings(), **{**s, "clip": clip}, decision=Decision(**decision)),
        labeled=parts["labeled"], unlabeled=parts["unlabeled"],
        scores=(parts["scores_labeled"], parts["scores_unlabeled"]), incomplete=parts["incomplete"],
        counts={(c, t, g, int(a), int(q)): int(n) for c, t, g, a, q, n in header["counts"]},
        odd=("", "", float("nan")) if header["odd"] else None,
        suppressed=(int(header["suppressed"][0]), int(header["suppressed"][1])),
        promise=None if header["promise"] is None else (header["promise"][0], header["promise"][1]),
        always=always, weighted=parts.get("weighted"),
        **counted,
    )  # fmt: skip


def _shaped(value: np.ndarray, name: str, kind: Any, made: dict[str, Any], part: str, width: int) -> np.ndarray:
    """Restore shape and type: JSON arrays lose their shape if empty, and their type if all numbers are integers."""
    if name in ("client", "deployment", "stratum"):
        return value.astype(np.int64).reshape(-1)
    value = value.astype(np.float64)
    if value.size:
        return value
    if kind is Moments and name in ("mean", "squares"):
        q = len(made["columns"])
        return np.zeros((0, q) if name == "mean" else (0, q, q))
    if kind is Sums and name in ("n", "mean", "squares"):
        return np.zeros((0, width + 1 if part == "incomplete" else 1))
    return value.reshape(value.shape)
