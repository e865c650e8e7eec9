"""Rows recorded under a deployed model: which ones count, which are skipped and why."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from performative.live.sources.deployment import LAST_VERSION
from performative.live.telling import Sayable

OLDER, NEWER = "an older version", "a newer version"
UNFINISHED = "an unfinished file or line"


class RowsError(Sayable, ValueError):
    """Rows that cannot be used without guessing: a version or a column is missing, a file cannot be read."""

    sentence = "the client's rows cannot be used"


class NoVersion(RowsError):
    """A row without the version of its model."""

    sentence = "rows lack the version of the model under which they were recorded"


class NoColumn(RowsError):
    """A table that lacks a column, or has it twice."""

    sentence = "a column is missing from the client's table, or occurs twice"


class Unreadable(RowsError):
    """A file or a database that cannot be read."""

    sentence = "the client's file or database cannot be read"


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The rows that arrived under one version, in order.

    Attributes:
        x: [n, d] features, finite
        y: [n] labels, finite; None if there are none
        skipped: number of rows not in x, by reason; each row counts once
        source: where they come from, in words
    """

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"] | None
    version: int
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    source: str = ""

    def __len__(self) -> int:
        return len(self.x)

    def newest(self, most: int | None) -> "Rows":
        """The last `most` rows, None for all."""
        if most is None or len(self) <= most:
            return self
        return dataclasses.replace(self, x=self.x[-most:], y=None if self.y is None else self.y[-most:])


@dataclasses.dataclass(frozen=True)
class Names:
    """The columns of a table to read. `order` is the column to sort by, None to keep the order of the rows."""

    features: tuple[str, ...]
    label: str | None
    version: str
    order: str | None = None

    @classmethod
    def of(cls, owner: str, features: Sequence[str], label: str | None, version: str, order: str | None = None) -> Any:
        """Checked names."""
        if isinstance(features, str) or not features:
            raise ValueError(f"{owner}: features must be a list of one column name or more; got {features!r}.")
        names = [*features, version, *(name for name in (label, order) if name is not None)]
        if not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"{owner}: features, label, version and order_by must be names of columns; got {names}.")
        # The order may be that of a feature; the columns that the model sees must be distinct.
        seen = [*features, version, *(() if label is None else (label,))]
        twice = [name for name, count in Counter(seen).items() if count > 1]
        if twice:
            raise ValueError(f"{owner}: column {twice[0]!r} is named twice among features, label and version.")
        return cls(tuple(features), label, version, order)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must contain finite numbers: features, then the label."""
        return self.features if self.label is None else (*self.features, self.label)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        more = (self.version,) if self.order is None else (self.version, self.order)
        return tuple(dict.fromkeys((*self.numbers, *more)))

    def check(self, there: Sequence[str], where: str) -> None:
        """Reject a table that lacks one of the columns, or has it twice."""
        missing = [name for name in self.columns if name not in there]
        if missing:
            kind = NoVersion if missing == [self.version] else NoColumn
            raise kind(
                f"{where}: there is no column {', '.join(map(repr, missing))}; the columns are "
                f"{', '.join(map(repr, there)) or 'none'}. Every row must have features"
                f"{'' if self.label is None else ', label'} and the version of the model under which it was recorded."
            )
        twice = [name for name in self.columns if list(there).count(name) > 1]
        if twice:
            raise NoColumn(f"{where}: column {twice[0]!r} occurs twice; keep one.")


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """The rows of one table with the wanted version, [n, features and label], and the row counts of all versions.

    `order` contains the sort keys, None to keep the order of the rows.
    """

    values: np.ndarray
    order: np.ndarray | None
    skipped: Counter[str]
    versions: Counter[int]


def sort_out(table: Any, names: Names, wanted: int, where: str) -> Part:
    """The rows of a table (a mapping or a data frame, column by name) recorded under the wanted version."""
    columns = {name: as_column(table[name]) for name in names.columns}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise RowsError(f"{where}: columns must have equal lengths; got {lengths}.")
    versions = _versions(columns[names.version], names.version, where)
    mine = versions == wanted
    values = np.stack([as_floats(columns[name][mine]) for name in names.numbers], axis=1)
    skipped: Counter[str] = Counter()
    keep = np.ones(len(values), bool)
    for name, good in zip(names.numbers, np.isfinite(values).T, strict=True):
        skipped[f"no finite number in column {name!r}"] += int(np.sum(keep & ~good))
        keep &= good
    order = None
    if names.order is not None:
        order, there = _order(columns[names.order][mine])
        skipped[f"nothing in column {names.order!r}"] += int(np.sum(keep & ~there))
        keep &= there
        order = order[keep]
    found, count = np.unique(versions, return_counts=True)
    return Part(values[keep], order, +skipped, Counter(dict(zip(found.tolist(), count.tolist(), strict=True))))


def gather(parts: Sequence[Part], names: Names, version: int, source: str) -> Rows:
    """Concatenate the parts, sorted if there is an order; the sort is stable."""
    values = np.concatenate([np.empty((0, len(names.numbers))), *(part.values for part in parts)])
    orders = [part.order for part in parts if part.order is not None and len(part.order)]
    if orders:
        if len({order.dtype.kind for order in orders}) > 1:
            raise RowsError(
                f"{source}: column {names.order!r} has numbers, dates and text in different files, which "
                "have no common order; use the same type in all."
            )
        values = values[np.argsort(np.concatenate(orders), kind="stable")]
    skipped: Counter[str] = sum((part.skipped for part in parts), Counter())
    for part in parts:
        skipped[OLDER] += sum(count for other, count in part.versions.items() if other < version)
        skipped[NEWER] += sum(count for other, count in part.versions.items() if other > version)
    d = len(names.features)
    return Rows(values[:, :d], None if names.label is None else values[:, d], version, dict(+skipped), source)


def as_column(values: Any) -> np.ndarray:
    """A list, or a column of NumPy, pandas or Arrow, as an array with one axis; lists become object arrays."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    cells = list(values)
    column = np.empty(len(cells), object)
    column[:] = cells
    return column


def as_floats(column: np.ndarray) -> np.ndarray:
    """float64, also exact for text; NaN for cells that are not numbers."""
    if column.dtype.kind in "buif":
        return column.astype(np.float64)
    if column.dtype.kind in "Mmc":
        return np.full(len(column), np.nan)
    try:
        return column.astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        return np.array([_float(cell) for cell in column.tolist()], np.float64)


def _float(cell: Any) -> float:
    try:
        return float(cell)
    except (ValueError, TypeError, OverflowError):
        return np.nan


def _versions(column: np.ndarray, name: str, where: str) -> np.ndarray:
    """Integers; a row without a version cannot be distinguished from an older model's, so it raises an error."""
    numbers = as_floats(column)
    good = (numbers >= 0) & (numbers <= LAST_VERSION) & (numbers == np.floor(numbers))
    if not np.all(good):
        at, bad = int(np.argmin(good)), int(np.sum(~good))
        raise NoVersion(
            f"{where}: row {at + 1} has {str(column[at])!r} in column {name!r}, and {bad} of {len(good)} rows have no "
            "version. It must be the integer version under which the model was deployed: make the scoring service "
            "write it into every row, and remove those rows."
        )
    return numbers.astype(np.int64)


def _order(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sort keys, and where they exist: times (int64), numbers (float64), or otherwise text."""
    if column.dtype.kind == "M":
        return column.astype("datetime64[ns]").astype(np.int64), ~np.isnat(column)
    numbers = as_floats(column)
    there = np.array([cell is not None and cell == cell and cell != "" for cell in column.tolist()], bool)
    return (numbers if np.all(np.isfinite(numbers[there])) else column.astype(str)), there
