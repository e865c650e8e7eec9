"""Queries to an engine: centered sums by group of rows, and a sample of rows by a hash of their position.

Everything here is a single Ibis expression, so the same plan runs in DuckDB, SQLite, Postgres and Spark, and compiles
for Snowflake and BigQuery. Only sums and bounded samples leave the engine.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import ibis
import numpy as np

from performative.audit.moments import from_sums

# The largest squared distance of a center from a cell's mean, in variances; sums of squares lose this much precision.
_FAR = 1e3
# The largest prime below 2^31, so products of two residues fit into 64 bits on every engine.
PRIME = 2147483647
# Extra rows that a draw may return: six standard deviations of a binomial count.
_SPARE = 6.0
# One limit for all cells is faster than one per cell, as long as it returns at most this many times the rows.
_WASTE = 4


def arrow(table: Any) -> Any:
    """The result of a query as an Arrow table."""
    with warnings.catch_warnings():
        # Ibis asks pandas for an option that pandas is about to drop.
        warnings.filterwarnings("ignore", message=".*future.infer_string.*")
        return table.to_pyarrow()


def fetch(table: Any) -> dict[str, np.ndarray]:
    """A small result as columns; text as objects with None, numbers in double precision with NaN if empty."""
    import pyarrow as pa

    answer = arrow(table)
    out = {}
    for name in answer.column_names:
        column = answer.column(name).combine_chunks()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            out[name] = np.array(column.to_pylist(), object)
        elif pa.types.is_integer(column.type) and not column.null_count:
            out[name] = column.to_numpy(zero_copy_only=False)
        elif pa.types.is_boolean(column.type):
            out[name] = np.array([np.nan if v is None else float(v) for v in column.to_pylist()])
        else:
            out[name] = np.array([np.nan if v is None else float(v) for v in column.to_pylist()], np.float64)
    return out


def sums(rows: Any, keys: Sequence[str], columns: Sequence[str], center: np.ndarray) -> Any:
    """Keys, n, s_j = sum d_j and s_j_k = sum d_j d_k by cell, with d = z - center. Empty values are skipped."""
    keyed = {key: rows[key] for key in keys}
    d = rows.select(**keyed, **{f"d{j}": rows[name] - float(center[j]) for j, name in enumerate(columns)})
    return _grouped(d, keys, _products(d, len(columns)))


def sums_by_cell(
    rows: Any, keys: Sequence[str], columns: Sequence[str], cells: dict[str, Any], center: np.ndarray
) -> Any:
    """The same with a center per cell; cells contains the values of its keys, center [cells, q] its means."""
    own = {f"m{j}": center[:, j] for j in range(len(columns))}
    met = rows.join(small_table({**cells, **own}, engine_of(rows)), list(cells))
    keyed = {key: met[key] for key in keys}
    d = met.select(**keyed, **{f"d{j}": met[name] - met[f"m{j}"] for j, name in enumerate(columns)})
    return _grouped(d, keys, _products(d, len(columns)))


def _products(d: Any, width: int) -> dict[str, Any]:
    asked = {"n": d.count()}
    for j in range(width):
        asked[f"s{j}"] = d[f"d{j}"].sum()
        asked |= {f"s{j}_{k}": (d[f"d{j}"] * d[f"d{k}"]).sum() for k in range(j + 1)}
    return asked


def _grouped(rows: Any, keys: Sequence[str], asked: dict[str, Any]) -> Any:
    return rows.group_by(list(keys)).agg(**asked) if keys else rows.agg(**asked)


def engine_of(table: Any) -> Any:
    """The engine of a table; None for an unbound table, which can only be compiled."""
    try:
        return table.get_backend()
    except ibis.IbisError:
        return None


def engine_name(table: Any) -> str:
    engine = engine_of(table)
    return "duckdb" if engine is None else str(engine.name)


def flat(table: Any) -> Any:
    """The same table as SQL text, so later queries do not compile it again."""
    engine = engine_of(table)
    if engine is None or engine.name == "pyspark":
        return table
    if engine.name == "duckdb":
        name = ibis.util.gen_name("flat")
        engine.raw_sql(f'CREATE TEMP VIEW "{name}" AS {engine.compile(table)}')
        return engine.table(name)
    return engine.sql(engine.compile(table), schema=table.schema())


def small_table(columns: dict[str, Any], engine: Any) -> Any:
    """A few numbers and strings, sent to the engine as a temporary table."""
    import pyarrow as pa

    made = ibis.memtable(pa.table({name: pa.array(list(values)) for name, values in columns.items()}))
    if engine is None or engine.name == "pyspark":
        return made
    return engine.create_table(ibis.util.gen_name("small"), made, temp=True)


def moment_arrays(answer: dict[str, np.ndarray], width: int, center: np.ndarray) -> tuple[np.ndarray, ...]:
    """count [c], mean [c, q], squares [c, q, q] from a result of `sums`."""
    count = answer["n"].astype(np.float64)
    first = np.stack([np.nan_to_num(answer[f"s{j}"]) for j in range(width)], axis=1).reshape(len(count), width)
    second = np.zeros((len(count), width, width))
    for j in range(width):
        for k in range(j + 1):
            second[:, j, k] = second[:, k, j] = np.nan_to_num(answer[f"s{j}_{k}"])
    return count, *from_sums(count, first, second, center)


def cancels(count: np.ndarray, mean: np.ndarray, squares: np.ndarray, center: np.ndarray) -> bool:
    """Whether the center was so far from some cell's mean that the variance lost digits."""
    variance = np.diagonal(squares, axis1=1, axis2=2) / np.maximum(count, 1)[:, None]
    return bool(np.any((mean - center) ** 2 > _FAR * variance))


def cross_moments(
    rows: Any, keys: Sequence[str], columns: Sequence[str], center: np.ndarray, cell: Sequence[str] = ()
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Values of the keys, and count, mean and squares of each group: about one center, and again if that cancels.

    Args:
        cell: the keys (a non-empty subset of `keys`) that define cells with their own centers
    """
    answer = fetch(sums(rows, keys, columns, center))
    count, mean, squares = moment_arrays(answer, len(columns), center)
    if cancels(count, mean, squares, center):
        if not cell:
            answer = fetch(sums(rows, keys, columns, mean[0]))
            count, mean, squares = moment_arrays(answer, len(columns), mean[0])
        else:
            own = _centers({key: answer[key] for key in cell}, count, mean)
            answer = fetch(sums_by_cell(rows, keys, columns, *own))
            at = {tuple(values): i for i, values in enumerate(zip(*own[0].values(), strict=True))}
            place = [at[tuple(values)] for values in zip(*(answer[key] for key in cell), strict=True)]
            count, mean, squares = moment_arrays(answer, len(columns), own[1][place])
    return {key: answer[key] for key in keys}, count, mean, squares


def _centers(
    cells: dict[str, np.ndarray], count: np.ndarray, mean: np.ndarray
) -> tuple[dict[str, list[Any]], np.ndarray]:
    """The mean of each cell, over groups that share its keys."""
    together: dict[Any, list[int]] = {}
    for i, values in enumerate(zip(*cells.values(), strict=True)):
        together.setdefault(tuple(values), []).append(i)
    centers = np.stack([np.average(mean[own], axis=0, weights=count[own]) for own in together.values()])
    return {key: [values[k] for values in together] for k, key in enumerate(cells)}, centers


def with_hash(rows: Any, row: str | None, seed: int) -> Any:
    """The rows with a column `hash` in 0 .. PRIME - 1, a function of a row's position and never of its values.

        x = (a low + 40692 high + b) mod p,    row = 2^32 high + low,    hash = x^5 mod p,    p = 2^31 - 1

    x -> x^5 is one-to-one, because 5 does not divide p - 1. a and b come from the seed. If rows have no number, the
    engine draws the hash at random, and another draw returns other rows.
    """
    if row is None:
        return rows.mutate(hash=(ibis.random() * PRIME).floor().cast("int64"))
    digest = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    a = int.from_bytes(digest[:8], "little") % (PRIME - 1) + 1
    b = int.from_bytes(digest[8:], "little") % PRIME
    high = (rows[row] / float(1 << 32)).floor().cast("int64")
    rows = rows.mutate(_x=((rows[row] - high * (1 << 32)) % PRIME * a + high % PRIME * 40692 + b) % PRIME)
    rows = rows.mutate(_y=(rows._x * rows._x) % PRIME)
    rows = rows.mutate(_z=(rows._y * rows._y) % PRIME)
    return rows.mutate(hash=(rows._z * rows._x) % PRIME)


def draw(
    rows: Any, row: str | None, seed: int, cells: dict[str, Sequence[Any]], count: np.ndarray, among: np.ndarray,
    size: int, columns: Sequence[str], condition: str | None = None,
) -> Any:  # fmt: skip
    """The `size` rows with the smallest hashes of each cell, and a few more.

    Args:
        cells: values of the keys of cells; count: [cells] rows of each; among: [cells] how many rows the `size` rows
            are drawn from, of which the cell may be a part; columns: what to return, besides keys and hash
        condition: a boolean column that marks the rows to draw from
    """
    share = np.minimum(1.0, (size + _SPARE * np.sqrt(size) + 10) / np.maximum(among, 1))
    limit = np.ceil(share * PRIME).astype(np.int64)
    hashed = with_hash(rows, row, seed)
    if count.sum() * share.max(initial=0.0) <= _WASTE * np.sum(share * count) + 10_000:
        kept = hashed.filter(hashed.hash < int(limit.max(initial=1)))
    else:
        limits = small_table({**{key: list(v) for key, v in cells.items()}, "_limit": limit}, engine_of(rows))
        met = hashed.join(limits, list(cells))
        kept = met.filter(met.hash < met._limit)
    kept = kept.filter(kept[condition]) if condition else kept
    return kept.select(*cells, "hash", *([row] if row else []), *columns)


def smallest(cell: np.ndarray, order: Sequence[np.ndarray], size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each cell and the indices of its first `size` rows by `order` (the last key is the primary one)."""
    by = np.lexsort((*order, cell))
    cells, starts = np.unique(cell[by], return_index=True)
    for one, start, end in zip(cells, starts, [*starts[1:], len(by)], strict=True):
        yield int(one), by[start : min(end, start + size)]
