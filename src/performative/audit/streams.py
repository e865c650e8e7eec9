"""Moments and samples of many cells (client and deployment) in one pass over the rows."""

import hashlib

import numpy as np

# Bytes that all kept rows together may take; with many cells each keeps fewer rows.
SAMPLE_BYTES = 1 << 27
# Bytes that all means and covariances together may take.
MOMENT_BYTES = 1 << 27


class Moments:
    """Count, mean and covariance of the rows of each cell, merged block by block.

        n = a + b,   m = m_a + (b/n) delta,   S = S_a + S_b + (a b / n) delta delta^T,   delta = m_b - m_a

    S is the sum of squares about the mean. Chan, Golub and LeVeque 1983, Eq. (2.1). Each block is first shifted by the
    mean so far (by its first row in a new cell), so that no large numbers cancel.
    """

    def __init__(self, width: int):
        self.width = width
        self.count = np.zeros(0, np.int64)
        self.mean = np.zeros((0, width))
        self.squares = np.zeros((0, width, width))

    def grow(self, cells: int) -> None:
        """Room for at least that many cells."""
        more = cells - len(self.count)
        if more > 0:
            self.count = np.concatenate([self.count, np.zeros(more, np.int64)])
            self.mean = np.concatenate([self.mean, np.zeros((more, self.width))])
            self.squares = np.concatenate([self.squares, np.zeros((more, self.width, self.width))])

    def bytes_for(self, cells: int) -> int:
        """What that many cells take."""
        return 8 * cells * (self.width * (self.width + 1) + 1)

    def add(self, cell: np.ndarray, x: np.ndarray) -> None:
        """Rows x [n, q] of the cells [n]; cells must lie within what `grow` made."""
        if not len(x):
            return
        if np.any(cell[1:] < cell[:-1]):
            order = np.argsort(cell, kind="stable")
            cell, x = cell[order], x[order]
        starts = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]]))
        here, b = cell[starts], np.diff(np.append(starts, len(cell)))
        a = self.count[here]
        shift = np.where(a[:, None] > 0, self.mean[here], x[starts])
        x = x - np.repeat(shift, b, axis=0)
        ours = np.add.reduceat(x, starts, axis=0) / b[:, None]
        x -= np.repeat(ours, b, axis=0)
        squares = _squares(x, starts, b)
        n = a + b
        # What was seen before lies at 0 after the shift; a new cell has a = 0.
        self.squares[here] += squares + (a * b / n)[:, None, None] * ours[:, :, None] * ours[:, None, :]
        self.mean[here] = shift + ours * (b / n)[:, None]
        self.count[here] = n

    def cov(self) -> np.ndarray:
        """Covariances [cells, q, q], NaN in cells of fewer than two rows."""
        few = self.count < 2
        out = self.squares / np.where(few, 1, self.count - 1)[:, None, None]
        out[few] = np.nan
        return out

    def without_last(self) -> "Moments":
        """The same rows without their last column."""
        out = Moments(self.width - 1)
        out.count, out.mean, out.squares = self.count.copy(), self.mean[:, :-1].copy(), self.squares[:, :-1, :-1].copy()
        return out


def _squares(x: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """x^T x of each run of rows."""
    out = np.empty((len(starts), x.shape[1], x.shape[1]))
    # One matrix product a run is quick where runs are long, one pass a column where there are many short ones.
    if len(x) > 16 * len(starts):
        for i, (a, n) in enumerate(zip(starts, lengths, strict=True)):
            np.matmul(x[a : a + n].T, x[a : a + n], out=out[i])
    else:
        for j in range(x.shape[1]):
            out[:, j] = np.add.reduceat(x * x[:, j : j + 1], starts, axis=0)
    return out


class Reservoir:
    """The `size` rows of each cell with the smallest hashes: a draw without replacement.

    The hash is of where a row stands (file and row number), never of its values, so equal rows are drawn like others.
    What is kept depends on the seed and on the names of the files, not on block sizes. Where there are so many cells
    that all would take more than `SAMPLE_BYTES`, each keeps fewer rows.
    """

    def __init__(self, width: int, size: int):
        self.width, self.size = width, size
        self.cell = np.zeros(0, np.int64)
        self.hash = np.zeros(0, np.uint64)
        self.rows = np.zeros((0, width))
        self.limit = np.zeros(0, np.uint64)
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._count = 0

    @property
    def kept(self) -> int:
        """Rows that a cell may keep, given how many cells have rows by now."""
        cells = max(1, len(np.unique(self.cell)))
        return max(1, min(self.size, SAMPLE_BYTES // (8 * (self.width + 2) * cells)))

    def add(self, cell: np.ndarray, hash: np.ndarray, rows: np.ndarray) -> None:
        """Offer rows. Those whose hash is above their cell's limit cannot stay and are passed over."""
        top = int(cell.max(initial=-1)) + 1 - len(self.limit)
        if top > 0:
            self.limit = np.concatenate([self.limit, np.full(top, np.iinfo(np.uint64).max)])
        stay = hash <= self.limit[cell]
        if np.any(stay):
            self._waiting.append((cell[stay], hash[stay], rows[stay]))
            self._count += int(stay.sum())
        if self._count > max(1 << 16, len(self.cell)):
            self.compact()

    def compact(self) -> None:
        """Sort by cell and hash, keep the first of each cell."""
        if not self._waiting:
            return
        cells, hashes, rows = zip(*[(self.cell, self.hash, self.rows), *self._waiting], strict=True)
        self._waiting, self._count = [], 0
        self.cell, self.hash, self.rows = np.concatenate(cells), np.concatenate(hashes), np.concatenate(rows)
        order = np.lexsort((self.hash, self.cell))
        self.cell, self.hash = self.cell[order], self.hash[order]
        starts = np.flatnonzero(np.concatenate([[True], self.cell[1:] != self.cell[:-1]])) if len(order) else order
        lengths = np.diff(np.append(starts, len(order)))
        rank = np.arange(len(order)) - np.repeat(starts, lengths)
        kept = self.kept
        stay = rank < kept
        self.rows = self.rows[order[stay]]
        last = starts[lengths >= kept] + kept - 1
        self.limit[self.cell[last]] = self.hash[last]
        self.cell, self.hash = self.cell[stay], self.hash[stay]

    def of(self, cells: np.ndarray) -> np.ndarray:
        """The rows kept for those cells [cells, r, q], r the most that any of them has; spare rows are NaN."""
        self.compact()
        low, high = np.searchsorted(self.cell, cells), np.searchsorted(self.cell, cells, side="right")
        out = np.full((len(cells), int((high - low).max(initial=0)), self.width), np.nan)
        for i, (a, b) in enumerate(zip(low, high, strict=True)):
            out[i, : b - a] = self.rows[a:b]
        return out

    def without_last(self) -> "Reservoir":
        """The same rows without their last column."""
        self.compact()
        out = Reservoir(self.width - 1, self.size)
        out.cell, out.hash, out.rows, out.limit = self.cell, self.hash, self.rows[:, :-1], self.limit.copy()
        return out


def row_hashes(file: str, start: int, rows: int, seed: int) -> np.ndarray:
    """A 64-bit hash of each row's place: SplitMix64 of the row number, offset by file and seed (Steele et al. 2014)."""
    digest = hashlib.blake2b(f"{seed}:{file}".encode(), digest_size=8).digest()
    z = np.arange(start + 1, start + rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(int.from_bytes(digest, "little"))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
