"""mu and L: how much the risk curves, and how fast the gradient of one sample changes."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import split_clients
from performative.certify.client_data import as_row, sample_width
from performative.facts import declared
from performative.populations import AbstractPopulation
from performative.solve.landscape import Landscape
from performative.types import Noise, Scene

# Samples whose second derivatives are formed at each model, and the most numbers they may take (64 MB).
_SAMPLES = 1 << 14
_NUMBERS = 1 << 23
# Matrices whose spectral norm is computed first: those with the largest entries.
_LIKELY = 256


@dataclasses.dataclass(frozen=True)
class Curvature:
    """Constants of Assumptions 2.1 and 2.2; NaN if not computed.

    Attributes:
        mu: f(. ; deployed) is mu-strongly convex.
        L_theta: How fast the gradient of ONE sample's loss changes with theta.
        L_data: How fast it changes with the sample; L = max(L_theta, L_data).
        mu_exact: Whether mu holds everywhere; `L_exact` likewise for L.
        models: The number of models at which they were measured otherwise; `rows` the number of samples. The true mu
            can then be smaller, the true L larger.
    """

    mu: float
    L_theta: float
    L_data: float
    mu_exact: bool
    L_exact: bool
    models: int = 0
    rows: int = 0

    @property
    def L(self) -> float:
        return float(np.maximum(self.L_theta, self.L_data))  # NaN stays NaN


def measure_curvature(land: Landscape, points: list[np.ndarray], smooth: bool, seed: int) -> Curvature:
    """mu and L over the `points` (the first is the center), or everywhere if the loss declares them.

        mu = min lambda_min(d^2 f(theta; deployed) / d theta^2)
        L_theta = max |d^2 l / d theta^2|_2,      L_data = max |d^2 l / d theta dz|_2

    mu: theta and deployed both range over the points, with one of them at the center or both equal. L: over the rows of
    the clients' tables, or over draws; labels (integers) are held fixed. If the model moves the probabilities of who is
    sampled (`smooth` is False), L_data is also the largest |grad l(theta; z) - grad l(theta; z')| / |z - z'| over pairs
    of samples, labels included.
    """
    known: tuple[float, float, float] | None = declared(land.problem.loss, "curvature")
    if known is not None:
        return Curvature(*known, mu_exact=True, L_exact=True)
    if not land.dense:
        return Curvature(np.nan, np.nan, np.nan, False, False)
    center = points[0]
    pairs = [(x, x) for x in points] + [(x, y) for other in points[1:] for x, y in ((other, center), (center, other))]
    hessians = [land.own_curvature(x, y) for x, y in pairs]
    mu = float(np.min([np.linalg.eigvalsh(h)[0] if np.all(np.isfinite(h)) else np.nan for h in hessians]))
    clients, rows = _how_many(land)
    steepness = _steepness(land, jnp.asarray(np.stack(points)), jax.random.key(seed), clients, rows, not smooth)
    L_theta, L_data = (float(v) for v in steepness)
    # The curvature depends only on x, as for the ridge loss, and x does not react: it is the same everywhere.
    by_x, stay = declared(land.problem.loss, "hessian_by_x"), declared(land.problem.population, "features_stay")
    return Curvature(mu, L_theta, L_data, bool(by_x and stay), False, len(points), _looked_at(land, clients, rows))


def _how_many(land: Landscape) -> tuple[int, int]:
    """Clients, and samples of each, at which L is measured."""
    population: Any = land.problem.population
    width = land.size * (land.size + sample_width(land) + 1)
    budget = int(np.clip(_NUMBERS // width, 16, _SAMPLES))
    clients = min(land.problem.clients, max(budget // 16, 1))
    rows = max(budget // clients, 1)
    return clients, rows if population.capacity is None else min(rows, population.capacity)


def _looked_at(land: Landscape, clients: int, rows: int) -> int:
    """Different samples among clients * rows: a table may be shorter than the longest one."""
    population: Any = land.problem.population
    if population.capacity is None:
        return clients * rows
    held = np.broadcast_to(np.asarray(population.rows), land.problem.clients)[_spread(land, clients)]
    return int(np.sum(np.minimum(held, rows)))


def _spread(land: Landscape, clients: int) -> np.ndarray:
    """Indices of this many clients, evenly spaced."""
    return np.linspace(0, land.problem.clients - 1, clients).astype(int)


@eqx.filter_jit
def _steepness(
    land: Landscape, points: Float[Array, "P d"], key: Array, clients: int, rows: int, jumps: bool
) -> tuple[Array, Array]:
    """L_theta and L_data over the points, with the same model deployed."""
    each_row, shared = split_clients(land.problem.population)
    some = jax.tree.map(lambda leaf: leaf[_spread(land, clients)], each_row)

    def at(theta: Array) -> tuple[Array, Array]:
        def client(mine: PyTree, key: Array) -> tuple[Array, Array, Array]:
            return _one_client(land, eqx.combine(mine, shared), theta, key, rows, jumps)

        by_theta, by_data, jump = jax.vmap(client)(some, jax.random.split(key, clients))
        counts = land.weights[_spread(land, clients)] > 0  # clients of zero weight do not count
        each = [jnp.where(counts[:, None, None, None], m, 0) for m in (by_theta, by_data)]
        largest = [_largest_norm(m.reshape(-1, *m.shape[2:])) for m in each]
        return largest[0], jnp.maximum(largest[1], jnp.max(jnp.where(counts, jump, 0)))

    found = jax.lax.map(at, points)
    return jnp.max(found[0]), jnp.max(found[1])


def _one_client(
    land: Landscape, population: AbstractPopulation, theta: Float[Array, " d"], key: Array, rows: int, jumps: bool
) -> tuple[Float[Array, "n d d"], Float[Array, "n d k"], Float[Array, ""]]:
    """Second derivatives of each sample's loss: in theta, and in theta and data; the steepest jump, 0 for none."""
    deployed = land.model(theta)
    world = population.settle(Scene(deployed, land.problem.loss))
    which = None
    if population.capacity is not None:
        # Evenly over the client's non-padding rows: all of them if there is room.
        real = jnp.asarray(population.rows, jnp.int32)
        which = (jnp.arange(rows, dtype=jnp.int32) * real) // rows
    noise = population.draw(key, (rows,), deployed, which)

    def one(u: Noise) -> tuple[Array, Array, Array, Array]:
        z = population.sample(u, world, deployed)
        numbers, labels = eqx.partition(z, eqx.is_inexact_array)
        flat, back = ravel_pytree(numbers)

        def gradient(theta: Array, flat: Array) -> Array:
            z = eqx.combine(back(flat), labels)
            return ravel_pytree(jax.grad(land.problem.loss)(land.model(theta), z))[0]

        by_theta, by_data = jax.jacfwd(gradient, argnums=(0, 1))(theta, flat)
        return by_theta, by_data, gradient(theta, flat), as_row(z)

    by_theta, by_data, gradient, z = jax.vmap(one)(noise)
    if not jumps:
        return by_theta, by_data, jnp.zeros((), theta.dtype)
    way = jnp.linalg.norm(z - jnp.roll(z, 1, axis=0), axis=1)
    change = jnp.linalg.norm(gradient - jnp.roll(gradient, 1, axis=0), axis=1)
    return by_theta, by_data, jnp.max(jnp.where(way > 0, change / jnp.where(way > 0, way, 1), 0.0))


def _largest_norm(matrices: Float[Array, "n d k"]) -> Array:
    """The largest spectral norm: of those with the largest upper bounds, and of all if that is inconclusive."""
    if 0 in matrices.shape[1:]:
        return jnp.zeros((), matrices.dtype)
    # By the smaller of the two Gram matrices.
    turned = matrices if matrices.shape[1] <= matrices.shape[2] else jnp.swapaxes(matrices, 1, 2)
    gram = turned @ jnp.swapaxes(turned, 1, 2)
    bounds, at = jax.lax.top_k(_eigenvalue_bound(gram), min(_LIKELY, len(gram)))
    best = jnp.max(_top_eigenvalue(gram[at]))
    if len(gram) > _LIKELY:
        best = jax.lax.cond(best >= bounds[-1], lambda: best, lambda: jnp.max(_top_eigenvalue(gram)))
    return jnp.sqrt(jnp.maximum(best, 0.0))


def _eigenvalue_bound(gram: Float[Array, "n d d"]) -> Float[Array, " n"]:
    """|G^8|_F^(1/8): at least the largest eigenvalue of G, at most d^(1/16) times that. NaN if G contains one."""
    log, share = jnp.zeros(len(gram), gram.dtype), 1.0
    for power in range(4):
        if power:
            gram, share = gram @ gram, share / 2
        size = jnp.sqrt(jnp.sum(jnp.square(gram), axis=(1, 2)))
        gram = gram / jnp.where(size > 0, size, 1)[:, None, None]
        log = log + share * jnp.log(size)
    return jnp.exp(log)


def _top_eigenvalue(gram: Float[Array, "n d d"]) -> Float[Array, " n"]:
    return jnp.linalg.eigvalsh(gram)[:, -1]
