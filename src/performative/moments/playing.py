"""The machine's rounds in sequence: distributions after each of them, and those that repeat."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative.moments.limits import Turn
from performative.moments.machine import Machine
from performative.moments.recursion import AbstractRound, Law, roll

# Numbers of rounds' maps held in memory at once.
_NUMBERS = 1 << 26


def follow_laws(machine: Machine, rounds: int) -> tuple[tuple[np.ndarray, np.ndarray], Turn]:
    """The moments after each round, [rounds + 1, ...]; and the machine's rounds in the long run."""
    begin = law = jax.tree.map(np.asarray, machine.begin())
    means, covariances = [begin.mean[None]], [begin.covariance[None]]
    block = max(machine.period, min(rounds, _NUMBERS // machine.numbers()))
    for first in range(0, rounds, block):
        count = min(block, rounds - first)
        maps = maps_of(machine, jnp.arange(first, first + block, dtype=jnp.int32))
        found = [np.asarray(part)[:count] for part in roll(maps, np.asarray(count), law)]
        means, covariances = [*means, found[0]], [*covariances, found[1]]
        law = Law(found[0][-1], found[1][-1])
    laws = np.concatenate(means), np.concatenate(covariances)
    return laws, last_turn(machine, block)


def last_turn(machine: Machine, block: int = 1) -> Turn:
    """The last period that the machine knows, its maps computed in blocks of `block` rounds."""
    block = max(block, machine.period)
    last = jnp.arange(machine.rounds - machine.period, machine.rounds - machine.period + block, dtype=jnp.int32)
    return Turn(maps_of(machine, last), machine.period, machine.size, machine.time)


@eqx.filter_jit
def maps_of(machine: Machine, rounds: Array) -> AbstractRound:
    return jax.vmap(machine.round)(jnp.clip(rounds, 0, machine.rounds - 1))
