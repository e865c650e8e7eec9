"""The gradient under the worst-case distribution near the data."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from performative._base.checks import check_number, check_rule, is_one_of
from performative._base.noise import draws_nothing
from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import batch_gradient, count_samples
from performative.types import Batch, Estimate, Local, Noise, Numbers, Theta, number

# Bisections of the log-interval that contains the multiplier: to one part in 1e9.
_HALVINGS = 40


class Robust(AbstractEstimator[None]):
    """v = sum_j w_j grad l(theta; z_j), w the worst-case weights within a ball around those of the batch.

        w = argmax of sum_j w_j l(theta; z_j) over D(w, 1/n) <= radius
        "kl":    D = sum_j w_j log(n w_j),               w_j ~ exp(l_j / lam)
        "chi2":  D = sum_j (n w_j - 1)^2 / (2 n),        w_j ~ max(l_j - eta, 0)

    The gradient of the robust risk of the batch (by Danskin's theorem). For the loss theta z of z ~ N(mu, s^2) the KL
    ball's risk is theta mu + |theta| s sqrt(2 radius); a chi2 ball adds sqrt(2 radius) standard deviations of the loss,
    as long as no weight falls below 0. A batch of n cannot represent distributions beyond radius log(n), or (n - 1)/2:
    there all weight goes to the largest loss. With reacting data, plain steps converge to a model that is optimal
    against the worst distribution near the one it induces. Duchi and Namkoong 2021; Xue and Sun 2024. It does not
    remove the bias of small batches: their worst-case weights are milder than those of the population.

    Args:
        radius: of the ball; 0 is the plain gradient
        divergence: "kl" or "chi2"

    Example:

        import performative as pf

        print(pf.estimators.Robust(radius=0.1, divergence="chi2"))
    """

    references = ("duchi2021learning", "xue2024distributionally")
    sends_update_only = True
    quadrature = draws_nothing

    radius: Numbers = number()
    divergence: str = eqx.field(static=True, default="kl")

    def __check_init__(self) -> None:
        check_number("Robust", radius=self.radius)
        check_rule("Robust", "must not be negative", radius=self.radius)
        if not is_one_of(self.divergence, "kl", "chi2"):
            raise ValueError(f'Robust: divergence must be "kl" or "chi2"; got {self.divergence!r}.')

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: None) -> Estimate[None]:
        each = jax.vmap(local.loss, in_axes=(None, 0))(theta, batch.z)
        real = jnp.ones(each.shape, bool) if batch.mask is None else batch.mask
        w = worst_weights(each, real, jnp.asarray(self.radius, each.dtype), self.divergence)
        count = jnp.maximum(jnp.sum(real), 1).astype(each.dtype)

        def weighed(model: Theta, row: tuple[Theta, Array]) -> Array:
            return count * row[1] * local.loss(model, row[0])

        direction = batch_gradient(weighed, theta, Batch((batch.z, w), batch.noise, batch.mask))
        return Estimate(direction, memory, {"samples": count_samples(batch)})


def worst_weights(
    loss: Float[Array, " n"], real: Bool[Array, " n"], radius: Float[Array, ""], divergence: str
) -> Float[Array, " n"]:
    """The weights w, which sum to one over the real rows and are 0 elsewhere."""
    real = real & jnp.isfinite(loss)
    low, high = (pick(jnp.where(real, loss, fill)) for pick, fill in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf)))
    spread = high - low
    x = jnp.where(real, (loss - high) / jnp.where(spread > 0, spread, 1), -1)  # in [-1, 0], the worst at 0
    count = jnp.maximum(jnp.sum(real), 1).astype(loss.dtype)

    def by_kl(t: Array) -> Array:
        return _parts(jnp.where(real, jnp.exp(x / jnp.exp(t)), 0))

    def by_chi2(
        t: Array,
    ) -> Array:  # the threshold above which losses count; beyond the smallest it only evens the weights
        return _parts(jnp.where(real, jnp.maximum(x + jnp.exp(t), 0), 0))

    def kl(w: Array) -> Array:
        return jnp.sum(jnp.where(w > 0, w * jnp.log(count * jnp.where(w > 0, w, 1)), 0))

    def chi2(w: Array) -> Array:
        return jnp.sum(jnp.where(real, jnp.square(count * w - 1), 0)) / (2 * count)

    weigh, far = (by_kl, kl) if divergence == "kl" else (by_chi2, chi2)
    found = weigh(_level(lambda t: far(weigh(t)) > radius, loss.dtype))
    return jnp.where((spread > 0) & (radius > 0), found, jnp.where(real, 1 / count, 0))


def _level(too_far: Callable[[Array], Array], dtype: jnp.dtype) -> Array:
    """The smallest t at which `too_far`, decreasing in t, is False, by bisection."""

    def halve(_: Array | int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        over = too_far(middle)
        return jnp.where(over, middle, ends[0]), jnp.where(over, ends[1], middle)

    ends = jnp.asarray(-12.0, dtype), jnp.asarray(14.0, dtype)
    return jax.lax.fori_loop(0, _HALVINGS, halve, ends)[1]


def _parts(w: Float[Array, " n"]) -> Float[Array, " n"]:
    total = jnp.sum(w)
    return w / jnp.where(total > 0, total, 1)
