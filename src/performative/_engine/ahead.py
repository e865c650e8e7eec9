"""Random numbers for many rounds, drawn at once before the rounds that use them.

They have addresses (see `keys`), so a number is the same whenever it is drawn. One pass over many rounds is faster than
a short one in each round.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from performative._base.client_axis import client_axes
from performative._engine.client import draw_for_client
from performative._engine.executors import AbstractExecutor
from performative._engine.keys import RunKeys
from performative._engine.memory import bytes_of
from performative._engine.setup import Setup
from performative.types import Draws, State, Theta

# The numbers of one block of rounds stay in a processor's cache, or take a small part of a device's memory.
_BYTES = {"cpu": 2**20}
_BYTES_ELSEWHERE = 2**26
# Below this many rounds a block does not justify its own loop.
_FEW, _MANY = 4, 512


def can_draw_ahead(setup: Setup, state: State, executor: AbstractExecutor) -> bool:
    """Whether a round's numbers depend on nothing that comes before it."""
    if not executor.spreads_out or setup.mesh is not None or setup.compute.at_once is not None:
        return False
    return not jax.tree.leaves(state.clients.batch)


def rounds_ahead(one: Draws) -> int:
    """How many rounds to draw at once, given one round's draws (or their shapes); 1 if each round draws its own."""
    size = bytes_of(one)
    room = _BYTES.get(jax.default_backend(), _BYTES_ELSEWHERE)
    rounds = min(room // max(size, 1), _MANY)
    return rounds if rounds >= _FEW else 1


def draw_round(setup: Setup, theta: Theta, keys: RunKeys, round: Int[Array, ""]) -> Draws:
    """All clients' numbers of one round, by client."""
    population = setup.problem.population
    arrays, rest = eqx.partition(population, eqx.is_array)

    def one(rows: PyTree, client: Array) -> Draws:
        mine = keys.of_client(round, client)
        return draw_for_client(setup.algorithm, eqx.combine(rows, rest), theta, mine, None)

    clients = jnp.arange(setup.weights.shape[0], dtype=jnp.int32)
    return jax.vmap(one, in_axes=(client_axes(arrays), 0))(arrays, clients)
