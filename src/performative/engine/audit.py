"""Risks along a run, measured between chunks on a fixed subset of clients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative.client_axis import client_axes, take_rows
from performative.engine.blocks import map_in_blocks
from performative.engine.chunk import Frozen, Targets, over_settings
from performative.engine.report import Setup
from performative.problem import Problem
from performative.risk import client_risks, decoupled_risk
from performative.types import State

# Up to this many clients all are measured; beyond, as many are drawn once in proportion to their weights.
_CLIENTS = 256
_NODES = 256


def audit_clients(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the clients whose risk is measured, and how many times each was expected among them."""
    if len(weights) <= _CLIENTS:
        return np.arange(len(weights), dtype=np.int32), np.ones(len(weights))
    chance = weights / weights.sum()
    drawn = np.sort(np.random.default_rng(0).choice(len(weights), _CLIENTS, p=chance)).astype(np.int32)
    return drawn, _CLIENTS * chance[drawn]


@eqx.filter_jit
def measure_risks(fixed: Frozen, state: State, ids: Int[Array, " K"], expected: Float[Array, " K"]) -> dict[str, Array]:
    """decoupled: the new model on data of the deployed one. performative: on the data that it will bring about.

    A client of weight p_i that was expected c_i times in the subset counts p_i / c_i, which is unbiased for every
    setting of a sweep, whatever weights it has. risk_spread: how unlike the clients' own performative risks f_i are,

        sqrt(sum_i p_i (f_i - f)^2)

    the usual figure of fairness between clients.
    """

    def one(setup: Setup, state: State) -> dict[str, Array]:
        part, share = _subset(setup, ids), setup.weights[ids] / expected
        world = None if state.clients.world is None else take_rows(state.clients.world, ids)
        each = client_risks(part, state.theta, state.theta, None, _NODES)
        spread = jnp.sqrt(jnp.sum(share * jnp.square(each - jnp.sum(share * each) / jnp.sum(share))))
        return {
            "decoupled_risk": decoupled_risk(part, share, state.theta, state.deployed, world, _NODES),
            "performative_risk": jnp.sum(share * each),
            "risk_spread": spread,
        }

    def repeats(setup: Setup, targets: Targets, state: State) -> dict[str, Array]:
        return map_in_blocks(lambda s: one(setup, s), 0, setup.compute.in_turn, len(fixed.keys))(state)

    return over_settings(repeats, fixed, state)


def _subset(setup: Setup, ids: Int[Array, " K"]) -> Problem:
    """The problem restricted to some clients, as a problem again."""
    problem = eqx.tree_at(lambda p: p.loss, setup.problem, setup.compute.loss(setup.problem.loss), is_leaf=callable)
    if ids.shape[0] == setup.weights.shape[0]:
        return problem
    population = setup.problem.population
    rows = jax.tree.map(
        lambda axis, leaf: leaf if axis is None else jnp.take(leaf, ids, axis=0),
        client_axes(population),
        population,
        is_leaf=lambda leaf: leaf is None,
    )
    return eqx.tree_at(lambda p: p.population, problem, rows)
