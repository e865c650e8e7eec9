"""Every client computes."""

from typing import ClassVar

from performative._base.client_axis import client_axes
from performative._engine.cohorts import spread_out, where_rows
from performative._engine.executors.base import AbstractExecutor, map_clients
from performative._engine.keys import RunKeys
from performative._engine.setup import Setup
from performative.types import Broadcast, ClientMemory, Cohort, Draws, Upload


class Dense(AbstractExecutor):
    """Every client computes; nothing is gathered. Those that sit out keep their memory and weigh nothing."""

    name: ClassVar[str] = "dense"

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

    @property
    def spreads_out(self) -> bool:
        return True

    def rows(self, size: int, clients: int) -> int:
        return clients
