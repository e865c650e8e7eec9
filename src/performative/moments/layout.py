"""Which numbers of a run are random, as vectors: some shared by all clients, and one row per client."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from performative._base.messages import coded
from performative._base.run_once import quickly_compiled
from performative._engine.keys import run_keys
from performative._engine.round import begin_server
from performative._engine.setup import Setup, init_state
from performative._engine.simulated import federated_round
from performative.types import Cohort, State, Theta

# Number of runs, with different starts, cohorts and noise, used to identify random numbers.
_RUNS = 3


class Layout(eqx.Module):
    """A state as s [p], R [N, q] and the rest, which is the same in every run.

    Args:
        shared: places among the state's leaves that make up s, the model's first
        rows: places of leaves with one row per client that make up R
        model: d, how many of s are the model; width: q, numbers of a row
    """

    shared: tuple[int, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    model: int = eqx.field(static=True)
    clients: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def split(self, state: State) -> tuple[Float[Array, " p"], Float[Array, "N q"], State]:
        """s, R, and the state with zeros in their places."""
        leaves, structure = jax.tree.flatten(state)
        s = [jnp.ravel(leaves[k]) for k in self.shared]
        R = [leaves[k].reshape(self.clients, -1) for k in self.rows]
        rest = [jnp.zeros_like(leaf) if k in (*self.shared, *self.rows) else leaf for k, leaf in enumerate(leaves)]
        return (
            jnp.concatenate(s),
            jnp.concatenate([jnp.zeros((self.clients, 0)), *R], axis=1),
            jax.tree.unflatten(structure, rest),
        )

    def join(self, s: Float[Array, " p"], R: Float[Array, "N q"], rest: State) -> State:
        """The state of these vectors."""
        leaves, structure = jax.tree.flatten(rest)
        at = 0
        for k in self.shared:
            leaves[k] = s[at : at + leaves[k].size].reshape(leaves[k].shape)
            at += leaves[k].size
        at = 0
        for k in self.rows:
            width = leaves[k].size // self.clients
            leaves[k] = R[:, at : at + width].reshape(leaves[k].shape)
            at += width
        return jax.tree.unflatten(structure, leaves)


class Flat(eqx.Module):
    """The floating-point numbers of a tree as a vector; integers and keys stay where they are."""

    structure: Any

    def split(self, tree: PyTree) -> tuple[Array, PyTree]:
        moving, still = eqx.partition(tree, eqx.is_inexact_array)
        return ravel_pytree(moving)[0], still

    def join(self, vector: Array, still: PyTree) -> Any:
        return eqx.combine(ravel_pytree(self.structure)[1](vector), still)


def flat_like(tree: PyTree) -> Flat:
    """How to flatten trees of this form."""
    return Flat(eqx.filter(tree, eqx.is_inexact_array))


def find_layout(setup: Setup, theta: Theta, rounds: int) -> tuple[Layout, State, list[Cohort]]:
    """Leaves that differ between runs with different starts and seeds are random; the model always is.

    Also returns the states of a run, [rounds + 1, ...], and a few of its cohorts.
    """
    made = init_state(setup, theta, False)
    played = [follow(setup, _moved(theta, k), jnp.asarray(k), rounds) for k in range(_RUNS)]
    runs = [jax.tree.leaves(states) for states, _ in played]
    cohorts = [jax.tree.map(lambda leaf: leaf[0], drawn) for _, drawn in played]
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(made)]
    if made.time is not None and any(np.any(np.asarray(drawn.elapsed) != 0.0) for _, drawn in played):
        people, scheme = type(setup.problem.population).__name__, type(setup.algorithm.participation).__name__
        raise ValueError(coded(
            "not-affine",
            f"moments: population={people} changes with time, and the time participation={scheme} waits for clients "
            "is random; use pf.run.",
        ))  # fmt: skip
    clients, first = setup.weights.shape[0], [np.asarray(leaf) for leaf in jax.tree.leaves(made)]
    by_client = _rows(setup, made, theta)
    shared, rows, model = list[int](), list[int](), 0
    for k, leaf in enumerate(first):
        name = jax.tree_util.keystr(paths[k])
        seen = [np.asarray(run[k]) for run in runs]
        # What never changes (the model deployed at the start, if there is no other) is not random.
        differs = any(not np.array_equal(one, seen[0]) for one in seen[1:]) and any(
            np.any(one != one[:1]) for one in seen
        )
        if name.startswith((".server.participation", ".participation")):
            continue
        if name.startswith(".theta"):
            model += leaf.size
        elif not differs:
            continue
        if not np.issubdtype(leaf.dtype, np.inexact):
            raise ValueError(coded(
                "not-affine", f"moments: {name.lstrip('.')} contains random integers; use pf.run."
            ))  # fmt: skip
        (rows if k in by_client else shared).append(k)
    width = sum(first[k].size // clients for k in rows)
    return Layout(tuple(shared), tuple(rows), model, clients, width), played[0][0], cohorts


def _moved(theta: Theta, k: int) -> Theta:
    rng = np.random.default_rng(k)
    return jax.tree.map(lambda leaf: leaf + k * jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), theta)


def _rows(setup: Setup, state: State, theta: Theta) -> set[int]:
    """Places of leaves with one row per client: what clients keep, and what the server keeps for each."""
    from performative._engine.setup import _shape_of_extra

    aggregator, clients = setup.algorithm.aggregator, setup.weights.shape[0]
    extra = _shape_of_extra(setup, state.theta, state.clients)
    one_more = jax.eval_shape(lambda: aggregator.init(state.theta, clients + 1, extra))
    longer = [leaf.shape[:1] == (clients + 1,) for leaf in jax.tree.leaves(one_more)]
    found, seen = set(), 0
    for k, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(state)):
        name = jax.tree_util.keystr(path)
        if name.startswith(".clients"):
            found.add(k)
        if name.startswith(".server.aggregator"):
            if longer[seen] and leaf.shape[0] == clients:
                found.add(k)
            seen += 1
    return found


@quickly_compiled
def follow(setup: Setup, theta: Theta, seed: Int[Array, ""], rounds: int) -> tuple[State, Cohort]:
    """The states of one run, [rounds + 1, ...], and its cohorts."""
    keys = run_keys(jax.random.fold_in(jax.random.key(0), seed))
    first = init_state(setup, theta, False)
    begun = begin_server(setup, first, keys)
    first = eqx.tree_at(lambda made: made.server.participation, first, begun, is_leaf=lambda x: x is None)

    def once(state: State, _: None) -> tuple[State, tuple[State, Cohort]]:
        after, report = federated_round(setup, state, keys)
        cohort = report.asked
        whole = dataclasses.replace(cohort, active=cohort.present, elapsed=jnp.asarray(cohort.elapsed, jnp.float64))
        return after, (state, whole)

    last, (before, cohorts) = jax.lax.scan(once, first, None, length=rounds)
    return jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), before, last), cohorts
