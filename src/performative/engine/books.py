"""From chunks of recorded rows to a History."""

import platform
from typing import Any

import equinox
import jax
import numpy as np

from performative.engine.chunk import Frozen, Watch
from performative.history import History
from performative.types import Theta

Chunk = dict[str, np.ndarray]


def flatten_rows(rows: dict[str, Any], lead: int, count: int) -> Chunk:
    """A chunk as a flat set of host arrays, cut to the rows that were filled: levels/x, counts/x, theta/0, sound."""
    cut = (slice(None),) * lead + (slice(count),)
    flat = {f"levels/{name}": value for name, value in rows["levels"].items()}
    flat |= {f"counts/{name}": total.value() for name, total in rows["counts"].items()}
    flat |= {f"theta/{i}": leaf for i, leaf in enumerate(jax.tree.leaves(rows["theta"]))}
    # Copied, since a cut that is a view would keep the whole buffer of its chunk.
    arrays = {name: np.array(np.asarray(value)[cut]) for name, value in flat.items()}
    return arrays | {"sound": np.asarray(rows["sound"])[cut].astype(bool)}


def last_level(chunk: Chunk) -> str:
    """The figure to watch, for the progress line."""
    for name in ("levels/distance_to_stable", "risks/performative_risk"):
        if name in chunk:
            values = chunk[name][..., -1] if name.startswith("levels") else chunk[name]
            return f"{name.split('/')[1].replace('_', ' ')} {np.mean(values):.4g}"
    return ""


def write_history(
    fixed: Frozen, start: Theta, watch: Watch, rounds: int, chunks: list[Chunk], state: Any, meta: dict[str, Any],
    setting: int | None = None,
) -> History:  # fmt: skip
    """Put the start in front, turn counts into running totals, name everything. `setting` picks one of a sweep's."""

    def pick(array: Any) -> np.ndarray:
        return np.asarray(array if setting is None else array[setting])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([pick(chunk[name]) for chunk in chunks], axis=1)[:, :count]

    count = sum(pick(chunk["sound"]).shape[1] for chunk in chunks)
    sound = joined("sound")
    # A run ends at the first record that no repeat survived, wherever the chunk ended that it was computed in.
    alive = np.asarray(sound.any(axis=0))
    count = len(alive) if alive.all() else int(np.argmin(alive)) + 1
    sound, repeats = sound[:, :count], len(sound)
    at = np.minimum(np.arange(count + 1) * watch.every, rounds)
    records: dict[str, np.ndarray] = {}
    for name in chunks[0]:
        kind, _, label = name.partition("/")
        if kind == "levels":
            first = np.full((repeats, 1), _start_level(label, fixed, start, setting))
            values = joined(name)
            records[label] = np.concatenate([first.astype(values.dtype), values], axis=1)
        elif kind == "counts":
            total = np.cumsum(joined(name), axis=1)
            records[label] = np.concatenate([np.zeros((repeats, 1)), total], axis=1)
    # One aggregation and one broadcast a round (Jin et al. 2024, Section 2.4).
    records["communications"] = np.tile(2 * at, (repeats, 1))

    leaves = []
    for number, (first, last) in enumerate(zip(jax.tree.leaves(start), jax.tree.leaves(state.theta), strict=True)):
        if watch.theta:
            opening = np.broadcast_to(np.asarray(first), (repeats, 1, *first.shape))
            leaves.append(np.concatenate([opening, joined(f"theta/{number}")], axis=1))
        else:
            leaves.append(pick(last)[:, None])
    audited = [chunk for chunk in chunks if "risk_round" in chunk and chunk["risk_round"] <= at[-1]]
    names = [name for chunk in audited[:1] for name in chunk if name.startswith("risks/")]
    risks = {n.removeprefix("risks/"): np.stack([pick(c[n]) for c in audited], axis=1) for n in names}
    counted = state.participation
    return History(
        theta=jax.tree.unflatten(jax.tree.structure(start), leaves),
        rounds=at,
        records=records,
        risk_rounds=np.asarray([int(chunk["risk_round"]) for chunk in audited], int),
        risks=risks,
        weights=_setting_of(fixed, lambda setup: setup.weights, setting),
        participation=None if counted is None else jax.tree.map(pick, counted).value() / at[-1],
        stopped_at=np.where(sound.all(axis=1), -1, at[1:][np.argmax(~sound, axis=1)]),
        meta={"executor": watch.executor, **versions(), **meta},
    )


def _setting_of(fixed: Frozen, where: Any, setting: int | None) -> np.ndarray:
    """A leaf of the setup as one setting of a sweep has it."""
    leaf = np.asarray(where(fixed.setup))
    varied = fixed.axes is not None and where(fixed.axes[0]) == 0
    return leaf[setting] if varied else leaf


def _start_level(label: str, fixed: Frozen, start: Theta, setting: int | None) -> float:
    """The value of a level before the first round: NaN where only a round can have one."""
    if not label.startswith("distance_to_"):
        return float("nan")
    name = label.removeprefix("distance_to_")
    target = jax.tree.leaves(getattr(fixed.targets, name))
    axes = [None] * len(target) if fixed.axes is None else _axes_of(getattr(fixed.axes[1], name), len(target))
    points = [np.asarray(t if axis is None else t[setting]) for t, axis in zip(target, axes, strict=True)]
    gaps = [np.asarray(s) - point for s, point in zip(jax.tree.leaves(start), points, strict=True)]
    return float(np.sqrt(sum(np.sum(np.square(gap)) for gap in gaps)))


def _axes_of(axes: Any, count: int) -> list[Any]:
    leaves = jax.tree.leaves(axes, is_leaf=lambda axis: axis is None)
    return leaves if len(leaves) == count else [None] * count


def versions() -> dict[str, str]:
    """What the run was made with."""
    import performative

    return {
        "performative": performative.__version__,
        "jax": jax.__version__,
        "equinox": equinox.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
