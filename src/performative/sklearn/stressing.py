"""`stress`: what happens to a fitted classifier when people respond to it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from performative._base.arguments import spelt
from performative._base.checks import check_counts, check_finite, check_rule, is_one_of, nearest
from performative.sklearn.best_response import Search, formula, respond
from performative.sklearn.judged import Judge, judge_of
from performative.sklearn.measuring import EVERYBODY, measured
from performative.sklearn.people import column_numbers
from performative.sklearn.stress_test import StressTest
from performative.types import ArrayLike, Unchecked

# If the search beats the formula by more than this, relative to the utility, the model is not linear.
_BEATEN = 1e-6


@spelt
def stress(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    strategic: Unchecked[Sequence[Any] | None] = None,
    strengths: Unchecked[Sequence[float]] = (0.0, 0.1, 0.3, 1.0, 3.0),
    groups: ArrayLike | None = None,
    cost: Unchecked[Mapping[Any, float] | None] = None,
    gain: str = "score",
    desired: Any = None,
    people: int = 1000,
    seed: int = 0,
) -> StressTest:
    """Measure how a fitted classifier's accuracy, group rates and thresholds change when people respond to it.

        max over x'   gain(x') - sum_j w_j ((x'_j - x_j) / spread_j)^2 / (2 strength)      over the `strategic` columns

    Args:
        estimator: a fitted binary classifier, or a Pipeline: only its predict and, if available, decision_function or
            predict_proba are called
        X, y: people before they respond, in the form the estimator expects (an array or a DataFrame)
        strategic: columns that people can change, by name or number, which must be numeric; None for all numeric ones
        strengths: how strongly they respond; 0 means no response. The true strength is unknown: look at a range
        groups: one label per row, for rates by group
        cost: {column: w_j}, 1 by default. Spread is the standard deviation, or, if that is set by a few people, the one
            by the quartiles, as in `from_frame(standardize="robust")`
        gain: "score": the decision_function of the desired class, else its probability; for a linear model this is the
            response of `pf.populations.Strategic`. "acceptance": 1 for being assigned the desired class, 0 otherwise
        desired: the class that people want to be assigned; None for classes_[0], if these are numbers, or no and yes
        people: maximum number of rows to use; larger tables are subsampled at random
        seed: for subsampling and for the search

    For linear scores the response is a formula (`exact`). For all others, the best of some hundreds of moves is
    refined: people may find a better one. Their gain is then at least what is reported, and so is the acceptance under
    gain="acceptance"; other rates may err in either direction. The search ignores integer columns, column limits and
    dependencies between columns, and labels do not change.
    """
    check_classifier(estimator)
    strengths = _read_strengths(strengths)
    check_counts(people=people)
    if not is_one_of(gain, "score", "acceptance"):
        raise ValueError(f'stress: gain must be "score" or "acceptance"; got {gain!r}.')
    X, labels, kinds = _read_people(X, y, groups)
    desired = _read_desired(estimator, desired, labels)
    columns, names = _read_columns(X, strategic)
    spread, weight = _spreads(X, columns, names), _weights(cost, columns, names)
    notes = []
    if len(labels) > people:
        kept = np.sort(np.random.default_rng(seed).choice(len(labels), people, replace=False))
        notes.append(f"{people:,} of {len(labels):,} people were drawn at random.")
        X = X.iloc[kept] if hasattr(X, "iloc") else X[kept]
        labels, kinds = labels[kept], None if kinds is None else kinds[kept]
    judge = judge_of(estimator, X, columns, names, desired)
    if gain == "score" and judge.kind is None:
        raise ValueError(
            f"stress: {type(estimator).__name__} has neither decision_function nor predict_proba, so there is no "
            'score to gain; use gain="acceptance".'
        )
    unit = spread / np.sqrt(weight)
    moves, utility, exact = _responses(judge, unit, strengths, gain, seed)
    notes += _notes(judge, gain, exact)
    shown = {s: judge.movable + move * unit for s, move in moves.items()}
    table = measured(judge, shown, moves, utility, labels == desired, kinds)
    return StressTest(table, exact, gain, desired, names, judge.kind, judge.threshold, shown, tuple(notes))


def _responses(
    judge: Judge, unit: Float[np.ndarray, " k"], strengths: Sequence[float], gain: str, seed: int
) -> tuple[dict[float, np.ndarray], dict[float, np.ndarray], bool]:
    """Moves in units of the cost by strength, their utility, and whether they follow a formula."""

    def gained(who: np.ndarray, values: np.ndarray) -> np.ndarray:
        return judge.scores(who, values) if gain == "score" else judge.accepted(who, values).astype(np.float64)

    search = Search(gained, judge.movable, unit, seed)
    n, largest = len(search.start), max(strengths)
    slope, linear, gap = np.zeros(len(unit)), False, None
    if judge.kind is not None:
        scored = search if gain == "score" else Search(judge.scores, judge.movable, unit, seed)
        slope, linear = scored.slope()
        if gain == "acceptance":
            linear = linear and bool(np.isfinite(judge.threshold))
            gap = judge.threshold - judge.scores(np.arange(n), judge.movable)
    longest = np.sqrt(2.0 * largest)
    if gain == "score" and judge.kind == "decision_function":
        spans = search.gains(np.arange(n), np.zeros((n, len(unit))))
        longest = max(np.sqrt(2.0 * largest * max(float(np.ptp(spans)), 1e-12)), 1.5 * largest * np.linalg.norm(slope))
    pool, gains = search.pool(float(longest))
    before = search.gains(np.arange(n), np.zeros((n, len(unit))))
    moves, utility, exact = {}, {}, linear
    for s in strengths:
        move, value = respond(search, s, pool, gains)
        if linear and s > 0:
            best = np.broadcast_to(formula(slope, gap, s), move.shape)
            worth = search.gains(np.arange(n), best) - before - np.sum(np.square(best), axis=1) / (2.0 * s)
            exact = exact and bool(np.all(value <= worth + _BEATEN * (1.0 + np.abs(worth))))
            better = worth >= value - _BEATEN * (1.0 + np.abs(worth))
            move, value = np.where(better[:, None], best, move), np.where(better, worth, value)
        moves[s], utility[s] = move, value
    return moves, utility, exact


def _notes(judge: Judge, gain: str, exact: bool) -> list[str]:
    notes = []
    if not exact:
        notes.append(
            "Responses were searched for. People may find better ones: they gain at least what is reported"
            + (", and at least as many are accepted." if gain == "acceptance" else "; rates may err either way.")
        )
    if not np.isfinite(judge.threshold):
        notes.append("No single threshold on a score reproduces the model's decisions, so no thresholds are reported.")
    elif gain == "acceptance":
        notes.append("Thresholds are for people who responded to the old one; they would respond again to a new one.")
    return notes


def check_classifier(estimator: Any) -> None:
    """Reject what is not a fitted classifier with two classes."""
    kind = type(estimator).__name__
    if not hasattr(estimator, "predict") or not hasattr(estimator, "classes_"):
        raise ValueError(
            f"stress: estimator must be a fitted classifier with classes_ and predict; got {kind}, which "
            "is not fitted or not a classifier."
        )
    if len(estimator.classes_) != 2:
        raise ValueError(f"stress: {kind} has {len(estimator.classes_)} classes; it must have two.")


def _read_strengths(strengths: Any) -> tuple[float, ...]:
    try:
        listed = np.atleast_1d(np.asarray(strengths, np.float64) if np.ndim(strengths) < 2 else np.zeros(0))
    except (TypeError, ValueError):
        listed = np.zeros(0)
    if listed.ndim != 1 or not listed.size:
        raise ValueError(f"stress: strengths must list one number or more; got {strengths!r}.")
    check_finite("stress", strengths=listed)
    check_rule("stress", "must not be negative", strengths=listed)
    return tuple(sorted({0.0, *listed.tolist()}))


def _read_people(X: Any, y: Any, groups: Any) -> tuple[Any, Shaped[np.ndarray, " n"], Any]:
    if not hasattr(X, "iloc"):
        if hasattr(X, "to_pandas"):
            raise ValueError(
                f"stress: X must be an array or a pandas DataFrame; got {type(X).__name__}. Pass X.to_pandas()."
            )
        if hasattr(X, "toarray"):
            raise ValueError("stress: X must be an array or a pandas DataFrame; got a sparse matrix. Pass X.toarray().")
        X = np.asarray(X)
    elif not X.columns.is_unique:
        twice = X.columns[X.columns.duplicated()][0]
        raise ValueError(f"stress: column {twice!r} of X occurs twice; keep one, or pass X.to_numpy().")
    if np.ndim(X) != 2 or not len(X):
        raise ValueError(f"stress: X must be a table with one row per person; got shape {np.shape(X)}.")
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise ValueError(f"stress: y must contain one label for each of the {len(X)} rows; got shape {labels.shape}.")
    _check_present("y", labels)
    if groups is None:
        return X, labels, None
    groups = np.asarray(groups)
    if groups.shape != (len(X),):
        raise ValueError(f"stress: groups must have one entry for each of the {len(X)} rows; got shape {groups.shape}.")
    _check_present("groups", groups)
    groups = np.asarray([str(one) for one in groups.tolist()])
    if EVERYBODY in groups:
        raise ValueError(f"stress: groups contains {EVERYBODY!r}, the name of the rows for everybody; rename it.")
    return X, labels, groups


def _check_present(name: str, values: np.ndarray) -> None:
    import pandas as pd

    empty = int(pd.isna(values).sum())
    if empty:
        raise ValueError(f"stress: {name} is missing in {empty} of {len(values)} rows; fill or drop them first.")


def is_ordered(classes: list[Any]) -> bool:
    """Whether the second class is plainly the one that is 1: numbers, or such words as no and yes."""
    from performative.tables.frames import YES

    return not isinstance(classes[0], str) or str(classes[1]).lower() in YES


def _read_desired(estimator: Any, desired: Any, labels: np.ndarray) -> Any:
    classes = np.asarray(estimator.classes_).tolist()
    if desired is not None and desired not in classes:
        raise ValueError(f"stress: desired={desired!r} is not a class of the model, which has {classes}.")
    strange = [value for value in np.unique(labels).tolist() if value not in classes]
    if strange:
        raise ValueError(f"stress: y contains {strange[:3]}, which are not classes of the model; it has {classes}.")
    if desired is None and not is_ordered(classes):
        raise ValueError(f"stress: the model's classes are {classes}; set desired= to the one that people want.")
    return classes[0] if desired is None else desired


def _read_columns(X: Any, strategic: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if hasattr(X, "iloc"):
        named = [str(name) for name in X.columns]
        numeric = [j for j in range(len(named)) if getattr(X.dtypes.iloc[j], "kind", "O") in "uif"]
    else:
        named = None
        numeric = list(range(X.shape[1])) if X.dtype.kind in "buif" else []
    chosen = numeric if strategic is None else column_numbers("stress", strategic, named, X.shape[1])
    words = [str(j) for j in range(X.shape[1])] if named is None else named
    text = [words[j] for j in chosen if j not in numeric]
    if text:
        raise ValueError(f"stress: strategic columns must be numeric; {text} are not. Leave them out.")
    if not chosen:
        raise ValueError("stress: strategic names no numeric column, so nobody can respond.")
    found = tuple(chosen), tuple(words[j] for j in chosen)
    for j, name in zip(*found, strict=True):
        column = np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else X[:, j], np.float64)
        check_finite("stress", **{f"column {name!r}": column})
    return found


def _spreads(X: Any, columns: tuple[int, ...], names: tuple[str, ...]) -> Float[np.ndarray, " k"]:
    """Standard deviations, or the spread by the quartiles if a few people set them."""
    import warnings

    from performative._base.messages import PerformativeWarning
    from performative.tables.scaling import scale_columns

    found = []
    for j, name in zip(columns, names, strict=True):
        column = np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else X[:, j], np.float64)
        if np.ptp(column) == 0:
            raise ValueError(f"stress: column {name!r} is the same for everybody, so moves have no scale; drop it.")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", PerformativeWarning)
            _, spread = scale_columns(column[:, None], [name], True)
        if said:
            _, spread = scale_columns(column[:, None], [name], "robust")
        found.append(float(spread[0]))
    return np.asarray(found)


def _weights(cost: Any, columns: tuple[int, ...], names: tuple[str, ...]) -> Float[np.ndarray, " k"]:
    if cost is None:
        return np.ones(len(names))
    if not isinstance(cost, Mapping):
        raise ValueError(f"stress: cost must be {{column: cost of moving it}}, or None; got {cost!r}.")
    weight = np.ones(len(names))
    for key, value in cost.items():
        if key not in names and key not in columns:
            raise ValueError(f"stress: cost names {key!r}, which is not a strategic column.{nearest(str(key), names)}")
        check_finite("stress", **{f"cost of {key!r}": value})
        check_rule("stress", "must be above 0", **{f"cost of {key!r}": value})
        weight[names.index(key) if key in names else columns.index(key)] = float(value)
    return weight
