"""Risks along a run, measured between chunks on a fixed subset of clients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from performative._base.client_axis import client_axes, take_rows
from performative._engine.blocks import map_in_blocks
from performative._engine.chunk import RunInputs, over_settings
from performative._engine.compiled import Compiled
from performative._engine.risk import client_risks
from performative._engine.setup import Setup
from performative._engine.sharding import filled, over_devices, whole
from performative.problem import Problem
from performative.types import State, Theta

# Up to this many clients all are measured; beyond, as many are drawn once in proportion to their weights.
_CLIENTS = 256
_NODES = 256


def measured_clients(weights: np.ndarray, mesh: Mesh | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the clients whose risk is measured, and how many times each was expected among them.

    On a mesh the last one fills up the rows, expected so often that it counts nothing.
    """
    ids, expected = np.arange(len(weights), dtype=np.int32), np.ones(len(weights))
    if len(weights) > _CLIENTS:
        chance = weights / weights.sum()
        ids = np.sort(np.random.default_rng(0).choice(len(weights), _CLIENTS, p=chance)).astype(np.int32)
        expected = _CLIENTS * chance[ids]
    more = filled(len(ids), mesh) - len(ids)
    return np.pad(ids, (0, more), "edge"), np.pad(expected, (0, more), constant_values=np.inf)


@Compiled
def measure_risks(
    fixed: RunInputs, state: State, ids: Int[Array, " K"], expected: Float[Array, " K"]
) -> dict[str, Array]:
    """decoupled: the new model on data of the deployed one. performative: on the data that it will bring about.

    A client of weight p_i that was expected c_i times in the subset counts p_i / c_i, which is unbiased for every
    setting of a sweep, whatever weights it has. risk_spread: how unlike the clients' own performative risks f_i are,

        sqrt(sum_i p_i (f_i - f)^2)

    the usual figure of fairness between clients.
    """

    def one(setup: Setup, state: State) -> dict[str, Array]:
        part, share = _subset(setup, ids), setup.weights[ids] / expected
        world = None if state.clients.world is None else take_rows(state.clients.world, ids)
        each = _risks(part, state.theta, state.theta, None, setup.mesh)
        spread = jnp.sqrt(jnp.sum(share * jnp.square(each - jnp.sum(share * each) / jnp.sum(share))))
        return {
            "decoupled_risk": jnp.sum(share * _risks(part, state.theta, state.deployed, world, setup.mesh)),
            "performative_risk": jnp.sum(share * each),
            "risk_spread": spread,
        }

    def repeats(setup: Setup, state: State) -> dict[str, Array]:
        return map_in_blocks(lambda s: one(setup, s), 0, setup.compute.in_turn, len(fixed.keys))(state)

    return whole(over_settings(repeats, fixed, state), fixed.setup.mesh)


def _risks(part: Problem, theta: Theta, deployed: Theta, world: PyTree, mesh: Mesh | None) -> Float[Array, " K"]:
    """`client_risks`, on a mesh of each device's clients by themselves."""
    if mesh is None:
        return client_risks(part, theta, deployed, world, _NODES)
    arrays, rest = eqx.partition(part.population, eqx.is_array)

    bare = eqx.tree_at(lambda p: p.population, part, None)

    def own(bare: Problem, rows: PyTree, theta: Theta, deployed: Theta, world: PyTree) -> Array:
        here = eqx.tree_at(lambda p: p.population, bare, eqx.combine(rows, rest), is_leaf=lambda node: node is None)
        return client_risks(here, theta, deployed, world, _NODES)

    lead = (client_axes(arrays), None, None, 0)
    return over_devices(eqx.Partial(own, bare), lead, mesh)(arrays, theta, deployed, world)


def _subset(setup: Setup, ids: Int[Array, " K"]) -> Problem:
    """The problem restricted to some clients, as a problem again."""
    problem = eqx.tree_at(lambda p: p.loss, setup.problem, setup.compute.loss(setup.problem.loss), is_leaf=callable)
    if setup.weights.shape[0] <= _CLIENTS:
        return problem
    population = setup.problem.population
    rows = jax.tree.map(
        lambda axis, leaf: leaf if axis is None else jnp.take(leaf, ids, axis=0),
        client_axes(population),
        population,
        is_leaf=lambda leaf: leaf is None,
    )
    return eqx.tree_at(lambda p: p.population, problem, rows)
