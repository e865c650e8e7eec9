"""What the simulated figures share: how algorithms are run, and what is read off a trajectory."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import mean
from performative.papers.runs import late, models, sweep

# Model and f-hat of each step.
Past = list[tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Runs:
    """Settings of a run: samples and local steps per client, and the estimator's window of past models.

    reach: Theta is a ball of that radius unless the problem has its own domain (Algorithm 1, lines 9 and 14).
    """

    clients: int
    local_steps: int
    rounds: int
    repeats: int
    seed: int
    samples: int = 1
    window: int = 1
    rate: float = 0.0
    start: Any = None
    reach: float = 0.0

    @property
    def common(self) -> dict[str, Any]:
        return {"local_steps": self.local_steps, "batch": pf.Fixed(self.samples)}

    @property
    def both(self) -> dict[str, pf.Algorithm]:
        """PFL targets the stable point, PROFL the optimal one."""
        return {
            "PFL": pf.p_fedavg(self.rate, **self.common),
            "PROFL": pf.profl(self.rate, self.window, **self.common),
        }

    def within(self, problem: pf.Problem) -> pf.Problem:
        """The problem on a compact Theta."""
        if problem.domain is not None or not self.reach:
            return problem
        return dataclasses.replace(problem, domain=pf.Ball(self.reach))

    def sweep(
        self, problem: pf.Problem, settings: Mapping[str, Any], start: Any = None, **record: Any
    ) -> dict[str, History]:
        """One history for each named algorithm, or setting that contains one, all on a compact Theta."""
        over = {name: dict(one) if isinstance(one, dict) else {"algorithm": one} for name, one in settings.items()}
        for one in over.values():
            if "problem" in one:
                one["problem"] = self.within(one["problem"])
        first, start = next(iter(over.values()))["algorithm"], self.start if start is None else start
        how = {"theta": "all", "dtype": None} | record
        return sweep(self.within(problem), first, over, self.rounds, start, self.seed, self.repeats, **how)


def ratio(above: Any, below: Any) -> tuple[float, float]:
    """Mean over mean and its standard error, the repeats paired."""
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    value = float(above.mean() / below.mean())
    return value, mean((above - value * below) / below.mean())[1]


def spread(values: np.ndarray) -> tuple[float, float]:
    """Standard deviation over repeats and its standard error, assuming normality."""
    if len(values) < 2:
        return 0.0, np.inf
    found = float(np.std(values, ddof=1))
    return found, found / np.sqrt(2.0 * (len(values) - 1))


def away(history: History, point: Any) -> np.ndarray:
    """|theta - point|, [repeats, records]."""
    gap = models(history) - np.asarray(point, np.float64)
    return np.abs(gap) if gap.ndim == 2 else np.linalg.norm(gap, axis=-1)


def settled(history: History, point: Any) -> np.ndarray:
    """Mean distance from a point over the last fifth, one per repeat."""
    return late(away(history, point)).mean(axis=1)


def nearer(history: History, own: Any, other: Any) -> tuple[float, float]:
    """Distance from one point over that from another: below 1 if it settles at the first."""
    return ratio(settled(history, own), settled(history, other))


def wobble(history: History) -> np.ndarray:
    """Standard deviation of record-to-record changes over the last fifth, one per repeat: insensitive to trends."""
    return np.diff(late(models(history)), axis=1).std(axis=1).reshape(history.repeats, -1).mean(axis=1)


def rounds_until(history: History, point: Any, share: float = 1 / np.e) -> np.ndarray:
    """The round from which at most `share` of the initial distance from a point remains."""
    gap = away(history, point)
    return stays_below(np.asarray(history.rounds, np.float64), gap, share * gap[:, :1])


def stays_below(rounds: np.ndarray, values: np.ndarray, level: Any) -> np.ndarray:
    """The round from which values stay at or below a level, one per repeat; the last round if there is none.

    Not the first round below: noise takes a run there early.
    """
    last_above = np.max(np.where(values > level, np.arange(values.shape[1]), -1), axis=1)
    return rounds[np.minimum(last_above + 1, values.shape[1] - 1)].astype(float)


def slope_of(past: Past, window: int) -> Any:
    """df/dtheta of Eq. (6), d = 1: (theta, f-hat) of the last H steps against the present one, the last of `past`.

    0 for the first H + 1 steps (Algorithm 2, line 6) and if nothing has moved.
    """
    if len(past) <= window + 1:
        return 0.0
    models, seen = (np.stack(each[-window - 1 :]) for each in zip(*past, strict=True))
    apart, change = models[:-1] - models[-1], seen[:-1] - seen[-1]
    size = np.sum(apart**2, axis=0)
    return np.sum(apart * change, axis=0) / np.where(size > 0, size, np.inf)
