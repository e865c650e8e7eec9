"""Load classifiers from files: ONNX, and pickles if they are trusted."""

from pathlib import Path
from typing import Any

import numpy as np

# The audit reads the same files.
from performative.audit.models import PICKLES, read_onnx, unpickled
from performative.sklearn.stressing import check_classifier, is_ordered


class OnnxClassifier:
    """An ONNX model with classes 0 and 1, for `stress`: the last output is the probability of class 1."""

    classes_ = np.array([0, 1])

    def __init__(self, file: Path):
        self._score = read_onnx(file)

    def predict_proba(self, rows: Any) -> np.ndarray:
        one = self._score(np.asarray(rows, np.float64), ())
        return np.column_stack([1.0 - one, one])

    def predict(self, rows: Any) -> np.ndarray:
        return (self.predict_proba(rows)[:, 1] > 0.5).astype(int)


def load_classifier(path: Path, trust: bool) -> Any:
    """Load a fitted classifier from a file; a pickle only if it is trusted, because loading one runs code."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    if path.suffix == ".onnx":
        return OnnxClassifier(path)
    if path.suffix not in PICKLES:
        raise ValueError(f"{path}: a model must be one of {', '.join((*PICKLES, '.onnx'))}.")
    if not trust:
        raise ValueError(
            f"{path} is a pickle, and loading one runs the code it contains. Pass --trust if you trust its source; "
            "otherwise export the model as ONNX."
        )
    model = unpickled(path)
    check_classifier(model)
    return model


def rows_for(model: Any, frame: Any, others: set[str]) -> Any:
    """The columns that a model was fitted on, in its order; all but `others` if it has no feature names."""
    named = getattr(model, "feature_names_in_", None)
    if named is not None:
        missing = [str(name) for name in named if name not in frame.columns]
        if missing:
            raise ValueError(f"the model was fitted on the column {missing[0]!r}, which the table does not have.")
        return frame[list(named)]
    left = frame[[name for name in frame.columns if name not in others]]
    many = getattr(model, "n_features_in_", left.shape[1])
    if many != left.shape[1]:
        raise ValueError(
            f"the model was fitted on {many} columns without names; the table has {left.shape[1]} besides the label: "
            "exclude the extra ones with --ignore."
        )
    text = [str(name) for name in left.columns if getattr(left[name].dtype, "kind", "O") not in "buif"]
    if text:
        raise ValueError(f"column {text[0]!r} is not numeric, and the model takes an array; exclude it with --ignore.")
    return left.to_numpy(np.float64)


def wanted_class(model: Any, positive: str | None, desired: str | None) -> Any:
    """The class that people want: as specified, or the one other than `positive`, which they avoid."""
    classes = np.asarray(model.classes_).tolist()
    if desired is None and positive is None:
        if not is_ordered(classes):
            raise ValueError(f"the model's classes are {classes}; say which one people try to avoid with --positive.")
        return None
    if desired is None:
        # Where labels are translated to 0 and 1, `positive` is the 1.
        avoided = [one for one in classes if str(one) == positive]
        return next(one for one in classes if one not in avoided) if avoided else None
    return next((one for one in classes if str(one) == desired), desired)


def movable(X: Any, fixed: set[str]) -> list[str] | None:
    """The numeric columns of a frame that people may change; None for an array, which holds no others.

    As in `assess`, people do not change flags and identifiers unless these are named.
    """
    from performative.assess.columns import is_flag, is_identifier

    if not hasattr(X, "columns"):
        return None
    numbers = [name for name in X.columns if name not in fixed and getattr(X[name].dtype, "kind", "O") in "uif"]
    return [str(name) for name in numbers if not is_flag(X[name]) and not is_identifier(X[name])]


def labels_for(model: Any, column: Any, label: str, positive: Any) -> np.ndarray:
    """Labels as the model's classes; yes and no become 1 and 0 if those are its classes."""
    from performative.assess.preparing import read_label

    if column.isna().any():
        raise ValueError(f"label={label!r} is missing in {int(column.isna().sum())} rows; fill or drop them first.")
    classes = np.asarray(model.classes_).tolist()
    known = set(column.unique().tolist()) <= set(classes)
    if known and (positive is None or positive in map(str, classes)):
        return column.to_numpy()
    if known:
        raise ValueError(f"--positive {positive} is not a class of the model, which has {classes}.")
    if classes not in ([0, 1], [False, True]):
        raise ValueError(f"label={label!r} contains {column.unique().tolist()[:3]}; the model's classes are {classes}.")
    return read_label(column, label, positive)[0]
