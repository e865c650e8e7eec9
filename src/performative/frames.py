"""From a table of people to clients' tables, and from a fitted linear model to a start."""

import dataclasses
from typing import Any

import numpy as np

from performative.errors import check_finite, nearest
from performative.partition import pad_tables
from performative.types import as_numbers


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of theta's entries, and the scaling that turns raw features into the ones that theta sees."""

    names: tuple[str, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    clients: tuple[str, ...]
    intercept: bool

    def start(self, model: Any) -> np.ndarray:
        """theta from a fitted scikit-learn linear model on the raw features: same scores, our scaling."""
        coef = np.ravel(np.asarray(model.coef_, np.float64))
        features = len(self.centre)
        if coef.size != features:
            raise ValueError(
                f"theta: the model has {coef.size} coefficients for {features} features {list(self.names[:features])}."
            )
        theta = coef * np.asarray(self.spread)
        if not self.intercept:
            return theta
        offset = float(np.ravel(np.asarray(getattr(model, "intercept_", 0.0)))[0])
        return np.append(theta, offset + coef @ np.asarray(self.centre))


@dataclasses.dataclass(frozen=True)
class ClientTables:
    x: np.ndarray
    y: np.ndarray
    count: np.ndarray
    strength: np.ndarray
    movable: tuple[int, ...]
    columns: Columns


def read_frame(
    frame: Any, client: str, label: str, strategic: Any, strength: Any, standardise: bool, intercept: bool
) -> ClientTables:
    """Split a table by client, pad to one length, check every column that is used."""
    if not hasattr(frame, "columns") or not hasattr(frame, "groupby"):
        raise ValueError(f"frame must be a pandas DataFrame, one row a person; got {type(frame).__name__}.")
    if len(frame) == 0:
        raise ValueError("frame has no rows.")
    for role, name in (("client", client), ("label", label)):
        if name not in frame.columns:
            near = nearest(str(name), map(str, frame.columns))
            raise ValueError(f"{role}={name!r} is not a column of the table.{near}")
    twice = [str(c) for c in frame.columns[frame.columns.duplicated()].unique()]
    if twice:
        raise ValueError(f"frame has columns of the same name: {twice} occur more than once.")
    empty = int(frame[client].isna().sum())
    if empty:
        raise ValueError(f"client={client!r} says nothing in {empty} of {len(frame)} rows; drop or fill them first.")
    features = [c for c in frame.columns if c not in (client, label)]
    if not features:
        raise ValueError(f"frame has no features: its only columns are client={client!r} and label={label!r}.")
    if strategic is not None and not isinstance(strategic, (str, list, tuple)):
        raise ValueError(f"strategic must be a list of column names, or None for all; got {strategic!r}.")
    wanted = features if strategic is None else [strategic] if isinstance(strategic, str) else list(strategic)
    for name in wanted:
        if name not in features:
            raise ValueError(
                f"strategic: {name!r} is not a feature of the table.{nearest(str(name), map(str, features))}"
            )
    texts = [str(c) for c in features if frame[c].dtype.kind not in "buif"]
    if texts:
        raise ValueError(f"from_frame needs numeric features; encode or drop the columns {texts}.")
    raw = frame[features].to_numpy(np.float64)
    labels = frame[label].to_numpy()
    for i, name in enumerate(features):
        check_finite("from_frame", **{f"column {name!r}": raw[:, i]})
    if not np.all(np.isin(labels, (0, 1))):
        others = frame[label][~np.isin(labels, (0, 1))].unique()[:5].tolist()
        raise ValueError(f"label={label!r} must hold 0 and 1; found also {others}.")
    if len(np.unique(labels)) < 2:
        raise ValueError(f"label={label!r} is {labels[0]} in every row, so there is nothing to learn.")
    centre = raw.mean(axis=0) if standardise else np.zeros(len(features))
    spread = raw.std(axis=0) if standardise else np.ones(len(features))
    spread = np.where(spread > 0, spread, 1.0)
    x = (raw - centre) / spread
    names = [str(f) for f in features]
    if intercept:
        x, names = np.column_stack([x, np.ones(len(x))]), [*names, "intercept"]
    groups = frame.groupby(client, sort=True).indices
    who = [str(g) for g in groups]
    tables, count = pad_tables([x[rows] for rows in groups.values()])
    answers, _ = pad_tables([labels[rows].astype(np.int32) for rows in groups.values()], labels=True)
    if isinstance(strength, dict):
        missing = [str(g) for g in groups if g not in strength]
        if missing:
            raise ValueError(f"strength has no entry for clients {missing}.")
        unknown = [str(g) for g in strength if g not in groups]
        if unknown:
            raise ValueError(f"strength names clients that are not in the table: {unknown}.")
        strength = [strength[g] for g in groups]
    strength = np.asarray(as_numbers(strength))
    check_finite("from_frame", strength=strength)
    if strength.shape not in ((), (len(groups),)):
        raise ValueError(
            f"strength must be a number, one a client ({len(groups)} of them: {who[:5]}) or {{client: number}}; "
            f"got shape {strength.shape}."
        )
    columns = Columns(tuple(names), tuple(centre.tolist()), tuple(spread.tolist()), tuple(who), intercept)
    movable = tuple(features.index(name) for name in wanted)
    return ClientTables(tables, answers, count, strength, movable, columns)
