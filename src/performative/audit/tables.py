"""CSV and Parquet files, read a block at a time."""

import csv
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.checks import nearest
from performative.audit.schema import LogError

KINDS = (".csv", ".parquet")
# Rows and values (Parquet), bytes (CSV) of a block: small against the memory bound, large against the cost of a call.
BATCH_ROWS = 1 << 17
BATCH_VALUES = 1 << 20
BATCH_BYTES = 1 << 23
# What counts as empty in a column of numbers.
_EMPTY = ["", "#N/A", "N/A", "NA", "NULL", "NaN", "nan", "n/a", "null", "None", "-nan", "<NA>"]


@dataclasses.dataclass(frozen=True)
class Table:
    """A file of rows. `name` is its path inside the folder, which does not change when the folder moves."""

    path: Path
    name: str
    columns: tuple[str, ...]
    delimiter: str = ","
    decimal: str = "."

    def require(self, column: str) -> None:
        """Refuse a table without that column, and say which name comes close."""
        if column not in self.columns:
            raise LogError(f"there is no column {column!r}.{nearest(column, self.columns)}", self.name)

    def row(self, index: int) -> str:
        """Where a row stands, as a person would look it up; CSV with one line a row has its header on line 1."""
        return f"line {index + 2}" if self.path.suffix == ".csv" else f"row {index + 1}"


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows: `numbers` [n, k] with NaN where empty; `codes` into `words` for text, -1 where empty."""

    start: int
    numbers: np.ndarray
    codes: dict[str, np.ndarray]
    words: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.numbers)


def open_table(path: Path, folder: Path, delimiter: str = ",", decimal: str = ".") -> Table:
    """A file's columns, from its header or schema."""
    name = path.relative_to(folder).as_posix()
    if path.suffix not in KINDS:
        raise LogError(f"only {' and '.join(KINDS)} files are read; got {path.suffix or 'no ending'!r}.", name)
    if not path.is_file():
        raise LogError("there is no such file.", name)
    columns = _csv_header(path, name, delimiter) if path.suffix == ".csv" else _parquet_header(path, name)
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise LogError("this column occurs twice; keep one.", name, column=twice[0])
    return Table(path, name, tuple(columns), delimiter, decimal)


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
            f"Say delimiter = {other!r} under [files] of audit.toml.",
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


def blocks(table: Table, numbers: Sequence[str], texts: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[Block]:
    """The named columns, block by block. The memory used does not depend on the length of the file."""
    import pyarrow as pa

    start = 0
    rows = max(1, min(rows, BATCH_VALUES // (len(numbers) + len(texts))))
    read = _csv_batches if table.path.suffix == ".csv" else _parquet_batches
    try:
        for batch in read(table, numbers, texts, rows):
            yield _block(batch, start, numbers, texts)
            start += batch.num_rows
    except pa.ArrowInvalid as error:
        found = _first_fault(table, numbers) if table.path.suffix == ".csv" else None
        raise found or LogError(f"cannot be read: {error}", table.name) from error


def _parquet_batches(table: Table, numbers: Sequence[str], texts: Sequence[str], rows: int) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(table.path)
    for name in numbers:
        kind = schema.field(name).type
        tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
        if not any(test(kind) for test in tests):
            raise LogError(
                f"must hold numbers; it holds {kind}. Encode it as numbers, or name it under `ignore` in audit.toml.",
                table.name,
                column=name,
            )
    words = [name for name in texts if pa.types.is_string(schema.field(name).type)]
    with pq.ParquetFile(table.path, read_dictionary=words, pre_buffer=False, buffer_size=1 << 17) as file:
        yield from file.iter_batches(batch_size=rows, columns=[*numbers, *texts])


def _csv_batches(table: Table, numbers: Sequence[str], texts: Sequence[str], rows: int) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    word = pa.dictionary(pa.int32(), pa.string())
    # `rows` sets the size of Parquet's batches; here blocks are of bytes, about 60 of them a row.
    options: dict[str, Any] = {
        "read_options": pc.ReadOptions(block_size=min(BATCH_BYTES, max(64 * rows, 1 << 16))),
        "parse_options": pc.ParseOptions(delimiter=table.delimiter, newlines_in_values=True),
        "convert_options": pc.ConvertOptions(
            column_types={**dict.fromkeys(numbers, pa.float64()), **dict.fromkeys(texts, word)},
            include_columns=[*numbers, *texts],
            null_values=_EMPTY,
            decimal_point=table.decimal,
        ),
    }
    with pc.open_csv(table.path, **options) as reader:
        yield from reader


def _block(batch: Any, start: int, numbers: Sequence[str], texts: Sequence[str]) -> Block:
    values = np.empty((batch.num_rows, len(numbers)))
    for j, name in enumerate(numbers):
        values[:, j] = _as_floats(batch.column(name))
    coded = {name: _as_codes(batch.column(name)) for name in texts}
    return Block(start, values, {n: c for n, (c, _) in coded.items()}, {n: w for n, (_, w) in coded.items()})


def _as_floats(column: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _as_codes(column: Any) -> tuple[np.ndarray, list[str]]:
    """Whole numbers, dates and text all become words, so that 1 in one file is "1" in another."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = [None if w is None else w.strip() for w in column.dictionary.cast(pa.string()).to_pylist()]
    unique = sorted({w for w in words if w and w != "nan"})
    place = {word: i for i, word in enumerate(unique)}
    # The last entry is where missing codes point; words that are empty or NaN are missing as well.
    remap = np.array([*(place.get(w or "", -1) for w in words), -1], np.int64)
    codes = column.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    return remap[codes.astype(np.int64)], unique


def _first_fault(table: Table, numbers: Sequence[str]) -> LogError | None:
    """The first cell of a CSV file that is not a number, or line of the wrong length, found by reading it again."""
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
                    if not _is_number(cells[place], table.decimal):
                        advice = "Correct it, leave it empty, or name the column under `ignore` in audit.toml."
                        return LogError(f"must be a number; got {cells[place]!r}. {advice}", table.name, row, name)
    except (UnicodeDecodeError, csv.Error) as error:
        return LogError(f"not readable as UTF-8 CSV: {error}", table.name)
    return None


def _is_number(cell: str, decimal: str) -> bool:
    cell = cell.strip()
    if cell in _EMPTY:
        return True
    # Python reads "1_000" as a number and Arrow does not.
    if "_" in cell or (decimal == "," and "." in cell):
        return False
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True
