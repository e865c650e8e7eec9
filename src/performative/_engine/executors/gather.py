"""Only the cohort computes."""

from typing import ClassVar

from performative._base.client_axis import put_rows, take_clients, take_rows
from performative._engine.executors.base import AbstractExecutor, map_clients
from performative._engine.keys import RunKeys
from performative._engine.setup import Setup
from performative.types import Broadcast, ClientMemory, Cohort, Draws, Upload


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
