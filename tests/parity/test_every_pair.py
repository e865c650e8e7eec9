"""Parts combine freely: every two of them meet in some algorithm, for a few rounds.

Compiling each algorithm would take minutes. What a client does depends neither on the aggregator nor on who was chosen,
so here its program is compiled alone, once for all algorithms that share it, and all else runs as plain Python: half of
the algorithms always, the others in the slow tests, which also compile whole rounds, in every executor.
"""

import dataclasses
import itertools
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from covering import covering_rows, pairs_of, product_of

import performative as pf
from performative.engine import loop, round, simulated, steps
from performative.engine.clock import Clock
from performative.engine.executors import dense as executor_dense
from performative.engine.executors import gather as executor_gather
from performative.engine.executors import loop as executor_loop
from performative.engine.keys import run_keys
from performative.engine.setup import Setup, init_state, prepare
from performative.families import Location
from performative.participation import power_of_choice
from performative.prepare import on_device
from performative.types import ClientMemory, ServerMemory, State

CLIENTS, COHORT, ROUNDS = 7, 5, 2
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
    if (row["estimator"] == "ControlVariate") != (row["aggregator"] == "Scaffold"):
        return False
    if row["aggregator"] == "PooledJacobian" and row["estimator"] not in ("Performative", "Filtered", "AdaptiveSize"):
        return False
    # The last group of Cyclic is one client, fewer than these can outvote.
    return not (row["participation"] == "Cyclic" and row["aggregator"] in ("Krum", "TrimmedMean"))


def algorithm_of(row):
    steps = 1 if row["participation"] in ("LocalWork", "AdaComm") else 2
    parts = {slot: SLOTS[slot][name] for slot, name in row.items()}
    return pf.Algorithm(rate=0.1, local_steps=steps, **parts)


def setup_of(row):
    return on_device(prepare(PROBLEM, algorithm_of(row), Clock()), jnp.float64)


CLIENT_SLOTS, SERVER_SLOTS = ("estimator", "batch", "channel", "deploy"), ("aggregator", "participation")
# Few different clients, so that few programs are compiled; then who serves them and who is asked.
CLIENT_ROWS = covering_rows(product_of({slot: SLOTS[slot] for slot in CLIENT_SLOTS}))
SERVERS = product_of({slot: SLOTS[slot] for slot in SERVER_SLOTS})
ROWS = covering_rows([row for row in (c | s for c in CLIENT_ROWS for s in SERVERS) if allowed(row)])
name_of = "-".join


def without_server(setup):
    """A client does not see the server: algorithms that differ in the server's parts share a program."""
    asks = SLOTS["participation"]["AdaComm"] if setup.algorithm.participation.wants_loss else pf.Full()
    algorithm = dataclasses.replace(
        setup.algorithm, aggregator=aggregators.Mean(), participation=asks, local_steps=setup.algorithm.steps
    )
    return Setup(setup.problem, algorithm, setup.weights, None, Clock())


# Loops, which plain Python would compile at every call.
MEASURED = eqx.filter_jit(round.measure_losses)
DISTINCT = jax.jit(power_of_choice._first_distinct, static_argnums=(2, 3))


class Traces:
    """Runs one client's compiled program, and counts how often it was traced."""

    def __init__(self, monkeypatch):
        self.count = 0
        client_round, one_client = steps.client_round, executor_loop.one_client

        def counted(*args):
            self.count += 1
            return client_round(*args)

        def alone(setup, *args):
            return one_client(without_server(setup), *args)

        def losses(setup, state, ids, key, samples=None):
            seen = State(
                state.theta,
                state.deployed,
                ClientMemory(state.clients.world, None, None, None),
                ServerMemory(None, None),
                state.round,
                None,
            )
            return MEASURED(without_server(setup), seen, ids, key, samples)

        def one_by_one(setup, population, axes, cohort, broadcast, memory, keys, drawn):
            def row(i):
                mine = jax.tree.map(operator.itemgetter(i), memory)
                steps = None if cohort.steps is None else cohort.steps[i]
                return alone(setup, broadcast, mine, keys, cohort.ids[i], steps, None)

            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[row(i) for i in range(len(cohort.ids))])

        monkeypatch.setattr(steps, "client_round", counted)
        monkeypatch.setattr(executor_loop, "one_client", alone)
        monkeypatch.setattr(loop, "open_one", round.open_round)
        monkeypatch.setattr(loop, "close_one", round.close_round)
        for executor in (executor_dense, executor_gather):
            monkeypatch.setattr(executor, "map_clients", one_by_one)
        monkeypatch.setattr(round, "measure_losses", losses)
        monkeypatch.setattr(power_of_choice, "_first_distinct", DISTINCT)


def strong(state):
    """Without the weak types that plain Python leaves, and a compiled loop does not."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), state)


def rounds_of(setup, executors, step=simulated.federated_round, count=ROUNDS):
    """The models of a few rounds by these executors. No array changes its shape or type."""
    start = strong(init_state(setup, jnp.asarray(0.5), False))
    keys = run_keys(jax.random.key(3))
    models = {}
    for executor in executors:
        state, seen = start, []
        for _ in range(count):
            state, _ = loop.loop_round(setup, state, keys) if executor == "loop" else step(setup, state, keys, executor)
            state = strong(state)
            seen.append(float(state.theta))
        models[executor] = seen
        same = jax.tree.map(lambda a, b: a.shape == b.shape and a.dtype == b.dtype, start, state)
        assert all(jax.tree.leaves(same)), f"{executor} changed a shape"
        assert np.all(np.isfinite(seen)), executor
    return models


def test_every_two_parts_meet():
    met = {pair for row in ROWS for pair in pairs_of(row)}
    able = {pair for row in product_of({s: SLOTS[s] for s in SLOTS}) if allowed(row) for pair in pairs_of(row)}
    assert met == able
    lost = sum(len(SLOTS[a]) * len(SLOTS[b]) for a, b in itertools.combinations(SLOTS, 2)) - len(able)
    assert lost == 9 + 10 + 6 + 2  # Scaffold and ControlVariate go together, PooledJacobian wants windows, Cyclic


# A sixth of them in `make test`, the others in the slow set.
BY_TURNS = [
    pytest.param(row, other, marks=pytest.mark.slow if i % 6 else (), id=name_of([*row.values(), other]))
    for i, (row, other) in enumerate(zip(ROWS, itertools.cycle(("dense", "loop", "loop", "dense")), strict=False))
]


@pytest.mark.parametrize(("row", "other"), BY_TURNS)
def test_they_get_on(row, other, monkeypatch):
    """The other executors take turns."""
    with jax.enable_x64(True):
        setup, traces = setup_of(row), Traces(monkeypatch)
        gathered = rounds_of(setup, ("gather",))["gather"]
        traces.count = 0
        models = rounds_of(setup, (other,))
        assert traces.count == 0, "a client's program was compiled again"
    np.testing.assert_allclose(models[other], gathered, rtol=1e-12, atol=1e-12, err_msg=other)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: name_of(row.values()))
def test_whole_rounds_compiled(row):
    with jax.enable_x64(True):
        models = rounds_of(setup_of(row), ("gather", "dense", "loop"), eqx.filter_jit(simulated.federated_round))
    for executor in ("dense", "loop"):
        np.testing.assert_allclose(models[executor], models["gather"], rtol=1e-9, atol=1e-12, err_msg=executor)


@pytest.mark.slow
@pytest.mark.parametrize(
    "client", product_of({s: SLOTS[s] for s in ("estimator", "channel")}), ids=lambda client: name_of(client.values())
)
def test_the_product(client, monkeypatch):
    """Every estimator, channel, aggregator and participation together; batches and deployments take turns.

    A round each: shapes, types, finite models. 20 minutes. All six slots would be 60,000 algorithms and seven hours.
    """
    turns = itertools.cycle(product_of({s: SLOTS[s] for s in ("batch", "deploy")}))
    with jax.enable_x64(True):
        Traces(monkeypatch)
        for row in (client | server | turn for server, turn in zip(SERVERS, turns, strict=False)):
            if allowed(row):
                try:
                    rounds_of(setup_of(row), ("gather",), count=1)
                except Exception as error:
                    raise AssertionError(f"{row}: {error}") from error
