"""One simulated round, as the compiled loop runs it."""

from performative._engine.executors import AbstractExecutor, pick_executor
from performative._engine.keys import RunKeys
from performative._engine.records import Report
from performative._engine.round import close_round, open_round
from performative._engine.setup import Setup
from performative._engine.sharding import lay_out
from performative.types import Draws, State


def federated_round(
    setup: Setup, state: State, keys: RunKeys, executor: AbstractExecutor | str = "gather",
    drawn: Draws | None = None,
) -> tuple[State, Report]:  # fmt: skip
    """One round: choose, broadcast, run the clients, aggregate. `drawn` holds a row for each row of the cohort."""
    cohort, broadcast, chosen = open_round(setup, state, keys)
    run = pick_executor(executor, setup.algorithm).run
    cohort, upload, clients = run(setup, cohort, broadcast, state.clients, keys, drawn)
    after, report = close_round(setup, state, cohort, broadcast, upload, clients, chosen)
    return lay_out(after, setup.weights.shape[0], setup.mesh), report
