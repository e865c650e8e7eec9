"""Private gradients that remember what clipping removed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._base.client_axis import client_axes
from performative._base.clipping import check_noise, clip_factor, safe_norm
from performative._base.messages import coded, warn
from performative._base.noise import normal_rule
from performative.estimators.base import Problem
from performative.estimators.clipped import AbstractPrivate
from performative.facts import Bound
from performative.populations.base import AbstractPopulation
from performative.types import ArrayLike, Batch, Estimate, Local, Loss, Noise, Numbers, Scene, Theta, number, whole

# A sum of independent errors grows like the square root of the number of steps; beyond this multiple, it grows
# systematically.
_CHANCE = 10.0
_NODES = 2048


class DiceMemory(eqx.Module):
    """What clipping removed and has not been replayed yet. It stays with the client and is never recorded."""

    error: Theta
    steps: Int[Array, ""]


class Dice(AbstractPrivate[DiceMemory]):
    """v = mean_j clip_C1(g_j) + clip_C2(e),      e <- e + mean_j g_j - v,      the client steps along v + noise / n

    C1 = `clip`, C2 = `memory_clip`, noise ~ N(0, (noise_multiplier C1)^2 I), g_j = grad l(theta; z_j). The error memory
    e compensates for clipping, so the stable point is preserved if C2 is at least |E g_i - E clip_C1(g_i)| for every
    client at that point. Otherwise the fixed point moves and e grows without bound: a run warns about both. Li, Yemini
    and Wai 2024, Algorithm 1; Zhang et al. 2024.

    The memory replays a person's gradient in later steps, so subsampling does not amplify privacy: see
    `pf.privacy.guarantee`.
    """

    references = ("zhang2024dice", "li2024clipped")
    sends_update_only = True

    clip: Numbers = number()
    memory_clip: Numbers = number()
    noise_multiplier: Numbers = number()
    block: int | None = whole(default=None)

    def __check_init__(self) -> None:
        check_noise("Dice", {"clip": self.clip, "memory_clip": self.memory_clip}, self.noise_multiplier)

    def bound(self) -> Bound:
        return Bound(self.clip, self.noise_multiplier, self.memory_clip, owner="Dice")

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> DiceMemory:
        return DiceMemory(jax.tree.map(jnp.zeros_like, theta), jnp.zeros((), jnp.int32))

    def quadrature(self, theta: Theta) -> tuple[Noise, Array]:
        return normal_rule(theta)

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: DiceMemory
    ) -> Estimate[DiceMemory]:
        release = self.release(noise, theta, batch, local, (memory.error, jnp.asarray(self.memory_clip)))
        error = jax.tree.map(lambda e, g, v: e + g - v, memory.error, release.whole, release.plain)
        return Estimate(release.noisy, DiceMemory(error, memory.steps + 1), release.metrics)

    def check_point(self, problem: Problem, stable: Theta) -> None:
        needed = float(np.max(needed_memory_clip(problem, stable, self.clip)))
        allowed = float(np.min(np.asarray(self.memory_clip)))
        if needed > allowed * (1 + 1e-6):
            warn(
                "memory-clip-too-small",
                f"Dice(memory_clip={allowed:.4g}) is too small to be unbiased: at the stable point a client's clip "
                f"removes {needed:.4g} on average. It will converge elsewhere; use memory_clip >= {needed:.4g}.",
            )

    def review(self, memory: DiceMemory) -> list[str]:
        steps = np.asarray(memory.steps)
        lengths = np.sqrt(sum(_squares(np.asarray(leaf), steps.ndim) for leaf in jax.tree.leaves(memory.error)))
        growing = lengths > _CHANCE * np.asarray(self.memory_clip) * np.sqrt(np.maximum(steps, 100))
        if not np.any(growing):
            return []
        return [
            coded(
                "error-memory-grows",
                f"Dice: the error memory of {int(np.sum(growing))} of {growing.size} clients grows faster than "
                "chance alone explains: memory_clip is too small, and the final model is biased.",
            )
        ]


def _squares(leaf: np.ndarray, lead: int) -> np.ndarray:
    return np.sum(np.square(leaf.astype(float)), axis=tuple(range(lead, leaf.ndim)))


def needed_memory_clip(problem: Problem, theta: Theta, clip: ArrayLike) -> Float[np.ndarray, " N"]:
    """|E g_i - E clip(g_i)| of each client at theta, data settled under it: what Dice's memory must compensate for.

    For one learner at its stable point E g = 0, and it is |E clip(g)|.
    """
    arrays, rest = eqx.partition(problem.population, eqx.is_array)
    arrays = jax.tree.map(jnp.asarray, arrays)
    theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), theta)

    def one(rows: PyTree) -> Array:
        population = eqx.combine(rows, rest)
        world = population.settle(Scene(theta, problem.loss))
        noise, share = population.quadrature_within(world, theta, _NODES)

        def cut(u: Noise) -> Theta:
            gradient = jax.grad(problem.loss)(theta, population.sample(u, world, theta))
            factor, _, _ = clip_factor(gradient, jnp.asarray(clip))
            return jax.tree.map(lambda g: (1 - factor.astype(g.dtype)) * g, gradient)

        each = jax.vmap(cut)(noise)
        mean = jax.tree.map(lambda v: jnp.tensordot(share.astype(v.dtype), v, axes=1), each)
        return safe_norm(mean)[0]

    lead = (client_axes(arrays),)
    return np.asarray(jax.jit(jax.vmap(one, in_axes=lead, axis_size=problem.clients))(arrays))
