"""`certify`: everything that can be said about a problem before a deployment."""

import dataclasses
import math
import warnings
from typing import Any

import jax
import numpy as np

from performative._base.arguments import Count, checked
from performative._base.bars import progress_bar
from performative._base.messages import PerformativeWarning
from performative._engine.programs import cache_compilations
from performative._engine.risk import count_nodes
from performative.certify.certificate import Certificate
from performative.certify.curvature import measure_curvature
from performative.certify.drift import outlook, stop
from performative.certify.findings import findings_of
from performative.certify.known_sensitivity import known_sensitivity
from performative.certify.memory import memory_rate
from performative.certify.points import Points, find_points
from performative.certify.sensitivity import Sensitivity, estimate_sensitivity
from performative.certify.training import chance_of_mistake, sampling_error, shows
from performative.facts import cites, relying
from performative.problem import Problem
from performative.solve.landscape import Landscape, survey
from performative.solve.worlds import remembers
from performative.types import Theta

# Models at which everything is measured in addition to the points themselves; none if one pass over all clients costs
# more than this many numbers, or if there are more clients than that.
_SCATTERED = 4
_COSTLY = 1 << 26
_MANY = 1000
# What the progress bar counts.
_STEPS = ("static model", "stable points", "optimal point", "curvature", "sensitivity", "training error")


@cites("perdomo2020performative", "jin2024performative")
@checked
def certify(
    problem: Problem, *, theta: Theta = None, static: Any = None, error: float | None = None,
    spells: Count | None = 1, seed: int = 0, samples: int = 4096, progress: bool | None = None,
) -> Certificate:  # fmt: skip
    """Will retraining settle, where, and at what cost?

        eps_bar = sum_i p_i eps_i < mu / L      sufficient: one stable point, which attracts from every start
        rho(d Phi / d theta) < 1                necessary and sufficient for a stable point to attract from nearby

    Args:
        theta: the start: the model deployed before anything is learned, None for zeros. If there are several stable
            points, the attracting one nearest to the start is assessed, as in `stable_point`
        static: the model trained once, None for the minimizer of the risk on the data of `theta`
        error: standard deviation of training along the direction from the static to the stable model, in units of
            theta; None to derive it from the sizes of the clients' tables
        spells: how often the world moves under each model, None for as often as it takes to settle. If the data
            remember past models, model and worlds are assessed jointly: retraining may diverge from a point at which it
            would settle if it waited
        seed: for the draws from which sensitivities are estimated, if the population does not declare them
        samples: draws per client for that, fewer if there are many clients
        progress: show a progress bar; None shows one on a terminal

    See `Certificate`. Jin et al. 2024, Assumptions 2.1 to 2.3 and Proposition 2.8. Differs from the paper: an eps_bar
    above mu / L does not rule out that retraining settles. For most losses, mu and L are known only where they were
    measured; points are searched for from several starts, which does not prove that there are no others.

    If the data drift (`pf.populations.Drifting`), training settles only if the stable point comes to rest; otherwise
    the certificate says how far behind training stays, if that is known.
    """
    _check(error, samples)
    cache_compilations()
    bar = progress_bar("certify", len(_STEPS), progress, "steps")
    with jax.enable_x64(True), warnings.catch_warnings(), relying() as heard, bar as update:
        # The certificate states in words what the solvers warn about.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", PerformativeWarning)
        moving, (problem, drift) = problem, stop(problem)
        land, start = survey(problem, theta)

        def begin(step: str) -> None:
            update(_STEPS.index(step), lambda: step)

        points = find_points(problem, land, start, static, spells, begin)
        around, radius = _region(land, points, seed)
        begin("curvature")
        curvature = measure_curvature(land, around, problem.population.smooth, seed)
        begin("sensitivity")
        sensitivity = _sensitivity(problem, land, points, around, radius, samples, seed)
        begin("training error")
        source = None if error is None else "given"
        if error is None and points.stable is not None and points.static is not None:
            error = sampling_error(land, points.stable, points.static - points.stable)
            source = None if error is None else "sampling"
        update(len(_STEPS), str)
        found = _certificate(problem, land, points, curvature, sensitivity, error, source, spells)
        drift = outlook(moving, land, points.stable, drift)
        found = dataclasses.replace(found, on_word=tuple(heard), **drift)
        return dataclasses.replace(found, findings=findings_of(found))


def _certificate(
    problem: Problem, land: Landscape, points: Points, curvature: Any, eps: Sensitivity, error: float | None,
    source: str | None, spells: int | None,
) -> Certificate:  # fmt: skip
    p = np.asarray(problem.client_weights, np.float64)
    mean, low, high = (float(p @ v) for v in (eps.value, eps.lower, eps.upper))
    # A loss with constant gradient has L = 0, so no condition is needed.
    threshold = curvature.mu / curvature.L if curvature.L > 0 else (np.nan if math.isnan(curvature.L) else np.inf)
    sufficient = None
    if points.others:
        sufficient = False  # the condition allows one stable point only
    elif high < threshold or low >= threshold:  # neither if the threshold is NaN
        sufficient = bool(high < threshold)
    gap = _distance(points.static, points.stable)
    stateful = remembers(land.problem, land.like)
    rate = memory_rate(problem, land, _factor(high, curvature), spells) if stateful else math.nan
    chance = chance_of_mistake(gap, error)
    models = ("start", "stable", "optimal", "static", "reached", "deeper")
    shaped = {name: None if (x := getattr(points, name)) is None else land.shaped(x) for name in models}
    risk: dict[str, Any] = {f"{n}_risk": _risk(land, getattr(points, n)) for n in ("stable", "optimal", "static")}
    best = risk["optimal_risk"]
    return Certificate(
        clients=problem.clients,
        L=curvature.L, **vars(curvature),
        sensitivity=eps.value, lower=eps.lower, upper=eps.upper,
        sensitivity_source="analytic" if eps.exact else "estimated", draws=eps.draws, pairs=eps.pairs,
        eps_bar=mean, eps_bar_lower=low, eps_bar_upper=high, 
        eps_max=float(np.max(eps.value[np.asarray(problem.client_weights) > 0])),
        threshold=threshold, sufficient=sufficient,
        **vars(points) | shaped | risk,
        distance=_distance(points.stable, points.optimal),
        relative_cost=(risk["stable_risk"] - best) / abs(best) if abs(best) > 1e-12 else math.nan,
        static_gap=gap, error=error, error_source=source,
        chance=chance, detectable=shows(chance),
        stateful=stateful, spells=spells, memory_rate=rate,
    )  # fmt: skip


def _factor(eps_bar: float, curvature: Any) -> float:
    """eps_bar L_data / mu, infinite if the risk is not strongly convex."""
    return math.inf if curvature.mu <= 0 else eps_bar * curvature.L_data / curvature.mu


def _region(land: Landscape, points: Points, seed: int) -> tuple[list[np.ndarray], float]:
    """Models in the ball around the stable point that contains the other points, center first; and its radius."""
    center = points.center
    known = _different([center, *points.named])
    # Even if all points coincide, look at a neighborhood.
    least = 0.1 * (1.0 + float(np.linalg.norm(center)))
    radius = max([least, *(float(np.linalg.norm(x - center)) for x in known)])
    clients = land.problem.clients
    costly = clients > _MANY or clients * count_nodes(land.problem, land.like) * land.size**2 > _COSTLY
    rng = np.random.default_rng(seed)
    for _ in range(0 if costly else _SCATTERED):
        way = rng.standard_normal(len(center))
        reach = radius * rng.uniform() ** (1.0 / len(way))  # uniform in the ball
        known.append(land.project(center + reach * way / np.linalg.norm(way)))
    return known, radius


def _sensitivity(
    problem: Problem, land: Landscape, points: Points, around: list[np.ndarray], radius: float, samples: int, seed: int
) -> Sensitivity:
    known = known_sensitivity(problem.population)
    if known is not None:
        return Sensitivity(known, known, known)
    apart = _different([points.center, *points.named])[1:]
    return estimate_sensitivity(land, around, apart, radius, samples, seed)


def _different(points: list[np.ndarray]) -> list[np.ndarray]:
    """The points without duplicates."""
    out: list[np.ndarray] = []
    for x in points:
        if all(np.linalg.norm(x - other) > 1e-9 * (1.0 + np.linalg.norm(x)) for other in out):
            out.append(x)
    return out


def _risk(land: Landscape, x: np.ndarray | None) -> float:
    return math.nan if x is None else land.value(x, x)[0]


def _distance(x: np.ndarray | None, y: np.ndarray | None) -> float:
    return math.nan if x is None or y is None else float(np.linalg.norm(x - y))


def _check(error: Any, samples: Any) -> None:
    if error is not None and not (np.ndim(error) == 0 and np.isfinite(error) and error >= 0):
        raise ValueError(f"error must be a number >= 0, a standard deviation in units of theta; got {error!r}.")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 64:
        raise ValueError(f"samples must be a whole number of draws per client, at least 64; got {samples!r}.")
