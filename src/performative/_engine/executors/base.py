"""The slot of executors: how the clients of a round are run."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from performative._engine.keys import RunKeys
from performative._engine.setup import Setup
from performative._engine.sharding import map_rows
from performative._engine.steps import round_of
from performative.populations import AbstractPopulation
from performative.types import Broadcast, ClientMemory, Cohort, Draws, Upload


class AbstractExecutor(eqx.Module):
    """How the clients of a round are run. What they compute does not depend on it.

    Args:
        name: its name in a history
        compiled: whether `run` can be traced into the compiled loop; otherwise Python drives the rounds, and `run` gets
            concrete values
        spreads_out: whether row i is client i regardless of who takes part: then random numbers can be drawn before the
            cohort is known
    """

    name: ClassVar[str] = ""
    compiled: ClassVar[bool] = True
    spreads_out: ClassVar[bool] = False

    @abstractmethod
    def run(
        self, setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
        drawn: Draws | None = None,
    ) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
        """Return a cohort, its uploads (one row per row of the cohort), and the memory of all N clients.

        Absent clients keep their memory bit for bit. `drawn` contains random numbers for `rows` rows, already drawn.
        """

    def rows(self, size: int, clients: int) -> int:
        """Number of rows of `drawn` passed to `run` for a cohort of `size` out of `clients`."""
        return clients if self.spreads_out else size

    def mesh(self) -> Mesh | None:
        """The devices that clients are distributed over; None for one device."""
        return None


def map_clients(
    setup: Setup, population: AbstractPopulation, axes: PyTree, cohort: Cohort, broadcast: Broadcast, memory: PyTree,
    keys: RunKeys, drawn: Draws | None,
) -> tuple[Upload, ClientMemory]:  # fmt: skip
    """Run the rows of the cohort in parallel; `population` contains their rows, along `axes`."""
    arrays, rest = eqx.partition(population, eqx.is_array)

    def one(
        setup: Setup, broadcast: Broadcast, keys: RunKeys, rows: PyTree, client: Array, mine: ClientMemory,
        steps: Array | None, drawn: Draws | None, age: Array | None,
    ) -> Any:  # fmt: skip
        return round_of(setup, eqx.combine(rows, rest), broadcast, mine, keys, client, steps, drawn, age)

    bare = eqx.tree_at(lambda s: s.problem.population, setup, None)
    lead = (axes, 0, 0, None if cohort.steps is None else 0, 0, None if cohort.age is None else 0)
    shared = eqx.Partial(one, bare, broadcast, keys)
    each = map_rows(shared, lead, setup.compute.at_once, cohort.ids.shape[0], setup.mesh)
    return each(arrays, cohort.ids, memory, cohort.steps, drawn, cohort.age)
