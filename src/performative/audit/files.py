"""CSV and Parquet files as tables of the embedded engine, and the location of faults in them."""

import contextlib
import csv
import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from performative._base.checks import nearest
from performative.audit.schema import LogError
from performative.audit.values import EMPTY, NO, YES

KINDS = (".csv", ".parquet")
# Names of the columns that locate a row: the file, and the row's number there plus the file's own number.
FILE, ROW = "__file", "__row"
# Row numbers within a file are below this; the higher bits are the file's number.
ROWS_OF_A_FILE = 1 << 32
# Memory for sorting and loading; anything beyond spills to a temporary folder.
_MEMORY = "1200MB"


@dataclasses.dataclass(frozen=True)
class Table:
    """A file or a database table. `name` is its path relative to the folder, so it stays the same if that moves."""

    name: str
    columns: tuple[str, ...]
    path: Path | None = None
    delimiter: str = ","
    decimal: str = "."

    def require(self, column: str) -> None:
        """Refuse a table without that column, and suggest the closest name."""
        if column not in self.columns:
            raise LogError(f"there is no column {column!r}.{nearest(column, self.columns)}", self.name)

    @property
    def is_csv(self) -> bool:
        return self.path is not None and self.path.suffix == ".csv"

    def row(self, index: int) -> str:
        """The location of a row, as a person would look it up; a CSV file has its header on line 1."""
        return f"line {index + 2}" if self.is_csv else f"row {index + 1}"


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Where engines of this process spill what does not fit into memory; removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="performative-audit-")


def embedded() -> Any:
    """An in-process DuckDB connection."""
    import ibis

    return settled(ibis.duckdb.connect())


def settled(connection: Any) -> Any:
    """The DuckDB connection with bounded memory and no progress bar on stdout, which programs may read."""
    import duckdb

    connection.raw_sql(f"SET memory_limit='{_MEMORY}'; SET temp_directory={_quoted(_scratch().name)}")
    # A notebook without ipywidgets can neither show the bar nor disable it.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.raw_sql("SET enable_progress_bar=false")
    return connection


def open_table(path: Path, folder: Path, delimiter: str = ",", decimal: str = ".") -> Table:
    """A file's columns, from its header or schema."""
    name = path.relative_to(folder).as_posix()
    if path.suffix not in KINDS:
        raise LogError(f"only {' and '.join(KINDS)} files are read; got {path.suffix or 'no extension'!r}.", name)
    if not path.is_file():
        raise LogError("there is no such file.", name)
    columns = _csv_header(path, name, delimiter) if path.suffix == ".csv" else _parquet_header(path, name)
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise LogError("this column occurs twice; keep one.", name, column=twice[0])
    return Table(name, tuple(columns), path, delimiter, decimal)


def _csv_header(path: Path, name: str, delimiter: str) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file, delimiter=delimiter), None)
    except UnicodeDecodeError as error:
        raise LogError(f"not UTF-8 text ({error.reason}); save it as UTF-8.", name) from error
    if not header:
        raise LogError("the file is empty; its first line must name the columns.", name)
    other = next((c for c in ";\t|" if len(header) == 1 and c in header[0]), None)
    if other:
        raise LogError(
            f"columns must be separated by {delimiter!r}; the header is {header[0]!r}. "
            f"Set delimiter = {other!r} under [files] of audit.toml.",
            name,
        )
    return header


def _parquet_header(path: Path, name: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except pa.ArrowInvalid as error:
        raise LogError(f"not a Parquet file: {error}", name) from error


def load(connection: Any, tables: Sequence[Table], columns: Sequence[str]) -> list[Any]:
    """Load columns of files as engine tables, with FILE and ROW; Parquet files with one schema form one table."""
    import pyarrow.parquet as pq

    groups: dict[Any, list[Table]] = {}
    for table in tables:
        assert table.path is not None
        kind = table.name if table.is_csv else str(pq.read_schema(table.path).remove_metadata())
        groups.setdefault(kind, []).append(table)
    return [(_load_csv if group[0].is_csv else _load_parquet)(connection, group, columns) for group in groups.values()]


def _load_parquet(connection: Any, tables: Sequence[Table], columns: Sequence[str]) -> Any:
    first = tables[0]
    assert first.path is not None
    folder = len(str(first.path)) - len(first.name)
    paths = ", ".join(_quoted(str(table.path)) for table in tables)
    number = f"(md5_number_lower(substr({FILE}, {folder + 1})) % 1048576)::BIGINT * {ROWS_OF_A_FILE}"
    return connection.sql(
        f"SELECT {', '.join(map(_name, columns))}, substr({FILE}, {folder + 1}) AS {FILE}, "
        f"{number} + file_row_number AS {ROW} "
        f"FROM read_parquet([{paths}], filename='{FILE}', file_row_number=true, hive_partitioning=false)"
    )


def _load_csv(connection: Any, tables: Sequence[Table], columns: Sequence[str]) -> Any:
    """Parsed once: a text file is slow to read again."""
    import duckdb
    import ibis

    (table,) = tables
    names = [f"c{k}" for k in range(len(table.columns))]
    kinds = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
    # In a file with a single column an empty line is a row; with several columns it is not.
    asked = ", ".join(f"{names[table.columns.index(column)]} AS {_name(column)}" for column in columns)
    made = ibis.util.gen_name("csv")
    try:
        connection.raw_sql(
            f"CREATE TEMP TABLE {made} AS SELECT {asked}, {_quoted(table.name)} AS {FILE}, "
            f"(md5_number_lower({_quoted(table.name)}) % 1048576)::BIGINT * {ROWS_OF_A_FILE} "
            f"+ row_number() OVER () - 1 AS {ROW} FROM read_csv({_quoted(str(table.path))}, columns={{{kinds}}}, "
            f"header=true, delim={_quoted(table.delimiter)}, quote='\"', escape='\"', auto_detect=false, nullstr='', "
            "strict_mode=true, max_line_size=16777216)"
        )
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise first_fault(table, []) or LogError(f"cannot be read: {first}", table.name) from error
    return connection.table(made)


def first_fault(table: Table, numbers: Sequence[str], flags: Sequence[str] = ()) -> LogError | None:
    """The first cell of a CSV file that is not a number (or yes or no), or the first line of the wrong length."""
    assert table.path is not None
    wanted = [(name, table.columns.index(name)) for name in numbers]
    try:
        with table.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=table.delimiter)
            next(reader)
            for cells in reader:
                row = f"line {reader.line_num}"
                if not cells:
                    continue
                if len(cells) != len(table.columns):
                    message = f"expected {len(table.columns)} values, as in the header; got {len(cells)}."
                    return LogError(message, table.name, row)
                for name, place in wanted:
                    known = name in flags and cells[place].strip().lower() in (*YES, *NO)
                    if not known and not _is_number(cells[place], table.decimal):
                        advice = "Correct it, leave it empty, or name the column under `ignore` in audit.toml."
                        return LogError(f"must be a number; got {cells[place]!r}. {advice}", table.name, row, name)
    except (UnicodeDecodeError, csv.Error) as error:
        return LogError(f"not readable as UTF-8 CSV: {error}", table.name)
    return None


def _is_number(cell: str, decimal: str) -> bool:
    cell = cell.strip()
    if cell in EMPTY:
        return True
    # Python reads "1_000" as a number and engines do not.
    if "_" in cell or (decimal == "," and "." in cell):
        return False
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
