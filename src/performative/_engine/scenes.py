"""All deployed models, stacked: for populations that react to more than their own model."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from performative._engine.cohorts import spread_out, where_rows
from performative._engine.setup import Setup
from performative._engine.sharding import whole
from performative.types import Cohort, State, Theta


def deployed_models(setup: Setup, state: State, deployed: Theta, cohort: Cohort) -> PyTree:
    """The models deployed during a round, [players, ...]; None if nothing reads them, or there is only one.

    `deployed` is what the server has deployed for the round; participating clients deploy their own parts when due, and
    absent ones keep what they deployed last.
    """
    if not _is_read(setup):
        return None
    own, seen = state.clients.own, state.clients.seen
    if seen is not None:
        new = setup.algorithm.deploy.next(seen, own, state.round)
        own = where_rows(spread_out(cohort, jax.tree.leaves(seen)[0].shape[0]).present, new, seen)
    return _all_of(setup, deployed, own)


def next_models(setup: Setup, state: State) -> PyTree:
    """The models that people would see next if all were deployed; None as above."""
    return _all_of(setup, state.theta, state.clients.own) if _is_read(setup) else None


def players_of(setup: Setup, ids: Int[Array, " K"]) -> Int[Array, " K"] | None:
    """Which of the models the people of each of these clients see; None if nothing reads it."""
    return jax.vmap(setup.algorithm.sharing.player)(ids) if _is_read(setup) else None


def _is_read(setup: Setup) -> bool:
    return setup.problem.population.reads_models and not setup.algorithm.sharing.is_one


def _all_of(setup: Setup, shared: PyTree, own: PyTree) -> PyTree:
    clients = setup.weights.shape[0]
    own = whole(own, setup.mesh)
    kept = jax.tree.map(lambda leaf: leaf[:clients], own)  # over devices, padding rows come last
    return whole(setup.algorithm.sharing.models(shared, kept, jnp.arange(clients, dtype=jnp.int32)), setup.mesh)
