"""One simulated round: part of the compiled loop, or step by step when driven by Python."""

from performative._engine.executors import AbstractExecutor, pick_executor
from performative._engine.keys import RunKeys
from performative._engine.records import Report
from performative._engine.round import close_round, open_round
from performative._engine.setup import Setup
from performative._engine.sharding import lay_out
from performative._engine.steps import close_one, open_one
from performative.types import Draws, State


def federated_round(
    setup: Setup, state: State, keys: RunKeys, executor: AbstractExecutor | str = "gather",
    drawn: Draws | None = None,
) -> tuple[State, Report]:  # fmt: skip
    """One round: select, broadcast, run the clients, aggregate. `drawn` has one row per row of the cohort."""
    executor = pick_executor(executor, setup.algorithm)
    begin, end = (open_round, close_round) if executor.compiled else (open_one, close_one)
    cohort, broadcast, chosen = begin(setup, state, keys)
    cohort, upload, clients = executor.run(setup, cohort, broadcast, state.clients, keys, drawn)
    after, report = end(setup, state, cohort, broadcast, upload, clients, chosen)
    return lay_out(after, setup.weights.shape[0], setup.mesh), report
