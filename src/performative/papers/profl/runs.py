"""What the measured figures share: how runs are made, and what is read off a trajectory."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.runs import late, models, sweep

FAR = 1e6


@dataclasses.dataclass(frozen=True)
class Runs:
    """Clients with so many samples and local steps, and an estimator that looks back on a window of models."""

    clients: int
    local_steps: int
    rounds: int
    repeats: int
    seed: int
    samples: int = 1
    window: int = 1
    rate: float = 0.0
    start: Any = None

    @property
    def common(self) -> dict[str, Any]:
        return {"local_steps": self.local_steps, "batch": pf.Fixed(self.samples)}

    @property
    def both(self) -> dict[str, pf.Algorithm]:
        """PFL heads for the stable point, PROFL for the optimal one."""
        return {
            "PFL": pf.p_fedavg(self.rate, **self.common),
            "PROFL": pf.profl(self.rate, self.window, **self.common),
        }

    def sweep(
        self, problem: pf.Problem, settings: Mapping[str, Any], start: Any = None, **record: Any
    ) -> dict[str, History]:
        """One history for each named algorithm, or setting that brings its own."""
        over = {name: one if isinstance(one, dict) else {"algorithm": one} for name, one in settings.items()}
        first, start = next(iter(over.values()))["algorithm"], self.start if start is None else start
        how = {"theta": "all", "dtype": None} | record
        return sweep(problem, first, over, self.rounds, start, self.seed, self.repeats, **how)


def away(history: History, point: Any) -> np.ndarray:
    """|theta - point|, [repeats, records]."""
    gap = models(history) - np.asarray(point, np.float64)
    return np.abs(gap) if gap.ndim == 2 else np.linalg.norm(gap, axis=-1)


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
    return first_below(np.asarray(history.rounds, np.float64), gap, share * gap[:, :1])


def first_below(rounds: np.ndarray, values: np.ndarray, level: Any) -> np.ndarray:
    """First round at or below a level, one a repeat; the last one where there is none."""
    below = values <= level
    return np.where(below.any(axis=1), rounds[np.argmax(below, axis=1)], rounds[-1]).astype(float)
