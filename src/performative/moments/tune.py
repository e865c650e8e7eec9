"""`pf.tune`: the best numbers of a recipe, by gradients through its exact moments."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative.algorithm import Algorithm
from performative.moments.building import build
from performative.moments.costs import Cost, check_stays, graded, read_cost
from performative.moments.descend import descend
from performative.moments.errors import chances_with
from performative.moments.exact import known_points
from performative.moments.facts import Chances
from performative.moments.free import Coordinates, coordinates_of, read_free
from performative.moments.tuned import Tuned
from performative.problem import Problem
from performative.schedules import Table
from performative.sweep.names import name_of, set_by_name
from performative.types import Theta, Unchecked

# Tolerance on the gradient of the log cost in coordinates.
_LEVEL = 1e-9
# Search from other starts if there are few numbers.
_FEW = 50
_AGREES = 1e-6


@checked
def tune(
    problem: Problem,
    algorithm: Algorithm,
    free: Unchecked[Sequence[str] | Mapping[str, Any]],
    *,
    cost: str = "stationary",
    rounds: int | None = None,
    accuracy: float | None = None,
    theta: Theta = None,
    to: str = "stable",
    schedule: str | None = None,
    price: Unchecked[Callable[[Algorithm], float] | None] = None,
    starts: int = 3,
    iterations: int = 300,
) -> Tuned:
    """Find the best numbers of an algorithm: an exact cost (see `pf.moments`), minimized with its gradient.

        min over free of   E|theta_infinity - theta_PS|^2,   E|theta_R - theta_PS|^2,   or   min {R : E|.|^2 <= a^2}

    The search uses coordinates that keep numbers in range: logarithms of positive ones, logits between bounds, softmax
    for probabilities. The minimum found is local; several starts are tried.

    Args:
        free: names as in `pf.sweep`: ["rate", "aggregator.tx.decay"]; or {name: bounds (low, high), None for those of
            the part, or a list of values to try, such as {"rate": None, "local_steps": [1, 2, 5]}}
        cost: "stationary", in the long run at a constant rate; "final", after `rounds`; "time", rounds until the root
            mean square distance stays below `accuracy`, at most `rounds`
        to: the "stable" or the "optimal" point
        schedule: "steps" lets the rate be any sequence, one number per round
        price: the cost of a round of an algorithm, for cost="time"; None for 1
        starts: number of starts, the given numbers first
    """
    check_counts(starts=starts, iterations=iterations)
    wanted = read_cost(cost, rounds, accuracy, theta, to, price)
    if schedule not in (None, "steps"):
        raise ValueError(f'schedule must be None or "steps"; got {schedule!r}.')
    if schedule and (wanted.kind == "stationary" or "rate" not in free):
        raise ValueError('schedule="steps" needs "rate" in free, and a number of rounds.')
    found, tried = read_free(free, _with_table(algorithm, wanted) if schedule else algorithm)
    recipes = []
    for setting in itertools.product(*([(name, value) for value in values] for name, values in tried.items())):
        recipe = algorithm
        for name, value in setting:
            recipe = _set(problem, recipe, name, value)
        recipe = _with_table(recipe, wanted) if schedule else recipe
        recipes.append((dict(setting), recipe, [coordinates_of(problem, recipe, *one) for one in found.items()]))
    before = wanted.exact(problem, algorithm)
    best, costs = Tuned(algorithm, {}, before, before, (), 0.0, wanted.words()), []
    for values, recipe, numbers in recipes:
        one = _search(problem, recipe, numbers, wanted, starts, iterations)
        costs.append((name_of(values), one.after))
        if one.after < best.after or (one.after == best.after and not best.values):
            best = dataclasses.replace(one, values=values | one.values, before=before)
    return dataclasses.replace(best, tried=tuple(costs) if tried else ())


def _set(problem: Problem, algorithm: Algorithm, name: str, value: Any) -> Algorithm:
    changed, recipe = set_by_name(problem, algorithm, name, value)
    if changed is not problem:
        raise ValueError(f"free: {name!r} belongs to the problem; tune only changes the algorithm.")
    return recipe


def _with_table(algorithm: Algorithm, cost: Cost) -> Algorithm:
    """The algorithm with a table of one step per round, initialized to the current steps."""
    steps = algorithm.steps
    values = [float(algorithm.eta(jnp.asarray(round * steps))) for round in range(cost.rounds)]
    return dataclasses.replace(algorithm, rate=Table(np.asarray(values), steps))


def _search(
    problem: Problem, recipe: Algorithm, free: list[Coordinates], cost: Cost, starts: int, iterations: int
) -> Tuned:
    """Search from several starts and return the best result."""
    if not free:
        value = cost.exact(problem, recipe)
        return Tuned(recipe, {}, value, value, (), 0.0, cost.words())
    if cost.kind == "stationary":
        check_stays(recipe)
    with jax.enable_x64(True):
        function = _function(problem, _put(problem, recipe, free, [one.start for one in free]), free, cost)
        first = np.concatenate([one.inside(one.start).ravel() for one in free])
        rng, others = np.random.default_rng(0), starts - 1 if len(first) <= _FEW else 0
        begin = [first, *(first + rng.standard_normal(len(first)) for _ in range(others))]
        ends = [descend(function, x, iterations, _LEVEL) for x in begin]
        x, value, gradient, path = min(ends, key=lambda end: end[1])
        if not np.isfinite(value):
            raise ValueError(
                f"tune: none of {len(begin)} starts settles; start with a smaller rate (see pf.stability)."
            )
        numbers = _numbers(free, x)
    best = _put(problem, recipe, free, numbers)
    after = cost.exact(problem, best)
    told = np.exp(path) if cost.kind != "time" else np.expm1(path) * cost.price_of(best)
    # The interpolated crossing lies within the round before the exact one.
    exact = after if cost.kind != "time" else told[-1]
    if abs(told[-1] - exact) > _AGREES * abs(exact):
        names = ", ".join(one.name for one in free)
        raise ValueError(
            f"tune: not all effects of {names} can be differentiated: the cost is {after:.8g}, but {told[-1]:.8g} in "
            "the search. Pass values to try instead."
        )
    values = {
        one.name: number.item() if number.ndim == 0 else number for one, number in zip(free, numbers, strict=True)
    }
    return Tuned(
        best, values, after, after, tuple(float(one) for one in told), float(np.abs(gradient).max()), cost.words()
    )


def _put(problem: Problem, recipe: Algorithm, free: list[Coordinates], numbers: list[np.ndarray]) -> Algorithm:
    for one, number in zip(free, numbers, strict=True):
        _, recipe = set_by_name(problem, recipe, one.name, number)
    return recipe


def _numbers(free: list[Coordinates], x: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(one.outside(jnp.asarray(part))) for one, part in zip(free, _parts(free, x), strict=True)]


def _parts(free: list[Coordinates], x: np.ndarray) -> list[np.ndarray]:
    ends = np.cumsum([one.start.size for one in free])[:-1]
    return [part.reshape(one.start.shape) for one, part in zip(free, np.split(x, ends), strict=True)]


def _function(
    problem: Problem, recipe: Algorithm, free: list[Coordinates], cost: Cost
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """The logarithm of the cost and its gradient by coordinates."""
    machine, start, _ = build(problem, recipe, cost.theta, cost.rounds)
    target = ravel_pytree(known_points(problem, recipe, start)[cost.to])[0].astype(jnp.float64)
    directions, accuracy = jnp.asarray(cost.directions(machine)), jnp.asarray(cost.accuracy)

    def numbers(parts: list[Array]) -> tuple[dict[str, Array], Chances | None]:
        """Numbers for the machine: it knows only the probabilities of the participation."""
        values = {one.name: one.outside(part) for one, part in zip(free, parts, strict=True)}
        who = {name: value for name, value in values.items() if name.startswith("participation.")}
        chances = chances_with(machine, who) if who else None
        return {name: value for name, value in values.items() if name not in who}, chances

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        given, pull = jax.vjp(numbers, [jnp.asarray(part) for part in _parts(free, x)])
        (value, maps), slopes = graded(machine, given, cost.kind, cost.rounds, accuracy, target, directions)
        gradient = np.concatenate([np.ravel(part) for part in pull(slopes)[0]])
        settles = all(np.abs(np.linalg.eigvals(np.asarray(one))).max(initial=0.0) < 1.0 for one in maps)
        if not (settles and np.isfinite(value) and np.all(np.isfinite(gradient))):
            return np.inf, gradient
        return float(value), gradient

    return function
