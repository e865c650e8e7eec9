"""Updates with differential privacy for whole clients."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from performative._base.clipping import check_noise, clip_factor, clip_tree
from performative._base.noise import add_noise, draw_noise, grid_step, normal_rule
from performative.channels.base import AbstractChannel
from performative.facts import Bound
from performative.types import Broadcast, Noise, Numbers, Theta, number


class ClippedNoise(AbstractChannel[None]):
    """delta -> clip_c(delta) + noise,      noise ~ N(0, (noise_multiplier c)^2 I / K)

    Each of the K clients of a round adds its share, so the *sum* of their updates has noise of standard deviation
    noise_multiplier * c: differential privacy for whole clients, whatever they do locally. A server that reads
    individual messages sees only a share of the noise; `pf.privacy.guarantee` reports which of the two applies. A
    non-finite update is replaced by 0. McMahan et al. 2018.
    """

    references = ("mcmahan2018learning",)
    ignores_data = True
    grid_noise = True

    clip: Numbers = number()
    noise_multiplier: Numbers = number()

    def __check_init__(self) -> None:
        check_noise("ClippedNoise", {"clip": self.clip}, self.noise_multiplier)

    def bound(self) -> Bound:
        return Bound(self.clip, self.noise_multiplier, owner="ClippedNoise")

    def draw(self, key: PRNGKeyArray, theta: Theta) -> Noise:
        return draw_noise(key, theta)

    def quadrature(self, theta: Theta) -> tuple[Noise, Array]:
        return normal_rule(theta)

    def send(self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: None) -> tuple[Theta, None]:
        deviation = jnp.asarray(self.noise_multiplier * self.clip) / jnp.sqrt(float(broadcast.clients))
        clipped, _, _ = clip_tree(delta, jnp.asarray(self.clip), grid_step(noise, deviation))
        noisy = add_noise(clipped, noise, deviation)
        return jax.tree.map(lambda sent, was: sent.astype(was.dtype), noisy, delta), memory

    def totals(self, delta: Theta) -> dict[str, Array]:
        _, long, finite = clip_factor(delta, jnp.asarray(self.clip))
        return {"clipped_updates": long.astype(jnp.int32), "rejected_updates": (~finite).astype(jnp.int32)}
