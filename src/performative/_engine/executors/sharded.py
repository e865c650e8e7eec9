"""Clients dealt out over devices."""

from typing import ClassVar

from jax.sharding import Mesh

from performative._engine.executors.base import AbstractExecutor
from performative._engine.executors.dense import Dense
from performative._engine.executors.gather import Gather
from performative._engine.keys import RunKeys
from performative._engine.setup import Setup
from performative._engine.sharding import client_mesh, fill_up
from performative.types import Broadcast, ClientMemory, Cohort, Draws, Upload


class Sharded(AbstractExecutor):
    """Over all devices of all processes: as `Dense` where everyone takes part, else as `Gather`."""

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
