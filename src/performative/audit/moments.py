"""Counts, means and squares by cell: what an engine computes, what is sent, and what is merged exactly."""

import dataclasses
from collections.abc import Sequence

import numpy as np

# Maximum number of bytes that all means and covariances together may take.
MOMENT_BYTES = 1 << 27
# A spread this small relative to the mean is rounding: a few units in the last place of every row.
_ROUNDING = 8 * np.finfo(np.float64).eps


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squares about the mean of the rows of each cell.

        S_c = sum over rows z of cell c of (z - m_c)(z - m_c)'

    Attributes:
        clients, deployments: names; client [c] and deployment [c] are the indices of those of cell c
        stratum: [c] how people were decided on, see `performative.audit.people`
        columns: names of the q columns
        count: [c]; mean: [c, q]; squares: [c, q, q]
    """

    clients: tuple[str, ...]
    deployments: tuple[str, ...]
    columns: tuple[str, ...]
    client: np.ndarray
    deployment: np.ndarray
    stratum: np.ndarray
    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def rows(self) -> int:
        return int(self.count.sum())

    def by_cell(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """count [C T], mean [C T, q] and squares [C T, q, q], all strata together; cell = client * T + deployment."""
        cells, q = len(self.clients) * len(self.deployments), len(self.columns)
        at, n, m, s = combine(
            self.client * len(self.deployments) + self.deployment, self.count, self.mean, self.squares
        )
        count, mean, squares = np.zeros(cells), np.zeros((cells, q)), np.zeros((cells, q, q))
        count[at], mean[at], squares[at] = n, m, s
        return count, mean, squares

    def without_last(self) -> "Moments":
        """The same rows without their last column."""
        return dataclasses.replace(
            self, columns=self.columns[:-1], mean=self.mean[:, :-1], squares=self.squares[:, :-1, :-1]
        )

    def for_clients(self, clients: Sequence[str]) -> "Moments":
        """The same cells with clients indexed in that order, which must contain all of them."""
        place = np.array([list(clients).index(name) for name in self.clients], np.int64)
        return dataclasses.replace(self, clients=tuple(clients), client=place[self.client])


def combine(
    key: np.ndarray, count: np.ndarray, mean: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Merge cells with the same key: the keys, and count, mean and squares of each.

        n = sum n_i,   m = sum n_i m_i / n,   S = sum S_i + sum n_i (m_i - m)(m_i - m)'

    Chan, Golub and LeVeque 1983, for any number of parts. Means are taken about one part's mean to avoid cancellation.
    """
    keys, first, place = np.unique(key, return_index=True, return_inverse=True)
    if len(keys) == len(key):
        return keys, count[first].astype(np.float64), mean[first], squares[first]
    n = np.bincount(place, count, minlength=len(keys))
    away = mean - mean[first][place]
    total = np.zeros((len(keys), mean.shape[1]))
    np.add.at(total, place, count[:, None] * away)
    shift = total / np.maximum(n, 1e-300)[:, None]
    rest = away - shift[place]
    out = np.zeros((len(keys), *squares.shape[1:]))
    np.add.at(out, place, squares + count[:, None, None] * rest[:, :, None] * rest[:, None, :])
    return keys, n, mean[first] + shift, out


def merge(a: Moments, b: Moments) -> Moments:
    """The cells of two sets of rows as if they were one set, exact up to rounding."""
    if a.columns != b.columns or a.deployments != b.deployments:
        raise ValueError(
            f"merge: both need the same columns and deployments; got columns {a.columns} and {b.columns}, "
            f"{len(a.deployments)} and {len(b.deployments)} deployments."
        )
    clients = tuple(sorted({*a.clients, *b.clients}))
    parts = [a.for_clients(clients), b.for_clients(clients)]
    client, deployment, stratum, count, mean, squares = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("client", "deployment", "stratum", "count", "mean", "squares")
    )
    strata = int(stratum.max(initial=0)) + 1
    key = (client * len(a.deployments) + deployment) * strata + stratum
    keys, n, m, s = combine(key, count, mean, squares)
    cell = keys // strata
    return Moments(
        clients, a.deployments, a.columns, cell // len(a.deployments), cell % len(a.deployments), keys % strata, n, m, s
    )


def from_sums(
    count: np.ndarray, first: np.ndarray, second: np.ndarray, center: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means [c, q] and centered squares [c, q, q] from sums of d and d d', d = z - center ([q] or [c, q]).

        m = center + sum d / n,      S = sum d d' - (sum d)(sum d)' / n

    Spreads at the level of rounding are set to 0: such a column is constant in the cell.
    """
    n = np.maximum(count, 1.0)[:, None]
    shift = first / n
    mean = center + shift
    squares = second - n[:, :, None] * shift[:, :, None] * shift[:, None, :]
    still = np.diagonal(squares, axis1=1, axis2=2) <= n * (_ROUNDING * np.abs(mean)) ** 2
    squares[still[:, :, None] | still[:, None, :]] = 0.0
    return mean, squares


def covariances(count: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """[c, q, q] S / (n - 1), NaN in cells of fewer than two rows."""
    few = count < 2
    out = squares / np.where(few, 1, count - 1)[:, None, None]
    out[few] = np.nan
    return out
