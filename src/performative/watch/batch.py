"""Rows of a batch, checked: faults are reported, and never stop the watch."""

import dataclasses
import datetime
import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

# Columns that have a role; theta_<name> and explore_<name> contain the model and its random part. All others are
# features, as in an audit's logs.
ROLES = ("deployment", "time", "client", "label", "score", "accepted", "group", "loss", "row")
MODEL, CHANCE = "theta_", "explore_"
ONLY_CLIENT = "all"
# Sums of squares of larger numbers would overflow.
_LARGEST = 1e100


class Fault(ValueError):
    """A fault of a batch: a short code, by which faults are counted, and a sentence."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Schema:
    """Names fixed by the first valid batch: columns that may react, and parameters."""

    columns: tuple[str, ...]
    parameters: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows under one model; arrays of one length except theta and explored [d].

    `numbers` [n, q] are the columns that may react. Missing values are None, NaN or "".
    """

    deployment: str
    time: float | None
    theta: np.ndarray
    explored: np.ndarray | None
    numbers: np.ndarray
    client: np.ndarray
    group: np.ndarray | None
    loss: np.ndarray | None
    accepted: np.ndarray | None
    ids: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A batch as read: its id, the digest of its content, rows by deployment, and what was dropped.

    `bounded_loss`: any loss was computed from labels and scores or decisions, so it lies between 0 and 1.
    """

    id: str
    digest: str
    parts: tuple[Rows, ...]
    schema: Schema
    dropped: Counter[str]
    ignored: tuple[str, ...]
    bounded_loss: bool


def read_batch(
    data: Any,
    *,
    schema: Schema | None,
    columns: tuple[str, ...] | None = None,
    parameters: tuple[str, ...] | None = None,
    theta: Mapping[str, float] | None = None,
    explored: Mapping[str, float] | None = None,
    deployment: str | None = None,
    time: Any = None,
    id: str | None = None,
) -> Batch:
    """Read and check a table (a DataFrame, a dictionary of columns, an Arrow table). Raises only `Fault`."""
    try:
        frame = _frame(data)
        return _read(frame, schema, columns, parameters, theta, explored, deployment, time, id)
    except Fault:
        raise
    except Exception as error:  # whatever a foreign table raises when it is read
        raise Fault("unreadable", f"cannot be read as a table: {type(error).__name__}: {error}") from error


def _frame(data: Any) -> Any:
    import pandas as pd

    frame = data.to_pandas() if hasattr(data, "to_pandas") else pd.DataFrame(data)
    if frame.columns.duplicated().any():
        raise Fault("schema", f"the column {frame.columns[frame.columns.duplicated()][0]!r} occurs twice; keep one.")
    frame.columns = [str(name) for name in frame.columns]
    return frame.reset_index(drop=True)


def _read(
    frame: Any, schema: Schema | None, columns: Any, parameters: Any, theta: Any, explored: Any, deployment: Any,
    time: Any, id: Any,
) -> Batch:  # fmt: skip
    if not len(frame):
        raise Fault("empty", "there are no rows.")
    digest = _digest(frame, theta, deployment, time)
    models = [name for name in frame.columns if name.startswith(MODEL)]
    parameters = _parameters(models, schema, parameters, theta)
    taken = {*ROLES, *models, *(name for name in frame.columns if name.startswith(CHANCE))}
    features = [name for name in frame.columns if name not in taken and not name.startswith("Unnamed:") and name]
    columns = schema.columns if schema is not None else tuple(columns or features)
    if not columns:
        raise Fault("schema", f"no column is left that may react: all of {list(frame.columns)} have a role.")
    for name in columns:
        if name not in frame.columns:
            raise Fault("schema", f"there is no column {name!r}, which this watch monitors.")
    dropped: Counter[str] = Counter()
    numbers = np.stack([_numbers(frame, name) for name in columns], 1)
    good = np.all(np.abs(numbers) < _LARGEST, axis=1)
    dropped["an empty or infinite value"] += int((~good).sum())
    ids = _texts(frame, "row")
    if ids is not None:
        first = ~frame["row"].astype(str).duplicated().to_numpy()
        dropped["a row id that occurs twice"] += int((good & ~first).sum())
        good &= first
    clients = _texts(frame, "client")
    if clients is not None:
        dropped["no client"] += int((good & (clients == "")).sum())
        good &= clients != ""
    if not good.any():
        raise Fault("no usable rows", f"none of {len(frame)} rows can be used: {_reasons(dropped)}.")
    accepted = _yes_or_no(frame, "accepted")
    loss = _loss(frame, accepted)
    groups = _texts(frame, "group")
    deployments = _texts(frame, "deployment")
    if deployments is None:
        deployments = np.full(len(frame), "" if deployment is None else str(deployment), object)
    parts = []
    for name in dict.fromkeys(deployments[good]):
        here = good & (deployments == name)
        chosen = frame[here]
        parts.append(
            Rows(
                deployment=name, time=_time(chosen["time"].iloc[0] if "time" in chosen else time),
                theta=_model(chosen, MODEL, parameters, theta), explored=_chance(chosen, parameters, explored),
                numbers=numbers[here], client=np.full(here.sum(), ONLY_CLIENT, object) if clients is None else
                clients[here], group=None if groups is None else groups[here],
                loss=None if loss is None else loss[here], accepted=None if accepted is None else accepted[here],
                ids=None if ids is None else ids[here],
            )
        )  # fmt: skip
    if all(part.time is not None for part in parts):
        parts.sort(key=lambda part: part.time or 0.0)
    ignored = tuple(name for name in features if name not in columns)
    return Batch(
        id or digest, digest, tuple(parts), Schema(columns, parameters), +dropped, ignored, "loss" not in frame
    )


def _parameters(models: list[str], schema: Schema | None, asked: Any, theta: Any) -> tuple[str, ...]:
    there = [name.removeprefix(MODEL) for name in models] or list(theta or ())
    if schema is not None or asked:
        wanted = schema.parameters if schema is not None else tuple(asked)
        for name in wanted:
            if name not in there:
                raise Fault("model", f"the model's parameter {name!r} is missing; add a column {MODEL}{name}.")
        return wanted
    if not there:
        raise Fault("model", f"the model is missing: add columns {MODEL}<name>, or pass theta=.")
    return tuple(there)


def _model(chosen: Any, prefix: str, parameters: tuple[str, ...], told: Any) -> np.ndarray:
    values = []
    for name in parameters:
        if prefix + name in chosen:
            column = np.unique(_numbers(chosen, prefix + name))
            if len(column) != 1:
                raise Fault("model", f"{prefix}{name} must be one number under a deployment; got {len(column)}.")
            values.append(float(column[0]))
        else:
            values.append(float((told or {})[name]))
        if not abs(values[-1]) < _LARGEST:
            raise Fault("model", f"{prefix}{name} must be a finite number; got {values[-1]}.")
    return np.array(values)


def _chance(chosen: Any, parameters: tuple[str, ...], told: Any) -> np.ndarray | None:
    there = [name for name in parameters if CHANCE + name in chosen or name in (told or {})]
    if not there:
        return None
    return _model(chosen, CHANCE, parameters, {name: 0.0 for name in parameters} | dict(told or {}))


def _numbers(frame: Any, name: str) -> np.ndarray:
    import pandas as pd

    try:
        return pd.to_numeric(frame[name]).to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise Fault("type", f"column {name!r} must be numeric: {error}.") from error


def _texts(frame: Any, name: str) -> np.ndarray | None:
    if name not in frame:
        return None
    column = frame[name]
    return np.where(column.isna(), "", column.astype(str).str.strip()).astype(object)


def _yes_or_no(frame: Any, name: str) -> np.ndarray | None:
    if name not in frame:
        return None
    values = _numbers(frame, name)
    if not np.all(np.isnan(values) | (values == 0) | (values == 1)):
        raise Fault("type", f"column {name!r} must be 0 or 1.")
    return values


def _loss(frame: Any, accepted: np.ndarray | None) -> np.ndarray | None:
    """As given; otherwise the squared error of a score in 0..1, or whether the decision differs from the label."""
    if "loss" in frame:
        return _numbers(frame, "loss")
    if "label" not in frame:
        return None
    label = _numbers(frame, "label")
    if not np.all(np.isnan(label) | (label == 0) | (label == 1)):
        return None
    if "score" in frame:
        score = _numbers(frame, "score")
        if np.all(np.isnan(score) | ((score >= 0) & (score <= 1))):
            return (score - label) ** 2
    return None if accepted is None else np.where(np.isnan(accepted + label), np.nan, accepted != label)


def _time(value: Any) -> float | None:
    """A number, or a date as days since 1970 (UTC if it has no time zone)."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            moment = datetime.datetime.fromisoformat(str(value))
        except ValueError:
            raise Fault("clock", f"time must be a number or an ISO date; got {value!r}.") from None
        number = moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() / 86400
    if not math.isfinite(number):
        raise Fault("clock", f"time must be finite; got {number}.")
    return number


def _digest(frame: Any, *told: Any) -> str:
    """Digest of the content, in the order of the rows."""
    total = hashlib.blake2b(repr([*frame.columns, *map(str, told)]).encode(), digest_size=16)
    for name in frame.columns:
        total.update("\x1f".join(map(str, frame[name].tolist())).encode())
    return total.hexdigest()


def _reasons(dropped: Counter[str]) -> str:
    return "; ".join(f"{count} have {reason}" for reason, count in dropped.items() if count)
