"""The points of a problem: stable, optimal, static; and why one is missing."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from performative.messages import PerformativeWarning, code_of
from performative.problem import Problem
from performative.solve.landscape import Landscape, survey
from performative.solve.optimal import optimal_point
from performative.solve.retrain import repeated_risk_minimization
from performative.solve.roots import allowed
from performative.solve.solution import Solution
from performative.solve.stable import equilibria

# Other equilibria that the region takes in.
_NEAREST = 4
# Retrainings that show which of several points the start leads to, and the largest model for which they are tried.
_RETRAININGS, _SMALL = 30, 64


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """Points as vectors, None with a reason in `no_*` where there is none. For the rest see `Certificate`."""

    start: np.ndarray
    stable: np.ndarray | None = None
    optimal: np.ndarray | None = None
    static: np.ndarray | None = None
    contraction: float = float("nan")
    multiplier: float = float("nan")
    attracting: bool | None = None
    settles: bool | None = None
    on_edge: bool = False
    others: tuple[Solution, ...] = ()
    no_stable: str | None = None
    no_optimal: str | None = None
    no_static: str | None = None
    falls_far_out: bool = False

    @property
    def centre(self) -> np.ndarray:
        """The point that all is measured around."""
        return self.start if self.stable is None else self.stable

    @property
    def named(self) -> list[np.ndarray]:
        """The other points, the nearest equilibria among them."""
        found = [x for x in (self.start, self.static, self.optimal) if x is not None]
        return found + [np.asarray(ravel_pytree(point.theta)[0]) for point in self.others[:_NEAREST]]


def find_points(
    problem: Problem, land: Landscape, start: np.ndarray, static: Any, begin: Callable[[str], None]
) -> Points:
    """All points that can be found. Of several stable points the one that retraining from the start leads to.

    Call it inside `jax.enable_x64(True)`, as all that uses the landscape.
    """
    found: dict[str, Any] = {"start": start}
    theta = land.shaped(start)
    begin("static model")
    if static is None:
        try:
            path = repeated_risk_minimization(problem, theta, 1, spells=None)
            found["static"] = land.flat(_last(path))
        except ValueError as refusal:
            found["no_static"] = _reason(refusal).replace(
                "at deployment 1 the decoupled", "on the data of the start the"
            )
    else:
        found["static"] = survey(problem, static)[1]
    begin("stable points")
    try:
        listed = equilibria(problem, start=theta)
        best = _reached(problem, land, theta, listed)
        found |= _about_stable(land, best) | {"others": tuple(point for point in listed if point is not best)}
    except ValueError as refusal:
        found["no_stable"] = _reason(refusal)
    begin("optimal point")
    near = theta if "stable" not in found else land.shaped(found["stable"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PerformativeWarning)
        try:
            found["optimal"] = land.flat(optimal_point(problem, start=near))
        except ValueError as refusal:
            found["no_optimal"] = _reason(refusal)
    found["falls_far_out"] = any(code_of(w.message) == "risk-falls-far-out" for w in said)
    return Points(**found)


def _reached(problem: Problem, land: Landscape, theta: Any, listed: Any) -> Solution:
    """Where retraining from the start ends; where it ends at none of them the attracting one nearest to the start."""
    attracting = [point for point in listed if point.attracting is not False]
    if len(attracting) > 1 and land.size <= _SMALL:
        try:
            end = land.flat(_last(repeated_risk_minimization(problem, theta, _RETRAININGS, spells=None)))
            gaps = [float(np.linalg.norm(land.flat(point.theta) - end)) for point in attracting]
            return attracting[int(np.argmin(gaps))]
        except ValueError:  # nothing to retrain to
            pass
    return (attracting or list(listed))[0]


def _about_stable(land: Landscape, point: Solution) -> dict[str, Any]:
    x, view = land.flat(point.theta), land.equilibrium()
    return {
        "stable": x,
        "contraction": point.contraction,
        "multiplier": _multiplier(land, x, point.contraction),
        "attracting": point.attracting,
        "settles": point.settles,
        # Inside of the domain the gradient of a stable point is zero.
        "on_edge": bool(land.domain is not None and np.max(np.abs(view.gradient(x))) > 1e2 * allowed(view, x)),
    }


def _multiplier(land: Landscape, x: np.ndarray, factor: float) -> float:
    """The eigenvalue of d Phi with the largest modulus where it is real and no domain is in the way; else its size."""
    hessian = land.curvature(x, x) if np.isfinite(factor) else None
    if hessian is None or not np.all(np.isfinite(hessian)):
        return factor
    d = land.size
    values = np.linalg.eigvals(-np.linalg.pinv(hessian[:d, :d], rcond=1e-9) @ hessian[:d, d:])
    largest = values[np.argmax(np.abs(values))]
    if abs(abs(largest) - factor) > 1e-6 * (1.0 + factor) or abs(largest.imag) > 1e-9 * (1.0 + factor):
        return factor
    return float(largest.real)


def _last(path: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[-1], path)


def _reason(refusal: ValueError) -> str:
    """The solver's message without its name and without its advice to those who called it."""
    text = str(refusal).removesuffix(f" [{code_of(refusal)}]")
    text = text.split(": ", 1)[-1].replace(", or other `starts`", "")
    return text.split("; there is nothing")[0].split(" Give another `start`")[0]
