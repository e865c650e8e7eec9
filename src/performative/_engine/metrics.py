"""The numbers that a run records by default: metrics, like a user's own."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from performative._engine.cohorts import broken_rows, present
from performative._engine.totals import Total, sum_of
from performative.aggregators import weighted_sum
from performative.problem import Problem
from performative.record import Metric, Record, View
from performative.types import Cohort, Theta, Unchecked, Upload, masked_mean, squared_norm


class DistanceTo(eqx.Module):
    """|theta - point|."""

    point: Theta

    def __call__(self, view: Unchecked[View]) -> Array:
        return jnp.sqrt(squared_norm(jax.tree.map(jnp.subtract, view.theta, self.point)))


class DistanceToMoving(eqx.Module):
    """|theta - point(t)|, from the closed form of the population at time t."""

    which: str = eqx.field(static=True)

    def __call__(self, view: Unchecked[View]) -> Array:
        assert view.now is not None
        return self.of(view.problem, view.weights, view.theta, view.now)

    def of(self, problem: Problem, weights: Array, theta: Theta, time: Array) -> Array:
        """The distance at that time."""
        now = problem.at(time)
        spare = now.population.clients - len(weights)  # over devices, padding rows come last
        weights = jnp.pad(weights, (0, spare)) if spare else weights
        point = getattr(now.population, self.which)(now.loss, weights)
        return jnp.sqrt(squared_norm(jax.tree.map(jnp.subtract, theta, point)))


def consensus_error(cohort: Cohort, upload: Upload) -> Float[Array, ""]:
    """sum_i a_i |theta_i - theta_bar|^2 / sum_i a_i over the cohort, theta_bar the mean with the same weights."""
    # Divided after the sum, so the compiler recognizes the sum of `Mean` and computes it only once.
    weight, total = cohort.weight, jnp.sum(cohort.weight)
    total = jnp.where(total > 0, total, 1)  # the error of a cohort of zero weight is 0 by convention
    center = jax.tree.map(lambda v: v / total.astype(v.dtype), weighted_sum(upload.delta, weight, cohort.active))
    apart = jax.vmap(lambda d: squared_norm(jax.tree.map(jnp.subtract, d, center)))(upload.delta)
    return weighted_sum(apart, weight, cohort.active) / total.astype(apart.dtype)


def consensus(view: Unchecked[View]) -> Array:
    return consensus_error(view.cohort, view.upload)


def server_levels(view: Unchecked[View]) -> dict[str, Array]:
    """The aggregator's own."""
    aggregator = view.algorithm.aggregator
    return aggregator.levels(view.upload.to_aggregate(), view.cohort, view.weights, view.server.before.aggregator)


def world_metrics(view: Unchecked[View]) -> dict[str, Array]:
    """How clients' worlds moved, in the mean over those who were heard."""
    return masked_mean(view.upload.world_metrics, view.cohort.active)


def staleness(view: Unchecked[View]) -> dict[str, Array]:
    """Rounds since clients took their models, in the mean over those who were heard."""
    age = view.cohort.age
    return {} if age is None else {"staleness": masked_mean(age.astype(view.time.dtype), view.cohort.active)}


def dropped_updates(view: Unchecked[View]) -> dict[str, Array]:
    """Updates that were too old."""
    asked, size = view.asked, view.algorithm.participation.size(view.weights.shape[0])
    return {} if asked.age is None else {"dropped_updates": size - jnp.sum(present(asked), dtype=jnp.int32)}


def elapsed(view: Unchecked[View]) -> Array:
    return view.time


def uploads(view: Unchecked[View]) -> Total:
    """Of all who were asked, also those whose update was left out."""
    return sum_of(present(view.asked).astype(jnp.int32), view.time.dtype)


def client_counts(view: Unchecked[View]) -> dict[str, Total]:
    """What estimators and channels count, of all who were asked."""
    here = present(view.asked)
    return {
        name: sum_of(jnp.where(here, counts, jnp.zeros_like(counts)), view.time.dtype)
        for name, counts in view.upload.metrics.items()
    }


def nonfinite_updates(view: Unchecked[View]) -> Array:
    return broken_rows(view.asked, view.upload)[1]


# A function that returns a dict records several numbers, under their own names.
_OWN = {
    "server_levels": Metric(server_levels, unprotected=True),
    "world_metrics": Metric(world_metrics, unprotected=True),
    "consensus": Metric(consensus, unprotected=True),
    "staleness": Metric(staleness, unprotected=True),
    "dropped_updates": Metric(dropped_updates, "total", unprotected=True),
    "time": Metric(elapsed, "total", unprotected=True),
    "uploads": Metric(uploads, "total", unprotected=True),
    "client_counts": Metric(client_counts, "total", unprotected=True),
    "nonfinite_updates": Metric(nonfinite_updates, "total", unprotected=True),
}


def own_metrics(record: Record) -> dict[str, Metric]:
    """The built-in metrics, without distances: those need points."""
    return {name: metric for name, metric in _OWN.items() if record.consensus or name != "consensus"}


def distances(points: dict[str, Theta]) -> dict[str, Metric]:
    """{"stable": theta_PS, ...} as metrics; a moving point is passed as is, None means an unknown point."""
    known = {name: point for name, point in points.items() if point is not None}
    moving = {
        name: point if isinstance(point, DistanceToMoving) else DistanceTo(point) for name, point in known.items()
    }
    return {f"distance_to_{name}": Metric(function, unprotected=True) for name, function in moving.items()}


def is_own(name: str) -> bool:
    """Whether a metric is built in."""
    return name in _OWN or name.startswith("distance_to_")
