"""What a round works with, and what it tells."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PyTree

from performative.aggregators import weighted_sum
from performative.algorithm import Algorithm
from performative.engine.clock import Clock
from performative.engine.compute import ALL_AT_ONCE, Compute
from performative.engine.totals import Total, as_total, sum_of
from performative.problem import Problem
from performative.types import Cohort, Memory, Numbers, Upload, masked_mean, squared_norm


class Setup(eqx.Module):
    """A problem and an algorithm made ready: numbers on the device, weights spelled out, tables worked out.

    With a `mesh` the clients are dealt out over its devices (see `sharding`).
    """

    problem: Problem
    algorithm: Algorithm
    weights: Numbers
    tables: PyTree
    clock: Clock
    consensus: bool = eqx.field(static=True, default=True)
    compute: Compute = ALL_AT_ONCE
    mesh: Mesh | None = eqx.field(static=True, default=None)


class Report(eqx.Module):
    """What a round tells: levels (how far clients ended from each other, how their worlds moved, the aggregator's own)
    and sums over clients."""

    levels: dict[str, Array]
    time: Total
    uploads: Total
    metrics: dict[str, Total]


def leave_out(cohort: Cohort, gone: Bool[Array, " K"]) -> Cohort:
    """The cohort without some of its clients, whose weight goes to the others.

    Where nobody is left there is nobody to give it to: all weights are 0.
    """
    here = jnp.ones_like(gone) if cohort.active is None else cohort.active
    weight = jnp.where(gone, 0, cohort.weight)
    left = jnp.sum(weight)
    weight = weight * jnp.where(left > 0, jnp.sum(cohort.weight) / jnp.where(left > 0, left, 1), 1)
    return Cohort(cohort.ids, weight, here & ~gone, cohort.steps, cohort.elapsed)


def reject_broken(cohort: Cohort, upload: Upload) -> tuple[Cohort, Array]:
    """The cohort without clients whose update is not finite, and how many those were.

    Where no update is sound there is nothing to fall back on: all stay, and the run is seen to diverge.
    """
    finite = [jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(upload.delta)]
    sound = functools.reduce(jnp.logical_and, finite)
    here = jnp.ones_like(sound) if cohort.active is None else cohort.active
    broken = here & ~sound
    some = jnp.any(broken) & jnp.any(here & sound)
    return leave_out(cohort, broken & some), jnp.sum(broken, dtype=jnp.int32)


def consensus_error(cohort: Cohort, upload: Upload) -> Float[Array, ""]:
    """sum_i a_i |theta_i - theta_bar|^2 / sum_i a_i over the cohort, theta_bar the mean with the same weights."""
    # Divided after the sum, so that the compiler sees the sum of `Mean` again and takes it only once.
    weight, total = cohort.weight, jnp.sum(cohort.weight)
    total = jnp.where(total > 0, total, 1)  # a cohort of clients without weight agrees by convention
    centre = jax.tree.map(lambda v: v / total.astype(v.dtype), weighted_sum(upload.delta, weight, cohort.active))
    apart = jax.vmap(lambda d: squared_norm(jax.tree.map(jnp.subtract, d, centre)))(upload.delta)
    return weighted_sum(apart, weight, cohort.active) / total.astype(apart.dtype)


def report_round(setup: Setup, asked: Cohort, heard: Cohort, upload: Upload, memory: Memory, rejected: Array) -> Report:
    """Levels, the simulated time, and the sums of clients' counts.

    Time and counts are of all who were `asked`, broken updates too; levels of those who were `heard`, NaN where nobody
    was. `memory` is the aggregator's before the round.
    """
    active, dtype = asked.active, setup.weights.dtype
    present = jnp.ones(asked.weight.shape, bool) if active is None else active

    def total(counts: Array) -> Total:
        return sum_of(jnp.where(present, counts, jnp.zeros_like(counts)), dtype)

    took = setup.clock.time(asked.ids, upload.steps.astype(dtype))
    time = jnp.max(jnp.where(present, took, 0)) + asked.elapsed
    levels = setup.algorithm.aggregator.levels(upload.to_aggregate(), heard, setup.weights, memory)
    levels = levels | masked_mean(upload.drift, heard.active)
    if setup.consensus:
        levels = levels | {"consensus": consensus_error(heard, upload)}
    levels = {name: level.astype(dtype) for name, level in levels.items()}
    if heard.active is not None:  # a round that heard nobody has none
        somebody = jnp.any(heard.active)
        levels = {name: jnp.where(somebody, level, jnp.nan) for name, level in levels.items()}
    return Report(
        levels=levels,
        time=as_total(jnp.asarray(time, dtype), dtype),
        uploads=total(present.astype(jnp.int32)),
        metrics={name: total(values) for name, values in upload.metrics.items()}
        | {"broken_updates": as_total(rejected, dtype)},
    )
