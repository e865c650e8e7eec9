"""For debugging: one client at a time, with errors that name the client."""

import operator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._base.client_axis import put_rows, take_rows
from performative._engine.executors.base import AbstractExecutor
from performative._engine.keys import RunKeys
from performative._engine.setup import Setup
from performative._engine.steps import one_client
from performative.types import Broadcast, ClientMemory, Cohort, Draws, Upload


class Loop(AbstractExecutor):
    """Run clients sequentially, driven by Python."""

    name: ClassVar[str] = "loop"
    compiled: ClassVar[bool] = False

    def run(
        self, setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
        drawn: Draws | None = None,
    ) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
        uploads: list[Any] = []
        clients, at_round = memory, int(broadcast.round)
        active = np.ones(len(cohort.ids), bool) if cohort.active is None else np.asarray(cohort.active)
        for row, client in enumerate(np.asarray(cohort.ids)):
            if not active[row]:
                uploads.append(None)
                continue
            at = jnp.asarray([client], cohort.ids.dtype)
            mine = jax.tree.map(lambda leaf: leaf[0], take_rows(memory, at))
            steps, age = jax.tree.map(operator.itemgetter(row), (cohort.steps, cohort.age))
            try:
                mine_secrets = jax.tree.map(operator.itemgetter(row), drawn)
                upload, after = one_client(setup, broadcast, mine, keys, cohort.ids[row], steps, mine_secrets, age=age)
            except Exception as error:
                raise RuntimeError(f"client {int(client)} failed in round {at_round}: {error}") from error
            if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(upload.delta)):
                raise FloatingPointError(f"client {int(client)} sent a non-finite update in round {at_round}.")
            uploads.append(upload)
            clients = put_rows(clients, at, jax.tree.map(lambda leaf: leaf[None], after))
        template = next((upload for upload in uploads if upload is not None), None)
        if template is None:  # empty cohort: rows of weight zero, in the shape of an upload
            first = jax.tree.map(lambda leaf: leaf[0], memory)
            steps = None if cohort.steps is None else cohort.steps[0]
            mine = jax.tree.map(operator.itemgetter(0), drawn)
            client = jnp.zeros((), cohort.ids.dtype)
            template, _ = eqx.filter_eval_shape(one_client, setup, broadcast, first, keys, client, steps, mine)
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
        rows = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[blank if u is None else u for u in uploads])
        return cohort, rows, clients
