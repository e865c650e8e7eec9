"""Tables of any kind as one of pandas: people bring what they have."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from performative.types import Unchecked

if TYPE_CHECKING:
    import pandas as pd

_KINDS = (
    "a table with one row per person: of pandas, polars, pyarrow, DuckDB or Ibis, a Hugging Face Dataset, or "
    "{client: table}"
)


def as_pandas(table: Any, owner: str = "frame", client: str | None = None) -> Unchecked["pd.DataFrame"]:
    """The same table of pandas; what is one already stays as it is.

    Args:
        owner: what the argument is called, for errors
        client: where `table` is {client: table}, such as the partitions of Flower Datasets, the column that says whose
            row it is
    """
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping) and table and all(_is_table(one) for one in table.values()):
        if client is None:
            raise ValueError(
                f"{owner}: tables by client need client=, the name of the column that says whose they are."
            )
        parts = {name: as_pandas(one, owner) for name, one in table.items()}
        taken = [name for name, one in parts.items() if client in one.columns]
        if taken:
            raise ValueError(f"{owner}: the table of {taken[0]!r} has a column client={client!r} already; drop it.")
        return pd.concat([one.assign(**{client: name}) for name, one in parts.items()], ignore_index=True)
    if not _is_table(table):
        raise ValueError(f"{owner} must be {_KINDS}; got {type(table).__name__}.")
    if type(table).__module__.partition(".")[0] == "datasets":
        return table.with_format(None).to_pandas()
    return _by_narwhals(table)


def _is_table(table: Any) -> bool:
    if type(table).__module__.partition(".")[0] == "datasets":
        return hasattr(table, "to_pandas")  # a DatasetDict has none: it is a mapping of splits
    import narwhals.stable.v2 as nw

    return nw.from_native(table, pass_through=True) is not table and _has_columns(table)


def _has_columns(table: Any) -> bool:
    """Whether it is a table, and not one column of it."""
    import narwhals.stable.v2 as nw

    return isinstance(nw.from_native(table, pass_through=True), nw.DataFrame | nw.LazyFrame)


def _by_narwhals(table: Any) -> Unchecked["pd.DataFrame"]:
    import narwhals.stable.v2 as nw

    found: Any = nw.from_native(table)
    if isinstance(found, nw.LazyFrame):
        found = found.collect("pyarrow")
    return found.to_pandas()
