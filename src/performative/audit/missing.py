"""Who is missing: do incomplete rows differ from complete ones, and does that change with the model?"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy import stats

# A pattern counts as detected if its p-value, Bonferroni's over columns, is at most this.
SEEN = 0.01
# Decisions: rejected, accepted, unknown.
DECISIONS = 3
# Minimum number of rows on either side for a cell's squared difference to be close to chi2; the mean over cells
# needs fewer.
_FEW = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Count, mean and centered squares of each column separately, in each cell; empty values are skipped.

    Attributes:
        client, deployment, stratum: [c] identify the cell, as in `Moments`; rows: [c] number of rows
        n, mean, squares: [c, w]
    """

    clients: tuple[str, ...]
    client: np.ndarray
    deployment: np.ndarray
    stratum: np.ndarray
    rows: np.ndarray
    n: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    def about(self, center: np.ndarray) -> np.ndarray:
        """[3, c, w] n, sum and sum of squares about a center [w]."""
        away = self.mean - center
        return np.stack([self.n, self.n * away, self.squares + self.n * away**2])


def no_sums(clients: tuple[str, ...], width: int) -> Sums:
    """Sums of no rows."""
    places, none = np.zeros(0, np.int64), np.zeros((0, width))
    return Sums(clients, places, places, places, np.zeros(0), none, none, none)


def merge_sums(a: Sums, b: Sums) -> Sums:
    """Cells of both; n = n_a + n_b, and so on as for `performative.audit.moments.combine`, column by column."""
    clients = tuple(sorted({*a.clients, *b.clients}))
    parts = []
    for one in (a, b):
        place = np.array([clients.index(name) for name in one.clients], np.int64)
        parts.append(dataclasses.replace(one, client=place[one.client]))
    names = ("client", "deployment", "stratum", "rows", "n", "mean", "squares")
    client, deployment, stratum, rows, n, mean, squares = (
        np.concatenate([getattr(part, name) for part in parts]) for name in names
    )
    keys, first, at = np.unique(
        np.stack([client, deployment, stratum], axis=1), axis=0, return_index=True, return_inverse=True
    )
    at = at.reshape(-1)
    counts, total, out = (np.zeros((len(keys), n.shape[1])) for _ in range(3))
    np.add.at(counts, at, n)
    # About the mean of the first part that has values.
    origin = mean[first]
    np.add.at(total, at, n * (mean - origin[at]))
    shift = total / np.maximum(counts, 1e-300)
    np.add.at(out, at, squares + n * (mean - (origin + shift)[at]) ** 2)
    total_rows = np.bincount(at, rows, minlength=len(keys))
    return Sums(clients, keys[:, 0], keys[:, 1], keys[:, 2], total_rows, counts, origin + shift, out)


class Pattern(NamedTuple):
    """p-values [width], NaN for columns without information.

    Args:
        depends: for observed and unobserved rows being alike
        changes: for their difference being the same in all deployments of a client, as it is if the model plays no part
        size: how far dropping the unobserved moves a mean between deployments at most, in its standard errors
    """

    depends: np.ndarray
    changes: np.ndarray
    size: np.ndarray

    def first(self, which: str) -> tuple[int, float]:
        """The column with the smallest p-value, and that value after Bonferroni over columns.

        -1 and 1.0 if no column has information.
        """
        p = getattr(self, which)
        if np.all(np.isnan(p)):
            return -1, 1.0
        return int(np.nanargmin(p)), min(1.0, float(np.nanmin(p)) * int(np.sum(~np.isnan(p))))


def compare(seen: np.ndarray, unseen: np.ndarray, deployments: int = 0) -> Pattern:
    """Test whether rows are missing at random within each cell. seen, unseen: [3, cells, width] as in `Sums.about`.

        z_c = (mean seen - mean unseen) / (S_c sqrt(1/n_1 + 1/n_0)),      S_c^2 the variance of all rows of the cell

    has mean 0 and variance 1 exactly if the unobserved rows are drawn at random. `depends` combines the mean of the
    differences and the sum of z^2. `changes` takes the offset of the mean of observed rows from that of all rows, and
    compares it with each client's average over deployments. deployments: T if cells are client by deployment, 0 to
    omit `changes`.
    """
    n1, n0 = seen[0], unseen[0]
    n = n1 + n0
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (seen[1] + unseen[1]) / n
        variance = (seen[2] + unseen[2] - n * mean**2) / (n - 1)
        gap = seen[1] / n1 - unseen[1] / n0
        weight = n1 * n0 / n / variance
    good = (n1 >= 1) & (n0 >= 1) & (n >= 4) & (variance > 1e-12 * (mean**2 + 1e-300))
    gap, weight = np.where(good, gap, 0.0), np.where(good, weight, 0.0)
    total = weight.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = 2 * stats.norm.sf(np.abs((gap * weight).sum(axis=0) / np.sqrt(total)))
    wide = good & (n1 >= _FEW) & (n0 >= _FEW)
    squares = np.where(wide, gap**2 * weight, 0.0).sum(axis=0)
    apart = np.where(wide.any(axis=0), stats.chi2.sf(squares, np.maximum(wide.sum(axis=0), 1)), 1.0)
    depends = np.where(total > 0, np.minimum(1.0, 2 * np.minimum(alike, apart)), np.nan)
    changes, size = np.full(len(depends), np.nan), np.zeros(len(depends))
    if deployments:
        share = np.divide(n0, n, out=np.zeros_like(n0), where=n > 0)
        off, heavy = gap * share, np.divide(weight, share**2, out=np.zeros_like(weight), where=good)
        off, heavy, real = (part.reshape(-1, deployments, part.shape[-1]) for part in (off, heavy, good))
        level = np.divide((off * heavy).sum(axis=1), heavy.sum(axis=1), out=np.zeros_like(off[:, 0]),
                          where=heavy.sum(axis=1) > 0)  # fmt: skip
        moved = np.where(real, off - level[:, None], 0.0)
        degrees = np.maximum(real.sum(axis=1) - 1, 0).sum(axis=0)
        changed = stats.chi2.sf((moved**2 * heavy).sum(axis=(0, 1)), np.maximum(degrees, 1))
        changes = np.where(degrees > 0, changed, np.nan)
        error = np.sqrt(np.divide(variance, n1, out=np.full_like(n1, np.inf), where=good))
        size = np.max(np.abs(moved) / error.reshape(moved.shape), axis=(0, 1), initial=0.0)
    return Pattern(depends, changes, size)
