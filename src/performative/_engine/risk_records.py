"""Risks during a run, measured between chunks on a fixed subset of clients."""

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
from performative._engine.scenes import next_models, players_of
from performative._engine.setup import Setup
from performative._engine.sharding import filled, over_devices, whole
from performative.problem import Problem
from performative.sharing import OneModel
from performative.types import State, Theta

# Up to this many clients, all are measured; beyond, this many are drawn once in proportion to their weights.
_CLIENTS = 256
_NODES = 256


def measured_clients(weights: np.ndarray, mesh: Mesh | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the clients whose risk is measured, and the expected count of each among them.

    On a mesh copies of the last one pad the rows, with an infinite expected count and so zero weight.
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
    """decoupled: the new model on data of the deployed one. performative: on the data that it will induce.

    A client of weight p_i that was expected c_i times in the subset has weight p_i / c_i, which is unbiased for every
    setting of a sweep, whatever its weights. risk_spread: how much the clients' own performative risks f_i differ,

        sqrt(sum_i p_i (f_i - f)^2)

    the usual measure of fairness between clients.
    """

    def one(setup: Setup, state: State) -> dict[str, Array]:
        part, share = _subset(setup, ids), setup.weights[ids] / expected
        world = None if state.clients.world is None else take_rows(state.clients.world, ids)
        now = part if state.time is None else part.at(state.time.high)
        theta, deployed = met_models(setup, state, ids)
        each = _risks(now, theta, theta, None, setup, next_models(setup, state), players_of(setup, ids))
        spread = jnp.sqrt(jnp.sum(share * jnp.square(each - jnp.sum(share * each) / jnp.sum(share))))
        found = {
            "decoupled_risk": jnp.sum(share * _risks(part, theta, deployed, world, setup)),
            "performative_risk": jnp.sum(share * each),
            "risk_spread": spread,
        }
        sharing = setup.algorithm.sharing
        if sharing.has_shared and not sharing.is_one:
            one_for_all = eqx.tree_at(lambda s: s.algorithm.sharing, setup, OneModel())
            found["shared_risk"] = jnp.sum(share * _risks(now, state.theta, state.theta, None, one_for_all))
        return found

    def repeats(setup: Setup, state: State) -> dict[str, Array]:
        return map_in_blocks(lambda s: one(setup, s), 0, setup.compute.in_turn, len(fixed.keys))(state)

    return whole(over_settings(repeats, fixed, state), fixed.setup.mesh)


@eqx.filter_jit
def final_models(fixed: RunInputs, state: State) -> Theta:
    """The model that each client's people see next, [repeats, N, ...], in a sweep with an axis of settings first."""

    def repeats(setup: Setup, state: State) -> Theta:
        ids = jnp.arange(setup.weights.shape[0], dtype=jnp.int32)
        return jax.vmap(lambda one: met_models(setup, one, ids)[0])(state)

    return over_settings(repeats, fixed, state)


def met_models(setup: Setup, state: State, ids: Int[Array, " K"]) -> tuple[Theta, Theta]:
    """The model that people will see next, and the one that they see now: per client, or one for all."""
    sharing, clients = setup.algorithm.sharing, state.clients
    if sharing.is_one:
        return state.theta, state.deployed

    def one(client: Array, own: PyTree, seen: PyTree) -> tuple[Theta, Theta]:
        now, mine = own if seen is None else seen, sharing.of(state.theta, client, state.round)
        return mine.meet(mine.local(state.theta, own, client)), mine.meet(mine.local(state.deployed, now, client))

    return jax.vmap(one)(ids, *take_rows((clients.own, clients.seen), ids))


def _risks(
    part: Problem, theta: Theta, deployed: Theta, world: PyTree, setup: Setup, models: PyTree = None,
    players: Int[Array, " K"] | None = None,
) -> Float[Array, " K"]:  # fmt: skip
    """`client_risks`; on a mesh each device evaluates its own clients."""
    mesh, apart = setup.mesh, not setup.algorithm.sharing.is_one
    if mesh is None:
        return client_risks(part, theta, deployed, world, _NODES, apart=apart, models=models, players=players)
    arrays, rest = eqx.partition(part.population, eqx.is_array)

    bare = eqx.tree_at(lambda p: p.population, part, None)

    def own(
        bare: Problem, models: PyTree, rows: PyTree, theta: Theta, deployed: Theta, world: PyTree, players: PyTree
    ) -> Array:
        here = eqx.tree_at(lambda p: p.population, bare, eqx.combine(rows, rest), is_leaf=lambda node: node is None)
        return client_risks(here, theta, deployed, world, _NODES, apart=apart, models=models, players=players)

    model = 0 if apart else None
    lead = (client_axes(arrays), model, model, 0, 0)
    return over_devices(eqx.Partial(own, bare, models), lead, mesh)(arrays, theta, deployed, world, players)


def _subset(setup: Setup, ids: Int[Array, " K"]) -> Problem:
    """The problem restricted to some clients."""
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
