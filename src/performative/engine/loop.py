"""The executor for finding out what went wrong: one client at a time, with errors that name it."""

import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative.client_axis import client_axes, put_rows, take_rows
from performative.engine.chunk import Frozen, Span, Watch, add_reports, record
from performative.engine.client import client_round
from performative.engine.keys import RunKeys, run_keys
from performative.engine.report import Setup
from performative.engine.round import close_round, open_round
from performative.types import Secrets, State

open_one = eqx.filter_jit(open_round)
close_one = eqx.filter_jit(close_round)
record_one = eqx.filter_jit(record)


def client_slice(population: Any, row: Any) -> Any:
    """One client's population."""
    return jax.tree.map(
        lambda leaf, axis: leaf if axis is None else leaf[row],
        population,
        client_axes(population),
        is_leaf=lambda leaf: leaf is None,
    )


@eqx.filter_jit
def one_client(
    setup: Setup, broadcast: Any, memory: Any, keys: Any, client: Any, steps: Any, secrets: Any = None, row: Any = None
) -> Any:
    """The client's slice is cut inside, so that one compilation serves all clients.

    `row` is where the client stands in the population, where that is not its number.
    """
    population = setup.problem.population
    return client_round(
        setup.problem,
        setup.algorithm,
        client_slice(population, client if row is None else row),
        broadcast,
        memory,
        keys.of_client(broadcast.round, client),
        steps,
        client,
        secrets,
        setup.compute,
    )


def loop_round(setup: Setup, state: State, keys: RunKeys, secrets: Secrets | None = None) -> tuple[State, Any]:
    """A round as `federated_round` does it, client after client."""
    cohort, broadcast, chosen = open_one(setup, state, keys)
    uploads: list[Any] = []
    clients = state.clients
    active = np.ones(len(cohort.ids), bool) if cohort.active is None else np.asarray(cohort.active)
    for row, client in enumerate(np.asarray(cohort.ids)):
        if not active[row]:
            uploads.append(None)
            continue
        at = jnp.asarray([client], cohort.ids.dtype)
        mine = jax.tree.map(lambda leaf: leaf[0], take_rows(state.clients, at))
        steps = None if cohort.steps is None else cohort.steps[row]
        try:
            mine_secrets = jax.tree.map(operator.itemgetter(row), secrets)
            upload, after = one_client(setup, broadcast, mine, keys, cohort.ids[row], steps, mine_secrets)
        except Exception as error:
            raise RuntimeError(f"client {int(client)} failed in round {int(state.round)}: {error}") from error
        if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(upload.delta)):
            raise FloatingPointError(f"client {int(client)} sent a non-finite update in round {int(state.round)}.")
        uploads.append(upload)
        clients = put_rows(clients, at, jax.tree.map(lambda leaf: leaf[None], after))
    template = next((upload for upload in uploads if upload is not None), None)
    if template is None:  # nobody is there: rows that weigh nothing, of the shape that an upload would have
        first = jax.tree.map(lambda leaf: leaf[0], state.clients)
        steps = None if cohort.steps is None else cohort.steps[0]
        mine = jax.tree.map(operator.itemgetter(0), secrets)
        client = jnp.zeros((), cohort.ids.dtype)
        template, _ = eqx.filter_eval_shape(one_client, setup, broadcast, first, keys, client, steps, mine)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
    rows = jax.tree.map(_stack, *[blank if u is None else u for u in uploads])
    return close_one(setup, state, cohort, broadcast, rows, clients, chosen)


def loop_chunk(frozen: tuple[Frozen, Span], state: State, watch: Watch, capacity: int) -> tuple[State, dict[str, Any]]:
    """What `run_chunk` does, in Python."""
    fixed, span = frozen
    states, books = [], []
    for repeat, key in enumerate(fixed.keys):
        here, keys = jax.tree.map(operator.itemgetter(repeat), state), run_keys(key)
        rows, first = [], int(here.round)

        def secrets_of(here: State, repeat: int = repeat, first: int = first) -> Secrets | None:
            return jax.tree.map(lambda leaf: leaf[int(here.round) - first, repeat], span.secrets)

        for _ in range(int(span.count)):
            here, report = loop_round(fixed.setup, here, keys, secrets_of(here))
            for _ in range(min(watch.every - 1, int(span.rounds) - int(here.round))):
                here, more = loop_round(fixed.setup, here, keys, secrets_of(here))
                report = add_reports(report, more)
            rows.append(record_one(here, report, fixed.targets, watch, span.limit))
        states.append(here)
        books.append(jax.tree.map(_stack, *rows))
    return jax.tree.map(_stack, *states), jax.tree.map(_stack, *books)


def _stack(*leaves: Any) -> Any:
    return jnp.stack(leaves)
