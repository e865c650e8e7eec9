"""The conditions of exploration: how noisy people are, how many each deployment observes, and what a detour costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from performative._base.arguments import Values, read_argument
from performative.types import Unchecked

Numbers = np.ndarray


@dataclass(frozen=True, eq=False)
class Conditions:
    """Conditions of N clients with q columns and a model of d parameters.

    Attributes:
        spread: [N, q] standard deviation of a column within a deployment; [q] for one client
        rows: [N] rows that a client collects under one deployment
        theta: [d] the model from which exploration starts
        over_dispersion: [N, q] variance of a deployment's mean, in units of the sampling variance of its rows (1: rows
            alone)
        curvature: [N, d] second derivatives of each client's deployed loss by each parameter; None if unknown
        weights: [N] p_i of the deployed loss; None for equal weights
        columns, parameters, clients: names; default x0, theta0, client0, ...
        losses: models [m, d] -> deployed losses [m, N], if they can be computed; else the curvature is used
    """

    spread: Any
    rows: Any
    theta: Any
    over_dispersion: Any = None
    curvature: Any = None
    weights: Any = None
    columns: Any = ()
    parameters: Any = ()
    clients: Any = ()
    losses: Unchecked[Callable[[Numbers], Numbers] | None] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        def numbers(name: str) -> Numbers:
            return np.asarray(read_argument("Conditions", name, getattr(self, name), Values), np.float64)

        spread, theta = np.atleast_2d(numbers("spread")), np.atleast_1d(numbers("theta"))
        if spread.ndim != 2 or theta.ndim != 1 or not spread.size or not theta.size:
            raise ValueError(
                f"Conditions: spread must be [N, q] and theta [d]; got shapes {spread.shape} and {theta.shape}."
            )
        (N, q), d = spread.shape, len(theta)
        rows = _shaped("rows", numbers("rows"), (N,))
        extra = np.ones((N, q)) if self.over_dispersion is None else numbers("over_dispersion")
        extra = _shaped("over_dispersion", extra, (N, q))
        bend = None if self.curvature is None else _shaped("curvature", numbers("curvature"), (N, d))
        p = np.full(N, 1 / N) if self.weights is None else numbers("weights")
        _check("spread", spread, spread > 0, "must be above 0: a column without noise needs no exploration")
        _check("rows", rows, rows >= 2, "must be 2 or more rows per deployment")
        _check("over_dispersion", extra, extra >= 1, "must be 1 or more; 1 is the noise of the rows alone")
        if p.shape != (N,) or np.any(p < 0) or not p.sum() > 0:
            raise ValueError(f"Conditions: weights must be {N} numbers >= 0, one per client; got {p}.")
        for name, value in (
            ("spread", spread), ("rows", rows), ("theta", theta), ("over_dispersion", extra), ("curvature", bend),
            ("weights", p / p.sum()),
        ):  # fmt: skip
            object.__setattr__(self, name, value)
        for name, size, stem in (("columns", q, "x"), ("parameters", d, "theta"), ("clients", N, "client")):
            names = read_argument("Conditions", name, getattr(self, name), Sequence[str])
            names = tuple(names) or tuple(f"{stem}{k}" for k in range(size))
            if len(names) != size or len(set(names)) != size:
                raise ValueError(f"Conditions: {name} must contain {size} distinct names; got {names}.")
            object.__setattr__(self, name, names)
        if self.losses is not None and not callable(self.losses):
            raise ValueError(f"Conditions: losses must be a function of models, or None; got {self.losses!r}.")

    def information(self, column: int) -> Numbers:
        """[N] 1 / variance of a client's mean of a column under one deployment."""
        return np.asarray(self.rows / (self.over_dispersion[:, column] * self.spread[:, column] ** 2))

    def extra_loss(self, models: Numbers, who: Numbers) -> float | None:
        """Sum over deployments [T, d] of the deployed loss in excess of theta's, at the clients `who`; None if unknown.

        sum_t sum_(i in who) p_i (PR_i(theta_t) - PR_i(theta))
        """
        if self.losses is not None:
            found, at = np.unique(models, axis=0, return_inverse=True)
            values = self.losses(np.vstack([self.theta, found]))
            above = (values[1:] - values[0])[at.reshape(-1)]
            return float((above * self.weights)[:, who].sum())
        if self.curvature is None:
            return None
        square = 0.5 * (models - self.theta) ** 2 @ self.curvature.T
        return float((square * self.weights)[:, who].sum())


def _shaped(name: str, value: Numbers, shape: tuple[int, ...]) -> Numbers:
    """Broadcast the array to its full shape, one row per client."""
    if value.ndim > len(shape) or any(a not in (1, b) for a, b in zip(value.shape[::-1], shape[::-1], strict=False)):
        raise ValueError(f"Conditions: {name} must have shape {shape}, clients first; got {value.shape}.")
    return np.broadcast_to(value, shape)


def _check(name: str, value: Numbers, good: Numbers, rule: str) -> None:
    if not np.all(good):
        raise ValueError(f"Conditions: {name} {rule}; got {value[~good].ravel()[0]}.")
