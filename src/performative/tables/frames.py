"""Convert a table of people to clients' tables, and a fitted linear model to a start."""

import dataclasses
from collections.abc import Container, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from performative._base.checks import check_finite, check_flags, nearest
from performative._base.messages import refused
from performative.partition import pad_tables
from performative.tables.any_table import as_pandas, check_flat, ordinary
from performative.tables.fitted import linear_scores
from performative.tables.scaling import Standardize, scale_columns
from performative.types import ArrayLike, Unchecked, as_numbers

if TYPE_CHECKING:
    import pandas as pd


_ONLY_CLIENT = "all"
# Labels that mean 1 wherever they occur.
YES = ("1", "1.0", "yes", "y", "true", "t")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of theta's entries, and the scaling from raw features to the ones that theta applies to."""

    names: tuple[str, ...]
    center: tuple[float, ...]
    spread: tuple[float, ...]
    clients: tuple[str, ...]
    intercept: bool
    classes: tuple[Any, Any] = (0, 1)

    def start(self, model: object) -> np.ndarray:
        """Return theta from a fitted scikit-learn classifier on the raw features: same scores, our scaling."""
        features = self.names[: len(self.center)]
        theta, offset = linear_scores(model, features, self.center, self.spread, self.classes)
        if self.intercept:
            return np.append(theta, offset)
        if abs(offset) > 1e-9 * max(float(np.max(np.abs(theta))), 1e-300):
            raise refused(
                "model-not-linear",
                f"theta: {type(model).__name__} has score {offset:.4g} when all (scaled) features are 0, but this "
                "problem has no intercept; pass intercept=True to from_frame.",
            )
        return theta


@dataclasses.dataclass(frozen=True)
class ClientTables:
    x: np.ndarray
    y: np.ndarray
    count: np.ndarray
    strength: np.ndarray
    movable: tuple[int, ...]
    columns: Columns


def _among(name: object, names: Container[object]) -> bool:
    """Whether it is one of these names; False for what cannot be a name (a list)."""
    try:
        return bool(name in names)
    except (TypeError, ValueError):
        return False


def read_frame(
    frame: Any,
    client: str | None,
    label: str,
    strategic: Unchecked[Sequence[str] | None],
    strength: ArrayLike | Mapping[Hashable, float],
    standardize: Unchecked[Standardize],
    intercept: bool,
    positive: Hashable = None,
) -> ClientTables:
    """Split a table by client, pad to equal length, and check every column that is used."""
    frame = ordinary(as_pandas(frame, "frame", client))
    if len(frame) == 0:
        raise ValueError("frame has no rows.")
    check_flags("from_frame", intercept=intercept)
    for role, name in (("client", client), ("label", label)):
        if name is None and role == "client":
            continue
        if not _among(name, frame.columns):
            near = nearest(str(name), map(str, frame.columns))
            raise ValueError(f"{role}={name!r} is not a column of the table.{near}")
    if client == label:
        raise ValueError(f"client and label are both {label!r}; name two different columns, or pass client=None.")
    twice = [str(c) for c in frame.columns[frame.columns.duplicated()].unique()]
    if twice:
        raise ValueError(f"frame has duplicate columns: {twice} occur more than once.")
    for name in frame.columns:
        check_flat(frame[name], "frame: ")
    empty = 0 if client is None else int(frame[client].isna().sum())
    if empty:
        raise ValueError(f"client={client!r} is missing in {empty} of {len(frame)} rows; drop or fill them first.")
    features = [c for c in frame.columns if c not in (client, label)]
    words = [str(c) for c in features] + ["intercept"] * bool(intercept)
    alike = next((word for word in words if words.count(word) > 1), None)
    if alike is not None:
        remedy = "rename one, or drop it" if alike != "intercept" else "drop or rename it, or pass intercept=False"
        raise ValueError(f"frame has a feature named {alike!r}, but another entry of theta has this name: {remedy}.")
    if not features:
        has = f"label={label!r}" if client is None else f"client={client!r} and label={label!r}"
        raise ValueError(f"frame has no features: it has only {has}.")
    if strategic is not None and not isinstance(strategic, (str, list, tuple)):
        raise ValueError(f"strategic must be a list of column names, or None for all; got {strategic!r}.")
    wanted = features if strategic is None else [strategic] if isinstance(strategic, str) else list(strategic)
    for name in wanted:
        if not _among(name, features):
            raise ValueError(
                f"strategic: {name!r} is not a feature of the table.{nearest(str(name), map(str, features))}"
            )
    texts = [str(c) for c in features if frame[c].dtype.kind not in "buif"]
    if texts:
        raise ValueError(
            f"from_frame needs numeric features; encode or drop the columns {texts}, e.g. with pandas.get_dummies"
            + (", or name the one that says whose row it is with client=." if client is None else ".")
        )
    raw = np.column_stack([frame[c].to_numpy(np.float64, na_value=np.nan) for c in features])
    for i, name in enumerate(features):
        check_finite("from_frame", **{f"column {name!r}": raw[:, i]})
    labels, classes = _read_labels(frame[label], label, positive)
    center, spread = scale_columns(raw, [str(c) for c in features], standardize)
    x = (raw - center) / spread
    names = [str(f) for f in features]
    if intercept:
        x, names = np.column_stack([x, np.ones(len(x))]), [*names, "intercept"]
    everybody = {_ONLY_CLIENT: np.arange(len(frame))}
    groups = everybody if client is None else frame.groupby(client, sort=True).indices
    who = [str(g) for g in groups]
    tables, count = pad_tables([x[rows] for rows in groups.values()])
    answers, _ = pad_tables([labels[rows] for rows in groups.values()], labels=True)
    if isinstance(strength, Mapping):
        missing = [str(g) for g in groups if g not in strength]
        if missing:
            raise ValueError(f"strength has no entry for clients {missing}.")
        unknown = [str(g) for g in strength if g not in groups]
        if unknown:
            raise ValueError(f"strength names clients that are not in the table: {unknown}.")
        strength = [strength[g] for g in groups]
    strength = np.asarray(as_numbers(strength))
    check_finite("from_frame", strength=strength)
    if np.any(strength < 0):
        raise ValueError(
            f"from_frame: strength must not be negative; got {strength.min():g}. People lower theta.x, the log-odds of "
            "`positive`; if they try to raise it, pass the other class as `positive`."
        )
    if strength.shape not in ((), (len(groups),)):
        raise ValueError(
            f"strength must be a number, one per client ({len(groups)} of them: {who[:5]}) or {{client: number}}; "
            f"got shape {strength.shape}."
        )
    columns = Columns(tuple(names), tuple(center.tolist()), tuple(spread.tolist()), tuple(who), intercept, classes)
    movable = tuple(features.index(name) for name in wanted)
    return ClientTables(tables, answers, count, strength, movable, columns)


def _read_labels(
    column: Unchecked["pd.Series[Any]"], label: str, positive: Hashable
) -> tuple[np.ndarray, tuple[Any, Any]]:
    """Labels as 0 and 1, and their original values: 0 and 1 are kept, otherwise `positive` is 1."""
    empty = int(column.isna().sum())
    if empty:
        raise ValueError(f"label={label!r} is missing in {empty} of {len(column)} rows; drop or fill them first.")
    found = column.unique().tolist()
    if len(found) < 2:
        raise ValueError(f"label={label!r} is {found[0]!r} in every row, so there is nothing to learn.")
    if len(found) > 2:
        raise ValueError(f"label={label!r} must have two classes, such as 0 and 1; found {found[:5]}.")
    if positive is None and not all(value in (0, 1) for value in found):
        raise ValueError(
            f"label={label!r} contains {found[0]!r} and {found[1]!r}; specify which of them is 1: set "
            "positive= to the class that people try to avoid. They change their features to lower the score."
        )
    one = 1 if positive is None else positive
    if not _among(one, found):
        raise ValueError(f"positive={positive!r} is not a value of label={label!r}, which contains {found}.")
    other = next(value for value in found if value != one)
    return (column == one).to_numpy(np.int32), (other, one)
