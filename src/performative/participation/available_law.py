"""The cohorts of available clients: each with its own probability, at most k of those present.

    a_i = p_i / q_i max(M / k, 1)   "unbiased",      a_i = p_i / sum of p over the cohort   "renormalized"

M counts the clients present; every set of k of them is equally likely.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from performative._base.sampling import ways
from performative.participation.law import CohortMoments, Cohorts, check_clients, scaled_moments

# Limit on the numbers in the sums over M; takes about a second.
_WORK = 3e8
_SETS = 256  # cohorts whose probabilities are computed at once


def count_cohorts(q: np.ndarray, k: int | None, unbiased: bool) -> float:
    """An upper bound on the number of cohorts; those with the same clients but different weights count separately."""
    if k is None:
        free = int(np.sum((q > 0) & (q < 1)))
        return 2.0**free if free < 1000 else math.inf
    some = int(np.sum(q > 0))
    others = some - k + 1 if unbiased else 1
    return sum(ways(some, size) for size in range(min(k, some + 1))) + ways(some, k) * max(others, 0)


def all_cohorts(p: np.ndarray, q: np.ndarray, k: int | None, unbiased: bool) -> Cohorts:
    """Every cohort with its probability."""
    scale = p / np.where(q > 0, q, 1) if unbiased else p

    def weigh(ids: np.ndarray, factor: float = 1.0) -> np.ndarray:
        if unbiased:
            return scale[ids] * factor
        total = p[ids].sum()
        return p[ids] / (total if total > 0 else 1.0)

    some, sure = np.flatnonzero(q > 0).tolist(), set(np.flatnonzero(q == 1).tolist())
    for size in range(len(some) + 1 if k is None else min(k, len(some) + 1)):
        if size < len(sure):
            continue
        for more in itertools.combinations([i for i in some if i not in sure], size - len(sure)):
            ids = np.asarray(sorted(sure.union(more)), int)
            chance = np.where(np.isin(np.arange(len(q)), ids), q, 1 - q)
            yield float(np.prod(chance)), ids, weigh(ids)
    if k is None:
        return
    several = np.asarray([1.0 / math.comb(m, k) for m in range(k, len(q) + 1)])
    for block in _blocks(itertools.combinations(some, k)):
        left = others_present(q, block)[:, : len(q) - k + 1] * np.prod(q[block], axis=1)[:, None] * several
        for ids, chances in zip(block, left, strict=True):
            if not unbiased:
                yield float(chances.sum()), ids, weigh(ids)
                continue
            for others, chance in enumerate(chances.tolist()):
                if chance > 0:
                    yield chance, ids, weigh(ids, (k + others) / k)


def _blocks(sets: Iterator[tuple[int, ...]]) -> Iterator[np.ndarray]:
    while block := list(itertools.islice(sets, _SETS)):
        yield np.asarray(block, int)


def others_present(q: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """P(m of the others are present), m = 0, ..., N; for each row of `left_out`, excluding the clients in it."""
    chances = np.repeat(q[None], len(left_out), axis=0)
    np.put_along_axis(chances, left_out, 0.0, axis=1)
    pmf = np.zeros((len(left_out), len(q) + 1))
    pmf[:, 0] = 1.0
    for here in chances.T[:, :, None]:
        pmf[:, 1:], pmf[:, :1] = pmf[:, 1:] * (1 - here) + pmf[:, :-1] * here, pmf[:, :1] * (1 - here)
    return pmf


def unbiased_moments(p: np.ndarray, q: np.ndarray, k: int | None) -> CohortMoments | None:
    """Moments for the unbiased weights; None if they would take too long.

    With c(m) = min(1, k (k-1) / (m (m-1))), the probability that two given clients of m are taken, w(m) = max(m / k, 1)
    and s = p / q

        E a_i a_j = q_i q_j s_i s_j E[c(M') w(M')^2],      M' = 2 + how many of the others are present

    and likewise with powers 1 and 0 of w for z. Clients with equal q share the sums.
    """
    clients = len(q)
    check_clients(clients)
    scale = p / np.where(q > 0, q, 1)
    if k is None or k >= clients:
        together = np.outer(q, q)
        np.fill_diagonal(together, q)
        return scaled_moments(together, scale)
    kinds, kind, sizes = np.unique(q, return_inverse=True, return_counts=True)
    if len(kinds) ** 2 * clients**2 > _WORK:
        return None
    order = np.argsort(kind, kind="stable")
    first = order[np.cumsum(sizes) - sizes]
    second = np.where(sizes > 1, order[np.minimum(np.cumsum(sizes) - sizes + 1, clients - 1)], first)
    same = np.eye(len(kinds), dtype=bool)
    pairs = np.stack(np.broadcast_arrays(first[:, None], np.where(same, second[None], first[None])), axis=-1)
    m = np.arange(clients + 1)
    pair = _mean_powers(
        others_present(q, pairs.reshape(-1, 2)), m + 2, k, np.minimum(1.0, k * (k - 1) / (m + 2) / (m + 1))
    )
    alone = _mean_powers(others_present(q, first[:, None]), m + 1, k, np.minimum(1.0, k / (m + 1)))
    both = np.empty((2, 2, clients, clients))
    factors = np.stack([q, q * scale])
    at = kind[:, None], kind[None, :]
    for a, b in itertools.product(range(2), repeat=2):
        both[a, b] = np.outer(factors[a], factors[b]) * pair[a + b].reshape(same.shape)[at]
        np.fill_diagonal(both[a, b], q * scale ** (a + b) * alone[a + b][kind])
    return CohortMoments(np.diagonal(both[0, 0]).copy(), np.diagonal(both[0, 1]).copy(), both)


def _mean_powers(pmf: np.ndarray, m: np.ndarray, k: int, taken: np.ndarray) -> list[np.ndarray]:
    """E[taken(M) w(M)^n] for n = 0, 1, 2, one for each row of `pmf`."""
    return [pmf @ (taken * np.maximum(m / k, 1.0) ** n) for n in range(3)]
