"""Assemble a History from chunks of recorded rows."""

import platform
from typing import Any

import equinox
import jax
import numpy as np
from jaxtyping import PyTree

from performative._engine.chunk import RecordConfig, RunInputs
from performative._engine.keys import NUMERICS
from performative._engine.metrics import is_own
from performative._version import __version__
from performative.callbacks.news import News
from performative.history import History
from performative.types import Theta

Chunk = dict[str, np.ndarray]


def flatten_rows(rows: dict[str, Any]) -> Chunk:
    """A chunk as a flat set of host arrays: levels/x, totals/x, theta/0, sound."""
    flat = {f"levels/{name}": value for name, value in rows["levels"].items()}
    flat |= {f"totals/{name}": total.value() for name, total in rows["totals"].items()}
    flat |= {f"{kind}/{name}": value for kind in ("clients", "cohorts") for name, value in rows[kind].items()}
    flat |= {f"theta/{i}": leaf for i, leaf in enumerate(jax.tree.leaves(rows["theta"]))}
    # Copied: a slice that is a view would keep the whole buffer of its chunk alive.
    arrays = {name: np.array(value) for name, value in flat.items()}
    return arrays | {"sound": np.asarray(rows["sound"]).astype(bool)}


def news_of(
    chunks: list[Chunk], before: int, first: dict[str, np.ndarray], every: int, total: int, **told: Any
) -> News:
    """What callbacks receive after `chunks`, if they have already seen the records of the first `before`.

    The start comes first if they have seen nothing yet.
    """
    new, reached = chunks[before:], min(sum(_count(chunk) for chunk in chunks) * every, total)
    known = sum(_count(chunk) for chunk in chunks[:before])
    rounds = np.minimum(np.arange(known + 1, known + 1 + sum(map(_count, new))) * every, total)
    records: dict[str, np.ndarray] = {}
    for name in chunks[0]:
        kind, _, label = name.partition("/")
        if kind not in ("levels", "totals"):
            continue
        values = np.concatenate([chunk[name] for chunk in new], axis=-1)
        opening = np.broadcast_to(first.get(label, np.asarray(np.nan))[..., None], (*values.shape[:-1], 1))
        if kind == "totals":
            past = [chunk[name].sum(axis=-1, keepdims=True) for chunk in chunks[:before]]
            values, opening = np.cumsum(values, axis=-1) + sum(past), np.zeros_like(opening)
        records[label] = np.concatenate([opening, values], axis=-1) if not before else values
    last = chunks[-1]
    risks = {name.removeprefix("risks/"): value for name, value in last.items() if name.startswith("risks/")}
    return News(
        rounds=rounds if before else np.concatenate([[0], rounds]),
        records=records, risks=risks, round=reached, total=total, **told,
    )  # fmt: skip


def _count(chunk: Chunk) -> int:
    return chunk["sound"].shape[-1]


def write_history(
    fixed: RunInputs, start: Theta, watch: RecordConfig, rounds: int, chunks: list[Chunk], state: PyTree,
    meta: dict[str, Any], first: dict[str, np.ndarray], setting: int | None = None, models: Theta = None,
) -> History:  # fmt: skip
    """Prepend the start, accumulate totals, name everything. `setting` selects one setting of a sweep.

    `first` contains the levels that exist before the first round, `models` the final models that each client's people
    see.
    """

    def pick(array: Any) -> np.ndarray:
        return np.asarray(array if setting is None else array[setting])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([pick(chunk[name]) for chunk in chunks], axis=1)[:, :count]

    count = sum(pick(chunk["sound"]).shape[1] for chunk in chunks)
    sound = joined("sound")
    # A run ends at the first record at which every repeat has diverged, wherever the chunk that computed it ends.
    alive = np.asarray(sound.any(axis=0))
    count = len(alive) if alive.all() else int(np.argmin(alive)) + 1
    sound, repeats = sound[:, :count], len(sound)
    at = np.minimum(np.arange(count + 1) * watch.every, rounds)
    records: dict[str, np.ndarray] = {}
    each: dict[str, dict[str, np.ndarray]] = {"clients": {}, "cohorts": {}}
    for name in chunks[0]:
        kind, _, label = name.partition("/")
        if kind == "levels":
            values = joined(name)
            opening = pick(first[label])[:, None] if label in first else np.full((repeats, 1), np.nan)
            records[label] = np.concatenate([opening.astype(values.dtype), values], axis=1)
        elif kind == "totals":
            total = np.cumsum(joined(name), axis=1)
            records[label] = np.concatenate([np.zeros((repeats, 1)), total], axis=1)
        elif kind in each:
            values = joined(name)
            empty = np.nan if kind == "clients" else -1 if label == "client" else 0
            each[kind][label] = np.concatenate([np.full_like(values[:, :1], empty), values], axis=1)
    # One aggregation and one broadcast per round (Jin et al. 2024, Section 2.4).
    records["communications"] = np.tile(2 * at, (repeats, 1))

    leaves, start = [], fixed.setup.algorithm.sharing.start(start)
    for number, (begin, last) in enumerate(zip(jax.tree.leaves(start), jax.tree.leaves(state.theta), strict=True)):
        if watch.theta:
            opening = np.broadcast_to(np.asarray(begin), (repeats, 1, *begin.shape))
            leaves.append(np.concatenate([opening, joined(f"theta/{number}")], axis=1))
        else:
            leaves.append(pick(last)[:, None])
    audited = [chunk for chunk in chunks if "risk_round" in chunk and chunk["risk_round"] <= at[-1]]
    names = [name for chunk in audited[:1] for name in chunk if name.startswith("risks/")]
    risks = {n.removeprefix("risks/"): np.stack([pick(c[n]) for c in audited], axis=1) for n in names}
    counted = state.participation
    executor = watch.executor.name or type(watch.executor).__name__
    # How plots and reports label custom metrics.
    told = {
        name: {"kind": metric.kind, "label": metric.label, "unit": metric.unit}
        for name, metric in fixed.setup.metrics.items()
        if not is_own(name)
    }
    return History(
        theta=jax.tree.unflatten(jax.tree.structure(start), leaves),
        rounds=at,
        records=records,
        risk_rounds=np.asarray([int(chunk["risk_round"]) for chunk in audited], int),
        risks=risks,
        weights=_setting_of(fixed, lambda setup: setup.weights, setting),
        participation=None if counted is None else jax.tree.map(pick, counted).value() / at[-1],
        stopped_at=np.where(sound.all(axis=1), -1, at[1:][np.argmax(~sound, axis=1)]),
        meta={"executor": executor, **versions(), **meta} | ({"metrics": told} if told else {}),
        clients=each["clients"],
        cohorts=each["cohorts"],
        models=None if models is None else jax.tree.map(pick, models),
        trained=None if state.server.sharing is None else jax.tree.map(pick, state.server.sharing.trained),
    )


def _setting_of(fixed: RunInputs, where: Any, setting: int | None) -> np.ndarray:
    """A leaf of the setup, as in one setting of a sweep."""
    leaf = np.asarray(where(fixed.setup))
    varied = fixed.axes is not None and where(fixed.axes) == 0
    return leaf[setting] if varied else leaf


def versions() -> dict[str, str]:
    """Versions of the software that made the run."""
    return {
        "performative": __version__,
        "numerics": str(NUMERICS),
        "jax": jax.__version__,
        "equinox": equinox.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
