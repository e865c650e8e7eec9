"""One method in one environment: tuned on seeds of its own, then run on those that are reported."""

import dataclasses
import itertools
import time
import warnings
from typing import Any

import numpy as np

from performative._base.messages import PerformativeWarning
from performative._engine.clock import Clock
from performative._engine.run import run
from performative.algorithm import Algorithm
from performative.callbacks import Progress
from performative.record import Record
from performative.suite.environment import Environment
from performative.suite.methods import METHODS, Means, Method, means_of

PROTOCOL = 1
BASELINES = ("never", "oracle")
# Repeats of these seeds are never used for both.
_TUNING, _REPORTED = 1, 0
# A round is one deployment, and takes one unit of time.
_ROUND = Clock(0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Effort:
    """How many seeds are reported; each setting is tuned on as many others, so that one program serves both.

    `quick` tunes the rate alone, over every second value.
    """

    seeds: int = 10
    quick: bool = False

    def grid(self, method: Method) -> dict[str, tuple[float, ...]]:
        """What is tuned over."""
        if not self.quick:
            return dict(method.grid)
        return {name: values[1::2] if name == "rate" else values[:1] for name, values in method.grid.items()}


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of it, seed by seed.

    Attributes:
        scores: share of the gap between never retraining and the oracle that is closed; -inf where a run diverged
        risks: f(theta; theta) of the last model; infinite where it diverged
        failures: of the seeds, how many diverged; why: where the method does not apply
    """

    env: str
    method: str
    scores: tuple[float, ...]
    risks: tuple[float, ...]
    failures: int = 0
    tuned: dict[str, float] = dataclasses.field(default_factory=dict)
    deployments: int = 0
    samples: int = 0
    seconds: float = 0.0
    why: str | None = None
    protocol: int = PROTOCOL


def measure(env: Environment, method: str, effort: Effort) -> Result:
    """Run a method in an environment, by the protocol of the leaderboard."""
    began = time.perf_counter()
    if method in BASELINES:
        theta = env.never if method == "never" else np.asarray(env.optimal.theta)
        return Result(env.id, method, (env.score(theta),) * effort.seeds, (env.risk(theta),) * effort.seeds)
    chosen = METHODS[method]
    if env.sees == "means" or (env.sees == "losses" and chosen.sees != "losses"):
        return Result(env.id, method, (), (), why=f"it needs {chosen.sees}, and {env.id} shows {env.sees}")
    means = means_of(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformativeWarning)  # a run that diverges is counted
        try:
            tuned = _tune(env, chosen, means, effort)
            finals = _finals(env, chosen.make(means, **tuned), means, _REPORTED, effort.seeds)
        except ValueError as refusal:
            return Result(env.id, method, (), (), why=str(refusal).splitlines()[0])
    risks = [_risk(env, theta) for theta in finals]
    worst, best = env.risk(env.never), float(env.optimal.risk)
    scores = [(worst - risk) / (worst - best) if np.isfinite(risk) else -np.inf for risk in risks]
    return Result(
        env.id, method, tuple(map(float, scores)), tuple(map(float, risks)), int(np.sum(~np.isfinite(risks))), tuned,
        means.rounds, means.rounds * means.rows * env.clients, time.perf_counter() - began,
    )  # fmt: skip


def _tune(env: Environment, method: Method, means: Means, effort: Effort) -> dict[str, float]:
    """The setting of the least mean risk over the tuning seeds; one that diverges on any of them is no candidate."""
    grid, best = effort.grid(method), np.inf
    found = {name: values[0] for name, values in grid.items()}
    for values in itertools.product(*grid.values()):
        setting = dict(zip(grid, values, strict=True))
        finals = _finals(env, method.make(means, **setting), means, _TUNING, effort.seeds)
        risk = float(np.mean([_risk(env, theta) for theta in finals]))
        if risk < best:
            best, found = risk, setting
    return found


def _finals(env: Environment, algorithm: Algorithm, means: Means, seed: int, repeats: int) -> np.ndarray:
    """The last model of each repeat, NaN where it diverged."""
    history = run(
        env.problem if env.game is None else env.game, algorithm, means.rounds, env.start, seed, repeats,
        record=Record(theta="last", risks=False, consensus=False, every=means.rounds), callbacks=[Progress(False)],
        clock=_ROUND, dtype="float64",
    )  # fmt: skip
    return np.asarray(history.final, np.float64)


def _risk(env: Environment, theta: Any) -> float:
    """Infinite where the run diverged."""
    if not np.all(np.isfinite(theta)):
        return float("inf")
    risk = env.risk(env.project(theta))
    return risk if np.isfinite(risk) else float("inf")
