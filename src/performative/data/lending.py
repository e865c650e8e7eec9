"""Give Me Some Credit."""

import io
from pathlib import Path

import numpy as np

from performative.data.catalog import DATA_SETS
from performative.data.download import get
from performative.data.places import ChecksumError, Place, read
from performative.data.tables import Table
from performative.facts import cites

_BALANCED = "performative_balanced_18357.npz"


@cites("creditfusion2011give")
def credit(
    balanced: bool = False, *, drop_missing: bool = False, path: str | Path | None = None, download: bool = True
) -> Table:
    """Borrowers, and whether they were 90 days late or worse within two years: 150,000 x 10, 6.7% late.

    Missing values (MonthlyIncome, NumberOfDependents) are NaN; `drop_missing` keeps the 120,269 rows without any.
    `balanced` returns the class-balanced, standardized set of Perdomo et al. 2020 instead, 18,357 x 10, computed by
    `balance` and compared with the published copy if the folder contains one. No column of ones is appended.
    """
    entry = DATA_SETS["credit"]
    place = get("credit", path, download)
    x, y, names = _parse(read(place, entry.files[0]))
    if balanced:
        rows, x, y = balance(x, y)
        _compare(place, rows, x, y)
    elif drop_missing:
        whole = ~np.isnan(x).any(axis=1)
        x, y = x[whole], y[whole]
    name = "credit, balanced" if balanced else "credit"
    return Table(name, x, y, names, ("repaid", "late"), entry.source, entry.license)


def balance(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, features and labels of the balanced set, from the full table.

    Rows without a missing value are scaled to mean 0 and population variance 1; of these, all late ones and the first
    10,000 others in file order are kept, and shuffled by RandomState(0). Scaling comes before the choice, so the
    columns of the result are not exactly mean 0 and variance 1. Equals the result of whynot 0.12.0 with seed 0.
    """
    whole = np.flatnonzero(~np.isnan(x).any(axis=1))
    # Column by column: sums along rows would be in another order and differ in the last bits.
    kept = np.asfortranarray(x[whole])
    scaled = (kept - kept.mean(axis=0)) / kept.std(axis=0)
    late, other = np.flatnonzero(y[whole] == 1), np.flatnonzero(y[whole] == 0)[:10_000]
    chosen = np.concatenate([late, other])
    chosen = chosen[np.random.RandomState(0).permutation(len(chosen))]
    return whole[chosen], np.ascontiguousarray(scaled[chosen]), y[whole][chosen]


def _parse(content: bytes) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    import pandas as pd

    frame = pd.read_csv(io.BytesIO(content), index_col=0)
    label = frame.pop("SeriousDlqin2yrs")
    x = np.ascontiguousarray(frame.to_numpy(np.float64))
    return x, label.to_numpy(np.int64), tuple(str(name) for name in frame.columns)


def _compare(place: Place, rows: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Raise if the balanced set is not the published one. Rows and labels are exact; sums may round differently."""
    file = place.folder / _BALANCED
    if not file.is_file():
        return
    with np.load(file, allow_pickle=False) as published:
        same = np.array_equal(published["row_id"], rows + 1) and np.array_equal(published["y"], y)
        same = same and np.allclose(published["X_std"], x, rtol=1e-9, atol=1e-9)
    if not same:
        raise ChecksumError(
            f"{file}: expected the balanced set computed from {DATA_SETS['credit'].files[0].name}; got another one. "
            "Remove this file to use the computed one."
        )
