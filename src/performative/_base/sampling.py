"""Exact draws of clients and rows whose cost grows with the sample, not with the population."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

# Below this many candidates, some of which may be invalid, a full shuffle is as cheap as rejection sampling.
_SMALL = 256
# Up to this many draws, comparing all pairs is faster than sorting.
_PAIRS = 128
# Rounds of a shuffle. The slowest case, 4 rows, contracts by 5/8 per round: (5/8)^40 = 7e-9.
_ROUNDS = 40


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias method (Vose's construction): threshold and alias of each of N cells.

    A cell is drawn uniformly, then kept with probability threshold / 2^32, else exchanged for `alias`: exact to
    2^-32 / N, where an inverse CDF in float32 is off by several percent at N = 1e6.
    """
    weights = np.asarray(weights, np.float64)
    # Weights sum to one only approximately; a deficit left here would fall on the last cell.
    scaled = (weights * (len(weights) / weights.sum())).tolist()
    alias = list(range(len(scaled)))
    small = [i for i, s in enumerate(scaled) if s < 1.0]
    large = [i for i, s in enumerate(scaled) if s >= 1.0]
    while small and large:
        poor, rich = small.pop(), large[-1]
        alias[poor] = rich
        scaled[rich] -= 1.0 - scaled[poor]
        if scaled[rich] < 1.0:
            small.append(large.pop())
    for left in small + large:
        scaled[left] = 1.0
    # A cell that keeps all its mass is its own alias, so 2^32 need not be representable.
    threshold = np.minimum(np.rint(np.asarray(scaled) * 2.0**32), 2.0**32 - 1)
    return threshold.astype(np.uint32), np.asarray(alias, np.int32)


def draw_alias(key: PRNGKeyArray, table: tuple[UInt[Array, " N"], Int[Array, " N"]], draws: int) -> Int[Array, " K"]:
    """`draws` independent draws from an alias table, in O(draws)."""
    threshold, alias = table
    key_cell, key_keep = jax.random.split(key)
    cell = jax.random.randint(key_cell, (draws,), 0, threshold.shape[0], jnp.int32)
    keep = jax.random.bits(key_keep, (draws,), jnp.uint32) < threshold[cell]
    return jnp.where(keep, cell, alias[cell])


def merge_duplicates(ids: Int[Array, " K"], spare: int) -> tuple[Int[Array, " K"], Int[Array, " K"]]:
    """Unique ids with their multiplicities; the remaining rows contain `spare` and 0."""
    k = ids.shape[0]
    if k <= _PAIRS:
        same = ids[:, None] == ids[None, :]
        count = jnp.sum(same, axis=1, dtype=jnp.int32)
        earlier = jnp.tril(jnp.ones((k, k), bool), -1)
        first = ~jnp.any(same & earlier, axis=1)
    else:
        ids = jnp.sort(ids)
        start = jnp.searchsorted(ids, ids, side="left")
        count = (jnp.searchsorted(ids, ids, side="right") - start).astype(jnp.int32)
        first = start == jnp.arange(k, dtype=start.dtype)
    return jnp.where(first, ids, spare), jnp.where(first, count, 0)


def _clashes(ids: Int[Array, " k"], settled: Bool[Array, " k"]) -> Bool[Array, " k"]:
    """Rows that repeat the id of a settled or an earlier row."""
    k = ids.shape[0]
    turn = jnp.arange(k) + jnp.where(settled, 0, k)
    if k <= _PAIRS:
        return jnp.any((ids[:, None] == ids[None, :]) & (turn[None, :] < turn[:, None]), axis=1)
    sorted_ids, _, row = jax.lax.sort((ids, turn, jnp.arange(k)), num_keys=2)
    repeats = jnp.concatenate([jnp.zeros(1, bool), sorted_ids[1:] == sorted_ids[:-1]])
    return jnp.zeros(k, bool).at[row].set(repeats)


def distinct(key: PRNGKeyArray, k: int, count: Array | int, capacity: int | None = None) -> Int[Array, " k"]:
    """k distinct numbers below `count`, every subset equally likely.

    A traced `count` needs a static `capacity >= count`. A small fraction is drawn by rejection, which is exact:
    repeated numbers are redrawn until none repeats. Otherwise the candidates are shuffled.
    """
    if k == 1:
        return jax.random.randint(key, (1,), 0, count, jnp.int32)
    limit = count if capacity is None else capacity
    known = isinstance(count, int)
    # With few free numbers, redrawing would take long, so at least half must stay free; more if clashes are found by
    # sorting.
    rejects = 2 * k <= limit if known and k <= _PAIRS else limit > _SMALL and k * 8 <= limit
    if not rejects:
        turn = jax.random.permutation(key, jnp.arange(limit, dtype=jnp.int32))
        if known and count == limit:
            return turn[:k]
        behind = jnp.argsort(jnp.where(turn < count, 0, 1), stable=True)
        return turn[behind][:k]

    def unsettled(carry: tuple[Array, Array, Array]) -> Array:
        return ~jnp.all(carry[2])

    def redraw(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        attempt, ids, settled = carry
        fresh = jax.random.randint(jax.random.fold_in(key, attempt), (k,), 0, count, jnp.int32)
        ids = jnp.where(settled, ids, fresh)
        return attempt + 1, ids, ~_clashes(ids, settled)

    start = (jnp.asarray(0), jnp.zeros(k, jnp.int32), jnp.zeros(k, bool))
    return jax.lax.while_loop(unsettled, redraw, start)[1]


def shuffled_positions(
    key: PRNGKeyArray, positions: Int[Array, " n"], count: Array | int, needed: Array | bool = True
) -> Int[Array, " n"]:
    """Map these positions through a random permutation of 0..count-1 without storing it: O(n) time and memory.

    Swap-or-not (Hoang, Morris and Rogaway 2012). In each round k is drawn from 0..count-1, and x and k - x mod count
    are swapped if a coin that belongs to the pair says so. A round is a permutation, whatever k and the coins are, so
    a uniform distribution stays uniform; and it brings the distribution of any pair or larger set of positions closer
    to uniform by the factor 1/2 + 1/(2 count), from count = 4 on (1/2 below). After 40 rounds the distribution over all
    orders of up to 6 rows is within 5e-9 of uniform in total variation.

    If `needed` is False (it may be traced), the positions are returned unchanged and nothing is computed.
    """
    count = jnp.asarray(count, jnp.uint32)
    words = jax.random.bits(key, (_ROUNDS,), jnp.uint32)

    def swap(i: Array, x: Array) -> Array:
        word = words[i]
        k = word % count
        partner = jnp.where(x <= k, k - x, k + count - x)
        coin = (jnp.maximum(x, partner) ^ word) * jnp.uint32(0x85EBCA6B)
        coin = (coin ^ (coin >> 15)) * jnp.uint32(0xC2B2AE35)
        return jnp.where(coin >> 31 == 1, partner, x)

    rounds = jnp.where(needed, _ROUNDS, 0)
    return jax.lax.fori_loop(0, rounds, swap, positions.astype(jnp.uint32)).astype(jnp.int32)


def first_of(key: PRNGKeyArray, values: Float[Array, " N"], k: int) -> tuple[Float[Array, " k"], Int[Array, " k"]]:
    """The k smallest values and their indices; ties go to the first index after a random offset.

    In float32, draws of many clients often tie (in 1 of 8 rounds, for the smallest of a million uniform draws), and the
    first index would always win.
    """
    clients = values.shape[0]
    begin = jax.random.randint(key, (), 0, clients, jnp.int32)
    smallest, at = jax.lax.top_k(-jnp.roll(values, -begin), k)
    return -smallest, (at.astype(jnp.int32) + begin) % clients


def ways(count: int, k: int) -> float:
    """The number of subsets of size k; infinity if it overflows."""
    if not 0 <= k <= count:
        return 0.0
    log = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
    return math.inf if log > 700 else float(math.comb(count, k))
