"""A problem near its stable point: what its clients pull at, how hard, and how noisily."""

import dataclasses
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from performative.client_axis import client_axes
from performative.messages import PerformativeWarning
from performative.problem import Problem
from performative.risk import NODES
from performative.solve.landscape import Landscape, survey
from performative.solve.roots import allowed
from performative.solve.stable import stable_point

# Matrices of second derivatives by client: above, a plan would take longer than the run.
_LARGEST = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Near:
    """The clients' gradients g_i + (H_i + C_i) u near the stable point, u = theta - theta_PS.

    stable: theta_PS, shaped like the model; start: u_0, [d]; weights: p_i
    pull:   g_i = grad f_i at theta_PS, [N, d]; they cancel on average
    H, C:   derivatives of client i's gradient in its own model and in the deployed one, [N, d, d]
    noise:  covariance of one sample's gradient at theta_PS, [N, d, d]
    sizes:  norms of samples' gradients at theta_PS and at the start, for the choice of a clip
    """

    stable: Any
    start: np.ndarray
    weights: np.ndarray
    pull: np.ndarray
    H: np.ndarray
    C: np.ndarray
    noise: np.ndarray
    sizes: np.ndarray

    @property
    def clients(self) -> int:
        return len(self.weights)

    @property
    def size(self) -> int:
        return len(self.start)

    @property
    def slope(self) -> np.ndarray:
        """J = sum_i p_i (H_i + C_i): small steps follow du/dt = -J u."""
        return np.einsum("i,ijk->jk", self.weights, self.H + self.C)

    @property
    def kappa(self) -> float:
        """The least real part of J's eigenvalues: how fast small steps settle. Above 0 where they do."""
        return float(np.linalg.eigvals(self.slope).real.min())

    @property
    def steepest(self) -> float:
        """The largest norm of a client's derivative."""
        return float(
            max(np.linalg.norm(self.H, 2, axis=(1, 2)).max(), np.linalg.norm(self.H + self.C, 2, axis=(1, 2)).max())
        )


def look_around(problem: Problem, theta: Any = None) -> Near:
    """Solve for the stable point and take derivatives there. `theta` is where learning will start."""
    with jax.enable_x64(True):
        land, start = survey(problem, theta)
        if land.size > _LARGEST:
            raise ValueError(
                f"plan: the model has {land.size} parameters; planning takes matrices of second derivatives, up to "
                f"{_LARGEST}. Compare a few settings with pf.sweep and pf.compare instead."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformativeWarning)  # a point that repels: `kappa` says so
            stable = stable_point(problem, start=theta)
        x = land.flat(stable)
        view = land.equilibrium()
        if land.domain is not None and np.max(np.abs(view.gradient(x))) > 1e2 * allowed(view, x):
            raise ValueError(
                "plan: the stable point lies on the edge of the domain, where no linear model holds. Compare a few "
                "settings with pf.sweep and pf.compare instead."
            )
        pull, H, J, noise, sizes = (np.asarray(part) for part in _derivatives(land, jnp.asarray(x)))
        at_start = np.asarray(_derivatives(land, jnp.asarray(start))[4])
    return Near(
        stable, np.asarray(start) - x, np.asarray(problem.client_weights, np.float64), pull, H, J - H, noise,
        np.concatenate([sizes.ravel(), at_start.ravel()]),
    )  # fmt: skip


@eqx.filter_jit
def _derivatives(land: Landscape, x: Array) -> tuple[Array, ...]:
    problem, shape = land.problem, ravel_pytree(land.like)[1]
    arrays, rest = eqx.partition(problem.population, eqx.is_array)
    axes = client_axes(arrays)

    def one(rows: Any) -> tuple[Array, ...]:
        population = eqx.combine(rows, rest)

        def samples(x: Array, deployed: Array) -> tuple[Array, Array]:
            """Gradients of the loss at x on data that follow `deployed`, and their shares."""
            model = shape(deployed)
            world = population.settle(model, problem.loss)
            draws, share = population.nodes_within(world, model, NODES)

            def gradient(u: Any) -> Array:
                z = population.sample(u, world, model)
                return jax.grad(lambda v: problem.loss(shape(v), z))(x)

            return jax.vmap(gradient)(draws), share.astype(x.dtype)

        def mean(x: Array, deployed: Array) -> Array:
            each, share = samples(x, deployed)
            return share @ each

        each, share = samples(x, x)
        pull = share @ each
        noise = jnp.einsum("j,jk,jl->kl", share, each - pull, each - pull)
        own, other = jax.jacfwd(mean, argnums=(0, 1))(x, x)
        return pull, own, own + other, noise, jnp.linalg.norm(each, axis=1)[:: max(1, each.shape[0] // 64)]

    rows = jax.tree.map(lambda axis, leaf: None if axis is None else leaf, axes, arrays, is_leaf=lambda a: a is None)
    shared = jax.tree.map(lambda axis, leaf: leaf if axis is None else None, axes, arrays, is_leaf=lambda a: a is None)
    if not jax.tree.leaves(rows):  # every number is shared: all clients are alike
        alike = one(shared)
        return tuple(jnp.broadcast_to(part, (problem.clients, *part.shape)) for part in alike)
    return jax.lax.map(lambda mine: one(eqx.combine(mine, shared)), rows)
