"""Warnings before and after a run whose result does not mean what it seems to."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.messages import warn
from performative._engine.settling import settling_rate
from performative.algorithm import Algorithm
from performative.draws import WithReplacement
from performative.facts import said
from performative.history import History
from performative.problem import Problem
from performative.types import Theta

# A run whose final risk exceeds this multiple of the initial risk did not learn.
_WORSE = 3.0
# The fraction of updates that may be too old before a warning is issued.
_MANY_DROPPED = 0.01


def caution_before(problem: Problem, algorithm: Algorithm) -> None:
    """Warn about a batch that is larger than every table."""
    batch, rows = algorithm.batch, problem.population.rows
    most = None if rows is None else int(np.max(np.asarray(rows)))
    law, name = None if most is None else said(batch, "sampling", most), type(batch).__name__
    if isinstance(law, WithReplacement) and law.rows is not None and law.n > law.rows:
        warn(
            "batch-exceeds-table",
            f"{name}({law.n}) draws {law.n} rows per step with replacement from tables of at most {most} rows: more "
            "work, but no more people. pf.batches.Whole() uses every row once.",
        )


def judge(history: History) -> History:
    """The history, with the status "failed" if no client ever took part."""
    uploads = history.records.get("uploads")
    if uploads is None or np.any(uploads[:, -1] > 0):
        return history
    why = f"no client took part in any of the {int(history.rounds[-1])} rounds, so the model is still the initial one."
    return dataclasses.replace(history, meta={**history.meta, "failed": why})


def caution_after(
    history: History, problem: Problem, algorithm: Algorithm, start: Theta, stable: Theta, first_risk: Any,
) -> None:  # fmt: skip
    """Warn about divergence, steps that are too large, dropped updates, and runs in which nothing happened."""
    if "failed" in history.meta:
        warn("nothing-was-learned", history.meta["failed"])
    broken, uploads = (history.records.get(name) for name in ("nonfinite_updates", "uploads"))
    lost, total = (0 if record is None else int(np.sum(record[:, -1])) for record in (broken, uploads))
    gone = np.sort(history.stopped_at[history.stopped_at >= 0])
    dropped = history.records.get("dropped_updates")
    if dropped is not None and (late := int(np.sum(dropped[:, -1]))) > _MANY_DROPPED * (total + late):
        oldest = algorithm.participation.oldest(problem.clients)
        warn(
            "updates-dropped",
            f"{late} of {total + late} updates were older than {oldest} rounds and were dropped, so slow clients are "
            "underrepresented. Raise limit=, or the buffer.",
        )
    if lost and not len(gone):
        warn(
            "nonfinite-updates",
            f"{lost} of {total} updates were non-finite and were left out; the weight of their clients went to the "
            'others. executor="loop" names the first such client.',
        )
    if len(gone):
        said = f"{len(gone)} of {history.repeats} repeats diverged, the first at round {gone[0]}"
        warn("run-diverged", f"{said}; {remedy(problem, algorithm, start, stable)}")
    elif first_risk is not None and history.risks:
        begin, end = float(np.mean(first_risk)), float(np.mean(history.risks["performative_risk"][:, -1]))
        if end > begin + _WORSE * abs(begin):
            limit = _limit(problem, algorithm, start, stable)
            if limit is not None and limit < _rate(algorithm):
                warn(
                    "rate-too-large",
                    f"the performative risk ended at {end:.4g}, up from {begin:.4g} at the start; "
                    f"{remedy(problem, algorithm, start, stable)}",
                )


def _rate(algorithm: Algorithm) -> float:
    """eta(0)."""
    return float(algorithm.rate(jnp.zeros((), jnp.int32)))


def _limit(problem: Problem, algorithm: Algorithm, start: Theta, stable: Theta) -> float | None:
    if algorithm.deploy.lag or algorithm.participation.oldest(problem.clients):
        return None  # stale steps need smaller rates to converge than fresh ones
    point = start if stable is None else stable
    try:
        return settling_rate(problem, algorithm, jax.tree.map(np.asarray, point), _rate(algorithm))
    except Exception:  # advice must not crash a finished run: losses may have no second derivative
        return None


def remedy(problem: Problem, algorithm: Algorithm, start: Theta, stable: Theta) -> str:
    """What to do about steps that are too large: the rate below which they converge, if it is known."""
    rate, limit = _rate(algorithm), _limit(problem, algorithm, start, stable)
    near = "the start" if stable is None else "the stable point"
    if limit is None:
        return f"try a rate below {rate:.3g}, or give the problem a domain."
    if limit == 0:
        return (
            f"no rate converges near {near}: with this local work and deployment the data follow the model faster "
            "than it learns. Give the problem a domain, or run pf.certify."
        )
    if limit >= rate:
        return f"the rate {rate:.3g} converges near {near} on average; try larger batches, a smaller rate or a domain."
    return (
        f"near {near} rates below {limit:.2g} converge on average; yours is {rate:.3g}. Choose a smaller one, or "
        "rescale your features."
    )
