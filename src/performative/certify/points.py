"""The points of a problem: stable, optimal, static; and why one is missing."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from performative._base.messages import code_of, hearing
from performative.certify.certificate import AbstractPoints
from performative.certify.nearby import lower_minimum, reaction_jumps, risk_still_falls
from performative.problem import Problem
from performative.solve.landscape import Landscape, survey
from performative.solve.optimal import optimal_point
from performative.solve.retrain import repeated_risk_minimization
from performative.solve.roots import allowed
from performative.solve.solution import Solution
from performative.solve.stable import equilibria
from performative.types import Theta

# Other equilibria included in the region.
_NEAREST = 4
# Retrainings used to see where the start leads if there are several points, and the largest model tried.
_RETRAININGS, _SMALL = 30, 64
# Solver warnings that the certificate states itself.
_FALLS, _LOWER, _DISAGREES = "risk-falls-far-out", "lower-elsewhere", "closed-form-disagrees"
# A contraction factor this close to 1 is indistinguishable from it.
_EDGE = 1e-9


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Points(AbstractPoints):
    """Points as vectors, or None with a reason in `no_*`. For the rest see `Certificate`."""

    start: np.ndarray
    stable: np.ndarray | None = None
    optimal: np.ndarray | None = None
    static: np.ndarray | None = None
    deeper: np.ndarray | None = None
    reached: np.ndarray | None = None

    @property
    def center(self) -> np.ndarray:
        """The point around which everything is measured."""
        return self.start if self.stable is None else self.stable

    @property
    def named(self) -> list[np.ndarray]:
        """The other points, the nearest equilibria among them."""
        found = [x for x in (self.start, self.static, self.optimal) if x is not None]
        return found + [np.asarray(ravel_pytree(point.theta)[0]) for point in self.others[:_NEAREST]]


def find_points(
    problem: Problem, land: Landscape, start: np.ndarray, static: Any, spells: int | None, begin: Callable[[str], None]
) -> Points:
    """Find all points. If there are several stable points, `stable` is the attracting one nearest to the start.

    Call it inside `jax.enable_x64(True)`, like everything that uses the landscape.
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
        found["static"] = survey(problem, static, name="static")[1]
    begin("stable points")
    try:
        with hearing(_DISAGREES) as heard:
            listed = equilibria(problem, start=theta, spells=spells)
        found["stable_disagrees"] = bool(heard)
        best = ([point for point in listed if point.attracting is not False] or list(listed))[0]
        found |= _about_stable(land, best) | {"others": tuple(point for point in listed if point is not best)}
        if len(listed) > 1 and land.size <= _SMALL:
            found["reached"] = _reached(problem, land, theta, listed, spells)
    except ValueError as refusal:
        found["no_stable"] = _reason(refusal)
    begin("optimal point")
    near = theta if "stable" not in found else land.shaped(found["stable"])
    with hearing(_FALLS, _LOWER, _DISAGREES) as heard:
        try:
            best_found: Any = optimal_point(problem, start=near, report=True)
            found["optimal"], found["optimal_known"] = land.flat(best_found.theta), best_found.method == "closed form"
            if not found["optimal_known"] and risk_still_falls(land, found["optimal"]):
                del found["optimal"]
                found["no_optimal"] = (
                    "the optimal point is not known: gradient descent ends where the performative risk still "
                    "decreases, because samples jump as the model moves"
                )
        except ValueError as refusal:
            found["no_optimal"] = _reason(refusal)
    found |= {"falls_far_out": _FALLS in heard, "lower_elsewhere": _LOWER in heard}
    found["optimal_disagrees"] = _DISAGREES in heard
    found["optimal_known"] = found.get("optimal_known", False) and not found["optimal_disagrees"]
    return Points(**found)


def _reached(problem: Problem, land: Landscape, theta: Theta, listed: Any, spells: int | None) -> np.ndarray | None:
    """The point at which exact retraining from the start ends, None if it is not among those listed."""
    try:
        end = land.flat(_last(repeated_risk_minimization(problem, theta, _RETRAININGS, spells=spells)))
    except ValueError:  # nothing to retrain to
        return None
    points = [land.flat(point.theta) for point in listed]
    nearest = points[int(np.argmin([np.linalg.norm(x - end) for x in points]))]
    return nearest if np.linalg.norm(nearest - end) <= 1e-3 * (1.0 + np.linalg.norm(nearest)) else None


def _about_stable(land: Landscape, point: Solution) -> dict[str, Any]:
    x, view = land.flat(point.theta), land.equilibrium()
    # Inside the domain the gradient at a stable point is zero.
    on_edge = bool(land.domain is not None and np.max(np.abs(view.gradient(x))) > 1e2 * allowed(view, x))
    curvature = land.curvature(x, x)
    jumps = not on_edge and reaction_jumps(land, x, curvature)
    # Derivatives are meaningless for a reaction that jumps.
    told = not jumps and not abs(point.contraction - 1.0) <= _EDGE
    return {
        "stable": x,
        "contraction": point.contraction,
        "multiplier": _multiplier(land.size, curvature, point.contraction),
        "attracting": point.attracting if told else None,
        "settles": None if jumps else point.settles,
        "on_edge": on_edge,
        "jumps": jumps,
        "deeper": lower_minimum(land, x),
    }


def _multiplier(d: int, hessian: np.ndarray | None, factor: float) -> float:
    """The eigenvalue of d Phi of largest modulus if it is real and no domain interferes; otherwise its modulus."""
    if hessian is None or not np.all(np.isfinite(hessian)) or not np.isfinite(factor):
        return factor
    values = np.linalg.eigvals(-np.linalg.pinv(hessian[:d, :d], rcond=1e-9) @ hessian[:d, d:])
    largest = values[np.argmax(np.abs(values))]
    if abs(abs(largest) - factor) > 1e-6 * (1.0 + factor) or abs(largest.imag) > 1e-9 * (1.0 + factor):
        return factor
    return float(largest.real)


def _last(path: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[-1], path)


def _reason(refusal: ValueError) -> str:
    """The solver's message without its name and its advice to the caller."""
    text = str(refusal).removesuffix(f" [{code_of(refusal)}]")
    text = text.split(": ", 1)[-1].replace(", or other `starts`", "")
    return text.split("; there is nothing")[0].split(" Give another `start`")[0]
