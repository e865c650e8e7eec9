"""The list of deployments: ids, times and models."""

import csv
import dataclasses
import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.checks import nearest
from performative.audit.files import KINDS, Table, first_fault, open_table
from performative.audit.schema import PREFIX, LogError, Settings
from performative.audit.scoring import ScoringFit, summarize_scoring
from performative.audit.values import EMPTY


@dataclasses.dataclass(frozen=True)
class Deployments:
    """Ids [T] in order of time, their times, models theta [T, d] and the names of the parameters.

    unit is the unit of time: "days" since the first (dates), "as given" (numbers), or "order" (no times).
    """

    names: tuple[str, ...]
    time: np.ndarray
    theta: np.ndarray
    parameters: tuple[str, ...]
    unit: str
    scoring: tuple[ScoringFit, ...]
    notes: tuple[str, ...]


def read_deployments(folder: Path, settings: Settings) -> Deployments:
    """Read and check deployments.csv or deployments.parquet."""
    table = _find(folder, settings)
    return listed_deployments(table, read_small(table), folder, settings)


def read_small(table: Table, rows: Any = None) -> dict[str, list[str]]:
    """All columns of a small table as text, "" for empty values. rows: an Arrow table if it is not a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rows is None and table.is_csv:
        assert table.path is not None
        if fault := first_fault(table, []):
            raise fault
        with table.path.open(newline="", encoding="utf-8-sig") as file:
            lines = [cells for cells in csv.reader(file, delimiter=table.delimiter) if cells][1:]
        return {name: [cells[j].strip() for cells in lines] for j, name in enumerate(table.columns)}
    rows = pq.read_table(table.path) if rows is None else rows
    texts = {name: rows.column(name).cast(pa.string()).to_pylist() for name in rows.column_names}
    return {name: ["" if v is None or v == "nan" else v.strip() for v in values] for name, values in texts.items()}


def listed_deployments(
    table: Table, values: dict[str, list[str]], folder: Path | None, settings: Settings
) -> Deployments:
    """Ids, times and models from a table of deployments; scoring files are in the folder."""
    names = settings.names
    table.require(names["deployment"])
    parameters = [c for c in table.columns if c == "theta" or (c.startswith(PREFIX) and c != PREFIX)]
    scored = names["scoring"] in table.columns and not parameters
    if not parameters and not scored:
        near = nearest(PREFIX, [c for c in table.columns if c != names["deployment"]] or ["nothing"])
        raise LogError(
            f"the models are missing: add columns {PREFIX}<name> with parameters, or a column {names['scoring']!r} "
            f"with a file of scores for each.{near}",
            table.name,
        )
    timed = names["time"] in table.columns
    ids = values[names["deployment"]]
    _check_ids(ids, table, names["deployment"])
    notes = []
    known = {*parameters, *names.values()}
    strange = [c for c in table.columns if c not in known]
    if strange:
        notes.append(f"{table.name}: columns without a role were ignored: {', '.join(strange)}.")
    if parameters and names["scoring"] in table.columns:
        notes.append(f"{table.name}: the parameters were used and the column {names['scoring']!r} was ignored.")
    time, unit = (
        times_of(values[names["time"]], table, names["time"]) if timed else (np.arange(1.0 * len(ids)), "order")
    )
    fits: tuple[ScoringFit, ...] = ()
    if scored:
        files = values[names["scoring"]]
        for i, path in enumerate(files):
            if not path:
                raise LogError("is empty; name a scoring file.", table.name, table.row(i), names["scoring"])
        if folder is None:
            raise LogError("scoring files are read from a folder; use theta columns here.", table.name)
        theta, labels, fits, more = summarize_scoring(
            [(path, f"{table.name}: {table.row(i)}") for i, path in enumerate(files)], folder, settings
        )
        notes += more
    else:
        theta, labels = _parameters(values, table, parameters)
    order = np.argsort(time, kind="stable")
    _check_apart(time, order, table, names["time"])
    if np.any(order != np.arange(len(order))):
        notes.append(f"{table.name}: deployments were not in order of time and have been sorted.")
    notes += remarks(theta, timed, len(ids))
    return Deployments(
        names=tuple(ids[i] for i in order),
        time=time[order],
        theta=theta[order],
        parameters=labels,
        unit=unit,
        scoring=tuple(fits[i] for i in order) if fits else (),
        notes=tuple(notes),
    )


def _find(folder: Path, settings: Settings) -> Table:
    if not folder.is_dir():
        raise LogError("there is no such folder." if not folder.exists() else "this is a file, not a folder.", folder)
    found = [folder / f"deployments{kind}" for kind in KINDS if (folder / f"deployments{kind}").is_file()]
    if len(found) != 1:
        there = sorted(p.name for p in folder.iterdir())
        near = nearest("deployments.csv", there) if there else " The folder is empty."
        message = (
            "contains both deployments.csv and deployments.parquet; keep one."
            if found
            else f"needs deployments.csv or deployments.parquet, one row per deployment.{near}"
        )
        raise LogError(message, folder)
    return open_table(found[0], folder, settings.delimiter, settings.decimal)


def _check_ids(ids: list[str], table: Table, column: str) -> None:
    if not ids:
        raise LogError("there are no deployments: the file has no rows.", table.name)
    seen: dict[str, int] = {}
    for i, name in enumerate(ids):
        if not name:
            raise LogError("is empty; every deployment needs an id.", table.name, table.row(i), column)
        if name in seen:
            where = table.row(seen[name])
            raise LogError(
                f"must name each deployment once; {name!r} is also in {where}.", table.name, table.row(i), column
            )
        seen[name] = i


# Sums of squares of larger numbers would overflow.
_LARGEST = 1e100


def _parameters(values: dict[str, list[str]], table: Table, columns: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    theta = np.empty((len(values[columns[0]]), len(columns)))
    for j, column in enumerate(columns):
        for i, text in enumerate(values[column]):
            theta[i, j] = parsed = _number(text.replace(table.decimal, ".")) if "_" not in text else math.nan
            if not abs(parsed) < _LARGEST:
                empty = text in EMPTY
                came = "nothing" if empty else repr(text) if math.isnan(parsed) else f"{parsed:g}"
                rule = f"must be a finite number below {_LARGEST:g}"
                raise LogError(f"{rule}; got {came}.", table.name, table.row(i), column)
    return theta, tuple(c.removeprefix(PREFIX) for c in columns)


def times_of(words: list[str], table: Table, column: str) -> tuple[np.ndarray, str]:
    """Numbers as given; dates as days since the first. 20240131 is a date if all values look like that."""
    digits = all(len(w) == 8 and w.isdigit() for w in words)
    dated = digits and all(_date(w) is not None for w in words)
    numbers = [math.nan if dated else _number(w) for w in words]
    days = [_date(w) for w in words]
    for i, word in enumerate(words):
        if not math.isfinite(numbers[i]) and days[i] is None:
            came = repr(word) if word else "nothing"
            rule = "must be a finite number or an ISO date (2024-01-31); "
            raise LogError(f"{rule}got {came}.", table.name, table.row(i), column)
    if all(math.isfinite(v) for v in numbers):
        return np.array(numbers), "as given"
    for i, day in enumerate(days):
        if day is None or (math.isfinite(numbers[i])):
            rule = "must be numbers in all rows or dates in all rows; "
            raise LogError(f"{rule}got {words[i]!r} among dates.", table.name, table.row(i), column)
    values = np.array([d for d in days if d is not None])
    return values - values.min(), "days"


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def _date(word: str) -> float | None:
    """Days since 1970; without a time zone, UTC."""
    try:
        moment = datetime.datetime.fromisoformat(word)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp() / 86400


def _check_apart(time: np.ndarray, order: np.ndarray, table: Table, column: str) -> None:
    """Refuse two models at the same time: it would be unclear which of them people reacted to."""
    same = np.flatnonzero(np.diff(time[order]) <= 0)
    if len(same):
        i, j = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        where = f"{table.row(i)} has the same"
        raise LogError(
            f"must differ between deployments; {where}. Use hours, or an order.", table.name, table.row(j), column
        )


def remarks(theta: np.ndarray, timed: bool, count: int) -> list[str]:
    notes = []
    if not timed:
        notes.append("No times are given: deployments are assumed one unit of time apart, in the order of the file.")
    if count == 1:
        notes.append(
            "There is only one deployment: no reaction to the model can be detected, because the model never changed."
        )
    elif np.all(theta == theta[0]):
        notes.append("The model is the same in all deployments: changes over time cannot be attributed to it.")
    return notes
