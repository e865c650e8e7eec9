"""Measure one method in one environment: tune it on separate seeds, then run it on the reported ones."""

import dataclasses
import itertools
import time
import warnings

import numpy as np

from performative._base.messages import PerformativeWarning
from performative._engine.clock import Clock
from performative._engine.run import run
from performative.algorithm import Algorithm
from performative.callbacks import Progress
from performative.deploy import Deployment, growing_times
from performative.privacy.certification import guarantee
from performative.record import Record
from performative.suite.environment import Environment
from performative.suite.methods import METHODS, Means, Method, means_of

PROTOCOL = 1
BASELINES = ("never", "stable", "oracle")
# Separate seeds for tuning and for reporting.
_TUNING, _REPORTED = 1, 0
# A round takes one unit of time.
_ROUND = Clock(0.0, 1.0)
# Number of intermediate evaluations of a run, by deployments.
_LOOKS = 8
# A model farther out than this multiple of the size of the start and the points is considered diverged.
_FAR = 1e3
# The score of a diverged run; lower scores are raised to it.
FLOOR = -1.0


@dataclasses.dataclass(frozen=True)
class Effort:
    """How many seeds are reported; each setting is tuned on the same number of others, so one program serves both.

    `quick` tunes only the rate, over every second value, and fixes the other parameters at their middle values.
    """

    seeds: int = 10
    quick: bool = False

    def grid(self, method: Method) -> dict[str, tuple[float, ...]]:
        """The tuning grid."""
        if not self.quick:
            return dict(method.grid)
        return {
            name: values[1::2] if name == "rate" else values[len(values) // 2 :][:1]
            for name, values in method.grid.items()
        }


@dataclasses.dataclass(frozen=True)
class Result:
    """Results of a method in an environment, by seed.

    Attributes:
        scores: fraction of the gap between never retraining and the oracle that is closed; -inf if a run diverged
        risks: f(theta; theta) of the last model; infinite if it diverged
        failures: number of seeds that diverged; why: the reason, if the method does not apply
        deployments, samples: how many a run used, at most; seconds: CPU time; quick: whether `Effort.quick` was used
        path: (deployments, mean score over seeds, each no less than -1) during the run
        facts: of the environment, stored with its stable point: `contraction` of retraining, `gap` (between never
            retraining and the oracle, relative to the oracle's risk), `deployments` of its budget, `clients`,
            `parameters`
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
    path: tuple[tuple[int, float], ...] = ()
    facts: dict[str, float] = dataclasses.field(default_factory=dict)
    quick: bool = False
    protocol: int = PROTOCOL


def measure(env: Environment, method: str, effort: Effort) -> Result:
    """Run a method in an environment under the leaderboard protocol."""
    began = time.process_time()
    if method in BASELINES:
        theta = _point(env, method)
        scores, risks = (env.score(theta),) * effort.seeds, (env.risk(theta),) * effort.seeds
        facts = _facts(env) if method == "stable" else {}
        return Result(env.id, method, scores, risks, facts=facts, quick=effort.quick)
    chosen = METHODS[method]
    if env.sees == "losses" and chosen.sees != "losses":
        why = f"it needs {chosen.sees}, but {env.id} reveals {env.sees}"
        return Result(env.id, method, (), (), why=why, quick=effort.quick)
    means = means_of(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformativeWarning)  # diverged runs are counted below
        try:
            tuned = _tune(env, chosen, means, effort)
            algorithm = chosen.make(means, **tuned)
            models = _models(env, algorithm, means, _REPORTED, effort.seeds)
        except ValueError as refusal:
            return Result(env.id, method, (), (), why=str(refusal).splitlines()[0], quick=effort.quick)
    ends = tuple(float(risk) for risk in _risks(env, models[:, -1]))
    deployed = deployments_of(algorithm.deploy, means.rounds)
    return Result(
        env.id, method, tuple(_score(env, risk) for risk in ends), ends, int(np.sum(~np.isfinite(ends))), tuned,
         int(deployed[-1]), means.rounds * env.rows * env.clients, time.process_time() - began,
        path=_path(env, models, deployed), quick=effort.quick,
    )  # fmt: skip


def _point(env: Environment, baseline: str) -> np.ndarray:
    if baseline == "never":
        return env.never
    return np.asarray(env.stable.theta if baseline == "stable" else env.optimal.theta)


def _facts(env: Environment) -> dict[str, float]:
    best = float(env.optimal.risk)
    found = {
        "contraction": float(env.stable.contraction),
        "gap": (env.risk(env.never) - best) / max(abs(best), 1e-300),
        "deployments": means_of(env).rounds,
        "clients": env.clients,
        "parameters": int(np.size(env.start)),
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def deployments_of(deploy: Deployment, rounds: int) -> np.ndarray:
    """Number of models deployed by the end of round 0 (none), 1, ...."""
    each = np.arange(rounds + 1)
    if deploy.explore is not None:
        return each if deploy.explore.rounds is None else np.minimum(each, deploy.explore.rounds)
    if deploy.grows is not None:
        return np.searchsorted(growing_times(*deploy.grows), each)
    return -(-each // deploy.period) if deploy.period else np.minimum(each, 1)


def _path(env: Environment, models: np.ndarray, deployed: np.ndarray) -> tuple[tuple[int, float], ...]:
    """The mean score of the last model after selected numbers of deployments."""
    looks = np.unique(np.geomspace(1, deployed[-1], _LOOKS).astype(int))
    rounds = np.searchsorted(deployed, looks, side="right") - 1
    seen = models[:, rounds]
    risks = _risks(env, seen.reshape(-1, *seen.shape[2:])).reshape(seen.shape[:2])
    scores = np.maximum(np.where(np.isfinite(risks), env.score_of(risks), -np.inf), FLOOR).mean(axis=0)
    return tuple((int(look), float(mine)) for look, mine in zip(looks, scores, strict=True))


def _check_promise(env: Environment, algorithm: Algorithm, means: Means) -> None:
    """Raise unless the algorithm provably satisfies the (epsilon, delta) of the environment."""
    if means.promise is None:
        return
    epsilon, delta = means.promise
    promised = guarantee(env.problem, algorithm)
    spent = promised.spent(means.rounds, delta).epsilon
    if not spent <= epsilon:
        told = f"this method spends {spent:.3g}" if promised.promised else "this method has no guarantee"
        raise ValueError(f"{env.id} requires epsilon = {epsilon:g} for each person, but {told}")


def _tune(env: Environment, method: Method, means: Means, effort: Effort) -> dict[str, float]:
    """The setting with the lowest mean risk over the tuning seeds; settings that diverge on any seed are excluded."""
    grid, best = effort.grid(method), np.inf
    found = {name: values[0] for name, values in grid.items()}
    for values in itertools.product(*grid.values()):
        setting = dict(zip(grid, values, strict=True))
        algorithm = method.make(means, **setting)
        _check_promise(env, algorithm, means)
        models = _models(env, algorithm, means, _TUNING, effort.seeds)
        risk = float(np.mean(_risks(env, models[:, -1])))
        if risk < best:
            best, found = risk, setting
    return found


def _models(env: Environment, algorithm: Algorithm, means: Means, seed: int, repeats: int) -> np.ndarray:
    """The model after each round of each repeat, [repeats, rounds + 1, ...]; non-finite after divergence.

    Every round is recorded, so the program compiles a single kind of round rather than one with and one without
    recording.
    """
    history = run(
        env.shown, algorithm, means.rounds, None if env.game else env.start, seed, repeats,
        record=Record(theta="all", risks=False, consensus=False), callbacks=[Progress(False)], clock=_ROUND,
        dtype="float64",
    )  # fmt: skip
    models = np.asarray(history.theta, np.float64)
    # A run stops early once all repeats have diverged.
    short = means.rounds + 1 - models.shape[1]
    return np.pad(models, [(0, 0), (0, short), *[(0, 0)] * (models.ndim - 2)], constant_values=np.nan)


def _score(env: Environment, risk: float) -> float:
    """The fraction of the gap that is closed; -inf if the run diverged."""
    return env.score_of(risk) if np.isfinite(risk) else -np.inf


def _risks(env: Environment, models: np.ndarray) -> np.ndarray:
    """Risks of models [n, ...]; infinite if diverged: non-finite, or a thousand times as far out as the points."""
    points = (env.start, np.asarray(env.stable.theta), np.asarray(env.optimal.theta))
    far = 1.0 + max(float(np.linalg.norm(point)) for point in points)
    # NaN compares as False.
    near = np.linalg.norm(models.reshape(len(models), -1), axis=1) <= _FAR * far
    inside = np.stack([env.project(theta if ok else env.start) for theta, ok in zip(models, near, strict=True)])
    risks = env.risks(inside)
    return np.where(near & np.isfinite(risks), risks, np.inf)
