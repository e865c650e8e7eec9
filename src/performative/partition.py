"""Partition the rows of one labeled table among clients.

`iid`, `dirichlet`, `by_label` and `by_quantity` return one sorted array of row numbers per client, and every row
belongs to exactly one of them. The same seed gives the same parts. `tables` builds each client's table from them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative.facts import cites
from performative.types import ArrayLike, as_array

__all__ = ["by_label", "by_quantity", "counts_of", "dirichlet", "iid", "tables"]

Parts = list[Int[np.ndarray, " m"]]
# The label of padding rows: no class has this number.
NO_LABEL = -(2**31)


@checked
def iid(rows: int, clients: int, seed: int = 0) -> Parts:
    """Distribute rows at random, the same number per client (one more for some if they do not divide evenly)."""
    _check_sizes("iid", rows, clients)
    order = np.random.default_rng(seed).permutation(rows)
    return [np.sort(part) for part in np.array_split(order, clients)]


@cites("yurochkin2019bayesian")
@checked
def dirichlet(labels: ArrayLike, clients: int, alpha: float, seed: int = 0, least: int = 1) -> Parts:
    """Distribute each label's rows among clients in proportions drawn for that label.

        q_c ~ Dirichlet(alpha, ..., alpha) over clients, for each label c

    Small alpha: a label is concentrated on few clients, and clients also differ in size. Large alpha: close to iid. A
    client with fewer than `least` rows receives rows from the largest ones, drawn at random. Yurochkin et al. 2019.
    Differs from Hsu et al. 2019, who draw each client's label distribution at a fixed size.
    """
    labels = _read_labels("dirichlet", labels)
    _check_sizes("dirichlet", len(labels), clients, least)
    _check_alpha("dirichlet", alpha)
    rng = np.random.default_rng(seed)
    owner = np.empty(len(labels), np.int64)
    for rows in _rows_by_label(labels)[1]:
        mine = rng.permutation(rows)
        owner[mine] = _owners(_proportions(rng, alpha, clients), len(mine))
    return _parts(_fill_up(rng, owner, clients, least), clients)


@cites("mcmahan2017communication")
@checked
def by_label(labels: ArrayLike, clients: int, labels_each: int, seed: int = 0) -> Parts:
    """Each client has rows of exactly `labels_each` labels; a label's rows are split evenly among its clients.

    The labels of a client are random; the number of clients per label differs by at most one. McMahan et al. 2017 sort
    by label and cut shards, which gives a client *at most* that many labels.
    """
    labels = _read_labels("by_label", labels)
    _check_sizes("by_label", len(labels), clients)
    check_counts(**{"by_label: labels_each": labels_each})
    kinds, rows_of = _rows_by_label(labels)
    if labels_each > len(kinds):
        raise ValueError(f"by_label: labels_each={labels_each}, but there are only {len(kinds)} labels.")
    if clients * labels_each < len(kinds):
        raise ValueError(
            f"by_label: {clients} clients with {labels_each} labels each cannot cover all {len(kinds)} labels; use "
            f"labels_each >= {-(-len(kinds) // clients)} or more clients."
        )
    rng = np.random.default_rng(seed)
    left = np.full(len(kinds), clients * labels_each // len(kinds))
    left[rng.permutation(len(kinds))[: clients * labels_each % len(kinds)]] += 1
    holds = np.zeros((clients, len(kinds)), bool)
    for client in rng.permutation(clients):
        # Labels with the most places left first: then the last client still finds enough distinct labels.
        mine = np.lexsort((rng.random(len(kinds)), -left))[:labels_each]
        holds[client, mine] = True
        left[mine] -= 1
    owner = np.empty(len(labels), np.int64)
    for kind, (label, rows) in enumerate(zip(kinds, rows_of, strict=True)):
        holders = rng.permutation(np.flatnonzero(holds[:, kind]))
        if len(rows) < len(holders):
            raise ValueError(
                f"by_label: label {label} has {len(rows)} rows for {len(holders)} clients; "
                "use fewer clients or labels_each."
            )
        for client, part in zip(holders, np.array_split(rng.permutation(rows), len(holders)), strict=True):
            owner[part] = client
    return _parts(owner, clients)


@cites("li2022noniid")
@checked
def by_quantity(rows: int, clients: int, alpha: float, seed: int = 0, least: int = 1) -> Parts:
    """Distribute rows at random in unequal numbers: sizes in proportions q ~ Dirichlet(alpha, ..., alpha) over clients.

    A client with fewer than `least` rows receives rows from the largest ones. Li et al. 2022.
    """
    _check_sizes("by_quantity", rows, clients, least)
    _check_alpha("by_quantity", alpha)
    rng = np.random.default_rng(seed)
    owner = np.empty(rows, np.int64)
    owner[rng.permutation(rows)] = _owners(_proportions(rng, alpha, clients), rows)
    return _parts(_fill_up(rng, owner, clients, least), clients)


@checked
def counts_of(labels: ArrayLike, parts: Sequence[ArrayLike]) -> Int[np.ndarray, "N C"]:
    """Number of rows per client and label (in sorted order)."""
    kinds, kind = np.unique(_read_labels("counts_of", labels), return_inverse=True)
    hands = _read_parts("counts_of", parts, len(kind))
    return np.stack([np.bincount(kind[hand], minlength=len(kinds)) for hand in hands])


@checked
def tables(
    x: ArrayLike, y: ArrayLike, parts: Sequence[ArrayLike]
) -> tuple[np.ndarray, np.ndarray, Int[np.ndarray, " N"]]:
    """Each client's rows as one array: x [N, m, ...], y [N, m, ...], and the number of real rows [N].

    m is the largest client's number of rows; the others are padded, with NaN in x and y, or NO_LABEL = -2^31 if y
    contains integers. A population takes the count, reads only real rows, and refuses padding without a count:

        x, y, count = pf.partition.tables(x, y, pf.partition.dirichlet(y, clients=20, alpha=0.3))
        pf.populations.Static(x, y, count)

    Labels become int32 or wider. In x, integers of up to 16 bits (images) keep their dtype and are padded with zeros,
    so only y shows where they end; wider ones become floats.

    Args:
        x, y: one row per person
        parts: row numbers of each client. A row may be in several parts, or in none
    """
    x, y = as_array(x), as_array(y)
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise ValueError(f"tables: x and y must have one row per person; got shapes {x.shape} and {y.shape}.")
    hands = _read_parts("tables", parts, len(x))
    rows, count = pad_tables([x[hand] for hand in hands])
    labels, _ = pad_tables([y[hand] for hand in hands], labels=True)
    return rows, labels, count


def pad_tables(tables: Sequence[np.ndarray], labels: bool = False) -> tuple[np.ndarray, Int[np.ndarray, " N"]]:
    """Stack tables of different lengths: [N, m, ...], padded as in `tables`, and the real lengths [N]."""
    lengths = np.asarray([len(t) for t in tables], np.int32)
    dtype, padding = _blank(np.asarray(tables[0]).dtype, labels)
    out = np.full((len(tables), int(lengths.max()), *np.shape(tables[0])[1:]), padding, dtype)
    for row, table in enumerate(tables):
        out[row, : len(table)] = table
    return out, lengths


def _blank(dtype: np.dtype, labels: bool) -> tuple[np.dtype, Any]:
    """The dtype of a padded table, and the value of padding rows."""
    if dtype.kind in "bui" and labels:
        dtype = np.promote_types(dtype, np.int32)
        return dtype, NO_LABEL if dtype.kind == "i" else np.nan
    if dtype.kind in "iu" and dtype.itemsize > 2:
        dtype = np.dtype(np.float64)
    return dtype, np.nan if dtype.kind in "fcO" else np.zeros((), dtype)[()]


def _read_parts(owner: str, parts: Sequence[ArrayLike], rows: int) -> list[np.ndarray]:
    """Check row numbers: integers, at least one per client, and each in the table."""
    hands = [as_array(part) for part in parts]
    if not hands:
        raise ValueError(f"{owner}: parts must contain the row numbers of at least one client; got none.")
    for client, hand in enumerate(hands):
        if hand.ndim != 1 or not hand.size or hand.dtype.kind not in "iu":
            raise ValueError(
                f"{owner}: parts[{client}] must contain one or more row numbers; got {hand.dtype} of shape "
                f"{hand.shape}."
            )
        if hand.min() < 0 or hand.max() >= rows:
            raise ValueError(
                f"{owner}: parts[{client}] contains row numbers from {hand.min()} to {hand.max()}, but the rows are "
                f"0..{rows - 1}; pass the table that the parts were made for."
            )
    return hands


def _rows_by_label(labels: np.ndarray) -> tuple[np.ndarray, Parts]:
    """The labels in sorted order, and the rows of each."""
    kinds, count = np.unique(labels, return_counts=True)
    return kinds, np.split(np.argsort(labels, kind="stable"), np.cumsum(count)[:-1])


def _proportions(rng: np.random.Generator, alpha: float, clients: int) -> np.ndarray:
    """One draw of Dirichlet(alpha, ..., alpha), for any alpha > 0.

    log Gamma(alpha) = log Gamma(alpha + 1) + log(U) / alpha: NumPy's own draw is 0/0 for small alpha.
    """
    log = np.log(rng.gamma(alpha + 1, size=clients)) + np.log1p(-rng.random(clients)) / alpha
    share = np.exp(log - log.max())
    return share / share.sum()


def _owners(share: np.ndarray, rows: int) -> np.ndarray:
    """Clients of `rows` rows in order, split by the cumulative shares."""
    cuts = np.round(np.cumsum(share)[:-1] * rows).astype(int)
    return np.repeat(np.arange(len(share)), np.diff(cuts, prepend=0, append=rows))


def _fill_up(rng: np.random.Generator, owner: np.ndarray, clients: int, least: int) -> np.ndarray:
    size = np.bincount(owner, minlength=clients)
    for poor in np.flatnonzero(size < least):
        for _ in range(least - size[poor]):
            rich = int(np.argmax(size))
            owner[rng.choice(np.flatnonzero(owner == rich))] = poor
            size[rich] -= 1
            size[poor] += 1
    return owner


def _parts(owner: np.ndarray, clients: int) -> Parts:
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=clients))[:-1])


def _read_labels(owner: str, labels: ArrayLike) -> np.ndarray:
    array = as_array(labels)
    if array.ndim != 1:
        raise ValueError(f"{owner}: labels must be one label per row; got shape {array.shape}.")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise ValueError(f"{owner}: labels must be finite, but some are NaN or infinite. Drop or fill them first.")
    return array


def _check_sizes(owner: str, rows: int, clients: int, least: int = 1) -> None:
    check_counts(**{f"{owner}: rows": rows, f"{owner}: clients": clients})
    if least < 0:
        raise ValueError(f"{owner}: least must be a whole number of rows >= 0; got {least}.")
    if rows < clients * least:
        raise ValueError(f"{owner}: {rows} rows are too few for {clients} clients with at least {least} each.")


def _check_alpha(owner: str, alpha: float) -> None:
    if not 0 < alpha < np.inf:
        raise ValueError(f"{owner}: alpha must be a number above 0; got {alpha}.")
