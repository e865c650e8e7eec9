"""The return type of every loader, and the encoding of categorical columns."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from performative._deprecated import old_attributes
from performative.types import Unchecked

if TYPE_CHECKING:
    import pandas


@old_attributes
@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A data set: `x` with one row (or image) per sample, `y` its label.

    `features` names the columns of x (empty for images), `classes` the values of y (empty if y is a quantity).
    A table with categorical columns has x of dtype object: numbers are floats, categories are strings. `complete` is
    False if only a part of the published set was found.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    classes: tuple[str, ...]
    source: str
    license: str
    complete: bool = True

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"Table: x and y must have one row per sample each; got {len(self.x)} and {len(self.y)}.")
        if self.features and self.x.shape[1:] != (len(self.features),):
            raise ValueError(
                f"Table: x must have one column for each of {len(self.features)} features; got shape {self.x.shape}."
            )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        part = "" if self.complete else ", only a part"
        return f"Table({self.name}: x {self.x.shape} {self.x.dtype}, y {self.y.dtype}, {self.license}{part})"

    def take(self, rows: Unchecked[np.ndarray | slice]) -> "Table":
        """The same table with these rows (numbers or a mask), in this order."""
        return replace(self, x=self.x[rows], y=self.y[rows])

    def frame(self) -> "pandas.DataFrame":
        """The table as a data frame; the label is the last column, `label`."""
        import pandas as pd

        if not self.features:
            raise ValueError(f"{self.name} contains images of shape {self.x.shape[1:]}; use x and y directly.")
        frame = pd.DataFrame(self.x, columns=list(self.features))
        return frame.infer_objects().assign(label=self.y)


def encode(table: Table, like: Table | None = None, without: Iterable[str] = ()) -> Table:
    """One-hot encode categories and scale numbers to mean 0 and (population) variance 1; nothing is random.

    A categorical column becomes one column per value, in alphabetical order, named `column=value`; these stay 0 and 1.
    Values, means and spreads are those of `like`, or of the table itself: pass the training table to encode the test
    table in the same way. `without` names columns to leave out. A column that is constant in `like` is only centered.
    """
    like = table if like is None else like
    without = set(without)
    if not table.features or table.features != like.features:
        raise ValueError(
            f"encode: table and like must have the same named columns; got {table.features} and {like.features}."
        )
    if strange := sorted(without - set(table.features)):
        raise ValueError(f"encode: without names {strange}, which are not columns of {table.name}: {table.features}.")
    columns, names = [], []
    for index, name in enumerate(table.features):
        if name in without:
            continue
        values, known = table.x[:, index], like.x[:, index]
        if any(isinstance(value, str) for value in known):
            words = sorted(set(known))
            if unknown := sorted(set(values) - set(words)):
                raise ValueError(
                    f"encode: column {name!r} of table contains {unknown[0]!r}, which like does not; "
                    "make like contain every value, or drop these rows."
                )
            columns += [values == word for word in words]
            names += [f"{name}={word}" for word in words]
        else:
            columns.append(_standardized(name, values.astype(np.float64), known.astype(np.float64)))
            names.append(name)
    # Shape (columns, rows) first, since columns were built one at a time.
    x = np.array(columns, dtype=np.float64).reshape(len(columns), len(table)).T.copy()
    return replace(table, x=x, features=tuple(names))


def _standardized(name: str, values: np.ndarray, known: np.ndarray) -> np.ndarray:
    for array in (values, known):
        if missing := int(np.isnan(array).sum()):
            raise ValueError(
                f"encode: column {name!r} is missing {missing} of {len(array)} values; load with drop_missing=True, "
                "or fill them first."
            )
    spread = known.std()
    return (values - known.mean()) / (spread if spread > 0 else 1.0)
