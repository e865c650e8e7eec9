"""`scoreboard`: solve, run, measure."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._engine.prepare import read_theta
from performative._engine.run import run
from performative.algorithm import Algorithm
from performative.history import History
from performative.problem import Problem
from performative.record import Record
from performative.scoreboard.bench import Bench, Gain, performative_risk
from performative.scoreboard.result import COLUMNS, Line, Scoreboard, Way
from performative.solve import Solution, equilibria, optimal_point, repeated_risk_minimization
from performative.types import Theta

_ROWS = {"static": "static baseline", "stable": "stable point", "optimal": "optimal point"}
_MAJORITY = "majority class"
# Confidence level of intervals.
_LEVEL = 0.95


@checked
def scoreboard(
    problem: Problem,
    algorithms: Mapping[str, Algorithm],
    rounds: int | Mapping[str, int],
    *,
    theta: Theta = None,
    seed: int = 0,
    repeats: int = 10,
    held_out: Problem | None = None,
    before: PyTree = None,
    stable: Theta = None,
    optimal: Theta = None,
    **options: Any,
) -> Scoreboard:
    """Compare algorithms for a linear binary classifier with the majority class, static, stable and optimal point.

        static baseline  argmin f(. ; before): the risk minimizer on the data before any reaction; then people react
        accuracy         of 1{theta.x > 0} after people reacted to theta; believed: on the data under `before`
        TPR, TNR         share of those with y = 1 (y = 0) who are classified correctly, after they reacted

    Args:
        rounds: for all algorithms, or {name: rounds}
        theta: the initial model: None for zeros, a model, or "static" for the static baseline
        repeats: of each algorithm, with `seed`; they determine whether static and stable can be distinguished
            (`detectable`)
        held_out: the same problem with held-out people: accuracies and rates are theirs, risk and distances are those
            of `problem`
        before: the model deployed at first; None for zeros, under which strategic people do not move
        stable, optimal: theta_PS and theta_PO if known; otherwise they are computed from the static baseline
        options: for `pf.run`, such as dtype="float64"

    Samples must be (x, y) with y in {0, 1} and x shaped like the model. An intercept is a column of ones.
    """
    rounds = _check_arguments(algorithms, rounds, repeats, theta)
    given = None if isinstance(theta, str) else theta
    zeros = before is None
    before = _read(problem, given if zeros else before)
    before = np.zeros_like(before) if zeros else before
    trained = Bench(problem, before)
    bench = trained if held_out is None else Bench(held_out, before)
    points, notes = _find_points(problem, before, stable, optimal)
    histories = {}
    for name, algorithm in algorithms.items():
        start = points["static"] if isinstance(theta, str) else theta
        settings = {"theta": "last", "every": rounds[name], "risks": False, "consensus": False}
        record = dataclasses.replace(options.get("record", Record()), stable=points.get("stable"), **settings)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            histories[name] = run(
                problem, algorithm, rounds[name], start, seed, repeats, **options | {"record": record}
            )
        notes += [f"{name}: {words}" for words in dict.fromkeys(str(warning.message) for warning in said)]
        if gone := int(np.sum(histories[name].stopped_at >= 0)):
            notes.append(f"{name}: {gone} of {repeats} repeats diverged and are excluded.")

    def score(model: np.ndarray) -> dict[str, float]:
        away = {f"distance_to_{n}": _distance(model, points[n]) for n in ("stable", "optimal") if n in points}
        return bench.score(model) | {"performative_risk": performative_risk(problem, model)} | away

    lines = [
        _line(_MAJORITY, [bench.constant(trained.share_of_ones > 0.5)]),
        *(_line(row, [score(points[name])] if name in points else []) for name, row in _ROWS.items()),
        *(_line(name, [score(end) for end in _ends(history)]) for name, history in histories.items()),
    ]
    here = "stable" in points
    gain = bench.paired(points["stable"], points["static"]) if here else Gain(np.nan, np.nan, np.nan)
    return Scoreboard(
        lines=tuple(lines),
        points=points,
        ways={name: way(_ends(history), points, len(histories)) for name, history in histories.items()},
        gap=_distance(points["static"], points["stable"]) if here else np.nan,
        accuracy_gain=gain.value,
        accuracy_error=gain.error,
        accuracy_chance=gain.chance,
        people=bench.people,
        held_out=held_out is not None,
        repeats=int(repeats),
        rounds=rounds,
        histories=histories,
        notes=tuple(notes),
    )


def _check_arguments(algorithms: Any, rounds: Any, repeats: Any, theta: Theta) -> dict[str, int]:
    """Return the rounds of each algorithm; raise on invalid arguments."""
    named = isinstance(algorithms, Mapping) and all(isinstance(a, Algorithm) for a in algorithms.values())
    if not named:
        raise ValueError(f"algorithms must be named, such as {{'ours': pf.p_fedavg(0.1)}}; got {algorithms!r}.")
    if clash := [name for name in (_MAJORITY, *_ROWS.values()) if name in algorithms]:
        raise ValueError(f"algorithms: {clash} are already rows of the table; choose other names.")
    if isinstance(theta, str) and theta != "static":
        raise ValueError(f'theta must be a model, None for zeros, or "static" for the static baseline; got {theta!r}.')
    check_counts(repeats=repeats)
    each = dict(rounds) if isinstance(rounds, Mapping) else dict.fromkeys(algorithms, rounds)
    if set(each) != set(algorithms):
        raise ValueError(
            f"rounds must be one number, or one for each of the algorithms {list(algorithms)}; got rounds for "
            f"{list(each)}."
        )
    check_counts(**{f"rounds of {name}": value for name, value in each.items()})
    return {name: int(each[name]) for name in algorithms}


def _read(problem: Problem, theta: Theta) -> np.ndarray:
    """A model as float64 on the host; None for zeros."""
    with jax.enable_x64(True):
        leaves = jax.tree.leaves(read_theta(problem, theta, jnp.float64))
    if len(leaves) != 1:
        raise ValueError(f"scoreboard needs a linear model, one array shaped like x; got {len(leaves)} arrays.")
    return np.asarray(leaves[0])


def _find_points(
    problem: Problem, before: np.ndarray, stable: Theta, optimal: Theta
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The static baseline, stable and optimal point, and notes on those that are missing or unusual."""
    points = {"static": np.asarray(repeated_risk_minimization(problem, theta=before, deployments=1, spells=None)[1])}
    notes: list[str] = []
    searches: tuple[tuple[str, Any, Callable[..., np.ndarray]], ...] = (
        ("stable", stable, _find_stable), ("optimal", optimal, _find_optimal),
    )  # fmt: skip
    for name, known, search in searches:
        if known is not None:
            points[name] = _read(problem, known)
            continue
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                points[name] = search(problem, points, notes)
            except ValueError as reason:
                notes.append(f"there is no row for the {name} point. {reason}")
        # Numbers may overflow along the way; only the solvers' own warnings matter.
        notes += [str(warning.message) for warning in said if "_point: " in str(warning.message)]
    return points, notes


def _find_stable(problem: Problem, points: dict[str, np.ndarray], notes: list[str]) -> np.ndarray:
    """The stable point found from the static baseline, or otherwise from any start."""
    start = points["static"]
    try:
        found = equilibria(problem, [start], start=start)
    except ValueError:
        found = equilibria(problem, start=start)
    best = next((point for point in found if point.attracting is not False), found[0])
    if best.attracting is False:
        steps = "converge to it" if best.settles else "diverge from it, too"
        notes.append(
            f"the stable point repels retraining (contraction factor {best.contraction:.3g}); small steps {steps}."
        )
    return np.asarray(best.theta)


def _find_optimal(problem: Problem, points: dict[str, np.ndarray], notes: list[str]) -> np.ndarray:
    """The better of the minima found from the static baseline and the stable point."""
    starts = [points["stable"]] if "stable" in points else None
    best = optimal_point(problem, points["static"], starts, report=True)
    return np.asarray(best.theta if isinstance(best, Solution) else best)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b))


def _ends(history: History) -> list[np.ndarray]:
    """The last model of each repeat that did not diverge."""
    (models,) = jax.tree.leaves(history.final)
    return [np.asarray(model, np.float64) for model, at in zip(models, history.stopped_at, strict=True) if at < 0]


def _line(name: str, scores: list[dict[str, float]]) -> Line:
    """Means and standard errors; NaN if there are no values."""
    columns = {c: np.array([score.get(c, np.nan) for score in scores] or [np.nan]) for c in COLUMNS}
    errors = {c: float(v.std(ddof=1) / np.sqrt(len(v))) for c, v in columns.items()} if len(scores) > 1 else {}
    return Line(name, {c: float(v.mean()) for c, v in columns.items()}, errors)


def way(ends: list[np.ndarray], points: dict[str, np.ndarray], together: int = 1) -> Way:
    """Positions of final models on the line from static to stable, with a Student-t interval for their mean.

    `together`: number of simultaneous intervals (Bonferroni), since several algorithms are compared.
    """
    from scipy import stats

    line = points["stable"] - points["static"] if "stable" in points else np.zeros(1)
    if not ends or not np.any(line):
        return Way(float("nan"), float("inf"))
    place = np.array([(end - points["static"]) @ line / (line @ line) for end in ends])
    if len(ends) < 2:
        return Way(float(place.mean()), float("inf"))
    quantile = stats.t.ppf(1 - (1 - _LEVEL) / (2 * together), len(ends) - 1)
    return Way(float(place.mean()), float(quantile * place.std(ddof=1) / np.sqrt(len(ends))))
