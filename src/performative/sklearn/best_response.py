"""The best response to a black-box model under a quadratic cost, by search.

    max over x'   gain(x') - |x' - x|_w^2 / (2 s),      |v|_w^2 = sum_j w_j (v_j / spread_j)^2

If the gain is linear in the columns that people can change, the best response has a formula; otherwise it is the best
move that was tried, and a better one may have been missed.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

Gain = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Lengths tried along axes and along random directions, as fractions of the longest move worth its cost.
_ALONG_AXES = np.unique(np.concatenate([np.geomspace(0.005, 1.0, 12), np.linspace(0.1, 1.0, 10)]))
_ALONG_DIRECTIONS, _DIRECTIONS = np.geomspace(0.08, 1.0, 5), 24
# Number of observed values of a column that are tried, evenly spaced by rank.
_SEEN = 32
# How many better-off neighbors are imitated, which fractions of the way, and the quantiles of the gain above which
# people count as better off.
_NEIGHBORS, _PART_WAY, _BETTER = 8, (0.5, 0.75, 1.0), (0.5, 0.9)
# Refinement: number of starting moves, relative steps in each column, by how much the direction is turned in each sweep
# and how often, lengths tried then; an edge is located by this many cuts in this many zooms. Few calls of the model,
# since each has an overhead.
_STARTS, _STEPS, _TURNED, _TURNS = 3, (-0.5, -0.2, -0.05, 0.05, 0.2, 0.5), (0.6, 0.3, 0.15, 0.07), 6
_LENGTHS, _SHRUNK, _CUTS, _ZOOMS = (0.8, 0.9, 0.97, 1.03), (0.0, 0.4, 0.7, 0.9), 8, 4
# Relative to the largest gain: tolerance for agreement with a formula; and the safety margin beyond an edge.
_SAME, _BEYOND = 1e-7, 1e-9
_PROBES = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """A search for the best response. Moves are in units in which the cost is |u|^2 / (2 s): v = u * unit.

    Attributes:
        gain: gain(who, values) of people who show other values
        start: values before anybody responds, [n, k]
        unit: spread_j / sqrt(w_j), [k]
        seed: for random directions
    """

    gain: Gain
    start: Float[np.ndarray, "n k"]
    unit: Float[np.ndarray, " k"]
    seed: int = 0

    def gains(self, who: np.ndarray, moves: Float[np.ndarray, "r k"]) -> Float[np.ndarray, " r"]:
        return np.asarray(self.gain(who, self.start[who] + moves * self.unit), np.float64)

    def slope(self) -> tuple[Float[np.ndarray, " k"], bool]:
        """Gain per unit of a move, and whether it is the same at all probes, in which case the gain is linear."""
        n, k = self.start.shape
        rng = np.random.default_rng(self.seed)
        who = rng.integers(0, n, _PROBES)
        near, far = np.eye(k), 5.0 * rng.standard_normal((_PROBES, k))
        base = self.gains(np.zeros(k, int), np.zeros((k, k)))
        slope = self.gains(np.zeros(k, int), near) - base
        before = self.gains(who, np.zeros((_PROBES, k)))
        found = self.gains(who, far) - before
        size = max(float(np.max(np.abs(found))), float(np.max(np.abs(before))), 1e-300)
        return slope, bool(np.max(np.abs(found - far @ slope)) <= _SAME * size)

    def pool(self, longest: float) -> tuple[Float[np.ndarray, "n m k"], Float[np.ndarray, "n m"]]:
        """Candidate moves for each person, along axes, in random directions and towards better-off neighbors; and the
        gain of each over staying."""
        n, k = self.start.shape
        axes = np.concatenate([np.eye(k), -np.eye(k)])
        tried = (axes[:, None, :] * _ALONG_AXES[:, None]).reshape(-1, k)
        if k > 1:
            random = np.random.default_rng(self.seed).standard_normal((_DIRECTIONS, k))
            random /= np.linalg.norm(random, axis=1, keepdims=True)
            tried = np.concatenate([tried, (random[:, None, :] * _ALONG_DIRECTIONS[:, None]).reshape(-1, k)])
        everyone = np.arange(n)
        before = self.gains(everyone, np.zeros((n, k)))
        moves = [np.broadcast_to(longest * tried, (n, *tried.shape)), self._values_seen()]
        moves += [self._neighbors(before > level) for level in np.unique(np.quantile(before, _BETTER))]
        # If most are already accepted, the quantiles are uninformative.
        moves.append(self._neighbors(before >= before.max()))
        whole = np.concatenate(moves, axis=1)
        gain = self.gains(np.repeat(everyone, whole.shape[1]), whole.reshape(-1, k)).reshape(n, -1)
        return whole, gain - before[:, None]

    def _values_seen(self) -> Float[np.ndarray, "n m k"]:
        """Moves of one column to values that others have: trees split between these."""
        scaled = self.start / self.unit
        n, k = scaled.shape
        seen = np.quantile(scaled, np.linspace(0.0, 1.0, _SEEN), axis=0, method="nearest")
        moves = np.zeros((n, k, _SEEN, k))
        for j in range(k):
            moves[:, j, :, j] = seen[:, j] - scaled[:, j : j + 1]
        return moves.reshape(n, -1, k)

    def _neighbors(self, better: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "n m k"]:
        """Moves towards the nearest better-off people."""
        from scipy.spatial import cKDTree

        n, k = self.start.shape
        if not np.any(better):
            return np.zeros((n, 0, k))
        scaled = self.start / self.unit
        there = scaled[better]
        many = min(_NEIGHBORS, len(there))
        _, place = cKDTree(there).query(scaled, k=many)
        moves = there[np.asarray(place).reshape(n, many)] - scaled[:, None, :]
        return np.concatenate([part * moves for part in _PART_WAY], axis=1)


def formula(
    slope: Float[np.ndarray, " k"], gap: Float[np.ndarray, " n"] | None, strength: float
) -> Float[np.ndarray, "n k"] | Float[np.ndarray, "1 k"]:
    """The best moves if the score is linear: s times the slope; for acceptance, to the edge if it pays off.

    u = s g          or          u = (gap / |g|^2) g  where 0 < gap / |g| <= sqrt(2 s)
    """
    if gap is None:
        return strength * slope[None, :]
    size = float(np.linalg.norm(slope))
    if size == 0:
        return np.zeros((len(gap), len(slope)))
    pays = (gap >= 0) & (gap <= size * np.sqrt(2.0 * strength))
    far = np.where(pays, gap * (1.0 + _BEYOND) + _BEYOND * size, 0.0)
    return far[:, None] * slope / size**2


def respond(
    search: Search, strength: float, pool: Float[np.ndarray, "n m k"], gains: Float[np.ndarray, "n m"]
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
    """The best move found for each person, and its utility over staying: never below 0.

    `pool` contains candidate moves with their `gains` over staying, the same for all strengths. The best of them are
    refined, including those whose gain does not yet cover their cost.
    """
    n, _, k = pool.shape
    best, utility = np.zeros((n, k)), np.zeros(n)
    gainful = np.flatnonzero(np.any(gains > 0, axis=1))
    if strength == 0 or not len(gainful):
        return best, utility
    value = gains[gainful] - np.sum(np.square(pool[gainful]), axis=-1) / (2.0 * strength)
    value = np.where(gains[gainful] > 0, value, -np.inf)
    ranked = np.argsort(-value, axis=1, kind="stable")
    for start in _different(pool[gainful], ranked):
        rows = np.arange(len(gainful))
        climb = _Climb(search, gainful, pool[gainful][rows, start], value[rows, start], strength)
        move, worth = climb.climbed()
        better = worth > utility[gainful]
        best[gainful[better]], utility[gainful[better]] = move[better], worth[better]
    return best, utility


def _different(pool: np.ndarray, ranked: np.ndarray) -> list[np.ndarray]:
    """Starting moves: the best move of each person, then the best in a different direction from those before."""
    rows, size = np.arange(len(pool)), np.linalg.norm(pool, axis=-1)
    unit = pool / np.where(size > 0, size, 1.0)[..., None]
    place = np.empty_like(ranked)
    place[rows[:, None], ranked] = np.arange(ranked.shape[1])
    starts, taken = [], np.zeros(size.shape, bool)
    for _ in range(_STARTS):
        at = np.argmin(np.where(taken, ranked.shape[1], place), axis=1)
        starts.append(at)
        # 45 degrees: moves further apart may climb another hill, if there is one.
        taken |= np.einsum("nmk,nk->nm", unit, unit[rows, at]) > np.cos(np.pi / 4)
    return starts


class _Climb:
    """Iterative improvement of people's moves, each from its own start."""

    def __init__(self, search: Search, who: np.ndarray, move: np.ndarray, value: np.ndarray, strength: float):
        self.search, self.who, self.strength = search, who, strength
        self.move, self.value = move.copy(), value.copy()
        self.before = search.gains(who, np.zeros_like(move))
        self.rng = np.random.default_rng(search.seed)

    def climbed(self) -> tuple[np.ndarray, np.ndarray]:
        """The moves after sweeps over columns, turns of the direction, and shrinking to the edges."""
        k = self.move.shape[1]
        self._to_the_edge(np.arange(k))
        for turned in _TURNED:
            size = np.maximum(np.linalg.norm(self.move, axis=1), 1e-9)
            for j in range(k):
                others = np.repeat(self.move[:, None, :], len(_STEPS) + len(_SHRUNK), axis=1)
                others[:, : len(_STEPS), j] += size[:, None] * turned * np.asarray(_STEPS)
                others[:, len(_STEPS) :, j] *= np.asarray(_SHRUNK)
                self._take_best(others)
            if k > 1:
                self._turn(turned)
            self._to_the_edge(np.arange(k))
        for j in range(k):
            self._to_the_edge(np.array([j]))
        return self.move, self.value

    def _take_best(self, others: np.ndarray) -> None:
        """Take the best of other moves [n, m, k] if it beats the current one."""
        found = self._worth(others)
        at = np.argmax(found, axis=1)
        rows = np.arange(len(found))
        better = found[rows, at] > self.value
        self.move = np.where(better[:, None], others[rows, at], self.move)
        self.value = np.where(better, found[rows, at], self.value)

    def _worth(self, others: np.ndarray) -> np.ndarray:
        """The utility of moves [n, m, k] over staying."""
        n, many, k = others.shape
        gain = self.search.gains(np.repeat(self.who, many), others.reshape(-1, k)).reshape(n, many)
        return gain - self.before[:, None] - np.sum(np.square(others), axis=-1) / (2.0 * self.strength)

    def _turn(self, by: float) -> None:
        """Try nearby directions at several lengths."""
        n, k = self.move.shape
        size = np.linalg.norm(self.move, axis=1)[:, None, None]
        turned = self.move[:, None, :] + by * size * self.rng.standard_normal((n, _TURNS, k)) / np.sqrt(k)
        turned *= size / np.maximum(np.linalg.norm(turned, axis=2, keepdims=True), 1e-300)
        self._take_best((turned[:, :, None, :] * np.asarray(_LENGTHS)[:, None]).reshape(n, -1, k))

    def _to_the_edge(self, columns: np.ndarray) -> None:
        """Shrink the move in these columns as far as its utility does not drop, zooming in on the decision boundary."""
        rows, parts = np.arange(len(self.who)), np.linspace(0.0, 1.0, _CUTS + 2)
        low, high, top = np.zeros(len(rows)), np.ones(len(rows)), self.value
        for _ in range(_ZOOMS):
            factor = low[:, None] + (high - low)[:, None] * parts[1:-1]
            others = np.repeat(self.move[:, None, :], _CUTS, axis=1)
            others[:, :, columns] *= factor[:, :, None]
            found = self._worth(others)
            at = np.argmax(found, axis=1)
            # The edge lies below the best cut, or below the current move if no cut is better.
            at = np.where(found[rows, at] >= top, at, _CUTS)
            top = np.maximum(top, found.max(axis=1))
            ends = np.column_stack([low, factor, high])
            low, high = ends[rows, at], ends[rows, at + 1]
        other = self.move.copy()
        other[:, columns] *= high[:, None]
        self._take_best(other[:, None, :])
