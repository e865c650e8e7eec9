"""Randomness by address: (seed, repeat, purpose, round, client, index) is a position in the stream of a block cipher.

A run's key is split by purpose once. A round's key is one hash of it. A client's key is that key and the client's
index, and costs nothing: number `index` of the client's draw is the cipher's output on the counter (client, index). So
a draw for many clients is one pass over their counters, and does not depend on who else takes part, on the executor, or
on how rounds are split into chunks.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Int, PRNGKeyArray, UInt

from performative.types import ArrayLike

# Incremented when trajectories change: results under different numbers cannot be compared bit by bit.
NUMERICS = 3

# Threefry-2x32, 20 rounds (Salmon, Moraes, Dror and Shaw 2011).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
# Keys derived from a key have their own stream.
_DERIVED = 0x5851F42D


@functools.partial(jax.jit, inline=True)  # traced once: it is long, and each client's round calls it several times
def _cipher(k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Two words for a key and a counter. Unrolled, so it is fused into whatever uses the numbers."""
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(_PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << turn) | (x1 >> (32 - turn))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def _random_bits(key: UInt[Array, " 3"], width: int, shape: tuple[int, ...]) -> Array:
    """One word of the cipher per number, two if it has 64 bits."""
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    first, second = _cipher(key[0], key[1], key[2], index)
    if width == 64:
        return (first.astype(jnp.uint64) << 32) | second.astype(jnp.uint64)
    return first.astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[width])


def _derive(key: UInt[Array, " 3"], number: ArrayLike) -> UInt[Array, "..."]:
    counter = jnp.asarray(number).astype(jnp.uint32)
    first, second = _cipher(key[0] ^ jnp.uint32(_DERIVED), key[1], key[2], counter)
    return jnp.stack([first, second, jnp.zeros_like(first)], axis=-1)


def _split(key: UInt[Array, " 3"], shape: tuple[int, ...]) -> UInt[Array, "..."]:
    return _derive(key, jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape))


def _seed(number: Array) -> UInt[Array, " 3"]:
    return jnp.zeros(3, jnp.uint32).at[1].set(jnp.asarray(number).astype(jnp.uint32))


ADDRESSED = define_prng_impl(
    key_shape=(3,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_derive, name="addressed", tag="adr"
)


class ClientKeys(eqx.Module):
    """One client's keys of one round; `standing` is the same in every round."""

    data: PRNGKeyArray
    estimator: PRNGKeyArray
    channel: PRNGKeyArray
    standing: PRNGKeyArray


class RunKeys(eqx.Module):
    """A run's keys, one per purpose."""

    select: PRNGKeyArray
    data: PRNGKeyArray
    estimator: PRNGKeyArray
    channel: PRNGKeyArray
    standing: PRNGKeyArray

    def of_server(self, round: Int[Array, ""]) -> PRNGKeyArray:
        """The key that the cohort of a round is drawn with."""
        return jax.random.fold_in(self.select, round)

    def of_client(self, round: Int[Array, ""], client: Int[Array, ""]) -> ClientKeys:
        """A client's keys; unused ones cost nothing, since the compiler drops them."""
        return ClientKeys(
            _addressed(_of_round(self.data, round), client),
            _addressed(_of_round(self.estimator, round), client),
            _addressed(_of_round(self.channel, round), client),
            _addressed(jax.random.key_data(self.standing), client),
        )


def run_keys(key: PRNGKeyArray) -> RunKeys:
    """Split a run's key by purpose."""
    return RunKeys(*jax.random.split(key, 5))


def _of_round(key: PRNGKeyArray, round: ArrayLike) -> UInt[Array, " 2"]:
    """The words of a round's key: computed once per round, for all clients."""
    words = jax.random.key_data(key)
    return jnp.stack(_cipher(words[0], words[1], jnp.asarray(round).astype(jnp.uint32), jnp.uint32(0)))


def _addressed(words: UInt[Array, " 2"], client: ArrayLike) -> PRNGKeyArray:
    whole = jnp.concatenate([words, jnp.asarray(client).astype(jnp.uint32)[None]])
    return jax.random.wrap_key_data(whole, impl=ADDRESSED)
