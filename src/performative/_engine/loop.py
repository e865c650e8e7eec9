"""The compiled loop's work, driven by Python: for executors that cannot be compiled into it."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from performative._engine.chunk import ChunkSpec, RecordConfig, RunInputs
from performative._engine.keys import run_keys
from performative._engine.records import add_totals
from performative._engine.simulated import federated_round
from performative._engine.steps import row_one
from performative.types import State


def loop_chunk(
    fixed: RunInputs, span: ChunkSpec, state: State, watch: RecordConfig, capacity: int
) -> tuple[State, dict[str, Any]]:
    """What `run_chunk` does, in Python."""
    states, records = [], []
    for repeat, key in enumerate(fixed.keys):
        here, keys = jax.tree.map(operator.itemgetter(repeat), state), run_keys(key)
        rows, first = [], int(here.round)
        for _ in range(int(span.count)):
            totals: Any = None
            for _ in range(min(watch.every, int(span.rounds) - int(here.round))):
                at = int(here.round) - first
                secrets = jax.tree.map(lambda leaf, at=at, repeat=repeat: leaf[at, repeat], span.secrets)
                here, report = federated_round(fixed.setup, here, keys, watch.executor, secrets)
                row = row_one(fixed.setup, here, report, watch.theta, span.limit)
                totals = row["totals"] if totals is None else add_totals(totals, row["totals"])
            rows.append(row | {"totals": totals})
        states.append(here)
        records.append(jax.tree.map(_stack, *rows))
    return jax.tree.map(_stack, *states), jax.tree.map(_stack, *records)


def _stack(*leaves: PyTree) -> Any:
    return jnp.stack(leaves)
