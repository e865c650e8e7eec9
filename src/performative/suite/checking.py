"""Check that an environment satisfies the contract of the suite."""

import dataclasses
from typing import Any

import numpy as np

from performative.suite.environment import Environment, Rows

# The largest residual allowed for a stable or optimal point, relative to 1 + its size.
_RESIDUAL = 1e-6


@dataclasses.dataclass(frozen=True)
class Checkup:
    """The result of `check_environment`.

    Attributes:
        id: of the environment
        failures: a description of each violation; empty if there is none
        figures: the measured numbers: residuals, risks, scores
    """

    id: str
    failures: tuple[str, ...]
    figures: dict[str, float]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def __str__(self) -> str:
        return f"{self.id}: satisfies the contract" if self.ok else f"{self.id}: " + "; ".join(self.failures)


def check_environment(env: Environment) -> Checkup:
    """Check that an environment satisfies the contract of the suite.

    Both points solve their equations, and the optimal one costs no more than the stable one; never retraining costs
    more; budgets are positive; the same seed yields the same rows, a different seed different ones; rows of clients
    that responded are finite; card and license are not empty. The environment is reset.
    """
    if not isinstance(env, Environment):
        raise ValueError(f"check_environment: env must be a pf.suite.Environment; got {type(env).__name__}.")
    figures = _figures(env)
    failures = [*_points(env, figures), *_rows(env), *_words(env)]
    return Checkup(env.id, tuple(failures), figures)


def _figures(env: Environment) -> dict[str, float]:
    return {
        "stable_residual": env.stable.residual,
        "optimal_residual": env.optimal.residual,
        "stable_risk": env.risk(env.stable.theta),
        "optimal_risk": env.risk(env.optimal.theta),
        "never_risk": env.risk(env.never),
        "contraction": env.stable.contraction,
    }


def _points(env: Environment, figures: dict[str, float]) -> list[str]:
    found = []
    for name, point in (("stable", env.stable), ("optimal", env.optimal)):
        limit = _RESIDUAL * (1.0 + float(np.max(np.abs(point.theta), initial=0.0)))
        if not point.residual <= limit:
            found.append(f"the {name} point has a residual of {point.residual:.3g}, above {limit:.3g}")
        if np.shape(point.theta) != env.shape:
            found.append(f"the {name} point has shape {np.shape(point.theta)}, a model {env.shape}")
    best, room = figures["optimal_risk"], 1e-9 * (1.0 + abs(figures["optimal_risk"]))
    if not best <= figures["stable_risk"] + room:
        found.append(f"the optimal point costs {best:.6g}, more than the stable one, {figures['stable_risk']:.6g}")
    if not figures["never_risk"] > best + room:
        found.append(f"never retraining costs {figures['never_risk']:.6g}, no more than the optimal point, {best:.6g}")
    return found


def _rows(env: Environment) -> list[str]:
    found = []
    spendable = env.budget.deployments, env.budget.samples, env.budget.time
    if min(spendable) < 1 or env.budget.lacks(type(env.budget)(1, env.rows * env.clients, 1)):
        return [f"the budget {env.budget} does not cover one deployment of {env.rows} rows per client"]
    first = [_episode(env, seed) for seed in (3, 3, 4)]
    if not _same(first[0], first[1]):
        found.append("the same seed yields different rows")
    if _same(first[0], first[2]):
        found.append("a different seed yields the same rows")
    for rows in first[0]:
        for name, values in rows.items():
            if len(values) != env.clients:
                found.append(f"{name} has shape {values.shape}, but there are {env.clients} clients")
            if not np.all(np.isfinite(_sent(values, rows))):
                found.append(f"{name} contains non-finite numbers")
    if env.spent.deployments != 1 or env.spent.samples != 4 * env.clients or env.spent.time != 1:
        found.append(f"one deployment of 4 rows per client was counted as {env.spent}")
    env.reset(0)
    return found


def _sent(values: np.ndarray, rows: Rows) -> np.ndarray:
    """The rows actually sent by the clients that responded."""
    if "present" in rows:
        return values[rows["present"]]
    if "rows" in rows and values.ndim > 1:
        return values[np.arange(values.shape[1]) < rows["rows"][:, None]]
    return values


def _episode(env: Environment, seed: int) -> list[Rows]:
    first = env.reset(seed)
    return [first, env.deploy(env.start, rows=4)]


def _same(one: list[Rows], other: list[Rows]) -> bool:
    pairs: list[tuple[Any, Any]] = [(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _words(env: Environment) -> list[str]:
    empty = [name for name in ("id", "family", "card", "license") if not getattr(env, name).strip()]
    return [f"{name} is empty" for name in empty]
