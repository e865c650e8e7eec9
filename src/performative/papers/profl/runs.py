"""What the measured figures share: how runs are made, and what is read off a trajectory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import lay_out

if TYPE_CHECKING:
    import xarray

FAR = 1e6
QUIET: dict[str, Any] = {"callbacks": [pf.callbacks.Progress(False)]}


def sweep(
    problem: pf.Problem, settings: Mapping[str, Mapping[str, Any]], rounds: int, theta: Any, seed: int, repeats: int,
    **record: Any,
) -> dict[str, History]:  # fmt: skip
    """One history for each named setting; every setting brings its own algorithm. The rest is for `pf.Record`."""
    first = next(iter(settings.values()))["algorithm"]
    swept = pf.sweep(
        problem,
        first,
        list(settings.values()),
        rounds,
        theta,
        seed,
        repeats,
        record=pf.Record(consensus=False, risks=False, **record),
        **QUIET,
    )
    return dict(zip(settings, swept.histories, strict=True))


def models(history: History) -> np.ndarray:
    """Every model that was recorded, [repeats, records] for one parameter, [repeats, records, d] for more."""
    return np.asarray(history.theta, np.float64)


def away(history: History, point: Any) -> np.ndarray:
    """|theta - point|, [repeats, records]."""
    gap = models(history) - np.asarray(point, np.float64)
    return np.abs(gap) if gap.ndim == 2 else np.linalg.norm(gap, axis=-1)


def late(values: np.ndarray, share: float = 0.2) -> np.ndarray:
    """The last fifth of each trajectory, [repeats, records]."""
    return values[:, -max(1, round(values.shape[1] * share)) :]


def settled(history: History, point: Any) -> np.ndarray:
    """Mean distance from a point over the last fifth, one a repeat; FAR at most, and where a repeat diverged."""
    found = late(away(history, point)).mean(axis=1)
    return np.where(np.isfinite(found), np.minimum(found, FAR), FAR)


def wobble(history: History) -> np.ndarray:
    """Standard deviation of the change from record to record over the last fifth, one a repeat: no trend counts."""
    return np.diff(late(models(history)), axis=1).std(axis=1).reshape(history.repeats, -1).mean(axis=1)


def rounds_until(history: History, point: Any, share: float = 1 / np.e) -> np.ndarray:
    """First round with at most a share of the first distance from a point; the last one where there is none."""
    gap = away(history, point)
    near = gap <= share * gap[:, :1]
    rounds = np.asarray(history.rounds, np.float64)
    return np.where(near.any(axis=1), rounds[np.argmax(near, axis=1)], rounds[-1])


def traces(runs: Mapping[str, History], of: Any = models, points: int = 250) -> "xarray.DataArray":
    """What a function makes of each history, [repeats, records], over the rounds, thinned."""
    lines = {}
    for name, history in runs.items():
        kept = np.unique(np.linspace(0, len(history.rounds) - 1, points).round().astype(int))
        lines[name] = (np.asarray(history.rounds)[kept], np.asarray(of(history))[:, kept])
    return lay_out(lines)


def label(value: float) -> str:
    """A value as part of a number's name: 0.25 is 0_25."""
    return f"{value:g}".replace(".", "_").replace("-", "minus_")
