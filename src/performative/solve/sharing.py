"""Stable points of clients with personal models."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import client_axes
from performative._engine.prepare import on_device
from performative._engine.risk import client_risks
from performative.domains import AbstractDomain
from performative.facts import declared
from performative.problem import Problem
from performative.sharing import AbstractSharing
from performative.solve.landscape import DENSE, survey
from performative.types import Scene, Theta

_STEPS, _HALVINGS = 100, 30


@dataclasses.dataclass(frozen=True, eq=False)
class SharedPoint:
    """A stable point of clients with personal models.

    Attributes:
        shared: what the server keeps, as in `history.final`; what nobody trains (with `PerClient` all of it) stays at
            the start
        own: the model that each client's people meet, [N, ...] per leaf, as in `history.models`
        residual: largest entry of the expected change in one round with step size 1
    """

    shared: Any
    own: Any
    residual: float


class _Round(eqx.Module):
    """One expected local step of size 1 of every client, and the mean of what they send."""

    problem: Problem
    sharing: AbstractSharing
    weights: Float[Array, " N"]
    like: PyTree
    nodes: int = eqx.field(static=True)

    def parts(self, x: Float[Array, " n"]) -> tuple[Any, Any, Any]:
        """What the server keeps, what each client keeps, and what each trains."""
        shared, own = ravel_pytree(self.like)[1](x)
        ids = jnp.arange(self.weights.shape[0], dtype=jnp.int32)
        return shared, own, jax.vmap(self.sharing.local, in_axes=(None, 0, 0))(shared, own, ids)

    @eqx.filter_jit
    def met(self, x: Float[Array, " n"]) -> Theta:
        """The model that each client's people meet."""
        return jax.vmap(self.sharing.meet)(self.parts(x)[2])

    @eqx.filter_jit
    def moves(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """How far everything moves from x: 0 at a stable point, for any step size."""
        sharing, (shared, own, local) = self.sharing, self.parts(x)
        met = jax.vmap(sharing.meet)(local)
        arrays, rest = eqx.partition(self.problem.population, eqx.is_array)

        def settled(rows: PyTree, model: Theta) -> PyTree:
            return eqx.combine(rows, rest).settle(Scene(model, self.problem.loss))

        lead = (client_axes(arrays), 0)
        world = jax.vmap(settled, in_axes=lead, axis_size=self.weights.shape[0])(arrays, met)
        trained = dataclasses.replace(self.problem, loss=sharing.loss(self.problem.loss))

        def risks(local: PyTree) -> Array:
            return jnp.sum(client_risks(trained, local, met, world, self.nodes, apart=True))

        def one(local: PyTree, slope: PyTree, own: PyTree, client: Array) -> tuple[PyTree, PyTree]:
            stepped = sharing.pull(jax.tree.map(jnp.subtract, local, slope), shared, jnp.ones(()))
            moved = jax.tree.map(jnp.subtract, stepped, local)
            kept = sharing.kept(stepped, own)
            return sharing.send(moved, shared, own, client), jax.tree.map(jnp.subtract, kept, own)

        ids = jnp.arange(self.weights.shape[0], dtype=jnp.int32)
        sent, kept = jax.vmap(one)(local, jax.grad(risks)(local), own, ids)
        mean = jax.tree.map(lambda leaf: jnp.tensordot(self.weights, leaf, 1), sent)
        return ravel_pytree((mean, kept))[0]

    @eqx.filter_jit
    def slope(self, x: Float[Array, " n"]) -> Float[Array, "n n"]:
        return jax.jacfwd(self.moves)(x)


def shared_point(
    problem: Problem, sharing: AbstractSharing, start: Theta, tolerance: float, samples: int
) -> SharedPoint:
    """Where a round changes nothing in expectation. Newton steps; what no equation determines stays at the start."""
    name = type(sharing).__name__
    if sharing.counts_entries:
        raise ValueError(
            f"stable_point: sharing={name} trains parts of a model that may change from round to round; run it "
            "(pf.run)."
        )
    if not declared(sharing, "ignores_data"):
        raise ValueError(
            f"stable_point: sharing={name} chooses models from data, so its point is not the root of an equation; run "
            "it (pf.run), and pass the groups that it found to pf.sharing.Groups."
        )
    ready = sharing.ready(np.asarray(problem.client_weights))
    with jax.enable_x64(True):
        land, origin = survey(problem, start, samples=samples, name="start")
        theta, ready = land.model(origin), on_device(ready, jnp.float64)
        ready.check(theta)
        shared = ready.start(theta)
        own = jax.tree.map(lambda leaf: jnp.stack([leaf] * problem.clients), ready.keep(ready.one(shared)))
        mean = _Round(land.problem, ready, land.weights, (shared, own), samples)
        x = np.asarray(ravel_pytree((shared, own))[0])
        if len(x) > DENSE:
            raise ValueError(
                f"stable_point: sharing={name} has {len(x)} parameters in all models together; at most {DENSE} are "
                "supported. Run it instead (pf.run)."
            )
        x, residual = _newton(mean, x)
        if not residual <= tolerance * (1 + float(np.max(np.abs(x)))):
            raise ValueError(
                f"stable_point: no stable point with sharing={name} was found from this start (residual "
                f"{residual:.3g}); try another start, or a stronger pull."
            )
        kept, _, _ = mean.parts(jnp.asarray(x))
        met = mean.met(jnp.asarray(x))
        if land.domain is not None:
            _check_within(land.domain, ready, kept, met, name)
        return SharedPoint(jax.tree.map(np.asarray, kept), jax.tree.map(np.asarray, met), residual)


def _newton(mean: _Round, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Least-norm Newton steps, halved until the residual falls."""
    moves = np.asarray(mean.moves(jnp.asarray(x)))
    for _ in range(_STEPS):
        slope = np.asarray(mean.slope(jnp.asarray(x)))
        if not (np.all(np.isfinite(slope)) and np.any(moves)):
            break
        step, length = np.linalg.lstsq(slope, -moves, rcond=1e-12)[0], 1.0
        for _ in range(_HALVINGS):
            after = np.asarray(mean.moves(jnp.asarray(x + length * step)))
            if np.linalg.norm(after) < np.linalg.norm(moves):
                break
            length /= 2
        else:
            break
        x, moves = x + length * step, after
    return x, float(np.max(np.abs(moves), initial=0.0))


def _check_within(domain: AbstractDomain, sharing: AbstractSharing, shared: PyTree, met: Theta, name: str) -> None:
    inside = sharing.each_shared(domain.project, shared), jax.vmap(domain.project)(met)
    pairs = zip(jax.tree.leaves(inside), jax.tree.leaves((shared, met)), strict=True)
    if not all(np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in pairs):
        raise ValueError(
            f"stable_point: with sharing={name} some model of the point lies outside the domain, so it is not "
            "the point that training converges to; run it instead (pf.run)."
        )
