"""Convert tables of any kind to pandas."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from performative.types import Unchecked

if TYPE_CHECKING:
    import pandas as pd

_KINDS = (
    "a table with one row per person: from pandas, polars, pyarrow, DuckDB or Ibis, a Hugging Face Dataset, or "
    "{client: table}"
)


def as_pandas(table: Any, owner: str = "frame", client: str | None = None) -> Unchecked["pd.DataFrame"]:
    """Convert a table to pandas; a pandas DataFrame is returned unchanged.

    Args:
        owner: name of the argument, for errors
        client: if `table` is {client: table}, such as the partitions of Flower Datasets, the name of the column that
            will contain the client
    """
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping) and table and all(_is_table(one) for one in table.values()):
        if client is None:
            raise ValueError(
                f"{owner}: tables by client need client=, the name of the column that will contain the client."
            )
        parts = {name: as_pandas(one, owner) for name, one in table.items()}
        taken = [name for name, one in parts.items() if client in one.columns]
        if taken:
            raise ValueError(f"{owner}: the table of {taken[0]!r} already has a column client={client!r}; drop it.")
        empty = [name for name, one in parts.items() if not len(one)]
        if empty:
            raise ValueError(f"{owner}: the table of {empty[0]!r} has no rows; leave it out.")
        first, *others = parts
        for name in others:
            apart = parts[first].columns.symmetric_difference(parts[name].columns)
            if len(apart):
                raise ValueError(
                    f"{owner}: all tables must have the same columns; only one of those of {first!r} and {name!r} has "
                    f"{str(apart[0])!r}. Add or drop it."
                )
        return pd.concat([one.assign(**{client: name}) for name, one in parts.items()], ignore_index=True)
    if not _is_table(table):
        path = isinstance(table, str | os.PathLike)
        told = (
            f"the path {str(table)!r}. Read the file first, such as with pandas.read_csv"
            if path
            else type(table).__name__
        )
        raise ValueError(f"{owner} must be {_KINDS}; got {told}.")
    if type(table).__module__.partition(".")[0] == "datasets":
        return table.with_format(None).to_pandas()
    return _by_narwhals(table)


def _is_table(table: Any) -> bool:
    if type(table).__module__.partition(".")[0] == "datasets":
        return hasattr(table, "to_pandas")  # a DatasetDict does not: it is a mapping of splits
    import narwhals.stable.v2 as nw

    return nw.from_native(table, pass_through=True) is not table and _has_columns(table)


def _has_columns(table: Any) -> bool:
    """Whether it is a table rather than a single column."""
    import narwhals.stable.v2 as nw

    return isinstance(nw.from_native(table, pass_through=True), nw.DataFrame | nw.LazyFrame)


def _by_narwhals(table: Any) -> Unchecked["pd.DataFrame"]:
    import narwhals.stable.v2 as nw

    found: Any = nw.from_native(table)
    if isinstance(found, nw.LazyFrame):
        found = found.collect("pyarrow")
    return found.to_pandas()
