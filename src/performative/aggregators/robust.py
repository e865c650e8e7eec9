"""Moves that a few malicious or faulty clients cannot control.

All three normalize their weights: unlike `Mean`, they do not scale the move if the weights of a round do not sum to one
(Scheme II with unequal p). None of them is unbiased: if honest clients differ, they converge elsewhere than the mean,
and performative shift moves that point further.
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from performative._base.checks import check_counts, check_number
from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import weighted_sum
from performative.participation.base import AbstractParticipation
from performative.types import Cohort, Numbers, Theta, Upload, is_concrete, number, whole

# Weights of a median are counted in integers: their sums do not depend on the order of rows, so ties are exact. Twice
# the total still fits 32 bits.
_PARTS = 2.0**29


def _shares(cohort: Cohort) -> Float[Array, " K"]:
    """Normalized weights of the present rows; all 0 if there is no weight."""
    weight = jnp.where(cohort.present, cohort.weight, 0)
    total = jnp.sum(weight)
    return weight / jnp.where(total > 0, total, 1)


def _by_rows(mask: Array, leaf: Array) -> Array:
    return mask.reshape((-1,) + (1,) * (leaf.ndim - 1))


def _sorted(leaf: Array, share: Array, present: Array) -> tuple[Array, Array]:
    """Values of each coordinate in ascending order [K, ...], with their weights."""
    # Absent rows have zero weight, so their position does not matter.
    clean = jnp.where(_by_rows(present, leaf), leaf, 0)
    values, shares = jax.lax.sort((clean, jnp.broadcast_to(_by_rows(share, leaf), leaf.shape)), dimension=0, num_keys=1)
    return values, shares


class Median(AbstractAggregator[None]):
    """The weighted median of updates, coordinate by coordinate.

        move_j = the value with at most half of the weight below it and at most half above

    If half of the weight lies on either side it is the midpoint of the two values, as usual. A client drawn twice by
    `SchemeOne` counts twice. Clients with less than half of the weight cannot move it beyond the range of the honest
    ones. Yin et al. 2018.
    """

    references = ("yin2018byzantine",)
    ignores_data = True

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        share, present = _shares(cohort), cohort.present
        parts = jnp.round(share * _PARTS).astype(jnp.int32)
        total = jnp.sum(parts, dtype=jnp.int32)
        # Weights were rounded individually: a tie may be off by half a unit per row, but never by half a client's
        # weight.
        least = jnp.min(jnp.where(parts > 0, parts, total))
        rounding = jnp.minimum(share.shape[0], least // 2)

        def middle(leaf: Array) -> Array:
            values, weighs = _sorted(leaf, parts, present)
            past = 2 * jnp.cumsum(weighs, axis=0, dtype=jnp.int32) - total
            low = jnp.argmax(past >= -rounding, axis=0, keepdims=True)
            high = jnp.argmax(past > rounding, axis=0, keepdims=True)
            ends = [jnp.take_along_axis(values, at, axis=0)[0] for at in (low, high)]
            return jnp.where(total > 0, ends[0] / 2 + ends[1] / 2, 0)

        return jax.tree.map(middle, upload.delta), memory


class TrimmedMean(AbstractAggregator[None]):
    """The mean of updates without the lowest and the highest `fraction` of the weight, coordinate by coordinate.

        move_j = sum_k kept_kj delta_kj / (1 - 2 fraction),   kept = the part of a client's weight between the two cuts

    A client at a cut counts with the part inside, so the fraction need not be a whole number of clients; with equal
    weights and integer fraction * K it is the usual trimmed mean. A client drawn twice by `SchemeOne` counts twice.
    Clients with at most `fraction` of the weight cannot move it beyond the range of the honest ones. Yin et al. 2018.
    """

    references = ("yin2018byzantine",)
    ignores_data = True

    fraction: Numbers = number()

    def __check_init__(self) -> None:
        check_number("TrimmedMean", fraction=self.fraction)
        if is_concrete(self.fraction) and not 0 <= self.fraction < 0.5:
            raise ValueError(
                f"TrimmedMean: fraction is dropped at both ends and must lie in [0, 0.5); got {self.fraction}. "
                "Median() drops all but the middle."
            )

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        share, present = _shares(cohort), cohort.present

        def mean(leaf: Array) -> Array:
            values, weighs = _sorted(leaf, share, present)
            cut = jnp.asarray(self.fraction).astype(weighs.dtype)
            after = jnp.cumsum(weighs, axis=0)
            # Subtracted at both ends, so rows between the cuts keep their exact weight.
            below = jnp.clip(cut - (after - weighs), 0, weighs)
            above = jnp.clip(after - (1 - cut), 0, weighs)
            kept = jnp.maximum(weighs - below - above, 0)
            total = jnp.sum(kept, axis=0)
            kept = kept / jnp.where(total > 0, total, 1)
            return jnp.sum(jnp.where(kept > 0, values, 0) * kept.astype(values.dtype), axis=0)

        return jax.tree.map(mean, upload.delta), memory

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        if not is_concrete(self.fraction):
            return
        rows, fraction = participation.size(len(weights)), np.asarray(self.fraction)
        few = fraction[(fraction > 0) & (fraction * rows < 1 - 1e-9)]
        if few.size:
            raise ValueError(
                f"TrimmedMean(fraction={few.flat[0]:g}) drops less than one of the {rows} clients of a round, so a "
                f"single one can move it anywhere; use fraction >= {1 / rows:.3g}, or more clients per round."
                if rows > 2
                else f"TrimmedMean(fraction={few.flat[0]:g}) needs at least 3 clients per round; there are {rows}."
            )


class Krum(AbstractAggregator[None]):
    """The update that is closest to most of the others.

        score_k = sum of |delta_k - delta_l|^2 over the n - byzantine - 2 nearest l,      move = delta_argmin

    `multi` > 1 averages the updates with the `multi` lowest scores by the weights of the round. Distances are between
    whole updates, over all leaves. n counts the distinct clients of the round: one drawn twice by `SchemeOne` has one
    vote, since it is one potentially malicious client; one of zero weight has none. Two that are each other's nearest
    neighbors tie; the one closer to all wins. It withstands `byzantine` malicious clients if n >= 2 byzantine + 3. A
    run raises an error if no round can have that many. Rounds that happen to have fewer (`SchemeOne`, groups, absences)
    use at least one neighbor, without guarantee. Costs K^2 distances per round, where K is the number of rows that the
    executor computes. Blanchard et al. 2017.
    """

    references = ("blanchard2017machine",)
    ignores_data = True

    byzantine: int = whole()
    multi: int = whole(default=1)

    def __check_init__(self) -> None:
        if isinstance(self.byzantine, bool) or not isinstance(self.byzantine, int) or self.byzantine < 0:
            raise ValueError(f"Krum: byzantine must be a whole number of clients >= 0; got {self.byzantine!r}.")
        check_counts(**{"Krum: multi": self.multi})

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        present = cohort.present & (cohort.weight > 0)
        apart = _distances(upload.delta, present)
        n = jnp.sum(present, dtype=jnp.int32)
        neighbors = jnp.clip(n - self.byzantine - 2, jnp.minimum(1, n - 1), n - 1)
        rows = jnp.arange(apart.shape[0], dtype=jnp.int32)
        nearest = jnp.sort(apart, axis=1)
        score, total = (jnp.sum(jnp.where(rows < count, nearest, 0), axis=1) for count in (neighbors, n - 1))
        # Absent rows come last, after those whose distances overflow.
        order = jnp.lexsort((total, score, ~present))
        chosen = jnp.zeros(present.shape, bool).at[order[: self.multi]].set(True) & present
        share = jnp.where(chosen, cohort.weight, 0)
        mass = jnp.sum(share)
        return weighted_sum(upload.delta, share / jnp.where(mass > 0, mass, 1), chosen), memory

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        rows = participation.size(len(weights))
        if rows < 2 * self.byzantine + 3:
            raise ValueError(
                f"Krum(byzantine={self.byzantine}) needs at least 2 * byzantine + 3 = {2 * self.byzantine + 3} clients "
                f"per round; {type(participation).__name__} takes {rows}."
            )
        if self.multi > rows - self.byzantine:
            raise ValueError(
                f"Krum(byzantine={self.byzantine}, multi={self.multi}) averages more updates than there are honest "
                f"clients among {rows} per round; use multi <= {rows - self.byzantine}."
            )


def _distances(rows: PyTree, present: Bool[Array, " K"]) -> Float[Array, "K K"]:
    """|row_k - row_l|^2 over all leaves; infinite from a row to itself and if one is absent."""
    dtype = jnp.result_type(*jax.tree.leaves(rows))
    clean = jax.tree.map(lambda leaf: jnp.where(_by_rows(present, leaf), leaf, 0), rows)

    def from_one(row: PyTree) -> Array:
        # Differences first: |x|^2 + |y|^2 - 2xy cancels catastrophically for long updates that differ little.
        gaps = jax.tree.map(lambda leaf, mine: jnp.square(leaf - mine).astype(dtype), clean, row)
        sums = [jnp.sum(gap, axis=tuple(range(1, gap.ndim))) for gap in jax.tree.leaves(gaps)]
        return functools.reduce(operator.add, sums)

    apart = jax.lax.map(from_one, clean)
    there = present & present[:, None] & ~jnp.eye(present.shape[0], dtype=bool)
    return jnp.where(there, apart, jnp.asarray(jnp.inf, dtype))
