"""The steps of a round, each its own program: for a live federation, and for executors driven by Python."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from performative._base.client_axis import client_axes
from performative._engine.client import client_round
from performative._engine.records import make_row
from performative._engine.round import close_round, open_round
from performative._engine.setup import Setup
from performative._engine.training import met_model
from performative.populations import AbstractPopulation
from performative.types import Broadcast, ClientMemory, Theta, Unchecked

open_one = eqx.filter_jit(open_round)
close_one = eqx.filter_jit(close_round)
row_one = eqx.filter_jit(make_row)


@eqx.filter_jit
def met_one(setup: Setup, broadcast: Broadcast, memory: ClientMemory, client: Unchecked[Array]) -> Theta:
    """The model that this client's people see, if the choice does not depend on data."""
    algorithm = setup.algorithm
    return met_model(algorithm.sharing, algorithm.deploy, broadcast, memory.own, memory.seen, client)[0]


def client_slice(population: AbstractPopulation, row: Unchecked[Array]) -> AbstractPopulation:
    """One client's population."""
    return jax.tree.map(
        lambda leaf, axis: leaf if axis is None else leaf[row],
        population,
        client_axes(population),
        is_leaf=lambda leaf: leaf is None,
    )


def round_of(
    setup: Setup, population: AbstractPopulation, broadcast: Broadcast, memory: PyTree, keys: PyTree,
    client: Unchecked[Array], steps: Unchecked[Array | None], drawn: PyTree, age: Unchecked[Array | None] = None,
) -> Any:  # fmt: skip
    """`client_round` of one client of a setup, from the run's keys; `population` is its slice.

    The client took its model `age` rounds ago; None for this round.
    """
    mine = keys.of_client(broadcast.round, client)
    if age is not None:
        broadcast = broadcast.ago(age)
    return client_round(
        setup.problem, setup.algorithm, population, broadcast, memory, mine, steps, client, drawn, setup.compute,
        setup.asks_loss, setup.clock.step(client),
    )  # fmt: skip


@eqx.filter_jit
def one_client(
    setup: Setup, broadcast: Broadcast, memory: PyTree, keys: PyTree, client: Unchecked[Array],
    steps: Unchecked[Array | None], drawn: PyTree = None, row: Unchecked[Array | None] = None,
    age: Unchecked[Array | None] = None,
) -> Any:  # fmt: skip
    """Run one client; its slice is cut inside, so one compilation serves all clients.

    `row` is the client's row in the population, if it differs from its index.
    """
    mine = client_slice(setup.problem.population, client if row is None else row)
    return round_of(setup, mine, broadcast, memory, keys, client, steps, drawn, age)
