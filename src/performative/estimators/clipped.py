"""Private gradients: clip each person's gradient, add noise to the sum."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_counts
from performative._base.clipping import check_noise, clip_tree, clipped_sum
from performative._base.noise import add_noise, draw_noise, grid_step, normal_rule
from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import count_samples
from performative.facts import Bound
from performative.types import Batch, Estimate, Local, Memory, Noise, Numbers, Theta, number, whole


class AbstractPrivate(AbstractEstimator[Memory]):
    """Clipped gradients of single samples plus Gaussian noise."""

    clip: eqx.AbstractVar[Numbers]
    noise_multiplier: eqx.AbstractVar[Numbers]
    block: eqx.AbstractVar[int | None]

    def __check_init__(self) -> None:
        if self.block is not None:
            check_counts(**{f"{type(self).__name__}: block": self.block})

    @property
    def grid_noise(self) -> bool:
        return True

    def draw(self, key: PRNGKeyArray, steps: int, theta: Theta) -> Noise:
        return draw_noise(key, theta, (steps,))

    def release(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, replay: tuple[Theta, Array] | None = None
    ) -> "Release":
        """(sum_j clip(g_j) + n clip(e) + noise) / n, with n the expected size of the batch.

        `replay` is e and its clip; on a grid both sums are rounded to it and stay within their clips.
        """
        deviation = jnp.asarray(self.noise_multiplier * self.clip)
        step = grid_step(noise, deviation)
        sums = clipped_sum(local.loss, theta, batch, jnp.asarray(self.clip), step, self.block)
        size = jnp.asarray(batch.rows if local.expected is None else local.expected)
        total = sums.total
        if replay is not None:
            error, bound = replay
            many = jax.tree.map(lambda leaf: leaf * size.astype(leaf.dtype), error)
            more, _, _ = clip_tree(many, bound * size.astype(bound.dtype), step)
            total = jax.tree.map(jnp.add, total, more)

        def mean(tree: Theta) -> Theta:
            return jax.tree.map(lambda leaf: leaf / size.astype(leaf.dtype), tree)

        plain = total if step is None else jax.tree.map(lambda k: k.astype(step.dtype) * step, total)
        metrics = {"samples": count_samples(batch), "clipped": sums.clipped, "rejected": sums.rejected}
        return Release(mean(add_noise(total, noise, deviation)), mean(plain), mean(sums.whole), metrics)


class Release(eqx.Module):
    """The released direction, the same without noise, the mean of unclipped gradients, and counts."""

    noisy: Theta
    plain: Theta
    whole: Theta
    metrics: dict[str, Array | int]


class Clipped(AbstractPrivate[None]):
    """v = (sum_j clip_c(grad l(theta; z_j)) + noise) / n,      noise ~ N(0, (noise_multiplier c)^2 I)

    n is the *expected* size of the batch, a constant. A non-finite gradient counts as 0. With a domain this is PCSGD,
    Li, Yemini and Wai 2024, Eq. (9). Clipping moves the fixed point by O(1 / (mu - L beta)), more if the data react
    more. `block` bounds how many samples' gradients are in memory at once. The privacy guarantee depends on the batch
    and the number of steps: see `pf.privacy.guarantee`.
    """

    references = ("abadi2016deep",)
    sends_update_only = True

    clip: Numbers = number()
    noise_multiplier: Numbers = number()
    block: int | None = whole(default=None)

    def __check_init__(self) -> None:
        check_noise("Clipped", {"clip": self.clip}, self.noise_multiplier)

    def bound(self) -> Bound:
        return Bound(self.clip, self.noise_multiplier, owner="Clipped")

    def quadrature(self, theta: Theta) -> tuple[Noise, Array]:
        return normal_rule(theta)

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: None) -> Estimate[None]:
        release = self.release(noise, theta, batch, local)
        return Estimate(release.noisy, memory, release.metrics)
