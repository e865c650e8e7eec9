"""Rules about clients: padding rows, relabeling, and absent clients."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.client_axis import TableRow, take_clients
from performative._base.run_once import quickly_compiled
from performative._engine.cohorts import leave_out
from performative._engine.round import measure_losses
from performative._engine.simulated import federated_round
from performative.aggregators import weighted_sum
from performative.participation import AbstractParticipation, Selection
from performative.populations import AbstractPopulation
from performative.testing.cases import Case
from performative.testing.rules import assert_same
from performative.testing.uses import INSTANCES, row
from performative.types import Cohort, State, Theta, Upload

Tree = TypeVar("Tree")

_ROUNDS = 2
_DRAWS = 2000
_ERRORS = 5.0  # standard errors: one false alarm in a million


def spoil_rows(tree: PyTree, rows: Array) -> PyTree:
    """Put NaN in the marked rows of every floating leaf."""

    def spoil(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.where(rows.reshape(rows.shape + (1,) * (leaf.ndim - rows.ndim)), jnp.nan, leaf)

    return jax.tree.map(spoil, tree)


def spoil_padding(population: AbstractPopulation) -> AbstractPopulation | None:
    """Put NaN past the end of each client's table; None if no table has padding."""
    if population.capacity is None or np.ndim(population.rows) == 0:
        return None
    past = jnp.arange(population.capacity, dtype=jnp.int32) >= population.rows[:, None]
    rows, _ = take_clients(population, jnp.arange(len(population.rows), dtype=jnp.int32))

    def is_table(leaf: object) -> bool:
        return isinstance(leaf, TableRow)

    return jax.tree.map(
        lambda mine, leaf: spoil_rows(leaf, past) if is_table(mine) else leaf,
        rows,
        population,
        is_leaf=is_table,
    )


def padding_of_tables(case: Case) -> bool:
    """For populations and batches: rows past the end of a client's table are never read."""
    spoilt = spoil_padding(case.setup.problem.population)
    if spoilt is None:
        return False
    with_nan = quickly_compiled(lambda inputs, memory: case.use(case.part, inputs, memory, spoilt))
    for i in range(INSTANCES):
        clean = case.fast(case.part, *case.instance(i))
        other = case.fast(spoilt, *case.instance(i)) if case.slot == "population" else with_nan(*case.instance(i))
        assert_same(clean, other, "NaN past the end of the table: result", exact=True)
    return True


def padding_of_batches(case: Case) -> bool:
    """For estimators: masked rows of a batch are never read."""
    spoilt = quickly_compiled(lambda part, inputs, memory: case.use(part, inputs, memory, spoil_rows))
    for i in range(INSTANCES):
        clean = case.fast(case.part, *case.instance(i))
        assert_same(clean, spoilt(case.part, *case.instance(i)), "NaN in masked rows: result", exact=True)
    return True


def padding_of_cohorts(case: Case) -> bool:
    """For aggregators: the spare rows of a cohort are never read."""
    for i in range(INSTANCES):
        inputs, memory = case.instance(i)
        theta, upload, cohort, weights = inputs
        spoilt = (theta, spoil_rows(upload, ~cohort.active), cohort, weights)
        clean = case.fast(case.part, inputs, memory)
        assert_same(clean, case.fast(case.part, spoilt, memory), "NaN in spare rows: result", exact=True)
    return True


def _by_client(tree: Tree, clients: int, move: Callable[[Array], Array]) -> Tree:
    """Apply `move` to the leaves with one row per client, identified by the length of their first axis."""

    def act(leaf: PyTree) -> PyTree:
        return move(leaf) if eqx.is_array(leaf) and leaf.ndim and leaf.shape[0] == clients else leaf

    return jax.tree.map(act, tree)


def relabeling_of_aggregators(case: Case) -> bool:
    """Renaming the clients and reordering the rows yields the same move."""
    clients = case.setup.weights.shape[0]
    perm = jnp.asarray(np.random.default_rng(1).permutation(clients), jnp.int32)
    names = jnp.append(perm, jnp.int32(clients))

    def rename(tree: Tree) -> Tree:
        return _by_client(tree, clients, lambda leaf: jnp.zeros_like(leaf).at[perm].set(leaf))

    part = rename(case.part)
    for i in range(INSTANCES):
        (theta, upload, cohort, weights), memory = case.instance(i)
        (move, _), after = case.fast(case.part, (theta, upload, cohort, weights), memory)
        flipped_upload, flipped = jax.tree.map(lambda leaf: leaf[::-1] if leaf.ndim else leaf, (upload, cohort))
        flipped = dataclasses.replace(flipped, ids=names[flipped.ids])
        renamed = (theta, flipped_upload, flipped, rename(weights))
        (move_too, _), after_too = case.fast(part, renamed, rename(memory))
        assert_same(move, move_too, "clients renamed: move")
        assert_same(rename(after), after_too, "clients renamed: memory")
    return True


def sums_of_aggregators(case: Case) -> bool:
    """If the sum is declared sufficient: the same move and memory from it, with NaN instead of the updates; and weights
    that change by a common factor if a client is left out."""
    if not case.part.needs_sums_only():
        return False

    def by_sum(part: Any, inputs: tuple[Theta, Upload, Cohort, Array], memory: PyTree) -> tuple[PyTree, PyTree]:
        theta, upload, cohort, weights = inputs
        unseen = eqx.tree_at(lambda u: u.delta, upload, jax.tree.map(lambda leaf: leaf + jnp.nan, upload.delta))
        total = weighted_sum(upload.delta, part.sum_weights(unseen, cohort, weights, memory), cohort.active)
        move, memory = part.aggregate_sum(theta, total, unseen, cohort, weights, memory)
        return (move, part.broadcast(memory)), memory

    def factors(part: Any, inputs: tuple[Theta, Upload, Cohort, Array], memory: PyTree) -> Array:
        _, upload, cohort, weights = inputs
        fewer = leave_out(cohort, jnp.arange(cohort.ids.shape[0], dtype=jnp.int32) == 0)
        before, after = (part.sum_weights(upload, one, weights, memory) for one in (cohort, fewer))
        return jnp.where(fewer.present, after / jnp.where(before == 0, 1, before), jnp.nan)

    same, change = quickly_compiled(by_sum), quickly_compiled(factors)
    for i in range(INSTANCES):
        inputs, memory = case.instance(i)
        assert_same(case.fast(case.part, inputs, memory), same(case.part, inputs, memory), "from the sum: result")
        ratio = np.asarray(change(case.part, inputs, memory))
        apart = np.nanmax(ratio) / np.nanmin(ratio) - 1
        assert apart < 1e-4, (
            f"with a client left out, the others' sum_weights change by factors that differ by {apart:.3g}."
        )
    return True


def sitting_out_of_aggregators(case: Case) -> bool:
    """Rows of clients that sent nothing stay bitwise unchanged."""
    clients = case.setup.weights.shape[0]
    met = False
    for i in range(INSTANCES):
        inputs, memory = case.instance(i)
        _, after = case.fast(case.part, inputs, memory)
        absent = np.setdiff1d(np.arange(clients), np.asarray(inputs[2].ids))
        for old, new in zip(jax.tree.leaves(memory), jax.tree.leaves(after), strict=True):
            if old.ndim and old.shape[0] == clients:
                met = True
                assert_same(old[absent], new[absent], "memory of absent clients", exact=True)
    return met


def relabeling_of_participation(case: Case) -> bool:
    """Means of weight and work over many draws move with the clients (within five standard errors)."""
    clients, dtype = case.setup.weights.shape[0], case.setup.weights.dtype
    perm = np.random.default_rng(1).permutation(clients)
    weights = np.asarray(case.setup.weights)
    memory, keys = row(case.memory, 0), jax.random.split(jax.random.key(7), _DRAWS)

    def rename(rows: Array | np.ndarray) -> Array:
        return jnp.zeros_like(rows).at[perm].set(rows)

    @quickly_compiled
    def shares(part: AbstractParticipation, p: Array, tables: PyTree, origin: Array) -> Array:
        def measure(ids: Array, key: Array, samples: int | None = None) -> Array:
            return measure_losses(case.setup, case.state, origin[ids], key, samples)

        def one(key: Array) -> Array:
            selection = Selection(p, tables, jnp.zeros((), jnp.int32), case.state.theta, measure)
            cohort, _ = part.select(key, selection, part.begin(jax.random.fold_in(key, 1), selection, memory))
            steps = jnp.ones_like(cohort.ids) if cohort.steps is None else cohort.steps
            empty = jnp.zeros(clients, dtype)
            work = jnp.where(cohort.weight > 0, steps, 0).astype(dtype)
            return jnp.stack([empty.at[cohort.ids].add(v, mode="drop") for v in (cohort.weight, work)])

        return jax.vmap(one)(keys)

    same = jnp.arange(clients, dtype=jnp.int32)
    here = np.asarray(shares(case.part, case.setup.weights, case.setup.tables, same))
    renamed = _by_client(case.part, clients, rename)
    tables = jax.tree.map(jnp.asarray, renamed.tables(np.asarray(rename(weights))))
    tables = jax.tree.map(lambda t: t.astype(dtype) if jnp.issubdtype(t.dtype, jnp.floating) else t, tables)
    origin = jnp.asarray(np.argsort(perm), jnp.int32)
    moved = shares(renamed, rename(case.setup.weights), tables, origin)
    there = np.asarray(moved)[:, :, perm]
    error = np.sqrt((here.var(axis=0) + there.var(axis=0)) / _DRAWS)
    gap = np.abs(here.mean(axis=0) - there.mean(axis=0))
    worst = np.unravel_index(np.argmax(gap - _ERRORS * error), gap.shape)
    assert gap[worst] <= _ERRORS * error[worst] + 1e-9, (
        f"client {worst[1]} has mean {('weight', 'work')[worst[0]]} {here.mean(axis=0)[worst]:.4g}, "
        f"but after relabeling {there.mean(axis=0)[worst]:.4g}."
    )
    return True


def _rounds(case: Case, executor: str) -> list[State]:
    step = quickly_compiled(lambda setup, state, keys: federated_round(setup, state, keys, executor)[0])
    states = [case.state]
    for _ in range(_ROUNDS):
        states.append(step(case.setup, states[-1], case.keys))
    return states


def in_a_round(case: Case) -> bool:
    """Two rounds: the model stays finite, absent clients keep their memory, both executors accept the part."""
    states = _rounds(case, "gather")
    if case.slot == "population":  # the only slot that reads its tables differently when rows are gathered
        assert_same(states[-1], _rounds(case, "dense")[-1], "rounds with gather vs. dense: state")
    else:
        eqx.filter_eval_shape(federated_round, case.setup, case.state, case.keys, "dense")
    for leaf in jax.tree.leaves(states[-1].theta):
        assert np.all(np.isfinite(leaf)), "the model is non-finite after two rounds."
    for before, after in itertools.pairwise(states):
        if before.participation is None or after.participation is None:
            continue
        absent = before.participation.value() == after.participation.value()
        for was, now in zip(jax.tree.leaves(before.clients), jax.tree.leaves(after.clients), strict=True):
            assert_same(was[absent], now[absent], "memory of absent clients", exact=True)
    return True
