"""Read a CSV file as people export it: its separator, its decimals, and lines that are not as long as the header."""

import csv
import gzip
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# What reading assumed, for the notes of an assessment: a key of `frame.attrs`.
NOTES = "performative.notes"
_MARKS = ",;\t|"
# Lines that are looked at to find the separator.
_LINES = 200
# Fewer distinct numbers with three digits after the mark may be a coincidence.
_SURE = 20
_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")


def read_separated(path: Path) -> Any:
    """Return the table of a CSV file; notes on what is not obvious are in `frame.attrs`."""
    import pandas as pd

    with _opened(path) as file:
        lines = list(itertools.islice(file, _LINES))
    # Excel writes the separator into the first line if asked to.
    told = re.fullmatch('"?sep=(.)"?', lines[0].rstrip("\r\n"), re.IGNORECASE) if lines else None
    skip = 1 if told else 0
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise ValueError(f"{path.name}: the file is empty; its first line must name the columns.")
    _check_comment(lines, path.name)
    mark = told[1] if told else _separator(lines, path)
    records = _records(lines, mark)
    header = [name.strip() for name in next(records)]
    first = next(records, header)
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path.name}: column {twice!r} occurs twice; keep one.")
    # Blanks after a separator, as in `income, debt`, are not part of a name or value.
    options: dict[str, Any] = {
        "encoding": "utf-8-sig", "sep": mark, "skipinitialspace": True, "skiprows": skip, "low_memory": False,
    }  # fmt: skip
    frame = pd.read_csv(path, **options)
    notes = []
    if len(first) > len(header):  # pandas takes surplus fields for row names
        _check_row_names(path, mark, skip, len(header))
        notes.append(
            "The first field of each line has no name in the header: it was taken for a row name, and left out."
        )
        frame = frame.reset_index(drop=True)
    frame.columns = [str(name).strip() for name in frame.columns]
    _with_decimals(frame, lambda: pd.read_csv(path, dtype=str, **options), mark, path.name, notes)
    frame.attrs[NOTES] = tuple(notes)
    return frame


def _opened(path: Path) -> io.TextIOWrapper:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _records(lines: Any, mark: str) -> Iterator[list[str]]:
    return (fields for fields in csv.reader(lines, delimiter=mark, skipinitialspace=True) if fields)


def _check_comment(lines: Sequence[str], name: str) -> None:
    """Raise if the first line is a comment: unlike a header that begins with #, it has fewer or more fields."""
    if not lines[0].startswith("#"):
        return
    below = next((line for line in lines if not line.startswith("#")), None)
    if below is None:
        return
    mark = max(_MARKS, key=below.count)
    first, other = (len(next(_records([line], mark), [])) for line in (lines[0], below))
    if first != other:
        raise ValueError(
            f"{name}: the first line must name the columns, but is a comment, {lines[0].strip()[:60]!r}; delete the "
            "lines above the header."
        )


def _separator(lines: Sequence[str], path: Path) -> str:
    """The separator that splits the lines into as many fields as the header."""
    if path.suffix.lower() == ".tsv" and "\t" in lines[0]:
        return "\t"
    fits: dict[str, float] = {}
    for mark in _MARKS:
        header, *body = [len(fields) for fields in _records(lines, mark)]
        body = body[:-1] if len(lines) >= _LINES - 1 else body  # the last one may be cut off
        if header > 1:
            fits[mark] = sum(count == header for count in body) / len(body) if body else 0.0
    sure = [mark for mark, share in fits.items() if share == 1.0]
    if len(sure) > 1:
        raise ValueError(
            f"{path.name}: columns may be separated by {sure[0]!r} or by {sure[1]!r}; quote the names and values that "
            f"contain one of them, or put a first line sep={sure[1]} above the header."
        )
    return max(fits, key=lambda mark: fits[mark], default=",")


def _check_row_names(path: Path, mark: str, skip: int, names: int) -> None:
    """Raise unless each line has one more field than the header, first, that can only be a row name: the numbers
    1, 2, ..., or texts in quotes that all differ, as R writes them."""
    fields, firsts, lines, starts = [], [], [], []

    def told(file: Any) -> Iterator[str]:
        for line in file:
            current.append(line)
            yield line

    current: list[str] = []
    with _opened(path) as file:
        reader = csv.reader(told(itertools.islice(file, skip, None)), delimiter=mark, skipinitialspace=True)
        for row in reader:
            if row:
                fields.append(row)
                starts.append(current[0].lstrip()[:1])
                lines.append(reader.line_num + skip)
            current.clear()
    body = fields[1:]
    firsts = [row[0].strip() for row in body]
    alike = all(len(row) == names + 1 for row in body) and any(row[-1].strip() for row in body)
    quoted = all(start == '"' for start in starts[1:]) and len(set(firsts)) == len(firsts)
    if alike and (quoted or firsts == [str(number) for number in range(1, len(firsts) + 1)]):
        return
    line, row = next((line, row) for line, row in zip(lines[1:], body, strict=True) if len(row) > names)
    raise ValueError(
        f"{path.name}: line {line} has {len(row)} fields, but the header has {names}, so values would move to other "
        f"columns. Name every column, remove a {mark!r} at the end of lines, and quote values that contain {mark!r}, "
        "such as decimals."
    )


def _with_decimals(frame: Any, raw: Any, mark: str, name: str, notes: list[str]) -> None:
    """Read decimal commas, and refuse numbers whose point or comma may separate thousands."""
    commas = False
    points = []
    for column in frame.columns:
        values = frame[column]
        if values.dtype.kind == "f" and _may_be_thousands(values):
            points.append(column)
        elif values.dtype.kind == "O":
            text = values.dropna().astype(str).str.strip()
            kinds = text.unique().tolist()
            if not all(_NUMBER.fullmatch(entry) for entry in kinds) or not any("," in entry for entry in kinds):
                continue
            _check_thousands(kinds, ",", column, name, notes, 0 if mark == "," else _SURE)
            commas = True
            if mark == ",":
                one = next(entry for entry in kinds if "," in entry)
                notes.append(f"Column {column!r}: the comma in {one!r} was read as a decimal point.")
            plain = text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            frame[column] = plain.astype(float).reindex(frame.index)
    if points:
        texts = raw().reset_index(drop=True)
        texts.columns = [str(column).strip() for column in texts.columns]
        for column in points:
            kinds = texts[column].dropna().astype(str).str.strip().unique().tolist()
            _check_thousands(kinds, ".", column, name, notes, 0 if commas else _SURE if mark == "," else 1)


def _may_be_thousands(values: Any) -> bool:
    """Whether numbers were read from at most three digits, or three digits before a point and three after."""
    size = values.dropna().abs()
    parts = size[size % 1 != 0]
    whole = (1000 * size).round()
    return bool(
        len(parts) and (size < 1000).all() and (parts >= 1).all() and ((1000 * size - whole).abs() < 1e-6).all()
    )


def _check_thousands(kinds: Sequence[str], point: str, column: str, name: str, notes: list[str], enough: int) -> None:
    """Raise if all numbers are like 1.065 or 936, at least `enough` like the first, and note fewer of them. With 0,
    numbers like 936 are not needed."""
    marked = [entry for entry in kinds if re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}({re.escape(point)}\d{{3}})+", entry)]
    bare = [entry for entry in kinds if re.fullmatch(r"[+-]?\d{1,3}", entry)]
    if not marked or len(marked) + len(bare) < len(kinds):
        return
    one, digits = marked[0], marked[0].replace(point, "")
    read = one.replace(",", ".")
    if len(marked) >= enough and (bare or not enough):
        raise ValueError(
            f"{name}: column {column!r} has entries such as {one!r}{f' and {bare[0]!r}' if bare else ''}, so "
            f"{one!r} may mean {digits} or {read}. Write {digits}, or {read}0 if that is meant."
        )
    if bare or enough == 1:
        notes.append(
            f"Column {column!r}: {one!r} was read as {float(read):g}; if it means {digits}, remove the {point!r}."
        )
