"""A problem near its stable point: the clients' gradients, their derivatives and their noise."""

import dataclasses
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from performative._base.client_axis import split_clients
from performative._base.messages import PerformativeWarning, coded
from performative._engine.risk import NODES
from performative.facts import chain
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.solve.landscape import Landscape, survey
from performative.solve.roots import allowed
from performative.solve.stable import stable_point
from performative.solve.worlds import remembers
from performative.types import Noise, Scene, Theta

# Limit for per-client Hessians: above it a plan would take longer than the run.
_LARGEST = 64
# A direction in which all derivatives together are below this fraction of the largest has no effect.
_FLAT = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Near:
    """The clients' gradients g_i + (H_i + C_i) u near the stable point, u = theta - theta_PS.

    Attributes:
        stable: theta_PS, shaped like the model; start: u_0, [d]; weights: p_i
        pull: g_i = grad f_i at theta_PS, [N, d]; their weighted mean is zero
        H, C: derivatives of client i's gradient in its own model and in the deployed one, [N, d, d]
        noise: covariance of one sample's gradient at theta_PS, [N, d, d]
        sizes: norms of samples' gradients at theta_PS and at the start, for the choice of a clip
        distance: |u_0|; steepest: the largest norm of a client's derivative
        travel: if the boundary of the domain holds the stable point in some directions, the sum of step sizes until the
            gradient has pushed the model against it; everything else then refers to the other directions
        remembers: whether the data depend on past models, which these derivatives ignore
    """

    stable: Any
    start: np.ndarray
    weights: np.ndarray
    pull: np.ndarray
    H: np.ndarray
    C: np.ndarray
    noise: np.ndarray
    sizes: np.ndarray
    distance: float
    steepest: float
    travel: float = 0.0
    remembers: bool = False

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
        """The smallest real part of J's eigenvalues: how fast small steps settle. Above 0 if they do."""
        return float(np.linalg.eigvals(self.slope).real.min(initial=self.steepest))


def look_around(problem: Problem, theta: Theta = None) -> Near:
    """Solve for the stable point and take derivatives there. `theta` is where learning will start.

    If the boundary of the domain holds the point, the linear model is that of the remaining directions.
    """
    check_variance(problem)
    with jax.enable_x64(True):
        land, start = survey(problem, theta)
        check_size(land)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformativeWarning)  # a repelling point: `kappa` shows it
            stable = stable_point(problem, start=theta)
        x = land.flat(stable)
        gradient = land.equilibrium().gradient(x)
        pull, H, J, noise, sizes = (np.asarray(part) for part in derivatives(land, jnp.asarray(x)))
        at_start = np.asarray(derivatives(land, jnp.asarray(start))[4])
        held, free, bend = _directions(land, x, gradient)
        remembered = remembers(land.problem, land.like)
    away = np.asarray(start) - x
    steepest = max(np.linalg.norm(m, 2, axis=(1, 2)).max() for m in (H, J))
    # The gradient at the boundary points outward along `held` and moves the model by that much per unit of step.
    travel = float(np.max(np.abs(away @ held) / np.maximum(np.abs(gradient @ held), 1e-300), initial=0.0))
    free = free @ _noticed(free, pull, H, J, noise)
    own = free.T @ H @ free + bend * np.eye(free.shape[1])
    return Near(
        stable, away @ free, np.asarray(problem.client_weights, np.float64), pull @ free, own,
        free.T @ (J - H) @ free, free.T @ noise @ free, np.concatenate([sizes.ravel(), at_start.ravel()]),
        float(np.linalg.norm(away)), float(max(steepest, 1.0 / travel if travel > 0 else 0.0)), travel, remembered,
    )  # fmt: skip


def check_variance(problem: Problem) -> None:
    """Raise if samples have no finite variance."""
    wild = [part for part in chain(problem.population, AbstractPopulation) if part.infinite_variance]
    if wild:
        text = (
            f"plan: samples of {type(wild[0]).__name__} have no finite variance here, so no setting has a root "
            "mean square error to plan for. Plan for the clean population, or compare a few settings with pf.sweep."
        )
        raise ValueError(coded("no-variance", text))


def check_size(land: Landscape) -> None:
    """Raise if the model is too large for per-client Hessians."""
    if land.size > _LARGEST:
        raise ValueError(
            f"plan: the model has {land.size} parameters; planning needs Hessians and allows at most "
            f"{_LARGEST}. Compare a few settings with pf.sweep and pf.compare instead."
        )


def _noticed(free: np.ndarray, pull: np.ndarray, *matrices: np.ndarray) -> np.ndarray:
    """Free directions that some gradient has a component in or depends on, [f, n].

    The others (such as a constant added to all class scores) never change and are not part of the error.
    """
    if free.shape[1] == 0:
        return np.eye(0)
    inside = [free.T @ m @ free for m in matrices]
    rows = [part.reshape(-1, free.shape[1]) for m in inside for part in (m, np.swapaxes(m, 1, 2))]
    _, sizes, right = np.linalg.svd(np.concatenate([pull @ free, *rows]), full_matrices=False)
    return right[sizes > _FLAT * max(sizes[0], 1e-300)].T


def _directions(land: Landscape, x: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Directions held by the boundary of the domain at x, [d, h], and free ones, [d, d - h].

    The last number is what the boundary adds to the curvature of the free ones: 0 if it is flat.
    """
    d, view = len(x), land.equilibrium()
    if land.domain is None or np.max(np.abs(gradient)) <= 1e2 * allowed(view, x):
        return np.zeros((d, 0)), np.eye(d), 0.0
    small = 1e-6 / float(np.linalg.norm(gradient))
    D = land.project_slope(x - small * gradient)
    values, vectors = np.linalg.eigh((D + D.T) / 2)
    held = values < 0.5
    bend = float(np.mean(1.0 - values[~held])) / small if np.any(~held) else 0.0
    return vectors[:, held], vectors[:, ~held], bend


@eqx.filter_jit
def derivatives(land: Landscape, x: Array) -> tuple[Array, ...]:
    """At x: the clients' gradients [N, d], H and H + C [N, d, d], one sample's covariance, and gradient norms."""
    problem, shape = land.problem, ravel_pytree(land.like)[1]
    rows, shared = split_clients(problem.population)

    def one(mine: PyTree) -> tuple[Array, ...]:
        population = eqx.combine(mine, shared)

        def samples(x: Array, deployed: Array) -> tuple[Array, Array]:
            """Gradients of the loss at x on data induced by `deployed`, and their weights."""
            model = shape(deployed)
            world = population.settle(Scene(model, problem.loss))
            draws, share = population.quadrature_within(world, model, NODES)

            def gradient(u: Noise) -> Array:
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

    if not jax.tree.leaves(rows):  # every number is shared: all clients are identical
        return tuple(jnp.broadcast_to(part, (problem.clients, *part.shape)) for part in one(rows))
    return jax.lax.map(one, rows)
