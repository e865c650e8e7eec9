"""Clients in parallel: all of them, only the cohort, or distributed over devices."""

from typing import ClassVar

from jax.sharding import Mesh

from performative._base.client_axis import client_axes, put_rows, take_clients, take_rows
from performative._engine.cohorts import spread_out, where_rows
from performative._engine.executors.base import AbstractExecutor, map_clients
from performative._engine.keys import RunKeys
from performative._engine.setup import Setup
from performative._engine.sharding import client_mesh, fill_up
from performative.types import Broadcast, ClientMemory, Cohort, Draws, Upload


class Dense(AbstractExecutor):
    """Every client computes; nothing is gathered. Absent clients keep their memory and have zero weight."""

    name: ClassVar[str] = "dense"
    spreads_out: ClassVar[bool] = True

    def run(
        self, setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
        drawn: Draws | None = None,
    ) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
        if not setup.algorithm.participation.is_full:
            cohort = spread_out(cohort, setup.weights.shape[0])
        population = setup.problem.population
        axes = client_axes(population)
        upload, after = map_clients(setup, population, axes, cohort, broadcast, memory, keys, drawn)
        if cohort.active is not None:
            after = where_rows(cohort.active, after, memory)
        return cohort, upload, after


class Gather(AbstractExecutor):
    """Only the K rows of the cohort compute; memory is updated in place at those rows."""

    name: ClassVar[str] = "gather"

    def run(
        self, setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
        drawn: Draws | None = None,
    ) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
        rows, axes = take_clients(setup.problem.population, cohort.ids)
        mine = take_rows(memory, cohort.ids)
        upload, after = map_clients(setup, rows, axes, cohort, broadcast, mine, keys, drawn)
        return cohort, upload, put_rows(memory, cohort.ids, after)


class Sharded(AbstractExecutor):
    """Run over all devices of all processes: as `Dense` under full participation, else as `Gather`."""

    name: ClassVar[str] = "sharded"

    def run(
        self, setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
        drawn: Draws | None = None,
    ) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
        assert setup.mesh is not None
        cohort, drawn = fill_up(cohort, drawn, setup.weights.shape[0], setup.mesh)
        inner = Dense() if setup.algorithm.participation.is_full else Gather()
        return inner.run(setup, cohort, broadcast, memory, keys, drawn)

    def mesh(self) -> Mesh:
        return client_mesh()
