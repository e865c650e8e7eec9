"""From a table of people to clients' tables, and from a fitted linear model to a start."""

import dataclasses
from typing import Any

import numpy as np

from performative.errors import check_finite, nearest


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
    from performative.populations.strategic import pad_tables

    for role, name in (("client", client), ("label", label)):
        if name not in frame.columns:
            raise ValueError(f"{role}={name!r} is not a column of the table.{nearest(name, map(str, frame.columns))}")
    features = [c for c in frame.columns if c not in (client, label)]
    wanted = features if strategic is None else list(strategic)
    for name in wanted:
        if name not in features:
            raise ValueError(
                f"strategic: {name!r} is not a feature of the table.{nearest(str(name), map(str, features))}"
            )
    try:
        raw = frame[features].to_numpy(np.float64)
    except (TypeError, ValueError):
        texts = [str(c) for c in features if frame[c].dtype.kind not in "buif"]
        raise ValueError(f"from_frame needs numeric features; encode or drop {texts}.") from None
    labels = frame[label].to_numpy()
    for i, name in enumerate(features):
        check_finite("from_frame", **{f"column {name!r}": raw[:, i]})
    if not np.all(np.isin(labels, (0, 1))):
        raise ValueError(f"label={label!r} must hold 0 and 1; found {sorted(set(np.unique(labels)) - {0, 1})[:5]}.")
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
    answers, _ = pad_tables([labels[rows].astype(np.int32) for rows in groups.values()])
    if isinstance(strength, dict):
        missing = [str(g) for g in groups if g not in strength]
        if missing:
            raise ValueError(f"strength has no entry for clients {missing}.")
        strength = [strength[g] for g in groups]
    columns = Columns(tuple(names), tuple(centre.tolist()), tuple(spread.tolist()), tuple(who), intercept)
    movable = tuple(features.index(name) for name in wanted)
    return ClientTables(tables, answers, count, np.asarray(strength, np.float64), movable, columns)
