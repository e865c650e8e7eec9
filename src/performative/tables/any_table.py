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
                    f"{owner}: all tables must have the same columns; of those of {first!r} and {name!r}, only one has "
                    f"column {str(apart[0])!r}. Add or drop it."
                )
        return pd.concat([one.assign(**{client: name}) for name, one in parts.items()], ignore_index=True)
    if not _is_table(table):
        path = isinstance(table, str | os.PathLike)
        told = (
            f"the path {str(table)!r}. Read the file first, for example with pandas.read_csv"
            if path
            else type(table).__name__
        )
        raise ValueError(f"{owner} must be {_KINDS}; got {told}.")
    if type(table).__module__.partition(".")[0] == "datasets":
        return table.with_format(None).to_pandas()
    return _by_narwhals(table)


def ordinary(table: Any, owner: str = "frame") -> Unchecked["pd.DataFrame"]:
    """A pandas table with columns of NumPy's types: exact decimals and objects that are numbers become numbers, and
    missing ones of nullable and Arrow types NaN or None."""
    import pandas as pd

    if isinstance(table.columns, pd.MultiIndex):
        raise ValueError(
            f"{owner}: columns have {table.columns.nlevels} levels of names, such as {table.columns[0]!r}; give each "
            "column one name, such as table.columns = ['_'.join(map(str, c)) for c in table.columns]."
        )
    if not table.columns.is_unique:
        return table  # refused by whoever uses it, by name
    made = table
    for name in table.columns:
        column = table[name]
        changed = _ordinary_column(column)
        if changed is not column:
            made = made.copy(deep=False) if made is table else made
            made[name] = changed
    return made


def _ordinary_column(column: Any) -> Any:
    import pandas as pd

    kind = column.dtype.kind
    if getattr(column.dtype, "na_value", None) is pd.NA and kind not in "mM":
        empty = column.isna()
        if kind in "iuf":
            whole = kind != "f" and not empty.any()
            values = column.to_numpy(f"{kind}8" if whole else "f8", **({} if whole else {"na_value": float("nan")}))
            return pd.Series(values, column.index, name=column.name)
        if kind == "b" and not empty.any():
            return column.astype(bool)
        column = column.astype(object).where(~empty, None)
    if column.dtype != object:
        return column
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found == "decimal":
        there = column.dropna()
        whole = len(there) == len(column) and all(value.as_tuple().exponent == 0 for value in there)
        if whole and all(abs(value) < 2**63 for value in there):
            return there.astype("int64")
        return column.astype(float)
    if found in ("integer", "floating", "mixed-integer-float"):
        return pd.to_numeric(column, errors="coerce")
    return column


def check_flat(column: Any, owner: str = "") -> None:
    """Raise if a column contains lists, arrays or dictionaries."""
    import numpy as np
    import pandas as pd

    if column.dtype != object or not pd.api.types.infer_dtype(column, skipna=True).startswith("mixed"):
        return
    nested = next((value for value in column if isinstance(value, (list, dict, set, np.ndarray))), None)
    if nested is not None:
        what = {"list": "lists", "dict": "dictionaries", "set": "sets"}.get(type(nested).__name__, "arrays")
        raise ValueError(
            f"{owner}column {str(column.name)!r} contains {what}; split it into columns of numbers, or leave it out."
        )


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
