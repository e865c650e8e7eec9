"""Expected losses: what the learner believes (decoupled) and what it gets (performative)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from performative._base.client_axis import client_axes
from performative.problem import Problem
from performative.types import Noise, Scene, Theta

# Draws per client if an expectation has no exact rule.
NODES = 2048
# Up to this many numbers are in memory at once (32 MB in float64); beyond, clients are processed in blocks.
_SAMPLES = 1 << 22
# Beyond this many numbers, samples of one client are processed in blocks too, of at least this many. A model of
# _SMALL_MODEL numbers counts as a network.
_SMALL_MODEL, _NUMBERS, _FEWEST = 1 << 12, 1 << 25, 16


def client_risks(
    problem: Problem, theta: Theta, deployed: Theta, world: PyTree = None, nodes: int = NODES, every: int = 1,
    apart: bool = False, models: PyTree = None, players: Int[Array, " N"] | None = None,
) -> Float[Array, " N"]:  # fmt: skip
    """f_i(theta; deployed) = E_{Z ~ D_i(deployed)} l(theta; Z), for each client.

    Exact over finite tables and, for smooth losses, over Gaussian data of few dimensions; else over fixed draws (common
    random numbers). `world` contains the clients' worlds; None lets each settle under `deployed`. Memory is bounded:
    many clients are processed in blocks, and what their derivatives need is recomputed rather than stored. `every` = k
    uses only every k-th of these samples, for a quick estimate. With `apart` each client has its own models: theta and
    deployed have a leading axis of clients. `models` are all deployed models, if people react to more than their own,
    and `players` gives the index of the model that each client's people see.
    """
    arrays, rest = eqx.partition(problem.population, eqx.is_array)

    def one(rows: PyTree, world: PyTree, player: Array | None, theta: Theta, deployed: Theta) -> Array:
        population = eqx.combine(rows, rest)
        scene = Scene(deployed, problem.loss, None, models, player)
        here = population.settle(scene) if world is None else world
        noise, share = population.quadrature_within(here, deployed, nodes)
        if every > 1:
            noise, share = jax.tree.map(lambda leaf: leaf[::every], noise), share[::every]
            share = share / jnp.sum(share)
        if len(share) == 2 and all(leaf.dtype.kind in "iu" for leaf in jax.tree.leaves(noise)):
            # XLA 0.10 crashes on second derivatives over tables of exactly two rows for 32 or more clients (AVX-512).
            noise, share = jax.tree.map(lambda leaf: jnp.repeat(leaf, 2, axis=0), noise), jnp.repeat(share / 2, 2)

        def of_sample(u: Noise) -> Array:
            return problem.loss(theta, population.sample(u, here, deployed))

        each = jax.vmap(of_sample)(noise) if few == count else jax.lax.map(of_sample, noise, batch_size=few)
        return jnp.sum(share.astype(each.dtype) * each)

    axes = client_axes(arrays)
    first = jax.tree.map(lambda leaf: leaf[0], (theta, deployed)) if apart else (theta, deployed)
    count, width = shape_of_nodes(problem, first[1], nodes)
    count = -(-count // every)
    few = samples_at_once(first[0], count, width)
    block = max(1, _SAMPLES // (count * width)) if few == count else 1
    if problem.clients <= block:
        model = 0 if apart else None
        lead = (axes, None if world is None else 0, 0, model, model)
        return jax.vmap(one, in_axes=lead, axis_size=problem.clients)(arrays, world, players, theta, deployed)
    rows = jax.tree.map(lambda axis, leaf: None if axis is None else leaf, axes, arrays, is_leaf=_is_none)
    shared = jax.tree.map(lambda axis, leaf: leaf if axis is None else None, axes, arrays, is_leaf=_is_none)
    own = (theta, deployed) if apart else None
    again = jax.checkpoint(lambda each: one(eqx.combine(each[0], shared), *each[1:3], *(each[3] or (theta, deployed))))
    return jax.lax.map(again, (rows, world, players, own), batch_size=block)


def samples_at_once(theta: Theta, count: int, width: int) -> int:
    """How many of `count` samples of `width` numbers each to evaluate the loss on in parallel.

    The activations of a network for one sample are assumed to be as large as the network itself: true of common ones,
    and far too conservative for most.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(theta))
    return min(count, max(_FEWEST, _NUMBERS // (width if size < _SMALL_MODEL else max(width, size))))


def count_nodes(problem: Problem, deployed: Theta, nodes: int = NODES) -> int:
    """Number of samples per client in its expectation."""
    return shape_of_nodes(problem, deployed, nodes)[0]


def shape_of_nodes(problem: Problem, deployed: Theta, nodes: int = NODES) -> tuple[int, int]:
    """Number of samples per client in its expectation, and of numbers in each."""
    arrays, rest = eqx.partition(problem.population, eqx.is_array)

    def first(rows: PyTree) -> PyTree:
        population = eqx.combine(rows, rest)
        world = population.init(Scene(deployed, problem.loss))
        noise, share = population.quadrature_within(world, deployed, nodes)
        return share, population.sample(jax.tree.map(lambda leaf: leaf[0], noise), world, deployed)

    lead = (client_axes(arrays),)
    share, z = jax.eval_shape(jax.vmap(first, in_axes=lead, axis_size=problem.clients), arrays)
    return share.shape[1], max(1, sum(leaf.size for leaf in jax.tree.leaves(z)) // problem.clients)


def decoupled_risk(
    problem: Problem,
    weights: Float[Array, " N"],
    theta: Theta,
    deployed: Theta,
    world: PyTree = None,
    nodes: int = NODES,
    every: int = 1,
) -> Float[Array, ""]:
    """f(theta; deployed) = sum_i p_i f_i(theta; deployed); at deployed = theta the performative risk."""
    return jnp.sum(weights * client_risks(problem, theta, deployed, world, nodes, every))


def _is_none(leaf: object) -> bool:
    return leaf is None
