"""A table of people from wherever it is: a frame, a CSV or Parquet file, or a database."""

import os
from pathlib import Path
from typing import Any

from performative.tables.members import check_header

_FILES = (".csv", ".csv.gz", ".tsv", ".parquet")


def read_people(source: Any) -> tuple[Any, str]:
    """A pandas frame, and a name for it. Databases are named as the audit names them: FILE#TABLE, or a URL."""
    if hasattr(source, "columns") and hasattr(source, "groupby"):
        return source.reset_index(drop=True), "the table"
    if hasattr(source, "to_pandas"):
        return source.to_pandas().reset_index(drop=True), "the table"
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(f"people must be a table or the path of one; got {type(source).__name__}.")
    text = str(source)
    path = Path(text)
    if text.lower().endswith(_FILES):
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file.")
        return _read_file(path), path.name
    return _from_engine(text), path.name


def _read_file(path: Path) -> Any:
    import pandas as pd

    if path.suffix.lower() == ".parquet":
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path.name}: not a Parquet file ({str(error).splitlines()[0]}).") from error
    try:
        if path.suffix.lower() == ".csv":
            check_header(path)
        head = pd.read_csv(path, encoding="utf-8-sig", nrows=0, sep="\t" if path.suffix.lower() == ".tsv" else "\x1f")
        # Where no column is named with commas, another sign parts them; with semicolons decimals may have commas.
        mark = next((mark for mark in ",;\t|" if mark in str(head.columns[0])), ",") if head.shape[1] == 1 else "\t"
        return pd.read_csv(path, encoding="utf-8-sig", sep=mark, decimal="," if mark == ";" else ".")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: not UTF-8 text ({error.reason}); save it as UTF-8.") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path.name}: the file is empty; its first line must name the columns.") from error
    except pd.errors.ParserError as error:
        raise ValueError(f"{path.name}: lines differ in length ({str(error).strip()}).") from error


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
