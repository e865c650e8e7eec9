"""Read a table of people from a frame, a CSV or Parquet file, or a database."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILES = (".csv", ".csv.gz", ".tsv", ".parquet")


def read_people(source: Any) -> tuple[Any, str]:
    """Return a pandas frame and a name for it. Databases are specified as in the audit: FILE#TABLE, or a URL."""
    if hasattr(source, "columns") and hasattr(source, "groupby"):
        return source.reset_index(drop=True), "the table"
    if hasattr(source, "to_pandas"):
        return source.to_pandas().reset_index(drop=True), "the table"
    if isinstance(source, Mapping) and source and all(hasattr(table, "columns") for table in source.values()):
        raise ValueError(
            f"people must be one table; got {len(source)} tables in a {type(source).__name__}. Combine them, such as "
            "with pandas.concat(tables, names=['client']).reset_index('client'), and pass client='client'."
        )
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
        head = pd.read_csv(path, encoding="utf-8-sig", nrows=0, sep="\t" if path.suffix.lower() == ".tsv" else "\x1f")
        # If the header has no commas, try other separators.
        mark = next((mark for mark in ",;\t|" if mark in str(head.columns[0])), ",") if head.shape[1] == 1 else "\t"
        _check_header(path, mark)
        found = _read_text(path, mark, ".")
        if mark != ";":
            return found
        # With semicolons, decimals may have commas (1,5) or points (1.5): the reading that gives more numbers holds.
        other = _read_text(path, mark, ",")
        return other if _numbers(other) >= _numbers(found) else found
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: not UTF-8 text ({error.reason}); save it as UTF-8.") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path.name}: the file is empty; its first line must name the columns.") from error
    except pd.errors.ParserError as error:
        lengths = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        told = (
            str(error).strip()
            if lengths is None
            else "line {1} has {2} fields, {0} are expected".format(*lengths.groups())
        )
        raise ValueError(
            f"{path.name}: lines differ in length ({told}); quote fields that contain the separator."
        ) from error


def _check_header(path: Path, mark: str) -> None:
    """Raise if the file, which may be compressed, names a column twice: pandas would rename the second."""
    import pandas as pd

    first = pd.read_csv(
        path, encoding="utf-8-sig", sep=mark, header=None, nrows=1, dtype=str, keep_default_na=False,
        skipinitialspace=True,
    )  # fmt: skip
    header = [str(name).strip() for name in first.iloc[0]]
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path.name}: column {twice!r} occurs twice; keep one.")


def _read_text(path: Path, mark: str, decimal: str) -> Any:
    """Blanks after a separator, as in `income, debt`, belong to no name and no value."""
    import pandas as pd

    return pd.read_csv(path, encoding="utf-8-sig", sep=mark, decimal=decimal, skipinitialspace=True)


def _numbers(frame: Any) -> int:
    return frame.select_dtypes("number").shape[1]


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
