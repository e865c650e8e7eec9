"""What the compiled loop does, driven by Python: for executors that cannot be compiled into it."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from performative._engine.chunk import ChunkSpec, RecordConfig, RunInputs
from performative._engine.executors import AbstractExecutor, Loop
from performative._engine.keys import RunKeys, run_keys
from performative._engine.records import Report, add_totals
from performative._engine.setup import Setup
from performative._engine.steps import close_one, open_one, row_one
from performative.types import Draws, State


def loop_round(
    setup: Setup, state: State, keys: RunKeys, secrets: Draws | None = None, executor: AbstractExecutor | None = None
) -> tuple[State, Report]:
    """A round as `federated_round` does it, with an executor that sees numbers."""
    cohort, broadcast, chosen = open_one(setup, state, keys)
    run = (Loop() if executor is None else executor).run
    cohort, upload, clients = run(setup, cohort, broadcast, state.clients, keys, secrets)
    return close_one(setup, state, cohort, broadcast, upload, clients, chosen)


def loop_chunk(
    fixed: RunInputs, span: ChunkSpec, state: State, watch: RecordConfig, capacity: int
) -> tuple[State, dict[str, Any]]:
    """What `run_chunk` does, in Python."""
    states, books = [], []
    for repeat, key in enumerate(fixed.keys):
        here, keys = jax.tree.map(operator.itemgetter(repeat), state), run_keys(key)
        rows, first = [], int(here.round)
        for _ in range(int(span.count)):
            totals: Any = None
            for _ in range(min(watch.every, int(span.rounds) - int(here.round))):
                at = int(here.round) - first
                secrets = jax.tree.map(lambda leaf, at=at, repeat=repeat: leaf[at, repeat], span.secrets)
                here, report = loop_round(fixed.setup, here, keys, secrets, watch.executor)
                row = row_one(fixed.setup, here, report, watch.theta, span.limit)
                totals = row["totals"] if totals is None else add_totals(totals, row["totals"])
            rows.append(row | {"totals": totals})
        states.append(here)
        books.append(jax.tree.map(_stack, *rows))
    return jax.tree.map(_stack, *states), jax.tree.map(_stack, *books)


def _stack(*leaves: PyTree) -> Any:
    return jnp.stack(leaves)
