"""Classifiers that are files: pickles where they are trusted, and ONNX."""

from pathlib import Path
from typing import Any

import numpy as np

# The audit reads the same files.
from performative.audit.models import PICKLES, read_onnx, unpickled


class OnnxClassifier:
    """An ONNX model of two classes, 0 and 1, as `stress` asks it: the last output is the chance of class 1."""

    classes_ = np.array([0, 1])

    def __init__(self, file: Path):
        self._score = read_onnx(file)

    def predict_proba(self, rows: Any) -> np.ndarray:
        one = self._score(np.asarray(rows, np.float64), ())
        return np.column_stack([1.0 - one, one])

    def predict(self, rows: Any) -> np.ndarray:
        return (self.predict_proba(rows)[:, 1] > 0.5).astype(int)


def load_classifier(path: Path, trust: bool) -> Any:
    """A fitted classifier from a file; a pickle only where it is trusted, because to load one runs code in it."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    if path.suffix == ".onnx":
        return OnnxClassifier(path)
    if path.suffix not in PICKLES:
        raise ValueError(f"{path}: a model must be one of {', '.join((*PICKLES, '.onnx'))}.")
    if not trust:
        raise ValueError(
            f"{path} is a pickle, and to load one runs code that it holds. Where you know who made it, say --trust; "
            "else export the model as ONNX."
        )
    return unpickled(path)


def rows_for(model: Any, frame: Any, others: set[str]) -> Any:
    """The columns that a model was fitted on, in its order; all but `others` where it has no names."""
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
            f"the model was fitted on {many} columns without names; the table has {left.shape[1]} beside the label: "
            "leave others out with --ignore."
        )
    text = [str(name) for name in left.columns if getattr(left[name].dtype, "kind", "O") not in "buif"]
    if text:
        raise ValueError(f"column {text[0]!r} holds no numbers, and the model takes an array; --ignore leaves it out.")
    return left.to_numpy(np.float64)


def labels_for(model: Any, column: Any, label: str, positive: Any) -> np.ndarray:
    """Labels as the model calls its classes; yes and no become 1 and 0 where those are its classes."""
    from performative.assess.preparing import read_label

    if column.isna().any():
        raise ValueError(f"label={label!r} says nothing in {int(column.isna().sum())} rows; fill or drop them first.")
    classes = np.asarray(model.classes_).tolist()
    if positive is None and set(column.unique().tolist()) <= set(classes):
        return column.to_numpy()
    if classes not in ([0, 1], [False, True]):
        raise ValueError(f"label={label!r} holds {column.unique().tolist()[:3]}; the model's classes are {classes}.")
    return read_label(column, label, positive)[0]
