"""Read a table of people from a frame, a CSV or Parquet file, or a database."""

import csv
import os
import re
from pathlib import Path
from typing import Any

from performative.assess.separated import read_separated
from performative.tables.any_table import as_pandas, ordinary

_SHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_FILES = (".csv", ".csv.gz", ".tsv", ".parquet")


def read_people(source: Any, client: str | None = None) -> tuple[Any, str]:
    """Return a pandas frame and a name for it. Databases are specified as in the audit: FILE#TABLE, or a URL.

    `client`: if the source is {client: table}, the name of the column that will contain the client.
    """
    frame, name = _read(source, client)
    return ordinary(frame, name), name


def _read(source: Any, client: str | None) -> tuple[Any, str]:
    if not isinstance(source, (str, os.PathLike)):
        return as_pandas(source, "people", client).reset_index(drop=True), "the table"
    text = str(source)
    path = Path(text)
    if text.lower().endswith(_FILES):
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file.")
        return _read_file(path), path.name
    _check_place(text)
    return _from_engine(text), path.name


def _read_file(path: Path) -> Any:
    import pandas as pd

    if path.suffix.lower() == ".parquet":
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path.name}: not a Parquet file ({str(error).splitlines()[0]}).") from error
    try:
        return read_separated(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: not UTF-8 text ({error.reason}); save it as UTF-8.") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path.name}: the file is empty; its first line must name the columns.") from error
    except (pd.errors.ParserError, csv.Error) as error:
        lengths = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        told = (
            str(error).strip()
            if lengths is None
            else "line {1} has {2} fields, {0} are expected".format(*lengths.groups())
        )
        raise ValueError(
            f"{path.name}: lines differ in length ({told}); quote fields that contain the separator."
        ) from error


def _check_place(text: str) -> None:
    """Raise if this is not the path of anything, in words that fit a table of people."""
    if not text.strip():
        raise ValueError("the path of the table is empty; name a file.")
    place = Path(text.partition("#")[0])
    if "://" in text:
        return
    if not place.exists():
        raise ValueError(f"{place}: there is no such file.")
    if place.suffix.lower() in _SHEETS:
        raise ValueError(f"{place.name}: spreadsheets are not read; save the sheet as CSV.")


def _from_engine(where: str) -> Any:
    from performative.audit.files import FILE, ROW
    from performative.audit.queries import arrow
    from performative.audit.source import open_for_look

    found = open_for_look(where)
    try:
        table = found.table
        return arrow(table.drop(*[name for name in (FILE, ROW) if name in table.columns])).to_pandas()
    finally:
        found.close()
