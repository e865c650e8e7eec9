"""One row of records: the metrics of a round, the requested quantities of each client, the model."""

import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from performative._base.client_axis import take_rows
from performative._engine.metrics import DistanceToMoving
from performative._engine.setup import Setup
from performative._engine.totals import Total, as_total, is_total
from performative.record import Change, Metric, Published, Unseen, View
from performative.types import Cohort, State, Theta, Upload, squared_norm

_PRIVACY = (
    "with privacy= or secure aggregation a metric sees only published models (theta, deployed, round). Declare it "
    "pf.Metric(..., unprotected=True) to let it see more; the guarantee is then void."
)
_BEFORE = "there is none before the first round."


class Report(eqx.Module):
    """What a round reports: the state before it, the selected cohort, the cohort that responded, and its uploads."""

    before: State
    asked: Cohort
    heard: Cohort
    upload: Upload


def view_of(setup: Setup, after: State, report: Report) -> View:
    """A round as metrics see it."""
    lasted = setup.lasts(report.asked, report.upload.steps, setup.weights.dtype)
    return View(
        after.theta, after.deployed, after.round, lasted, report.asked, report.heard, report.upload,
        Change(report.before.clients, after.clients), Change(report.before.server, after.server),
        report.before.theta, setup.problem, setup.algorithm, setup.weights,
        None if after.time is None else after.time.high,
    )  # fmt: skip


def levels_of(setup: Setup, view: View) -> dict[str, Array]:
    """Current levels. One that depends on more than the model is NaN in a round without uploads."""
    found: dict[str, Array] = {}
    somebody = None if view.cohort.active is None else jnp.any(view.cohort.active)
    for name, metric in setup.metrics.items():
        if metric.kind != "level":
            continue
        values, beyond = _look(setup, name, metric, view)
        for key, value in _named(name, values).items():
            level = _one_number(key, value).astype(setup.weights.dtype)
            _enter(found, key, jnp.where(somebody, level, jnp.nan) if beyond and somebody is not None else level)
    return found


def totals_of(setup: Setup, view: View) -> dict[str, Total]:
    """What this round adds to each total."""
    found: dict[str, Total] = {}
    for name, metric in setup.metrics.items():
        if metric.kind == "total":
            for key, value in _named(name, _look(setup, name, metric, view)[0]).items():
                _enter(found, key, value if is_total(value) else as_total(_one_number(key, value), setup.weights.dtype))
    return found


def add_totals(one: dict[str, Total], other: dict[str, Total]) -> dict[str, Total]:
    return jax.tree.map(operator.add, one, other, is_leaf=is_total)


def levels_at_start(setup: Setup, theta: Theta) -> dict[str, Array]:
    """Levels before the first round, of metrics that depend on the model alone; others have no value yet."""
    found: dict[str, Array] = {}
    view = Published(theta, theta, jnp.zeros((), jnp.int32), _BEFORE)
    for name, metric in setup.metrics.items():
        if metric.kind == "level":
            try:
                if isinstance(metric.function, DistanceToMoving):  # it needs the time, known at the start
                    begin = jnp.zeros((), setup.weights.dtype)
                    values: Any = metric.function.of(setup.problem, setup.weights, theta, begin)
                else:
                    values = metric.function(view)
            except Unseen:
                continue
            found |= {key: _one_number(key, v).astype(setup.weights.dtype) for key, v in _named(name, values).items()}
    return found


def make_row(setup: Setup, after: State, report: Report, theta: bool, limit: Any) -> dict[str, Any]:
    """Current levels, totals of this round, and whether the model is sound: finite and within the limit."""
    view = view_of(setup, after, report)
    levels, totals = levels_of(setup, view), totals_of(setup, view)
    for name in levels.keys() & totals.keys():
        raise ValueError(f"metrics: {name!r} is recorded already; give yours another name.")
    return {
        "levels": levels,
        "totals": totals,
        "clients": {name: _of_clients(name, view) for name in setup.clients},
        "cohorts": _cohort_row(view) if setup.cohorts else {},
        "theta": after.theta if theta else None,
        "sound": _is_sound(after, report.asked, limit),
    }


def _is_sound(after: State, asked: Cohort, limit: Any) -> Array:
    """Whether the model and those of participating clients are finite and within the limit."""
    sound, own = squared_norm(after.theta) <= limit, after.clients.own
    if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(own)):
        return sound
    rows = jax.vmap(squared_norm)(take_rows(own, asked.ids))
    return sound & jnp.all(jnp.where(asked.present, rows, 0) <= limit)


def _look(setup: Setup, name: str, metric: Metric, view: View) -> tuple[Any, bool]:
    """The metric's value, and whether it read more than the model."""
    try:
        return metric.function(Published(view.theta, view.deployed, view.round, _PRIVACY)), False
    except Unseen as refused:
        if setup.guarded and not metric.unprotected:
            raise ValueError(f"metric {name!r}: {refused}") from None
    return metric.function(view), True


def _named(name: str, values: Any) -> dict[str, Any]:
    return values if isinstance(values, dict) else {name: values}


def _one_number(name: str, value: Any) -> Array:
    value = jnp.asarray(value)
    if value.shape != () or not (jnp.issubdtype(value.dtype, jnp.number) or value.dtype == bool):
        raise ValueError(f"metric {name!r} must return one number; it returned {value.dtype}{list(value.shape)}.")
    return value.astype(jnp.int32) if value.dtype == bool else value


def _enter(found: dict[str, Any], name: str, value: Any) -> None:
    if name in found:
        raise ValueError(f"metrics: {name!r} is recorded already; give yours another name.")
    found[name] = value


def _of_clients(name: str, view: View) -> Array:
    """One quantity of each client, [N]; NaN for those that did not take part."""
    upload: Upload = view.upload
    known: dict[str, Any] = {
        "loss": upload.loss, "weight": view.cohort.weight, "steps": upload.steps,
        "update_norm": jax.vmap(lambda delta: jnp.sqrt(squared_norm(delta)))(upload.delta),
    } | upload.metrics  # fmt: skip
    held = view.algorithm.participation.remembered(view.server.after.participation)
    if name in held:
        return held[name].astype(view.weights.dtype)
    if known.get(name) is None:
        choices = ", ".join(sorted([*known, *held]))
        raise ValueError(f"clients: no quantity {name!r} is recorded per client; choose from {choices}.")
    clients, dtype = view.weights.shape[0], view.weights.dtype
    ids = jnp.where(view.asked.present, view.asked.ids, clients)
    return jnp.full((clients,), jnp.nan, dtype).at[ids].set(known[name].astype(dtype), mode="drop")


def _cohort_row(view: View) -> dict[str, Array]:
    """Client, weight and steps of each row; -1, 0 and 0 where a row is empty."""
    here, clients = view.asked.present, view.weights.shape[0]
    here = here & (view.asked.ids < clients)
    weight, steps = jnp.where(here, view.cohort.weight, 0), jnp.where(here, view.upload.steps, 0)
    return {"client": jnp.where(here, view.asked.ids, -1), "weight": weight, "steps": steps}
