"""Exact draws of clients and rows whose cost grows with what is drawn, not with what there is to draw from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

# Below this many candidates, of which some may not count, a full shuffle is as cheap as a draw with rejection.
_SMALL = 256
# Up to this many draws, comparing all pairs is faster than sorting.
_PAIRS = 128


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias method (Vose's construction): threshold and alias of each of N cells.

    A cell is drawn uniformly, then kept with probability `threshold`, else exchanged for `alias`. Exact to the
    rounding of one uniform, where an inverse CDF in float32 is off by several percent at N = 1e6.
    """
    weights = np.asarray(weights, np.float64)
    # Weights need to sum to one only nearly; a deficit left here would fall to whoever comes last.
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
    return np.asarray(scaled), np.asarray(alias, np.int32)


def draw_alias(key: PRNGKeyArray, table: tuple[Float[Array, " N"], Int[Array, " N"]], draws: int) -> Int[Array, " K"]:
    """`draws` independent draws from an alias table, in O(draws)."""
    threshold, alias = table
    key_cell, key_keep = jax.random.split(key)
    cell = jax.random.randint(key_cell, (draws,), 0, threshold.shape[0], jnp.int32)
    keep = jax.random.uniform(key_keep, (draws,), threshold.dtype) < threshold[cell]
    return jnp.where(keep, cell, alias[cell])


def merge_duplicates(ids: Int[Array, " K"], spare: int) -> tuple[Int[Array, " K"], Int[Array, " K"]]:
    """Unique ids with their multiplicities; the rows left over hold `spare` and 0."""
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
    """Rows that repeat an id which a settled or an earlier row already holds."""
    k = ids.shape[0]
    turn = jnp.arange(k) + jnp.where(settled, 0, k)
    if k <= _PAIRS:
        return jnp.any((ids[:, None] == ids[None, :]) & (turn[None, :] < turn[:, None]), axis=1)
    sorted_ids, _, row = jax.lax.sort((ids, turn, jnp.arange(k)), num_keys=2)
    repeats = jnp.concatenate([jnp.zeros(1, bool), sorted_ids[1:] == sorted_ids[:-1]])
    return jnp.zeros(k, bool).at[row].set(repeats)


def distinct(key: PRNGKeyArray, k: int, count: Any, capacity: int | None = None) -> Int[Array, " k"]:
    """k different numbers below `count`, every subset equally likely.

    A traced `count` needs a static `capacity >= count`. Few of many are drawn with rejection, which is exact: a
    repeated number is drawn again until none repeats. Otherwise the candidates are shuffled.
    """
    if k == 1:
        return jax.random.randint(key, (1,), 0, count, jnp.int32)
    limit = count if capacity is None else capacity
    known = isinstance(count, int)
    # A number that is nearly used up would be redrawn for long, so at least half must stay free.
    rejects = k <= _PAIRS and 2 * k <= limit if known else limit > _SMALL and k * 8 <= limit
    if not rejects:
        turn = jax.random.permutation(key, jnp.arange(limit, dtype=jnp.int32))
        if known and count == limit:
            return turn[:k]
        behind = jnp.argsort(jnp.where(turn < count, 0, 1), stable=True)
        return turn[behind][:k]

    def unsettled(carry: tuple[Any, ...]) -> Any:
        return ~jnp.all(carry[2])

    def redraw(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        attempt, ids, settled = carry
        fresh = jax.random.randint(jax.random.fold_in(key, attempt), (k,), 0, count, jnp.int32)
        ids = jnp.where(settled, ids, fresh)
        return attempt + 1, ids, ~_clashes(ids, settled)

    start = (jnp.asarray(0), jnp.zeros(k, jnp.int32), jnp.zeros(k, bool))
    return jax.lax.while_loop(unsettled, redraw, start)[1]


def shuffled_position(key: PRNGKeyArray, position: Int[Array, ""], count: Any) -> Int[Array, ""]:
    """Where a keyed permutation of 0..count-1 sends `position`, without storing the permutation.

    A Feistel network over the smallest power of four that holds `count`, walked until it lands below
    `count`. Serves epochs over a table in O(1) memory a client.
    """
    count = jnp.asarray(count, jnp.uint32)
    bits = jnp.uint32(32) - jax.lax.clz(jnp.maximum(count - 1, 1))
    half = (bits + 1) // 2
    mask = (jnp.uint32(1) << half) - 1
    round_keys = jax.random.bits(key, (8,), jnp.uint32)

    def mix(value: Array, round_key: Array) -> Array:
        value = (value ^ round_key) * jnp.uint32(0x85EBCA6B)
        value = (value ^ (value >> 13)) * jnp.uint32(0xC2B2AE35)
        return (value ^ (value >> 16)) & mask

    def permute(value: Array) -> Array:
        left, right = value >> half, value & mask
        for i in range(8):
            left, right = right, left ^ mix(right, round_keys[i])
        return (left << half) | right

    start = permute(position.astype(jnp.uint32))
    return jax.lax.while_loop(lambda v: v >= count, permute, start).astype(jnp.int32)
