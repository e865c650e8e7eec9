"""Parts combine freely: every two of them meet in some algorithm, for a few rounds.

Compiling each algorithm would take minutes. What a client does depends neither on the aggregator nor on who was chosen,
so here its program is compiled alone, once for all algorithms that share it, and all else runs as plain Python. One
algorithm in eight always runs its clients as the executors do, mapped over gathered rows; the slow tests do so with all
of them, and compile whole rounds.
"""

import dataclasses
import functools
import itertools
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from columns import CLIENTS, columns, company, has_company, turns_of
from covering import covering_rows, pairs_of, product_of

import performative as pf
from performative._engine import round, simulated, steps
from performative._engine.clock import Clock
from performative._engine.executors import loop as executor_loop
from performative._engine.executors import mapped as executor_mapped
from performative._engine.executors.base import map_clients
from performative._engine.keys import run_keys
from performative._engine.prepare import on_device
from performative._engine.setup import Setup, init_state, prepare
from performative.facts import chain
from performative.participation import power_of_choice
from performative.types import ClientMemory, ServerMemory, State

ROUNDS = 2
TABLE = pf.populations.Database(
    np.random.default_rng(0).normal(1.0, 1.0, (CLIENTS, 6)),
    pf.populations.shifts.Linear(np.linspace(0.0, 0.5, CLIENTS)),
)
PROBLEM = pf.Problem(pf.losses.squared, TABLE, np.arange(1.0, 8.0) / 28, domain=pf.Box(-9.0, 9.0))
WEIGHTS = np.asarray(PROBLEM.client_weights)
# A slot's parts by name; where a part holds others of which there are several, one of each.
COLUMNS = columns()


def allowed(row):
    """What belongs together, and what would be refused."""
    sharing = row.get("sharing", "OneModel")
    apart = any(refused(slot, row[slot], sharing) for slot in REFUSABLE if slot in row)
    return has_company(row, COLUMNS) and not too_few(row["aggregator"], row["participation"]) and not apart


@functools.cache
def too_few(aggregator, participation):
    """Whether the server refuses cohorts of this kind."""
    try:
        COLUMNS["aggregator"][aggregator][0].check(WEIGHTS, COLUMNS["participation"][participation][0])
    except ValueError:
        return True
    return False


# What may not go with models of clients' own or in parts: estimators of one reaction, servers that send more, models of
# long ago, updates of old models.
REFUSABLE = ("estimator", "aggregator", "deploy", "participation")


@functools.cache
def refused(slot, name, sharing):
    """Whether a part is refused by name beside a sharing, with nothing else there but what it cannot work without."""
    if sharing == "OneModel":
        return False
    with_it = {other: kind.__name__ for other, kind in company().get((slot, name), {}).items()}
    row = with_it | {slot: name, "sharing": sharing}
    try:
        setup = prepare(PROBLEM, algorithm_of(row, {}), Clock())
        if slot == "aggregator" or with_it:  # what it sends shows in a round
            with jax.enable_x64(True):
                eqx.filter_eval_shape(first_round, on_device(setup, jnp.float64))
    except ValueError as error:
        assert f"sharing={sharing}" in str(error), error
        return True
    return False


def first_round(setup):
    return round.open_round(setup, init_state(setup, jnp.asarray(0.5), False), run_keys(jax.random.key(0)))


def algorithm_of(row, turns):
    """Of a column with several examples the one whose turn it is."""
    parts = {slot: (several := COLUMNS[slot][name])[turns.get(slot, 0) % len(several)] for slot, name in row.items()}
    try:
        return pf.Algorithm(rate=0.1, local_steps=2, **parts)
    except ValueError:  # participation that has its own number of steps
        return pf.Algorithm(rate=0.1, **parts)


def setup_of(row, turns):
    return on_device(prepare(PROBLEM, algorithm_of(row, turns), Clock()), jnp.float64)


CLIENT_SLOTS, SERVER_SLOTS = ("estimator", "batch", "channel", "deploy"), ("aggregator", "participation")
# Few different clients, so that few programs are compiled; then who serves them and who is asked.
CLIENTS_PARTS = product_of({slot: COLUMNS[slot] for slot in CLIENT_SLOTS})
CLIENT_ROWS = covering_rows([row for row in CLIENTS_PARTS if has_company(row, COLUMNS)])
SERVERS = product_of({slot: COLUMNS[slot] for slot in SERVER_SLOTS})
ALIKE = covering_rows([row for row in (c | s for c in CLIENT_ROWS for s in SERVERS) if allowed(row)])
# A server that goes with every sharing, for clients' parts that met none yet.
PLAIN = [c | {"aggregator": "Mean", "participation": "Full"} for c in CLIENT_ROWS]
ALIKE += [row for row in PLAIN if row not in ALIKE and allowed(row)]
# Then who shares a model with whom.
SHARED = product_of({"sharing": COLUMNS["sharing"]})
ROWS = covering_rows([row for row in (a | s for a in ALIKE for s in SHARED) if allowed(row)])
# A client's parts have the same turn in all rows, so that its program is compiled once.
TURN_OF_CLIENT = {tuple(row.items()): turn for row, turn in zip(CLIENT_ROWS, turns_of(CLIENT_ROWS), strict=True)}
TURNS = [
    turn | TURN_OF_CLIENT[tuple((slot, row[slot]) for slot in CLIENT_SLOTS)]
    for row, turn in zip(ROWS, turns_of(ROWS), strict=True)
]
name_of = "-".join


def without_server(setup):
    """A client does not see the server: algorithms that differ in the server's parts share a program."""
    steps = setup.algorithm.steps
    curious = pf.LocalWork(pf.Full(), pf.participation.AdaComm(steps))
    asks = curious if setup.algorithm.participation.requires_loss else pf.Full()
    algorithm = dataclasses.replace(
        setup.algorithm, aggregator=pf.aggregators.Mean(), participation=asks, local_steps=steps
    )
    return Setup(setup.problem, algorithm, setup.weights, None, Clock())


# Loops, which plain Python would compile at every call.
MEASURED = eqx.filter_jit(round.measure_losses)
DISTINCT = jax.jit(power_of_choice._first_distinct, static_argnums=(2, 3))
MAPPED = eqx.filter_jit(map_clients)


class Traces:
    """Runs one client's compiled program, and counts how often it was traced.

    With `mapped` the executors run theirs: all clients at once, of rows that were gathered.
    """

    def __init__(self, monkeypatch, mapped=False):
        self.count = 0
        client_round, one_client = steps.client_round, executor_loop.one_client

        def counted(*args):
            self.count += 1
            return client_round(*args)

        def alone(setup, *args, **more):
            return one_client(without_server(setup), *args, **more)

        def losses(setup, state, ids, key, samples=None):
            seen = State(
                state.theta,
                state.deployed,
                ClientMemory(state.clients.world, None, None, None, state.clients.own, state.clients.seen),
                ServerMemory(None, None),
                state.round,
                None,
            )
            return MEASURED(without_server(setup), seen, ids, key, samples)

        def one_by_one(setup, population, axes, cohort, broadcast, memory, keys, drawn):
            def row(i):
                mine = jax.tree.map(operator.itemgetter(i), memory)
                steps = None if cohort.steps is None else cohort.steps[i]
                age = None if cohort.age is None else cohort.age[i]
                return alone(setup, broadcast, mine, keys, cohort.ids[i], steps, None, age=age)

            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[row(i) for i in range(len(cohort.ids))])

        def at_once(setup, *args):
            return MAPPED(without_server(setup), *args)

        monkeypatch.setattr(steps, "client_round", counted)
        monkeypatch.setattr(executor_loop, "one_client", alone)
        monkeypatch.setattr(simulated, "open_one", round.open_round)
        monkeypatch.setattr(simulated, "close_one", round.close_round)
        monkeypatch.setattr(executor_mapped, "map_clients", at_once if mapped else one_by_one)
        monkeypatch.setattr(round, "measure_losses", losses)
        monkeypatch.setattr(power_of_choice, "_first_distinct", DISTINCT)


def strong(state):
    """Without the weak types that plain Python leaves, and a compiled loop does not."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), state)


def rounds_of(setup, executors, step=simulated.federated_round, count=ROUNDS):
    """The models of a few rounds by these executors, clients' own too. No array changes its shape or type."""
    start = strong(init_state(setup, jnp.asarray(0.5), False))
    keys = run_keys(jax.random.key(3))
    models = {}
    for executor in executors:
        state, seen = start, []
        for _ in range(count):
            one = simulated.federated_round if executor == "loop" else step  # it sees numbers
            state, _ = one(setup, state, keys, executor)
            state = strong(state)
            seen.append(np.concatenate([np.ravel(m) for m in jax.tree.leaves((state.theta, state.clients.own))]))
        models[executor] = seen
        same = jax.tree.map(lambda a, b: a.shape == b.shape and a.dtype == b.dtype, start, state)
        assert all(jax.tree.leaves(same)), f"{executor} changed a shape"
        assert np.all(np.isfinite(seen)), executor
    return models


def test_every_two_parts_meet():
    met = {pair for row in ROWS for pair in pairs_of(row)}
    others = {slot: column for slot, column in COLUMNS.items() if slot != "sharing"}
    # What asks for no company, and is nobody's, goes with all that go with anything.
    choosy = {"aggregator", "participation"} | {slot for (one, _), found in company().items() for slot in (one, *found)}
    rows = [row for row in product_of({slot: others[slot] for slot in others if slot in choosy}) if allowed(row)]
    able = {pair for row in rows for pair in pairs_of(row)}
    met_somebody = {part for pair in able for part in pair}
    easy = [(slot, name) for slot in others if slot not in choosy for name in others[slot]]
    able |= {frozenset([one, other]) for one in easy for other in (*met_somebody, *easy) if one[0] != other[0]}
    able |= {
        frozenset([(slot, name), ("sharing", sharing)])
        for slot, column in others.items()
        for name, sharing in itertools.product(column, COLUMNS["sharing"])
        if slot not in REFUSABLE or not refused(slot, name, sharing)
    }
    assert met == able
    every = sum(len(COLUMNS[a]) * len(COLUMNS[b]) for a, b in itertools.combinations(COLUMNS, 2))
    # Scaffold and ControlVariate go together, PooledJacobian wants windows, Krum more than a group of Cyclic; a model
    # of one's own knows no Late, no Scaffold, and two models no reaction.
    assert len(able) > 0.9 * every


def test_all_examples_take_a_turn():
    def kinds(*parts):
        return {type(part) for whole in parts if not isinstance(whole, str) for part in chain(whole)}

    wanted = kinds(*(part for column in COLUMNS.values() for several in column.values() for part in several))
    used = kinds(*(algorithm_of(row, turns) for row, turns in zip(ROWS, TURNS, strict=True)))
    assert {kind.__name__ for kind in wanted - used} == {
        "Every",
        "Growing",
        "Late",
    }  # an algorithm holds them as a Deployment


# In `make test` one in so many, the others in the slow set.
FEW, SOME = 144, 60
EXECUTORS = itertools.cycle(("dense", "loop", "loop", "dense"))
BY_TURNS = [
    pytest.param(
        row,
        turns,
        other,
        marks=pytest.mark.slow if i % FEW else (),
        id=name_of([*row.values(), other]),
    )
    for i, (row, turns, other) in enumerate(zip(ROWS, TURNS, EXECUTORS, strict=False))
]


@pytest.mark.parametrize(("row", "turns", "other"), BY_TURNS)
def test_they_get_on(row, turns, other, monkeypatch):
    """The other executors take turns."""
    with jax.enable_x64(True):
        setup, traces = setup_of(row, turns), Traces(monkeypatch)
        gathered = rounds_of(setup, ("gather",))["gather"]
        traces.count = 0
        models = rounds_of(setup, (other,))
        assert traces.count == 0, "a client's program was compiled again"
    np.testing.assert_allclose(models[other], gathered, rtol=1e-12, atol=1e-12, err_msg=other)


MAPPED_TURNS = [
    pytest.param(
        row,
        turns,
        executor,
        marks=() if i % SOME == 0 and (i // SOME % 2 == 0) == (executor == "gather") else pytest.mark.slow,
        id=name_of([*row.values(), executor]),
    )
    for i, (row, turns) in enumerate(zip(ROWS, TURNS, strict=True))
    for executor in ("dense", "gather")
]


@pytest.mark.parametrize(("row", "turns", "executor"), MAPPED_TURNS)
def test_mapped_clients_are_those_of_the_loop(row, turns, executor, monkeypatch):
    with jax.enable_x64(True):
        setup = setup_of(row, turns)
        Traces(monkeypatch, mapped=True)
        models = rounds_of(setup, ("loop", executor))
    np.testing.assert_allclose(models[executor], models["loop"], rtol=1e-9, atol=1e-12, err_msg=executor)


@pytest.mark.slow
@pytest.mark.parametrize("i", range(len(ROWS)), ids=lambda i: name_of(ROWS[i].values()))
def test_whole_rounds_compiled(i):
    with jax.enable_x64(True):
        models = rounds_of(
            setup_of(ROWS[i], TURNS[i]), ("gather", "dense", "loop"), eqx.filter_jit(simulated.federated_round)
        )
    for executor in ("dense", "loop"):
        np.testing.assert_allclose(models[executor], models["gather"], rtol=1e-9, atol=1e-12, err_msg=executor)


CHANNELS = list(COLUMNS["channel"])


TWO = product_of({s: COLUMNS[s] for s in ("estimator", "channel")})


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(TWO)))
def test_every_three(k, monkeypatch):
    """Every estimator, aggregator and participation together; with channels any two of them, by a Latin square.

    Batches, deployments and sharing take turns. A round each: shapes, types, finite models. All seven slots would be
    half a million algorithms.
    """
    turns = itertools.cycle(product_of({s: COLUMNS[s] for s in ("batch", "deploy", "sharing")}))
    client = TWO[k]
    shift = list(COLUMNS["estimator"]).index(client["estimator"]) - CHANNELS.index(client["channel"])
    places = {slot: list(COLUMNS[slot]) for slot in SERVER_SLOTS}
    with jax.enable_x64(True):
        Traces(monkeypatch)
        for server, turn in zip(SERVERS, turns, strict=False):
            if (shift + sum(places[slot].index(server[slot]) for slot in SERVER_SLOTS)) % len(CHANNELS):
                continue
            row = client | server | turn
            row = row if allowed(row) else row | {"sharing": "OneModel"}
            if allowed(row):
                try:
                    rounds_of(setup_of(row, {}), ("gather",), count=1)
                except Exception as error:
                    raise AssertionError(f"{row}: {error}") from error
