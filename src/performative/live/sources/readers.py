"""Where rows come from: a folder of files, a database, or your own function.

Every row has the version of the model under which it was recorded. Rows of another version are counted and never
returned; a row without a version raises an error. Cells are never imputed: a row without a finite number in every
feature and in the label is skipped and counted.
"""

import csv
import dataclasses
import fnmatch
import io
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from performative.live.sources.rows import UNFINISHED, Names, Part, Rows, RowsError, Unreadable, gather, sort_out

KINDS = (".csv", ".parquet")
# File system timestamps have a resolution of up to 2 s. A file read that soon after a change may change again without a
# new timestamp, so it is read once more.
_TICK_NS = 2 * 10**9


@runtime_checkable
class Reader(Protocol):
    """Find the rows that arrived under a version."""

    def read(self, version: int) -> Rows:
        """All current rows of that version; the same rows come in the same order."""


@dataclasses.dataclass(frozen=True)
class _Seen:
    """The state of a file when it was last read, with its rows of one version."""

    stamp: tuple[int, ...]
    version: int
    part: Part
    settled: bool


@dataclasses.dataclass(frozen=True)
class Folder:
    """CSV (commas, UTF-8, a header) and Parquet files in a folder and its subfolders.

    Attributes:
        features, label: numeric columns, in the order of theta; without a label, samples are only features
        version: column of the model's version
        pattern: names of the files to read, such as "decisions-*.csv"; None for all CSV and Parquet files
        order_by: column of numbers, times, or text such as ISO dates to sort rows by

    Order: by `order_by`; ties, or all rows without it, by the file's path and then as in the file. Names that sort by
    age (dates, numbers with leading zeros) then put new rows last.

    Files may grow, change and disappear. Ignored are files and folders whose names begin with "." or "_", other
    suffixes (.part, .tmp), a Parquet file without its footer, and a CSV line until its line break is written. Only
    files that have changed are read again, and only rows of the last requested version are kept in memory.
    """

    path: str | Path
    features: Sequence[str]
    label: str | None = None
    version: str = "model_version"
    pattern: str | None = None
    order_by: str | None = None
    _names: Names = dataclasses.field(init=False, repr=False, compare=False)
    _seen: dict[str, _Seen] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = Names.of("Folder", self.features, self.label, self.version, self.order_by)
        object.__setattr__(self, "_names", names)

    def read(self, version: int) -> Rows:
        folder = Path(self.path)
        if not folder.is_dir():
            raise Unreadable(f"Folder: {folder} is not a folder; create it, or correct path=.")
        seen = {}
        for name in self._files(folder):
            try:
                seen[name] = self._look(name, folder / name, version)
            except FileNotFoundError:  # it disappeared after it was listed
                continue
        self._seen.clear()
        self._seen.update(seen)
        parts = [seen[name].part for name in sorted(seen)]
        return gather(parts, self._names, version, f"{len(parts)} files under {folder}")

    def _files(self, folder: Path) -> Iterator[str]:
        for here, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name[0] not in "._"]
            for name in files:
                fits = self.pattern is None or fnmatch.fnmatchcase(name, self.pattern)
                if name[0] not in "._" and name.lower().endswith(KINDS) and fits:
                    yield (Path(here) / name).relative_to(folder).as_posix()

    def _look(self, name: str, path: Path, version: int) -> _Seen:
        stat, now = path.stat(), time.time_ns()  # before reading: writes during the read change them
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        settled = now - stat.st_mtime_ns > _TICK_NS
        known = self._seen.get(name)
        if known is not None and known.settled and known.stamp == stamp:
            if known.version == version:
                return known
            if not known.part.versions[version]:
                unfinished = Counter({UNFINISHED: known.part.skipped[UNFINISHED]})
                none = Part(known.part.values[:0].copy(), None, +unfinished, known.part.versions)
                return _Seen(stamp, version, none, settled)
        read = _read_csv if path.suffix.lower() == ".csv" else _read_parquet
        table, unfinished_here = read(path, self._names)
        part = sort_out(table, self._names, version, str(path))
        skipped = part.skipped + Counter({UNFINISHED: unfinished_here})
        return _Seen(stamp, version, dataclasses.replace(part, skipped=skipped), settled)


Table = Mapping[str, Any]


def _read_csv(path: Path, names: Names) -> tuple[Table, int]:
    """The columns of a CSV file as text, and whether (0 or 1) the last line is unfinished.

    A line counts once its line break is written: before that, its last number may be incomplete.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    unfinished = int(len(whole) < len(content))
    try:
        lines = io.TextIOWrapper(io.BytesIO(whole), "utf-8-sig", newline="")
        header = next(csv.reader(lines), None)
        if header is None:
            return dict.fromkeys(names.columns, ()), unfinished
        names.check(header, str(path))
        table = pc.read_csv(
            pa.BufferReader(whole),
            pc.ReadOptions(use_threads=False),
            pc.ParseOptions(newlines_in_values=True),
            pc.ConvertOptions(
                include_columns=names.columns,
                column_types=dict.fromkeys(names.columns, pa.string()),
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError, csv.Error) as error:
        raise Unreadable(f"{path}: cannot be read as CSV: {error}") from error
    return {name: table.column(name) for name in names.columns}, unfinished


def _read_parquet(path: Path, names: Names) -> tuple[Table, int]:
    """The columns of a Parquet file; none, and 1, if its footer has not been written yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        if size < 12 or file.read() not in (b"PAR1", b"PARE"):
            return dict.fromkeys(names.columns, ()), 1
        try:
            with pq.ParquetFile(file) as parquet:
                names.check(parquet.schema_arrow.names, str(path))
                table = parquet.read(list(names.columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise Unreadable(f"{path}: cannot be read as Parquet: {error}") from error
    return {name: table.column(name) for name in names.columns}, 0


@dataclasses.dataclass(frozen=True)
class Query:
    """A query to a database, through SQLAlchemy (`pip install "performative[flower]"` and the database's driver).

    Attributes:
        url: a SQLAlchemy URL, such as "postgresql+psycopg://..."; never printed
        sql: a SELECT that filters by `:version`, has an ORDER BY on something unique, and returns the columns named
            here, including the version; any write is rejected (SQLite) or rolled back
    """

    url: str = dataclasses.field(repr=False)
    sql: str
    features: Sequence[str]
    label: str | None = None
    version: str = "model_version"
    _names: Names = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", Names.of("Query", self.features, self.label, self.version))
        # `::version` is a PostgreSQL cast.
        if not re.search(r"(?<![:\w\\]):version\b", self.sql):
            raise ValueError(
                f"Query: sql must filter by the requested version, as in WHERE {self.version} = :version; got "
                f"{self.sql!r}."
            )
        if not re.search(r"\border\s+by\b", self.sql, re.IGNORECASE):
            raise ValueError(
                f"Query: sql must have an ORDER BY, since a database may return rows in any order; got {self.sql!r}."
            )

    def read(self, version: int) -> Rows:
        try:
            import sqlalchemy
        except ImportError as error:
            raise ImportError('Query needs SQLAlchemy: pip install "performative[flower]"') from error
        try:
            engine = sqlalchemy.create_engine(self.url, poolclass=sqlalchemy.NullPool)
            with engine.connect() as connection:
                if engine.dialect.name == "sqlite":
                    # Python's driver opens a transaction only before some statements, so not all would be rolled back.
                    connection.exec_driver_sql("PRAGMA query_only = ON")
                result = connection.execute(sqlalchemy.text(self.sql), {"version": version})
                there, records = list(result.keys()), result.all()
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise Unreadable(f"Query: the database did not answer the query: {error}") from error
        self._names.check(there, "Query")
        table = {name: [record[place] for record in records] for place, name in enumerate(there)}
        return gather([sort_out(table, self._names, version, "Query")], self._names, version, "a query")


@dataclasses.dataclass(frozen=True)
class Function:
    """Your own function: function(version) returns a table, whose rows keep their order.

    A table is a pandas DataFrame, a dict of columns, or a list of dicts, one per row. Each row has its version.
    """

    function: Callable[[int], Any]
    features: Sequence[str]
    label: str | None = None
    version: str = "model_version"
    _names: Names = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", Names.of("Function", self.features, self.label, self.version))

    def read(self, version: int) -> Rows:
        table = self.function(version)
        if isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
            there = list(dict.fromkeys(name for row in table for name in row))
            table = {name: [row.get(name) for row in table] for name in there}
        elif hasattr(table, "columns") or isinstance(table, Mapping):
            there = list(getattr(table, "columns", table))
        else:
            raise RowsError(
                "Function: the function must return a DataFrame, a dict of columns or a list of dicts; it returned "
                f"{type(table).__name__}."
            )
        if there or len(table):
            self._names.check(there, "Function")
        else:  # a table without rows need not have columns
            table = dict.fromkeys(self._names.columns, ())
        return gather([sort_out(table, self._names, version, "Function")], self._names, version, "a function")
