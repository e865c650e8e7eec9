"""The distribution of a cohort: who takes part together in a round, and with what weights."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative.types import is_concrete

# A cohort's probability, its clients (each once, no padding rows) and their weights a_i.
Cohorts = Iterator[tuple[float, np.ndarray, np.ndarray]]
# 32 N^2 bytes are 512 MB there.
MOST_CLIENTS = 4_000
# More cohorts than this are not enumerated.
MOST_COHORTS = 20_000
_ROWS = 512  # cohorts that are summed at once


class CohortMoments(eqx.Module):
    """First and second moments of who takes part in a round.

        z_i = 1 if client i takes part, else 0;      a_i its weight, 0 if it does not;      f = (z, a)

    Takes 32 N^2 bytes, and `covariance` as much again: 3.2 MB for 316 clients, 512 MB for 4,000, the maximum.

    Attributes:
        present: E z_i, [N]
        weight: E a_i, [N]
        both: E f f^T, [2, 2, N, N]: E z_i z_j in [0, 0], E z_i a_j in [0, 1], E a_i z_j in [1, 0], E a_i a_j in [1, 1]
    """

    present: Float[np.ndarray | Array, " N"]
    weight: Float[np.ndarray | Array, " N"]
    both: Float[np.ndarray | Array, "2 2 N N"]

    @property
    def covariance(self) -> Float[np.ndarray | Array, "2 2 N N"]:
        """Cov(f_i, f_j), [2, 2, N, N]."""
        xp = np if is_concrete(self.both) else jnp
        mean = xp.stack([self.present, self.weight])
        return self.both - xp.einsum("ai,bj->abij", mean, mean)


def check_clients(clients: int) -> None:
    """Raise if the moments of pairs of this many clients would not fit into memory."""
    if clients > MOST_CLIENTS:
        raise ValueError(
            f"The moments of all pairs of {clients:,} clients need {32e-9 * clients**2:,.0f} GB; at most "
            f"{MOST_CLIENTS:,} clients are supported."
        )


def empty_pairs(clients: int) -> np.ndarray:
    """Zeros, [N, N]; raises if that is too large."""
    check_clients(clients)
    return np.zeros((clients, clients))


def scaled_moments(together: np.ndarray, scale: np.ndarray) -> CohortMoments:
    """Moments if a_i = scale_i z_i, with the same factor in every cohort, and E z_i z_j = together [N, N]."""
    check_clients(len(scale))
    factors = np.stack([np.ones_like(scale), scale])
    both = factors[:, None, :, None] * factors[None, :, None, :] * together
    present = np.diagonal(together).copy()
    return CohortMoments(present, scale * present, both)


def subset_pairs(count: int, k: int) -> np.ndarray:
    """E z_i z_j if every set of k out of `count` is equally likely: k/n, and k (k-1) / (n (n-1)) for i != j."""
    check_clients(count)
    pairs = np.full((count, count), k * (k - 1) / (count * max(count - 1, 1)))
    np.fill_diagonal(pairs, k / count)
    return pairs


def multinomial_moments(p: np.ndarray | Array, K: int, scale: np.ndarray | Array | None = None) -> CohortMoments:
    """Moments of K draws with replacement, a_i = scale_i (times i is drawn) / K, with scale 1 by default.

        E z_i     = 1 - (1 - p_i)^K               E z_i z_j = 1 - (1 - p_i)^K - (1 - p_j)^K + (1 - p_i - p_j)^K
        E a_i     = p_i                           E a_i a_j = (1 - 1/K) p_i p_j + [i = j] p_i / K
        E z_i a_i = E a_i                         E z_i a_j = p_j (1 - (1 - p_i)^(K-1))  for i != j

    for a scale of 1. The last one: given that a draw is j, client i takes part if one of the other K - 1 draws is i.
    If JAX traces p, the moments are differentiable.
    """
    check_clients(len(p))
    xp = np if is_concrete((p, scale)) else jnp
    same = np.eye(len(p), dtype=bool)
    never = (1 - p) ** K
    z_z = 1 - never[:, None] - never[None, :] + xp.maximum(1 - p[:, None] - p[None, :], 0) ** K
    z_z = xp.where(same, (1 - never)[:, None], z_z)
    z_a = xp.where(same, p[:, None], p[None, :] * (1 - (1 - p[:, None]) ** (K - 1)))
    a_a = (1 - 1 / K) * xp.outer(p, p) + xp.diag(p / K)
    weight = p * 1
    if scale is not None:
        weight, z_a, a_a = scale * weight, scale * z_a, scale[:, None] * scale * a_a
    return CohortMoments(1 - never, weight, xp.stack([xp.stack([z_z, z_a]), xp.stack([z_a.T, a_a])]))


def moments_of(cohorts: Iterable[tuple[float, np.ndarray, np.ndarray]], clients: int) -> CohortMoments:
    """Moments by summing over all possible cohorts."""
    check_clients(clients)
    mean, both = np.zeros(2 * clients), np.zeros((2 * clients, 2 * clients))
    rest = iter(cohorts)
    while block := list(itertools.islice(rest, _ROWS)):
        chance = np.asarray([probability for probability, _, _ in block])
        rows = np.zeros((len(block), 2, clients))
        for row, (_, ids, weight) in zip(rows, block, strict=True):
            row[0, ids], row[1, ids] = 1.0, weight
        flat = rows.reshape(len(block), -1)
        mean += chance @ flat
        both += (chance[:, None] * flat).T @ flat
    together = both.reshape(2, clients, 2, clients).transpose(0, 2, 1, 3)
    return CohortMoments(mean[:clients], mean[clients:], np.ascontiguousarray(together))


def subsets(ids: Sequence[int] | np.ndarray, k: int, scale: np.ndarray) -> Cohorts:
    """Every set of k of these clients, equally likely, with a_i = scale_i."""
    chance = 1.0 / math.comb(len(ids), k)
    for chosen in itertools.combinations(ids, k):
        drawn = np.asarray(chosen, int)
        yield chance, drawn, scale[drawn]


def first_to_come(rates: np.ndarray, k: int, scale: np.ndarray) -> Cohorts:
    """Every set of the first k arrivals, with exponential arrival times at each client's own rate, and a_i = scale_i.

    P(Z comes first) = sum over S in Z of (-1)^|S| r / (r + rates of S),      r the total rate of all not in Z
    """
    for chosen in itertools.combinations(range(len(rates)), k):
        drawn = np.asarray(chosen, int)
        rest, sums, signs = rates.sum() - rates[drawn].sum(), np.zeros(1), np.ones(1)
        for rate in rates[drawn]:
            sums, signs = np.concatenate([sums, sums + rate]), np.concatenate([signs, -signs])
        chance = 1.0 if k == len(rates) else float(np.sum(signs * rest / (rest + sums)))
        yield chance, drawn, scale[drawn]


def multisets(p: np.ndarray, K: int) -> Cohorts:
    """Every outcome of K draws with replacement, as distinct clients with a_i = (times i is drawn) / K."""
    for drawn in itertools.combinations_with_replacement(np.flatnonzero(p > 0).tolist(), K):
        ids, times = np.unique(np.asarray(drawn), return_counts=True)
        orders = math.lgamma(K + 1) - sum(math.lgamma(n + 1) for n in times.tolist())
        yield math.exp(orders + float(times @ np.log(p[ids]))), ids, times / K


def certain_steps(clients: int, steps: int) -> np.ndarray:
    """P(tau_i = e + 1), [N, steps], if every client does this many steps."""
    law = np.zeros((clients, steps))
    law[:, -1] = 1.0
    return law
