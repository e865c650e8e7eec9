"""Stop a run where its round would be compiled: it is traced and not run, so that hundreds of runs take a minute.

`compiled` tells, in a run that is let through, whether the compiled program has begun: from there on nothing may be
refused any more.
"""

import contextlib
from importlib import import_module

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._engine.chunk import over_settings
from performative._engine.keys import run_keys
from performative._engine.records import make_row
from performative._engine.risk_records import measure_risks
from performative._engine.setup import init_state
from performative._engine.simulated import federated_round

# Functions of the same names stand in front of these modules.
sweeping, running, driving = (
    import_module(f"performative.{name}") for name in ("sweep", "_engine.run", "_engine.drive")
)
compiled: list[str] = []


class Traced(Exception):
    """The round was traced without complaint: a run would have gone on to compile it."""


def trace(fixed, start, watch, rounds, *, points=0, **_):
    """What `drive` would compile: the first state, one round and its record, the risks."""
    executor = watch.executor if watch.executor.compiled else "gather"

    def program(setup):
        state = init_state(setup, start, not setup.algorithm.participation.is_full)
        after, report = federated_round(setup, state, run_keys(jax.random.key(0)), executor)
        looks = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), one) for one in (state, after)]
        assert looks[0] == looks[1], "a round changes the shape or type of what it carries on"
        return after, make_row(setup, after, report, watch.theta, jnp.asarray(1.0, setup.weights.dtype))

    state, _ = eqx.filter_eval_shape(over_settings, program, fixed)
    if points:
        lead = (1,) if fixed.settings is None else (fixed.settings, 1)
        many = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*lead, *leaf.shape[len(lead) - 1 :]), leaf.dtype), state)
        ids = jnp.arange(fixed.setup.weights.shape[-1])
        one = eqx.tree_at(lambda f: f.keys, fixed, fixed.keys[:1])
        eqx.filter_eval_shape(measure_risks.__wrapped__, one, many, ids, jnp.ones(len(ids), fixed.setup.weights.dtype))
    raise Traced


@contextlib.contextmanager
def traced():
    """Runs and sweeps inside end in `Traced` where they would have compiled."""
    whole = driving.drive
    running.drive = sweeping.drive = trace
    try:
        yield
    finally:
        running.drive = sweeping.drive = whole


@contextlib.contextmanager
def watched():
    """Runs inside are run; `compiled` is filled as soon as a compiled round is at work."""
    step = driving.run_chunk

    def noted(*args):
        done = step(*args)
        compiled.append("round")
        return done

    driving.run_chunk = noted
    try:
        yield
    finally:
        driving.run_chunk = step
        compiled.clear()


def sound(history) -> str | None:
    """What is not finite in a history that says nothing of divergence, None where nothing is."""
    if history.status != "completed":
        return None
    distances = {name: values for name, values in history.records.items() if name.startswith("distance_to")}
    for name, values in {**distances, **history.risks, "theta": history.final}.items():
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(values)):
            return f"{name} is not finite, and the status is {history.status!r}"
    return None
