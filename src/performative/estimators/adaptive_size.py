"""Use as many samples as the allowed error requires."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from performative._base.checks import check_counts, check_number, check_rule
from performative.estimators.base import AbstractEstimator, AbstractWrapper, check_inner, inner_quadrature
from performative.facts import Uncertified, chain
from performative.populations.base import AbstractPopulation
from performative.theory.zheng2024.size import sample_size_terms
from performative.types import Batch, Estimate, Local, Loss, Memory, Noise, Numbers, Theta, Upload, number, whole

_FACTS = ("loss", "gradient", "jacobian", "reach", "spread", "ready")


def sample_size(
    tolerance: Numbers | float,
    confidence: Numbers | float,
    curvature: Numbers | float,
    window: int,
    rate: Array,
    facts: dict[str, Array],
) -> Float[Array, ""]:
    """The smallest n for a performative gradient within `tolerance`, inf if no n is enough.

        n >= 2 l^2 s^2 log(2/phi) (2 H |dtheta|^-2 + F^2) / (2 Phi - M^2 eta^4 G^4 H^6 l^2 |dtheta|^-2)

    Phi = tolerance bounds the expected squared error, phi = confidence, M = curvature of f, eta = rate, l = loss,
    s^2 = variance of one sample's f-hat, F = norm of df/dtheta, G = norm of the gradient, |dtheta| = reach, the
    smallest singular value of the model differences. Zheng et al. 2024, Section 5.3, as corrected: the paper has eta^2
    for eta^4 and |dtheta|^2 for its inverse. The denominator is the tolerance that remains after curvature; it can be
    negative.
    """
    tiny = jnp.finfo(facts["loss"].dtype).tiny
    apart = 1 / jnp.maximum(jnp.square(facts["reach"]), tiny)
    spread = facts["spread"] * jnp.log(2 / confidence)
    above, left = sample_size_terms(
        tolerance, spread, curvature, float(window), rate, facts["loss"], facts["gradient"], facts["jacobian"], apart
    )
    return jnp.where(left > 0, above / jnp.where(left > 0, left, 1), jnp.inf)


class AdaptiveSize(AbstractWrapper[tuple[Int[Array, ""], Memory]]):
    """Use only as many samples of each batch as a tolerance on the performative gradient requires.

        n_(t+1) = clamp(sample_size(tolerance, ...), least, n_max)

    n_max is the size of the drawn batch; the rest of it is masked, and `samples` counts what was used. The size is
    based on the last step (loss, spread, df/dtheta, reach of the window), so `inner` must contain a `Performative` with
    a window. Until that is full, all n_max are used. If no size meets the tolerance all are used as well, and the count
    `infeasible` records how often that happened.

    Args:
        tolerance: Phi, allowed expected squared error of the performative gradient
        confidence: phi, probability with which the bound may fail
        curvature: M, bound on the second derivative of f; 0 for a map that is linear in theta
        least: never fewer samples than this

    The bound is a worst case over the window, so sizes are conservative. They depend on the data: no privacy guarantee
    covers them.
    """

    references = ("zheng2024profl",)
    quadrature = inner_quadrature

    inner: AbstractEstimator[Memory]
    tolerance: Numbers = number()
    confidence: Numbers = number(default=0.05)
    curvature: Numbers = number(default=0.0)
    least: int = whole(default=10)

    def __check_init__(self) -> None:
        check_inner(self)
        if self.window is None:
            raise ValueError(
                "AdaptiveSize: inner must contain a Performative with a window; nothing else estimates its error."
            )
        check_counts(**{"AdaptiveSize: least": self.least})
        check_number("AdaptiveSize", tolerance=self.tolerance, confidence=self.confidence, curvature=self.curvature)
        check_rule("AdaptiveSize", "must be above 0", tolerance=self.tolerance)
        check_rule("AdaptiveSize", "must lie between 0 and 1", confidence=self.confidence)

    def bound(self) -> None:
        raise Uncertified("AdaptiveSize chooses how many samples to draw by looking at the data")

    @property
    def window(self) -> int | None:
        """H of the inner estimator."""
        return next((part.window for part in chain(self.inner) if hasattr(part, "window")), None)

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> tuple[Int[Array, ""], Memory]:
        # Larger than any batch: all of the first one is used.
        return jnp.asarray(jnp.iinfo(jnp.int32).max, jnp.int32), self.inner.init(theta, population, loss)

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: tuple[Int[Array, ""], Memory]
    ) -> Estimate[tuple[Int[Array, ""], Memory]]:
        size, inside = memory
        n_max = batch.rows
        used = jnp.arange(n_max, dtype=jnp.int32) < size
        mask = used if batch.mask is None else used & batch.mask
        out = self.inner.estimate(noise, theta, dataclasses.replace(batch, mask=mask), local, inside)
        facts = {name: out.facts[name] for name in _FACTS}
        wanted = sample_size(self.tolerance, self.confidence, self.curvature, self.window or 1, local.rate, facts)
        ready = facts["ready"]
        short = ready & ~jnp.isfinite(wanted)
        wanted = jnp.where(ready & jnp.isfinite(wanted), wanted, n_max)
        following = jnp.ceil(jnp.clip(wanted, min(self.least, n_max), n_max)).astype(jnp.int32)
        metrics = {**out.metrics, "infeasible": short.astype(jnp.int32)}
        return Estimate(out.direction, (following, out.memory), metrics, out.facts)

    def finish(
        self, upload: Upload, local: Local, memory: tuple[Int[Array, ""], Memory]
    ) -> tuple[dict[str, PyTree], tuple[Int[Array, ""], Memory]]:
        size, inside = memory
        extra, inside = self.inner.finish(upload, local, inside)
        return extra, (size, inside)

    def review(self, memory: tuple[PyTree, Memory]) -> list[str]:
        return self.inner.review(memory[1])
