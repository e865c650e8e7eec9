"""A problem as functions of flat float64 vectors: the expected loss with its derivatives, and the projection.

f(theta; deployed) is differentiated in both arguments. Each compiled function serves all problems of one structure:
other numbers do not trigger recompilation.
"""

import dataclasses
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from performative._base.messages import coded
from performative._engine.prepare import check_fit, on_device, read_theta
from performative._engine.risk import NODES, client_risks, count_nodes, decoupled_risk
from performative.domains import AbstractDomain, Box
from performative.populations.nodes import Count
from performative.problem import Problem
from performative.solve.worlds import check_rest
from performative.types import ArrayLike, Theta

# Above this many parameters no Hessian is formed.
DENSE = 512
# Numbers that one sweep over points, or over the columns of a Hessian, may take: as many as fit in the cache of one
# core. Wider sweeps are several times slower on large tables, not faster.
_NUMBERS = 1 << 16
# Above this many numbers in one Hessian a search starts on fewer rows: about this many numbers, and enough rows per
# parameter.
_LARGE, _ROUGH, _ROWS_EACH = 1 << 21, 1 << 19, 20
# Results that a view caches: solvers return to the start and to points found before.
_KEPT = 8
Vector = Float[Array | np.ndarray, " _"]


class Landscape(eqx.Module):
    """A problem on the device in float64; `like` has the model's structure.

    Args:
        samples: draws per client if expectations have no exact rule; batch: which set of them, None for the default

    `problem` is stored without what the expected loss does not depend on, so it compiles once for all domains. If
    `every` is k > 1, expectations use only every k-th sample: see `rough`.

    For a game, players are the leading axis of theta, f is the sum of their risks, and `players` assigns each client to
    a player. With `foresees`, each player knows how its own model moves its data, so only the others' models are
    deployed:

        f(theta; deployed) = sum_g f_g(theta_g; deployed),   foreseen  sum_g f_g(theta_g; deployed_-g, theta_g)
    """

    problem: Problem
    weights: Float[Array, " N"]
    like: Theta
    domain: AbstractDomain | None
    every: int = eqx.field(static=True, default=1)
    samples: int = eqx.field(static=True, default=NODES)
    batch: Array | None = None
    players: Int[Array, " N"] | None = None
    foresees: bool = eqx.field(static=True, default=False)

    @property
    def one(self) -> Theta:
        """A model as seen by some client's people, for its shape."""
        return self.like if self.players is None else jax.tree.map(lambda leaf: leaf[0], self.like)

    @property
    def size(self) -> int:
        """d, the number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.like))

    @property
    def dense(self) -> bool:
        """Whether Hessians are formed."""
        return self.size <= DENSE

    def flat(self, theta: Theta) -> np.ndarray:
        """A model as a vector."""
        return np.asarray(ravel_pytree(jax.tree.map(lambda v: jnp.asarray(v, jnp.float64), theta))[0])

    def shaped(self, vector: np.ndarray) -> Theta:
        """A vector as a model, on the host."""
        return jax.tree.map(np.asarray, self.model(vector))

    def model(self, vector: np.ndarray | Array) -> Theta:
        """A vector as a model, on the device."""
        return ravel_pytree(self.like)[1](jnp.asarray(vector, jnp.float64))

    def project(self, vector: np.ndarray) -> np.ndarray:
        """The nearest point of the domain."""
        if self.domain is None:
            return vector
        return np.asarray(_project(self.domain, self.like, jnp.asarray(vector)))

    def project_slope(self, vector: np.ndarray) -> np.ndarray:
        """The derivative of the projection, [d, d]."""
        if self.domain is None or np.array_equal(self.project(vector), vector):
            return np.eye(self.size)
        return np.asarray(_project_slope(self.domain, self.like, jnp.asarray(vector)))

    def inside(self, theta: Theta | None) -> np.ndarray | None:
        """A model as a vector, None if there is none or it lies outside the domain."""
        if theta is None:
            return None
        vector = self.flat(theta)
        gap = np.max(np.abs(self.project(vector) - vector), initial=0.0)
        return vector if gap <= 1e-12 * (1.0 + np.max(np.abs(vector), initial=0.0)) else None

    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper ends of a Box as vectors, None for any other domain."""
        domain = self.domain
        if not isinstance(domain, Box):
            return None

        def spread(end: ArrayLike) -> np.ndarray:
            number = np.asarray(end, np.float64)
            return self.flat(jax.tree.map(lambda v: np.broadcast_to(number, v.shape), self.like))

        return spread(domain.lo), spread(domain.hi)

    @property
    def everywhere(self) -> "Landscape":
        """The landscape without its domain, which the expected loss does not use: it compiles once for all domains."""
        return self if self.domain is None else dataclasses.replace(self, domain=None)

    def value(self, theta: np.ndarray, deployed: np.ndarray, worlds: PyTree = None) -> tuple[float, np.ndarray]:
        """f(theta; deployed) and its gradient in both arguments, [2d]; `worlds` None are those at rest."""
        value, gradient = _gradient(self.everywhere, theta, deployed, worlds)
        return float(value), np.asarray(gradient)

    def risks(self, points: np.ndarray) -> np.ndarray:
        """f(x; x) at each of the points [n, d], in one program."""
        rows = np.repeat(points[-1:], 1 << (len(points) - 1).bit_length(), axis=0)
        rows[: len(points)] = points
        return np.asarray(_risks(self.everywhere, jnp.asarray(rows)))[: len(points)]

    def curvature(self, theta: np.ndarray, deployed: np.ndarray, worlds: PyTree = None) -> Any:
        """The Hessian of f in both arguments, [2d, 2d]; None above DENSE parameters."""
        if not self.dense:
            return None
        columns = (self._columns(theta, deployed, *move, worlds) for move in ((1, 0), (0, 1)))
        return np.concatenate(list(columns)).T

    def own_curvature(self, theta: np.ndarray, deployed: np.ndarray, worlds: PyTree = None) -> Any:
        """H = d^2 f(theta; deployed) / d theta^2 [d, d]; None above DENSE parameters."""
        return self._columns(theta, deployed, 1, 0, worlds)[:, : self.size] if self.dense else None

    def _columns(
        self, theta: np.ndarray, deployed: np.ndarray, own: int, other: int, worlds: PyTree = None
    ) -> np.ndarray:
        """Derivatives of the gradient [2d] along (own * e_j, other * e_j) for each j, [d, 2d]."""
        move = np.asarray([own, other], np.float64)
        return np.asarray(_hessian(self.everywhere, theta, deployed, move, worlds))

    def rough(self) -> "Landscape":
        """The same problem on a subset of the samples if one Hessian is expensive, else itself.

        Use it to locate candidates; then solve on all samples.
        """
        if not self.dense or self.every > 1:
            return self
        samples = count_nodes(self.problem, self.one, self.samples)
        rows, numbers = self.problem.clients * samples, self.problem.clients * samples * self.size**2
        every = min(numbers // _ROUGH, rows // (_ROWS_EACH * self.size), samples // _ROWS_EACH)
        if numbers <= _LARGE or every < 2:
            return self
        return dataclasses.replace(self, every=every)

    def decoupled(self, deployed: np.ndarray, worlds: PyTree = None) -> "View":
        """theta -> f(theta; deployed): what retraining minimizes. `worlds` None are those at rest."""
        return View(
            lambda x: self.value(x, deployed, worlds),
            lambda gradient: gradient[: self.size],
            lambda x: self.own_curvature(x, deployed, worlds),
        )

    def performative(self) -> "View":
        """theta -> f(theta; theta): the risk of theta once the world has responded."""
        d = self.size
        return View(
            lambda x: self.value(x, x),
            lambda gradient: gradient[:d] + gradient[d:],
            lambda x: self._columns(x, x, 1, 1).reshape(d, 2, d).sum(axis=1).T if self.dense else None,
        )

    def equilibrium(self) -> "View":
        """theta -> G(theta) = grad_1 f(theta; theta), derivative H + C; its value is f(theta; theta)."""
        d = self.size
        return View(
            lambda x: self.value(x, x),
            lambda gradient: gradient[:d],
            lambda x: self._columns(x, x, 1, 1)[:, :d].T if self.dense else None,
        )


class View:
    """A value, a gradient and the gradient's derivative as functions of x; the last results are cached.

    Args:
        both: value and gradient in both arguments; part: maps these to the gradient; second: its derivative
    """

    def __init__(
        self,
        both: Callable[[np.ndarray], tuple[float, np.ndarray]],
        part: Callable[[np.ndarray], np.ndarray],
        second: Callable[[np.ndarray], np.ndarray | None],
    ):
        self._both, self._part, self._second = _remember(both), part, _remember(second)

    def value(self, x: np.ndarray) -> float:
        return self._both(x)[0]

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self._part(self._both(x)[1])

    def slope(self, x: np.ndarray) -> Any:
        """The derivative of the gradient, None above DENSE parameters."""
        return self._second(x)

    def compiled(self, x: np.ndarray) -> "View":
        """The same, with value and slope compiled in parallel: both are slow, and the compiler uses one core."""

        def slope() -> None:
            with jax.enable_x64(True):  # thread-local
                self.slope(x)

        # Warning filters are process-wide: tracing changes them briefly, and two threads may leave them changed.
        with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool:
            later = pool.submit(slope)
            self.value(x)
            later.result()
        return self


def survey(
    problem: Problem, theta: Theta, rest: bool = True, samples: int = NODES, name: str = "theta"
) -> tuple[Landscape, np.ndarray]:
    """Check a problem and a start (None for zeros), and return the landscape and the start as a vector.

    `rest`: raise if the worlds do not come to rest under the start; callers that follow transient worlds do not need
        this. `name` is the name of the caller's argument. Call it, and everything that uses the landscape, inside
        `jax.enable_x64(True)`.
    """
    if problem.population.reads_time:
        text = (
            "the data change on their own, so no point is fixed: specify a time, with time= if it is accepted, or use "
            "problem.at(time), the problem at that time."
        )
        raise ValueError(coded("target-moves", text))
    weights = jnp.asarray(np.asarray(problem.client_weights), jnp.float64)
    on = on_device(problem, jnp.float64)
    start = read_theta(on, theta, jnp.float64, name)
    check_fit(on, start, name)
    land = Landscape(Problem(on.loss, on.population), weights, start, on.domain, samples=samples)
    origin = land.project(land.flat(start))
    if rest:
        check_rest(land.problem, land.model(origin), land.model(origin))
    return land, origin


def _remember(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """The same function with its last results cached: optimizers ask for value and slope alternately."""
    kept: dict[bytes, Any] = {}

    def again(x: np.ndarray) -> Any:
        x = np.asarray(x, np.float64)
        key = x.tobytes()
        if key not in kept:
            if len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            kept[key] = function(x)
        return kept[key]

    return again


def risk_of(land: Landscape, theta: Array, deployed: Array, worlds: PyTree = None) -> Float[Array, ""]:
    shape = ravel_pytree(land.like)[1]
    count = land.samples if land.batch is None else Count(land.samples, land.batch)
    models = shape(theta), shape(deployed)
    if land.players is not None:
        own, met = (jax.tree.map(lambda leaf: leaf[land.players], model) for model in models)
        data = own if land.foresees else met
        risks = client_risks(
            land.problem, own, data, worlds, count, land.every, apart=True, models=models[1], players=land.players
        )
        return jnp.sum(land.weights * risks)
    return decoupled_risk(land.problem, land.weights, *models, worlds, count, every=land.every)


def _sweep(land: Landscape, function: Callable[[Array], Array], rows: Float[Array, "n d"]) -> Array:
    """Map a function over rows, as many at a time as fit in cache.

    Sweeps have one length, the last zero-padded: `jax.lax.map` would recompile the function for the remainder.
    """
    numbers = land.problem.clients * count_nodes(land.problem, land.one, land.samples) // land.every * land.size
    sweeps = -(-len(rows) // max(_NUMBERS // max(numbers, 1), 1))
    if sweeps <= 1:
        return jax.vmap(function)(rows)
    each = -(-len(rows) // sweeps)
    if each == 1:
        return jax.lax.map(function, rows)
    padded = jnp.pad(rows, ((0, sweeps * each - len(rows)), (0, 0)))
    found = jax.lax.map(jax.vmap(function), padded.reshape(sweeps, each, -1))
    return found.reshape(-1, *found.shape[2:])[: len(rows)]


@eqx.filter_jit
def _gradient(
    land: Landscape, theta: Vector, deployed: Vector, worlds: PyTree
) -> tuple[Float[Array, ""], Float[Array, " pair"]]:
    d = len(theta)
    both = jnp.concatenate([theta, deployed])
    return jax.value_and_grad(lambda at: risk_of(land, at[:d], at[d:], worlds))(both)


@eqx.filter_jit
def _risks(land: Landscape, points: Float[Array, "n d"]) -> Float[Array, " n"]:
    return _sweep(land, lambda x: risk_of(land, x, x), points)


@eqx.filter_jit
def _hessian(land: Landscape, theta: Vector, deployed: Vector, move: Vector, worlds: PyTree) -> Float[Array, "d pair"]:
    """Derivatives of the gradient along (move_0 e_j, move_1 e_j): one program for every block of the Hessian."""
    d = len(theta)
    both = jnp.concatenate([theta, deployed])
    gradient = jax.grad(lambda at: risk_of(land, at[:d], at[d:], worlds))

    def column(direction: Array) -> Array:
        return jax.jvp(gradient, (both,), (jnp.concatenate([move[0] * direction, move[1] * direction]),))[1]

    return _sweep(land, column, jnp.eye(d))


@eqx.filter_jit
def _project(domain: AbstractDomain, like: Theta, vector: Float[Array, " d"]) -> Float[Array, " d"]:
    return ravel_pytree(domain.project(ravel_pytree(like)[1](vector)))[0]


@eqx.filter_jit
def _project_slope(domain: AbstractDomain, like: Theta, vector: Float[Array, " d"]) -> Float[Array, "d d"]:
    return jax.jacfwd(lambda v: _project(domain, like, v))(vector)
