"""Parts combine freely: every two of them meet in some algorithm, for a few rounds, in every executor."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from covering import covering_array

import performative as pf
from performative.engine.clock import Clock
from performative.engine.keys import run_keys
from performative.engine.loop import loop_round
from performative.engine.round import federated_round
from performative.engine.setup import init_state, on_device, prepare
from performative.families import Location

CLIENTS, COHORT, ROUNDS = 7, 5, 3
TABLE = pf.populations.Database(
    np.random.default_rng(0).normal(1.0, 1.0, (CLIENTS, 6)),
    pf.populations.shifts.Linear(np.linspace(0.0, 0.5, CLIENTS)),
)
PROBLEM = pf.Problem(pf.losses.squared, TABLE, np.arange(1.0, 8.0) / 28, domain=pf.Box(-9.0, 9.0))

estimators, aggregators, participation, channels = pf.estimators, pf.aggregators, pf.participation, pf.channels
PLAIN, WINDOW = estimators.Minibatch(), estimators.Performative(3, estimate=Location())
SLOTS = {
    "estimator": {
        "Minibatch": PLAIN,
        "Performative": WINDOW,
        "Filtered": estimators.Filtered(WINDOW),
        "AdaptiveSize": estimators.AdaptiveSize(WINDOW, 100.0),
        "Clipped": estimators.Clipped(0.5, 0.1),
        "Dice": estimators.Dice(0.5, 1.0, 0.1),
        "ClippedModel": estimators.ClippedModel(),
        "Prox": estimators.Prox(PLAIN, 0.3),
        "Preconditioned": estimators.Preconditioned(PLAIN, pf.optimisers.Momentum(0.5)),
        "ControlVariate": estimators.ControlVariate(PLAIN),
    },
    "aggregator": {
        "Mean": aggregators.Mean(),
        "Nova": aggregators.Nova(),
        "Varp": aggregators.Varp(),
        "ClusterVarp": aggregators.ClusterVarp(2),
        "Extrapolate": aggregators.Extrapolate(cap=3.0),
        "ServerOpt": aggregators.ServerOpt(aggregators.Mean(), pf.optimisers.Adam(), rate=0.1),
        "Median": aggregators.Median(),
        "TrimmedMean": aggregators.TrimmedMean(0.25),
        "Krum": aggregators.Krum(1),
        "Scaffold": aggregators.Scaffold(),
        "PooledJacobian": aggregators.PooledJacobian(),
    },
    "participation": {
        "Full": pf.Full(),
        "SchemeOne": pf.SchemeOne(COHORT),
        "SchemeTwo": pf.SchemeTwo(COHORT),
        "FirstK": pf.FirstK(COHORT, participation.Exponential(np.arange(1.0, 8.0))),
        "LocalWork": pf.LocalWork(pf.SchemeTwo(COHORT), [1, 2, 1, 2, 1, 2, 1]),
        "AdaComm": pf.LocalWork(pf.Full(), participation.AdaComm(2)),
        "PowerOfChoice": pf.PowerOfChoice(COHORT, 6),
        "Cyclic": pf.Cyclic([[0, 1, 2, 3, 4, 5], [6]]),
        "Available": pf.Available(0.9),
    },
    "channel": {
        "Plain": channels.Plain(),
        "ClippedNoise": channels.ClippedNoise(1.0, 0.1),
        "Sparse": channels.Sparse(1),
        "Quantised": channels.Quantised(4),
    },
    "batch": {
        "Fixed": pf.Fixed(3),
        "Uniform": pf.Uniform(3),
        "Poisson": pf.Poisson(0.5, 6),
        "Shuffled": pf.Shuffled(3),
        "Whole": pf.batches.Whole(),
    },
    "deploy": {"step": "step", "round": "round", "never": "never", "every": pf.Every(2)},
}


def allowed(row):
    """What belongs together, and what would be refused."""
    estimator, aggregator = row.get("estimator"), row.get("aggregator")
    if estimator is not None and aggregator is not None:
        if (estimator == "ControlVariate") != (aggregator == "Scaffold"):
            return False
        if aggregator == "PooledJacobian" and estimator not in ("Performative", "Filtered", "AdaptiveSize"):
            return False
    # The last group of Cyclic is one client, fewer than these can outvote.
    return not (row.get("participation") == "Cyclic" and aggregator in ("Krum", "TrimmedMean"))


def algorithm_of(row):
    steps = 1 if row["participation"] in ("LocalWork", "AdaComm") else 2
    parts = {slot: SLOTS[slot][name] for slot, name in row.items()}
    return pf.Algorithm(rate=0.1, local_steps=steps, **parts)


STEP = eqx.filter_jit(federated_round)


def rounds_of(row, executors):
    """The models of a few rounds by these executors."""
    algorithm = algorithm_of(row)
    setup = on_device(prepare(PROBLEM, algorithm, Clock()), jnp.float64)
    start = eqx.filter_jit(init_state)(setup, jnp.asarray(0.5), False)
    keys = run_keys(jax.random.key(3))
    models = {}
    for executor in executors:
        state, seen = start, []
        for _ in range(ROUNDS):
            if executor == "loop":
                state, _ = loop_round(setup, state, keys)
            else:
                state, _ = STEP(setup, state, keys, executor)
            seen.append(float(state.theta))
        models[executor] = seen
        same = jax.tree.map(lambda a, b: a.shape == b.shape and a.dtype == b.dtype, start, state)
        assert all(jax.tree.leaves(same)), f"{executor} changed a shape"
    return models


pytestmark = pytest.mark.usefixtures("quick_compilation")
ROWS = list(covering_array({slot: list(parts) for slot, parts in SLOTS.items()}, allowed))


def test_every_two_parts_meet():
    met = {frozenset(pair) for row in ROWS for pair in itertools.combinations(row.items(), 2)}
    for a, b in itertools.combinations(SLOTS, 2):
        for x, y in itertools.product(SLOTS[a], SLOTS[b]):
            assert frozenset([(a, x), (b, y)]) in met or not allowed({a: x, b: y}), (x, y)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_they_get_on(row):
    with jax.enable_x64(True):
        models = rounds_of(row, ("gather",))
    assert np.all(np.isfinite(models["gather"]))


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_executors_agree(row):
    with jax.enable_x64(True):
        models = rounds_of(row, ("gather", "dense", "loop"))
    for executor in ("dense", "loop"):
        np.testing.assert_allclose(models[executor], models["gather"], rtol=1e-9, atol=1e-12, err_msg=executor)
