"""Tables that stay with the members of a federation: where they are, which columns a model uses, how they are read.

The record contains only settings, the same on the server and on every member. An error in a table is described twice:
in a sentence that uses only those settings and may be sent, and with the table's contents, for its owner.
"""

import csv
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from performative._base.checks import check_counts, check_flags, is_one_of
from performative.tables.frames import Columns
from performative.tables.scaling import given_scales
from performative.types import Unchecked

if TYPE_CHECKING:
    import pandas as pd

KINDS = (".csv", ".parquet")
_PLACE = "{client}"


class TableRefused(ValueError):
    """A member's table cannot be used. `sentence` uses only the shared settings and reveals nothing about the rows."""

    def __init__(self, sentence: str, detail: str = ""):
        super().__init__(f"{sentence}: {detail}" if detail else f"{sentence}.")
        self.sentence = sentence


@dataclasses.dataclass(frozen=True)
class MemberTables:
    """[data]: one table per member, on its own host.

    Attributes:
        clients: the number of members, or their names
        features: numeric columns, in the order of theta
        label: the label column
        path: CSV (commas, UTF-8, a header) or Parquet file, with {client} for the member's name or number, or one path
            per member; relative to the data folder that the member specifies. With `sql`: the file that contains the
            database URL, in SQLAlchemy's format
        sql: a SELECT with an ORDER BY on a unique key that returns features and label
        labels: "whole" for classes 0, 1, ..., "real" for real-valued targets
        positive: the label value that is 1, if the two classes have other names
        scales: {feature: (mean, standard deviation)}; theta applies to (x - mean) / standard deviation. They must be
            known in advance, since nobody sees all rows
        intercept: add a last column of ones
        rows: a member with fewer rows does not participate; the batch size is checked against it
    """

    clients: int | list[str]
    features: list[str]
    label: str
    path: str | list[str]
    sql: str | None = None
    labels: str = "whole"
    positive: Any = None
    scales: Any = None
    intercept: bool = False
    rows: int = 1

    def __post_init__(self) -> None:
        check_flags("data", intercept=self.intercept)
        if isinstance(self.clients, list):
            if not self.clients or len(set(self.clients)) < len(self.clients):
                raise ValueError(f"clients must be a number, or distinct names; got {self.clients}.")
            bad = [name for name in self.clients if not name or "/" in name or name.startswith(".")]
            if bad:
                raise ValueError(f"clients: {bad[0]!r} is used in a path; use a name without '/' or a leading dot.")
        else:
            check_counts(clients=self.clients)
        check_counts(rows=self.rows)
        twice = [name for name in self.columns if self.columns.count(name) > 1]
        if not self.features or not all(self.columns) or twice:
            raise ValueError(f"features must be distinct columns, different from the label; got {self.columns}.")
        if not is_one_of(self.labels, "whole", "real"):
            raise ValueError(f'labels must be "whole" or "real"; got {self.labels!r}.')
        if self.positive is not None and self.labels == "real":
            raise ValueError('positive has no meaning with labels = "real", which has no classes; drop one of them.')
        if isinstance(self.scales, Mapping) or self.scales is None:
            _ = self.scaling
        else:
            raise ValueError(f"scales must be a table such as {{ debt = [40, 12] }}; got {self.scales!r}.")
        self._check_path()

    def _check_path(self) -> None:
        if isinstance(self.path, list) and len(self.path) != self.count:
            raise ValueError(f"path must be one path, or one for each of {self.count} clients; got {len(self.path)}.")
        if isinstance(self.path, str) and _PLACE not in self.path and not Path(self.path).name:
            raise ValueError(f"path must name a file; got {self.path!r}.")
        if self.sql is None:
            wrong = [name for name in map(self.file_name, range(self.count)) if not name.lower().endswith(KINDS)]
            if wrong:
                raise ValueError(f"path: {wrong[0]!r} must end in {' or '.join(KINDS)}, or set sql = ...")
        elif "order by" not in " ".join(self.sql.lower().split()):
            raise ValueError(f"sql must contain ORDER BY: a database may return rows in any order. Got {self.sql!r}.")

    @property
    def count(self) -> int:
        """N."""
        return len(self.clients) if isinstance(self.clients, list) else self.clients

    @property
    def columns(self) -> list[str]:
        """All columns to read."""
        return [*self.features, self.label]

    @property
    def width(self) -> int:
        """d, including the intercept."""
        return len(self.features) + self.intercept

    @property
    def scaling(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """Center and spread of the features."""
        if self.scales is None:
            return np.zeros(len(self.features)), np.ones(len(self.features))
        rule = "scales must give mean and standard deviation of every feature, such as { debt = [40, 12] }"
        return given_scales(self.scales, self.features, "scales", rule)

    @property
    def described(self) -> Columns:
        """Names of theta's entries and their scaling, as a problem keeps them."""
        center, spread = self.scaling
        names = (*self.features, "intercept") if self.intercept else tuple(self.features)
        who = tuple(map(self.name, range(self.count)))
        return Columns(names, tuple(center.tolist()), tuple(spread.tolist()), who, self.intercept)

    def name(self, client: int) -> str:
        """The value of {client}."""
        return self.clients[client] if isinstance(self.clients, list) else str(client)

    def file_name(self, client: int) -> str:
        """The path of one member's file, as in the shared file."""
        given = self.path[client] if isinstance(self.path, list) else self.path
        return given.replace(_PLACE, self.name(client))

    def read(self, client: int, folder: Path) -> tuple[Float[np.ndarray, "n d"], Shaped[np.ndarray, " n"]]:
        """Read one member's scaled rows and their labels: nothing is imputed or left out."""
        path = folder / self.file_name(client)
        if not path.is_file():
            raise TableRefused(
                f"there is no file path = {self.file_name(client)!r} in the client's data folder",
                f"{path} is not there; set the folder by `federation up --data`, or data= in the node's configuration",
            )
        frame = self._load(path)
        for name in self.columns:
            times = list(frame.columns).count(name)
            if times != 1:
                there = f"the columns are {', '.join(map(repr, map(str, frame.columns)))}"
                what = f"there is no column {name!r}" if times == 0 else f"column {name!r} occurs twice"
                raise TableRefused(f"{what} in the client's table", there)
        if len(frame) < self.rows:
            raise TableRefused(f"the client's table has fewer rows than rows = {self.rows}", f"it has {len(frame)}")
        raw = np.column_stack([_numbers(frame[name], f"column {name!r}") for name in self.features])
        center, spread = self.scaling
        x = (raw - center) / spread
        return (np.column_stack([x, np.ones(len(x))]) if self.intercept else x), self._labels(frame[self.label])

    def _load(self, path: Path) -> Unchecked["pd.DataFrame"]:
        try:
            if self.sql is not None:
                return _query(path.read_text(encoding="utf-8").strip(), self.sql)
            return _load_file(path)
        except TableRefused:
            raise
        except Exception as error:  # readers and drivers have errors of many kinds
            raise TableRefused("the client's file or database cannot be read", f"{path}: {error}") from error

    def _labels(self, column: Unchecked["pd.Series[Any]"]) -> np.ndarray:
        what = f"label {self.label!r}"
        if self.positive is not None:
            if column.isna().any():
                raise TableRefused(f"{what} is missing in some rows", f"{int(column.isna().sum())} of {len(column)}")
            column = column.astype(str)
            found, positive = column.unique().tolist(), str(self.positive)
            if len(found) > 2 or (len(found) == 2 and positive not in found):
                raise TableRefused(f"{what} must have two classes, one of them positive = {self.positive!r}",
                                   f"it contains {found[:5]}")  # fmt: skip
            return (column == positive).to_numpy(np.int32)
        hint = "" if self.labels == "real" else "; positive = ... in [data] names the class that is 1"
        values = _numbers(column, what, hint)
        if self.labels == "real":
            return values
        if np.any(values != np.floor(values)) or np.any(np.abs(values) >= 2**31):
            raise TableRefused(f'{what} contains numbers that are not classes; labels = "real" allows any numbers')
        return values.astype(np.int32)


def _numbers(column: Unchecked["pd.Series[Any]"], what: str, hint: str = "") -> Float[np.ndarray, " n"]:
    """Finite numbers, read exactly as written."""
    if getattr(column.dtype, "kind", "O") in "buif":
        values = column.to_numpy(np.float64, na_value=np.nan)
    else:  # text from a CSV file, decimals from a database, or no numbers at all
        missing = column.isna().to_numpy()
        cells = [np.nan if gone else _float(cell) for cell, gone in zip(column, missing, strict=True)]
        text = np.asarray([cell is None for cell in cells])
        if text.any():
            row = int(np.argmax(text))
            raise TableRefused(f"{what} contains text, not numbers{hint}", f"row {row + 1} is {column.iloc[row]!r}")
        values = np.asarray(cells, np.float64)
    bad = ~np.isfinite(values)
    if bad.any():
        raise TableRefused(
            f"{what} is missing or non-finite in some rows of the client's table",
            f"{int(bad.sum())} of {len(values)} rows, the first is row {int(np.argmax(bad)) + 1}; fill or drop them",
        )
    return values


def _float(cell: object) -> float | None:
    """A cell as a number, None if it is not one: Python rounds to the nearest float; 1_000 is not a number here."""
    try:
        return None if isinstance(cell, str) and "_" in cell else float(cell)  # type: ignore[arg-type]  # tried
    except (TypeError, ValueError, OverflowError):
        return None


def check_header(path: Path, mark: str = ",") -> None:
    """Raise if a CSV file with this separator names a column twice: pandas would rename the second."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = [name.strip() for name in next(csv.reader(file, delimiter=mark), [])]
    twice = [name for name in dict.fromkeys(header) if name and header.count(name) > 1]
    if twice:
        raise ValueError(f"{path.name}: column {twice[0]!r} occurs twice; keep one.")


def _load_file(path: Path) -> Unchecked["pd.DataFrame"]:
    import pandas as pd

    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    check_header(path)
    return pd.read_csv(path, dtype=str, encoding="utf-8-sig")  # numbers are parsed later, exactly


def _query(url: str, sql: str) -> Unchecked["pd.DataFrame"]:
    """The result of a query. Writes are refused (SQLite) or rolled back."""
    import pandas as pd
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA query_only = ON")
        result = connection.execute(sqlalchemy.text(sql))
        return pd.DataFrame(result.all(), columns=list(result.keys()))
