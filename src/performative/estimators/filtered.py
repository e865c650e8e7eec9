"""Drop samples with outlying gradients."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from performative._base.checks import check_counts, check_number, check_rule, is_one_of
from performative.batches import AbstractBatch
from performative.estimators.adaptive_size import AdaptiveSize
from performative.estimators.base import AbstractEstimator, AbstractWrapper, Problem, check_inner, inner_quadrature
from performative.estimators.minibatch import count_samples
from performative.facts import Uncertified
from performative.types import Batch, Estimate, Local, Memory, Noise, Numbers, Theta, masked_mean, number, whole

_BISECTIONS = 12
_POWER_STEPS = 30
_CROWD = 5  # samples; fewer may be random in a small batch or group
# The median distance from the center times this is the standard deviation, for a normal distribution.
_NORMAL = 1.4826


class Filtered(AbstractWrapper[Memory]):
    """Pass `inner` only the samples whose gradients are not outliers.

        v = top right singular vector of the gradients, centered;      tau_j = ((g_j - center) . v)^2

    The scores [0, max tau] are divided into `segments` of equal length; from the first one that contains less than a
    fraction `sparse` of the samples on, all are dropped. Repeated until the mean gradient moves by less than `change`.

    rule="repaired" (the default) centers by the median, measures the change against the spread of the gradients as
    well as their mean, and never keeps fewer than half of the batch: a pass that would is skipped. Unless a cluster of
    4 `sparse` (and five samples) lies beyond the gap, it keeps what is within `margin` robust standard deviations (1.48
    median distances) of the center: otherwise the tail of clean gradients is cut off, which biases their mean if they
    are skewed. A smaller margin finds closer outliers and cuts more of such tails. rule="printed" is Zheng et al. 2024,
    Algorithm 3, with C = `sparse`, J = `change`, B = `segments`: it centers by the mean, returns the empty set at 40%
    contamination (the direction is then 0), and if the mean gradient is near 0 keeps removing clean data.

    If the population has groups or classes, each is filtered separately, so no minority is mistaken for outliers. The
    decomposition is of d x d moments, never n x n. `inner` fits spreads to what is kept. It cannot handle batches with
    a majority of outliers, or outliers that look like the rest. The count `kept` is recorded alongside `samples`.
    """

    references = ("zheng2024profl",)
    sends_update_only = True
    quadrature = inner_quadrature

    inner: AbstractEstimator[Memory]
    sparse: Numbers = number(default=0.02)
    change: Numbers = number(default=0.02)
    margin: Numbers = number(default=12.0)
    segments: int = whole(default=10)
    passes: int = whole(default=8)
    rule: str = eqx.field(static=True, default="repaired")

    def __check_init__(self) -> None:
        check_inner(self)
        if isinstance(self.inner, AdaptiveSize):
            raise ValueError("Filtered: AdaptiveSize goes outside: AdaptiveSize(Filtered(...), tolerance).")
        if not is_one_of(self.rule, "repaired", "printed"):
            raise ValueError(f'Filtered: rule must be "repaired" or "printed"; got {self.rule!r}.')
        check_counts(**{"Filtered: segments": self.segments, "Filtered: passes": self.passes})
        check_number("Filtered", sparse=self.sparse, change=self.change, margin=self.margin)
        check_rule("Filtered", "must not be negative", margin=self.margin)
        check_rule("Filtered", "must lie between 0 and 1", sparse=self.sparse, change=self.change)

    def bound(self) -> None:
        raise Uncertified("Filtered leaves samples out by looking at the others, so one person can move many")

    def check(self, problem: Problem, theta: Theta, batch: AbstractBatch) -> None:
        """Check `inner` on the population without outliers."""
        clean = problem.population.clean
        same = clean is problem.population
        self.inner.check(problem if same else eqx.tree_at(lambda p: p.population, problem, clean), theta, batch)

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate[Memory]:
        drawn = count_samples(batch)
        gradients = jax.vmap(lambda z: ravel_pytree(jax.grad(local.loss)(theta, z))[0])(batch.z)
        start = jnp.ones(len(gradients), bool) if batch.mask is None else batch.mask
        keep = self._by_group(jnp.where(start[:, None], gradients, 0), start, batch.group, local.population.group_count)
        out = self.inner.estimate(noise, theta, dataclasses.replace(batch, mask=keep), local, memory)
        metrics = {**out.metrics, "samples": drawn, "kept": jnp.sum(keep, dtype=jnp.int32)}
        return Estimate(out.direction, out.memory, metrics, out.facts)

    def _by_group(self, gradients: Array, start: Array, group: Array | None, groups: int | None) -> Bool[Array, " n"]:
        """Filter each group separately: a minority's gradients legitimately differ from the majority's."""
        if group is None or groups is None:
            return self.keep(gradients, start)
        mine = group == jnp.arange(groups, dtype=group.dtype)[:, None]
        return jnp.any(jax.vmap(self.keep, in_axes=(None, 0))(gradients, mine & start), axis=0)

    def keep(self, gradients: Float[Array, "n d"], start: Bool[Array, " n"]) -> Bool[Array, " n"]:
        """Which of the samples in `start` are kept."""
        drawn = jnp.sum(start)

        def one_pass(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            kept, passed, _ = carry
            fewer = kept & self._plausible(gradients, kept)
            before, after = masked_mean(gradients, kept), masked_mean(gradients, fewer)
            moved = jnp.linalg.norm(before - after)
            half_or_less = 2 * jnp.sum(fewer) <= drawn
            if self.rule == "printed":
                done = (moved < self.change * jnp.linalg.norm(before)) | half_or_less
                return fewer, passed + 1, done
            spread = jnp.sqrt(jnp.sum(masked_mean(jnp.square(gradients - before), kept)))
            done = (moved <= self.change * jnp.maximum(jnp.linalg.norm(before), spread)) | half_or_less
            return jnp.where(2 * jnp.sum(fewer) < drawn, kept, fewer), passed + 1, done

        def going(carry: tuple[Array, Array, Array]) -> Array:
            return ~carry[2] & (carry[1] < self.passes)

        # Under vmap over clients this runs as long as the slowest; most finish after one or two passes.
        return jax.lax.while_loop(going, one_pass, (start, jnp.zeros((), jnp.int32), jnp.zeros((), bool)))[0]

    def _plausible(self, gradients: Array, kept: Bool[Array, " n"]) -> Bool[Array, " n"]:
        """Samples below the first sparse segment of the scores; all of them if no segment is sparse."""
        center = masked_median(gradients, kept) if self.rule == "repaired" else masked_mean(gradients, kept)
        away = jnp.where(kept[:, None], gradients - center, 0)
        along = top_direction(jnp.matmul(away.T, away, precision="highest"))
        shift = jnp.matmul(away, along, precision="highest")
        score = jnp.square(shift)
        top = jnp.max(score)
        place = jnp.minimum((score / jnp.where(top > 0, top, 1) * self.segments).astype(jnp.int32), self.segments - 1)
        inside = (place[:, None] == jnp.arange(self.segments, dtype=jnp.int32)) & kept[:, None]
        few = self.sparse * jnp.sum(kept).astype(score.dtype)
        thin = jnp.sum(inside, axis=0).astype(score.dtype) < few
        first = jnp.argmax(thin).astype(jnp.int32)
        common = jnp.where(jnp.any(thin) & (top > 0), place < first, True)
        if self.rule == "printed":
            return common
        # A few distant samples may be the tail of clean data: those within the margin stay. A cluster beyond a gap may
        # not.
        crowd = jnp.sum(kept & (place > first)).astype(score.dtype) >= jnp.maximum(4 * few, _CROWD)
        distance = jnp.abs(shift - masked_median(shift[:, None], kept))
        spread = _NORMAL * masked_median(distance[:, None], kept)
        return common | (~crowd & (distance <= self.margin * spread))


def masked_median(rows: Float[Array, "n d"], mask: Bool[Array, " n"]) -> Float[Array, " d"]:
    """The lower median of each column over the rows of the mask, to 2^-12 of its range.

    By bisection: on a CPU a sort of the same rows takes twenty times as long. Extreme samples make the range wide and
    the median coarse, but then they stand out, and the next pass excludes them.
    """
    enough = (jnp.sum(mask) + 1) // 2
    low = jnp.min(jnp.where(mask[:, None], rows, jnp.inf), axis=0)
    high = jnp.max(jnp.where(mask[:, None], rows, -jnp.inf), axis=0)
    rows = jnp.where(mask[:, None], rows, jnp.inf)

    def halve(_: int | Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        reached = jnp.sum((rows <= middle).astype(rows.dtype), axis=0) >= enough.astype(rows.dtype)
        return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

    return jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))[1]


def top_direction(moments: Float[Array, "d d"]) -> Float[Array, " d"]:
    """A unit vector along the largest eigenvalue, by power iteration; if several are close, a mix of their vectors."""
    widest = jnp.argmax(jnp.diagonal(moments))
    scale = jnp.maximum(jnp.trace(moments), jnp.finfo(moments.dtype).tiny)
    # If the matrix is block diagonal, starting from one coordinate alone would never leave its block.
    start = moments[widest] / scale + 0.1 * jnp.cos(jnp.arange(len(moments), dtype=moments.dtype))

    def step(_: int | Array, v: Array) -> Array:
        v = jnp.matmul(moments / scale, v, precision="highest")
        return v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(v.dtype).tiny)

    return jax.lax.fori_loop(0, _POWER_STEPS, step, start)
