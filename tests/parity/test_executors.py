"""Every executor gives the same trajectory: a client's randomness does not depend on who else computes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from part_examples import first_examples, scope

import performative as pf
from performative._base.client_axis import take_rows
from performative._engine.clock import Clock
from performative._engine.executors import Dense, Gather
from performative._engine.keys import run_keys
from performative._engine.prepare import on_device, read_theta
from performative._engine.round import open_round
from performative._engine.setup import init_state, prepare
from performative._engine.steps import one_client
from performative.participation import Selection
from performative.types import Broadcast, Cohort

CLIENTS, ROWS, FEATURES, STEPS = 6, 9, 4, 3
RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((CLIENTS, ROWS, FEATURES)), RNG.integers(0, 2, (CLIENTS, ROWS))
P = np.asarray([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
TAUS = [1, 2, 3, 3, 2, 1]

STRATEGIC = pf.populations.Strategic(X, LABELS, RNG.uniform(0, 1, CLIENTS), (0, 2), count=[9, 5, 7, 9, 4, 8])
GAUSSIAN = pf.populations.Gaussian(RNG.standard_normal(CLIENTS), RNG.uniform(0, 0.6, CLIENTS), 1.0)
SLUGGISH = pf.populations.Sluggish(STRATEGIC, RNG.uniform(0.1, 1, CLIENTS))
DRIFTING = pf.populations.Sluggish(
    pf.populations.Drifting(GAUSSIAN, pf.paths.Linear(0.1) + pf.paths.RandomWalk(RNG.uniform(0, 1, CLIENTS))), 0.5
)
REWEIGHTED = pf.populations.Reweighted(X, RNG.integers(0, 3, (CLIENTS, ROWS)), 2.0)
ENTROPY = pf.losses.cross_entropy(pf.losses.linear_scores)
PROBLEMS = {
    "gaussian": (pf.Problem(pf.losses.squared, GAUSSIAN, P), np.asarray(0.3)),
    "strategic": (pf.Problem(pf.losses.logistic(0.1), STRATEGIC, P), RNG.standard_normal(FEATURES)),
    "sluggish": (pf.Problem(pf.losses.logistic(0.1), SLUGGISH, P), RNG.standard_normal(FEATURES)),
    "drifting": (pf.Problem(pf.losses.squared, DRIFTING, P), np.asarray(0.3)),
    "reweighted": (pf.Problem(ENTROPY, REWEIGHTED, P), RNG.standard_normal((3, FEATURES))),
}

GATHER, DENSE = eqx.filter_jit(Gather().run), eqx.filter_jit(Dense().run)


def ready(problem, theta, **parts):
    """Setup and first state, in float64."""
    algorithm = pf.p_fedavg(**{"rate": pf.schedules.harmonic(2.0, 10.0), "batch": pf.Fixed(4), **parts})
    setup = on_device(prepare(problem, algorithm, Clock()), jnp.float64)
    return setup, init_state(setup, read_theta(setup.problem, theta, jnp.float64), True)


def cohorts(setup, state):
    """One cohort of each scheme, all with CLIENTS rows so that one compilation serves them."""
    schemes = (pf.Full(), pf.SchemeOne(CLIENTS), pf.SchemeTwo(3), pf.LocalWork(pf.SchemeOne(CLIENTS), TAUS))
    for scheme in schemes:
        selection = Selection(setup.weights, jax.tree.map(jnp.asarray, scheme.tables(P)), state.round, state.theta)
        cohort, _ = scheme.select(jax.random.key(4), selection, scheme.init(CLIENTS))
        missing = CLIENTS - len(cohort.ids)
        active = jnp.ones(len(cohort.ids), bool) if cohort.active is None else cohort.active
        steps = jnp.full(len(cohort.ids), STEPS, jnp.int32) if cohort.steps is None else cohort.steps
        rows = (cohort.ids, cohort.weight, active, steps)
        fill = (CLIENTS, 0, False, 1)
        yield Cohort(
            *(jnp.pad(row, (0, missing), constant_values=value) for row, value in zip(rows, fill, strict=True))
        )


def alone(setup, broadcast, state, keys, cohort, row):
    """What the loop executor does with one row."""
    mine = jax.tree.map(lambda leaf: leaf[0], take_rows(state.clients, cohort.ids[row : row + 1]))
    return one_client(setup, broadcast, mine, keys, cohort.ids[row], cohort.steps[row])


def pick(tree, i):
    """Row i of every leaf, on the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf[i]), tree)


def uploads_of_each_executor(setup, state, cohort):
    """Pairs of (upload, memory) of each active client by gather, dense and loop."""
    keys = run_keys(jax.random.key(1))
    time = None if state.time is None else state.time.high + 2 * STEPS
    broadcast = Broadcast(state.theta, state.theta, None, jnp.asarray(2, jnp.int32), STEPS, time=time)
    arguments = (setup, cohort, broadcast, state.clients, keys)
    _, sent, kept = GATHER(*arguments)
    _, sent_dense, kept_dense = DENSE(*arguments)
    for row in np.flatnonzero(np.asarray(cohort.active)):
        client = int(cohort.ids[row])
        gathered = pick(sent, row), pick(kept, client)
        dense = pick(sent_dense, client), pick(kept_dense, client)
        single = jax.tree.map(np.asarray, alone(setup, broadcast, state, keys, cohort, int(row)))
        yield gathered, dense, single


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "sluggish" else pytest.mark.slow) for n in PROBLEMS],
)
def test_a_clients_upload_and_memory_are_bitwise_the_same(name):
    with jax.enable_x64(True):
        setup, state = ready(*PROBLEMS[name], local_steps=STEPS, participation=pf.SchemeOne(CLIENTS))
        rows = 0
        for cohort in cohorts(setup, state):
            for gathered, dense, single in uploads_of_each_executor(setup, state, cohort):
                rows += 1
                for a, b, c in zip(*map(jax.tree.leaves, (gathered, dense, single)), strict=True):
                    # Other devices choose how to add up by the shape of the batch, so there the last bits are left out.
                    bits = {"rtol": 0.0} if jax.default_backend() == "cpu" else {"rtol": 1e-12, "atol": 1e-14}
                    np.testing.assert_allclose(b, a, **bits)
                    np.testing.assert_allclose(c, a, **bits)
        assert rows >= CLIENTS + 3 + 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", first_examples("population", "share", "shift", "path"), ids=lambda example: example.name
)
def test_every_population_agrees(example):
    """To rounding: what a population adds up may be wider than four terms, see below."""
    names = scope(CLIENTS, ROWS, FEATURES, 3)
    loss, theta = (eval(text, names) if text else None for text in (example.loss, example.theta))
    population = eval(example.holders[0].format(example.call), names)
    with jax.enable_x64(True):
        setup, state = ready(pf.Problem(loss or pf.losses.squared, population, P), theta, local_steps=STEPS)
        cohort = Cohort(jnp.arange(CLIENTS), jnp.asarray(P), jnp.ones(CLIENTS, bool), jnp.asarray(TAUS, jnp.int32))
        for gathered, dense, single in uploads_of_each_executor(setup, state, cohort):
            for a, b, c in zip(*map(jax.tree.leaves, (gathered, dense, single)), strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)
                np.testing.assert_allclose(c, a, rtol=1e-12, atol=1e-14)


def test_wider_sums_agree_to_rounding():
    # Beyond four terms XLA may add a vmapped sum in another order than a single one: the last bit is not promised.
    wide = pf.populations.Gaussian(np.linspace(-1, 1, 24), 0.5, 1.0)
    with jax.enable_x64(True):
        setup, state = ready(
            pf.Problem(pf.losses.squared, wide), np.asarray(0.3),
            local_steps=STEPS, batch=pf.Fixed(7), participation=pf.SchemeOne(CLIENTS),
        )  # fmt: skip
        ids = jnp.asarray([0, 5, 9, 13, 20, 23], jnp.int32)
        cohort = Cohort(ids, jnp.full(6, 1 / 6), jnp.ones(6, bool), jnp.full(6, STEPS, jnp.int32))
        for gathered, dense, single in uploads_of_each_executor(setup, state, cohort):
            np.testing.assert_allclose(dense[0].delta, gathered[0].delta, rtol=1e-12)
            np.testing.assert_allclose(single[0].delta, gathered[0].delta, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "participation", "deploy"),
    [
        pytest.param("gaussian", pf.LocalWork(pf.SchemeOne(4), TAUS), "step", marks=pytest.mark.slow),
        ("strategic", pf.SchemeOne(4), "step"),
        pytest.param("sluggish", pf.SchemeTwo(3), "round", marks=pytest.mark.slow),
        pytest.param("reweighted", pf.Full(), "step", marks=pytest.mark.slow),
    ],
)
def test_trajectories_agree(name, participation, deploy):
    problem, theta = PROBLEMS[name]
    steps = 1 if isinstance(participation, pf.LocalWork) else 2
    algorithm = pf.p_fedavg(rate=0.2, local_steps=steps, batch=pf.Fixed(3), participation=participation, deploy=deploy)
    runs = {
        executor: pf.run(
            problem, algorithm, 4, theta=theta, dtype="float64", executor=executor, record=pf.Record(risks=False)
        )
        for executor in ("gather", "dense", "loop")
    }
    for executor in ("dense", "loop"):
        assert runs[executor].meta["executor"] == executor
        np.testing.assert_allclose(runs[executor].theta, runs["gather"].theta, rtol=1e-12)
        for record in ("consensus", "time", "uploads", "samples"):
            np.testing.assert_allclose(runs[executor][record], runs["gather"][record], rtol=1e-9, err_msg=record)
    again = pf.run(
        problem, algorithm, 4, theta=theta, dtype="float64", executor="gather", record=pf.Record(risks=False)
    )
    np.testing.assert_array_equal(again.theta, runs["gather"].theta)


def test_who_else_was_drawn_does_not_matter():
    """The upload of client 3 in a cohort of one is bitwise that in a cohort of all."""
    with jax.enable_x64(True):
        setup, state = ready(*PROBLEMS["gaussian"], local_steps=STEPS, participation=pf.SchemeOne(CLIENTS))
        keys = run_keys(jax.random.key(1))
        broadcast = open_round(setup, state, keys)[1]
        deltas = []
        for ids in ([3, 6, 6, 6, 6, 6], [0, 1, 2, 3, 4, 5]):
            cohort = Cohort(jnp.asarray(ids, jnp.int32), jnp.ones(6), jnp.asarray(ids) < 6)
            deltas.append(np.asarray(GATHER(setup, cohort, broadcast, state.clients, keys)[1].delta)[ids.index(3)])
    assert deltas[0] == deltas[1]
