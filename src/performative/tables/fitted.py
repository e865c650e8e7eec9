"""Use a fitted scikit-learn classifier as a start: the linear model with the same scores."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from jaxtyping import Float

from performative._base.checks import nearest
from performative._base.messages import refused, warn
from performative.types import ArrayLike

# Number of points at which the linear model must agree with the fitted one, and their distance in units of the scaling.
_PROBES, _FAR = 32, 10.0
# Relative to the largest score: rounding errors are far below this, nonlinearities far above.
_SAME = 1e-6
_SUPPORTED = (
    "a linear classifier of two classes (LogisticRegression, RidgeClassifier, SGDClassifier, LinearSVC, Perceptron, "
    "LinearDiscriminantAnalysis), alone or in a Pipeline after StandardScaler, RobustScaler or MinMaxScaler"
)


def is_fitted_model(theta: object) -> bool:
    """Whether a start is a scikit-learn model rather than arrays."""
    return hasattr(theta, "coef_") or (hasattr(theta, "get_params") and hasattr(theta, "fit"))


def linear_scores(
    model: Any, names: tuple[str, ...], center: ArrayLike, spread: ArrayLike, classes: tuple[Hashable, Hashable]
) -> tuple[Float[np.ndarray, " d"], float]:
    """theta and b such that theta.(raw - center) / spread + b is the model's score of class 1, for every raw row.

        b = f(center),      theta_j = f(center + spread_j e_j) - b

    f is the model's own decision_function, so scalers in a Pipeline and its column order are taken care of. A model
    that is not linear in the features disagrees at other points, and raises.
    """
    kind = type(model).__name__
    _check_kind(model, kind)
    sign = _read_classes(model, kind, classes)
    columns = _read_columns(model, kind, names)
    center, spread = np.asarray(center, np.float64), np.asarray(spread, np.float64)

    def score(rows: np.ndarray) -> np.ndarray:
        return sign * _decide(model, kind, center + spread * rows, names, columns)

    unit = score(np.vstack([np.zeros(len(names)), np.eye(len(names))]))
    theta, b = unit[1:] - unit[0], float(unit[0])
    far = _FAR * np.random.default_rng(0).standard_normal((_PROBES, len(names)))
    found = score(far)
    off = float(np.max(np.abs(found - (far @ theta + b))))
    if not off <= _SAME * max(float(np.max(np.abs(found))), abs(b)):
        raise _refusal(kind, "its scores are not linear in the features")
    return theta, b


def _check_kind(model: Any, kind: str) -> None:
    if not hasattr(model, "classes_") and not hasattr(model, "n_features_in_") and not hasattr(model, "coef_"):
        raise _refusal(kind, "it has not been fitted; call its fit(frame, label) first")
    if not hasattr(model, "classes_"):
        raise _refusal(kind, "it predicts numbers, not classes")
    if not hasattr(model, "decision_function"):
        raise _refusal(kind, "it has no decision_function, so its scores are not linear")


def _read_classes(model: Any, kind: str, classes: tuple[Hashable, Hashable]) -> float:
    """1 if the model's second class is the problem's class 1, -1 if its first class is."""
    its = np.asarray(model.classes_).tolist()
    if its in (list(classes), list(classes)[::-1]):
        return 1.0 if its == list(classes) else -1.0
    raise refused(
        "model-of-other-classes",
        f"theta: {kind} was fitted to the classes {its}, the problem's labels are {classes[0]!r} (0) and "
        f"{classes[1]!r} (1), so the sign of its scores is ambiguous. Fit it to the same column that from_frame "
        "reads, or pass that column to from_frame, with positive= for the class that is 1.",
    )


def _read_columns(model: Any, kind: str, names: tuple[str, ...]) -> list[str] | None:
    """Names of the columns that the model expects, in its order; None if it was fitted on an array."""
    named = getattr(model, "feature_names_in_", None)
    if named is not None:
        strange = [str(name) for name in named if name not in names]
        if strange:
            raise refused(
                "model-of-other-columns",
                f"theta: {kind} was fitted on {strange}, which are not features of the problem."
                f"{nearest(strange[0], names)}",
            )
        return [str(name) for name in named]
    width = getattr(model, "n_features_in_", np.shape(getattr(model, "coef_", ()))[-1:])
    if width not in (len(names), (len(names),)):
        raise refused(
            "model-of-other-columns",
            f"theta: {kind} was fitted on an array of {width} columns, the problem has {len(names)} features "
            f"{list(names)}. Fit it on a DataFrame, so its columns have names.",
        )
    if len(names) > 1:
        warn(
            "model-without-names",
            f"theta: {kind} was fitted on an array, so its columns are assumed to be {list(names)}, in this order. Fit "
            "it on a DataFrame to have the names checked.",
        )
    return None


def _decide(
    model: Any, kind: str, raw: np.ndarray, names: tuple[str, ...], columns: list[str] | None
) -> Float[np.ndarray, " n"]:
    """The model's scores of raw rows."""
    rows: Any = raw
    if columns is not None:
        import pandas as pd

        rows = pd.DataFrame(raw, columns=list(names))[columns]
    try:
        return np.asarray(model.decision_function(rows), np.float64)
    except Exception as error:  # a step may reject values that it has not seen
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _refusal(kind, f"it cannot score other rows ({first})") from error


def _refusal(kind: str, why: str) -> ValueError:
    return refused("model-not-linear", f"theta: {kind} cannot be a start: {why}. Supported: {_SUPPORTED}.")
