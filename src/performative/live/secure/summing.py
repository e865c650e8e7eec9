"""A round's sum instead of its updates: the weights sent to clients, and the input of the aggregator."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._engine.cohorts import leave_out
from performative._engine.setup import Setup
from performative.live.federation import Federation, Ready
from performative.live.gathering import Gathered
from performative.live.secure.collecting import Collector
from performative.live.secure.settings import session_of
from performative.live.secure.stages import entries_of, model_of
from performative.live.transport import AbstractTransport
from performative.types import Cohort, State, Theta, Upload

# Removing clients from a cohort must scale the others' weights by one factor, up to rounding.
_ROUNDING = 1e-4


@eqx.filter_jit
def sum_weights(setup: Setup, state: State, cohort: Cohort, upload: Upload) -> Any:
    """c_k, the weights of the updates in the sum that the aggregator needs."""
    rule = setup.algorithm.aggregator
    return rule.sum_weights(upload.to_aggregate(), cohort, setup.weights, state.server.aggregator)


def collect_sum(
    federation: Federation,
    transport: AbstractTransport,
    run: str,
    round: int,
    requests: dict[int, bytes],
    weights: dict[int, float],
    uploads: dict[int, Upload],
) -> tuple[Gathered, Theta | None]:
    """The clients in the sum, with `uploads` without updates, and the sum of c_k delta_k; None if it failed."""
    secure, ready, timeout = federation.secure_settings, federation.ready, float(federation.timeout)
    assert secure is not None
    model = model_of(next(iter(requests.values()))) if requests else ""
    session = session_of(secure, federation.problem, federation.algorithm, run, round, model, entries_of(ready))
    resend = timeout / 8 if federation.resend is None else float(federation.resend)
    found = Collector(transport, session, requests, weights, timeout, resend).collect()
    found.gathered.heard = {client: uploads[client] for client in found.survivors}
    return found.gathered, None if found.total is None else _shaped(ready, found.total)


def _shaped(ready: Ready, flat: np.ndarray) -> Any:
    """A flat update in its original shapes, in float64."""
    leaves, structure = jax.tree.flatten(ready.upload_like.delta)
    cuts = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])[:-1]
    parts = np.split(flat, cuts)
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


def left_factor(setup: Setup, state: State, cohort: Cohort, gone: np.ndarray, upload: Upload) -> float:
    """The factor on the sum if clients of the cohort are missing: their weight goes to the others."""
    if not gone.any():
        return 1.0
    left = leave_out(cohort, jnp.asarray(gone))
    before, after = (np.asarray(sum_weights(setup, state, one, upload), float) for one in (cohort, left))
    ratios = (after / np.where(before == 0, 1, before))[np.asarray(left.present)]
    if np.ptp(ratios) > _ROUNDING * np.max(ratios):
        name = type(setup.algorithm.aggregator).__name__
        raise ValueError(f"{name}.sum_weights: removing clients changes the others' weights by different factors.")
    return float(ratios[0])
