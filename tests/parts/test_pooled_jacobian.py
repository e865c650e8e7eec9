"""What a server learns of the reaction, what it remembers of clients, and all data in one place."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.aggregators import Mean, PooledJacobian, Varp
from performative.engine.keys import run_keys
from performative.engine.round import Clock, federated_round
from performative.engine.setup import init_state, on_device, prepare, read_theta
from performative.populations import Gaussian, Mixture, Outliers, Pricing, Sluggish, Strategic
from performative.populations.pooled import Pooled
from performative.reaction import Moments, Sighting
from performative.risk import decoupled_risk
from performative.testing.uses import compiled, slice_client
from performative.types import Cohort, Upload

RNG = np.random.default_rng(0)
CLIENTS, D, M = 5, 2, 3


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


# The regression over rounds.


def told(models, parameters, ready, windows=None):
    """An upload of every client: what it began with, what it fitted, whether its window is full."""
    K = len(models)
    if windows is None:
        windows = Moments(jnp.broadcast_to(jnp.eye(D), (K, D, D)), jnp.zeros((K, M, D)))
    seen = Sighting(windows, jnp.asarray(models), jnp.asarray(parameters), jnp.asarray(ready))
    one = jnp.asarray(1, jnp.int32)
    return jax.vmap(lambda mine: Upload(jnp.zeros(D), one, {"reaction": mine}, {}))(seen)


def start(part, upload):
    one = jax.tree.map(lambda leaf: leaf[0], upload.extra)
    return part.init(jnp.zeros(D), CLIENTS, one)


def cohort(active):
    ids = jnp.where(jnp.asarray(active), jnp.arange(CLIENTS, dtype=jnp.int32), CLIENTS)
    return Cohort(ids, jnp.where(jnp.asarray(active), 1 / CLIENTS, 0), jnp.asarray(active))


AGGREGATE = compiled(lambda part, *given: part.aggregate(*given))
WEIGHTS = jnp.full(CLIENTS, 1 / CLIENTS)


def line(models, parameters, rounds):
    """df/dtheta by least squares with an intercept: [df] pinv [dtheta] around the means of the last rounds."""
    models, parameters = np.asarray(models)[-rounds:], np.asarray(parameters)[-rounds:]
    return (parameters - parameters.mean(axis=0)).T @ np.linalg.pinv((models - models.mean(axis=0)).T)


@pytest.mark.parametrize("memory", [6, 50], ids=["a ring that turns", "a ring not full"])
def test_the_estimate_is_the_regression_over_the_last_rounds(memory):
    part = on_device(PooledJacobian(memory=memory, rtol=1e-6), jnp.float64)
    rounds, kept, models, parameters = 15, None, [], []
    for r in range(rounds):
        rows = RNG.standard_normal((CLIENTS, D)), RNG.standard_normal((CLIENTS, M))
        active = RNG.uniform(size=CLIENTS) < 0.6
        active[r % CLIENTS] = True
        models.append(rows[0][active].mean(axis=0))
        parameters.append(rows[1][active].mean(axis=0))
        rows = tuple(np.where(active[:, None], row, np.nan) for row in rows)  # inactive rows may hold anything
        ready = np.full(CLIENTS, r >= 4)
        upload = told(*rows, ready)
        kept = start(part, upload) if kept is None else kept
        move, kept = AGGREGATE(part, jnp.zeros(D), upload, cohort(active), WEIGHTS, kept)
        shared = part.broadcast(kept)["reaction"]
        assert np.all(np.asarray(move) == 0)
        assert bool(shared.known[0]) == (r >= 4)
        if r >= 4:
            np.testing.assert_allclose(shared.jacobian[0], line(models, parameters, memory), rtol=1e-8, atol=1e-10)


def test_while_nobody_is_ready_nothing_is_known_and_an_empty_cohort_changes_nothing():
    part = on_device(PooledJacobian(clusters=2), jnp.float64)
    upload = told(RNG.standard_normal((CLIENTS, D)), RNG.standard_normal((CLIENTS, M)), np.zeros(CLIENTS, bool))
    kept = start(part, upload)
    _, kept = AGGREGATE(part, jnp.zeros(D), upload, cohort(np.ones(CLIENTS, bool)), WEIGHTS, kept)
    assert not np.any(kept.shared.known) and np.all(np.asarray(kept.shared.jacobian) == 0)
    # Nobody came: whatever stands in the rows, the estimate stays.
    slopes = np.where(np.arange(CLIENTS) < 2, -1.0, -5.0)
    windows = Moments(jnp.broadcast_to(jnp.eye(D), (CLIENTS, D, D)), jnp.asarray(slopes)[:, None, None] * jnp.eye(M, D))
    for _ in range(3):
        models = RNG.standard_normal((CLIENTS, D))
        full = told(models, RNG.standard_normal((CLIENTS, M)), np.ones(CLIENTS, bool), windows)
        _, kept = AGGREGATE(part, jnp.zeros(D), full, cohort(np.ones(CLIENTS, bool)), WEIGHTS, kept)
    assert np.all(kept.shared.known) and np.all(np.asarray(kept.shared.jacobian) != 0)
    nobody = np.zeros(CLIENTS, bool)
    lost = told(np.full((CLIENTS, D), np.nan), np.full((CLIENTS, M), np.nan), ~nobody, windows)
    _, after = AGGREGATE(part, jnp.zeros(D), lost, cohort(nobody), WEIGHTS, kept)
    assert eqx.tree_equal(after, kept)


# In rounds.


@compiled
def many_rounds(setup, first, keys, rounds, executor):
    def run(key):
        def body(_, state):
            return federated_round(setup, state, run_keys(key), executor)[0]

        return jax.lax.fori_loop(0, rounds, body, first)

    return jax.vmap(run)(keys)


def after_rounds(problem, algorithm, rounds, seeds=(0,), executor="gather", theta=0.0):
    """The state after some rounds, one for each seed; all seeds in one program."""
    setup = on_device(prepare(problem, algorithm, Clock()), jnp.float64)
    first = init_state(setup, read_theta(setup.problem, theta, jnp.float64), True)
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    return many_rounds(setup, first, keys, rounds, executor)


def two_kinds(scale=0.05):
    """Six clients whose demand falls by 1 with the price and six whose demand falls by 5; no two begin alike."""
    return pf.Problem(pf.losses.negative_revenue, Pricing(np.linspace(6.0, 8.0, 12), np.repeat([1.0, 5.0], 6), scale))


def test_one_estimate_is_the_mean_slope():
    algorithm = pf.pofl(0.01, window=5, batch=pf.Fixed(50), aggregator=PooledJacobian(memory=10))
    shared = after_rounds(two_kinds(), algorithm, 20).server.aggregator.shared
    np.testing.assert_allclose(np.asarray(shared.jacobian).ravel(), [-3.0], rtol=0.05)


def test_clusters_keep_two_kinds_of_clients_apart():
    """Demand is told almost without noise and the price still moves, so that each client's own map can be seen."""
    algorithm = pf.pofl(0.01, window=5, batch=pf.Fixed(50), aggregator=PooledJacobian(clusters=2, memory=10))
    shared = after_rounds(two_kinds(), algorithm, 20, seeds=(0, 1, 2)).server.aggregator.shared
    assert np.all(shared.known)
    found = np.sort(np.asarray(shared.jacobian).reshape(3, 2), axis=1)
    np.testing.assert_allclose(found, np.tile([-5.0, -1.0], (3, 1)), rtol=0.05)
    # Repeats do not mix: each is the same in other company.
    again = after_rounds(two_kinds(), algorithm, 20, seeds=(2, 7, 0)).server.aggregator.shared
    np.testing.assert_allclose(again.jacobian[::2][::-1], shared.jacobian[::2], rtol=1e-9)


def test_slips_are_named():
    with pytest.raises(ValueError, match=r"PooledJacobian needs clients that watch.*Performative\(window=H\)"):
        pf.run(two_kinds(), pf.p_fedavg(0.1, aggregator=PooledJacobian()), 1, theta=0.0)
    with pytest.raises(ValueError, match=r"PooledJacobian needs clients that watch"):
        still = pf.estimators.Performative(None, term="pathwise")
        pf.run(two_kinds(), pf.p_fedavg(0.1, estimator=still, aggregator=PooledJacobian()), 1, theta=0.0)
    for bad, words in (
        ({"clusters": 0}, "clusters must be a whole number >= 1; got 0"),
        ({"memory": 1.5}, "memory must be a whole number >= 1; got 1.5"),
        ({"rtol": np.nan}, "rtol must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            PooledJacobian(**bad)


# FedVARP.

P = np.asarray([0.3, 0.25, 0.2, 0.15, 0.1])
UNEVEN = pf.Problem(pf.losses.squared, Gaussian(RNG.standard_normal((5, 2)), RNG.uniform(0, 0.6, 5), 1.0), P)


def test_varp_with_everyone_present_is_the_mean():
    runs = [
        pf.run(UNEVEN, pf.p_fedavg(0.1, local_steps=2, aggregator=part), 6, dtype="float64", risk=False).theta
        for part in (Mean(), Varp())
    ]
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("executor", ["gather", "dense"])
@pytest.mark.parametrize("who", [pf.SchemeTwo(2), pf.SchemeOne(3)], ids=lambda who: type(who).__name__)
def test_the_mean_that_varp_keeps_is_that_of_its_rows(who, executor):
    algorithm = pf.p_fedavg(0.1, participation=who, aggregator=Varp())
    kept = after_rounds(UNEVEN, algorithm, 9, executor=executor, theta=[0.0, 0.0]).server.aggregator
    rows = np.asarray(kept.last[0])
    assert np.sum(np.any(rows != 0, axis=1)) >= 3
    np.testing.assert_allclose(kept.mean[0], P @ rows, rtol=1e-12, atol=1e-14)
    if executor == "dense":  # what absent clients computed was never sent
        gathered = after_rounds(UNEVEN, algorithm, 9, theta=[0.0, 0.0]).server.aggregator
        np.testing.assert_allclose(rows, gathered.last[0], rtol=1e-12, atol=1e-14)


# All data in one place.

TABLE = Strategic(RNG.standard_normal((3, 7, 2)), RNG.integers(0, 2, (3, 7)), RNG.uniform(0.1, 0.5, 3), count=[7, 4, 5])
GROUPS = Mixture(
    (Gaussian(RNG.uniform(1, 2, 3), 0.0, 1.0), Outliers(RNG.uniform(2, 3, 3), 0.5)),
    pf.populations.shares.Budgets(RNG.uniform(0.5, 1.0, (3, 2)), RNG.uniform(3, 4, 3)),
)
LINEAR = pf.populations.shares.Linear
WEIGHED = np.asarray([0.5, 0.3, 0.2])
FEDERATIONS = {
    "Gaussian": pf.Problem(
        pf.losses.squared, Gaussian(RNG.standard_normal(3), RNG.uniform(0, 0.6, 3), [0.5, 1.0, 2.0]), WEIGHED
    ),
    "Strategic": pf.Problem(pf.losses.logistic(0.1), TABLE, WEIGHED),
    "Budgets": pf.Problem(pf.losses.negative_revenue, GROUPS, WEIGHED, domain=pf.Box(0.0, 2.5)),
    "Linear shares": pf.Problem(
        pf.losses.negative_revenue,
        Mixture((Gaussian([1.0, 1.1, 1.2], 0.0, 1.0), Gaussian(-0.5, 0.0, 1.0)), LINEAR([0.5, 0.5], [-0.2, 0.2])),
        WEIGHED,
    ),
}


@pytest.mark.parametrize("name", FEDERATIONS)
def test_risks_are_those_of_the_federation(name):
    problem = FEDERATIONS[name]
    one = problem.pooled()
    assert one.clients == 1 and isinstance(one.population, Pooled) and one.domain is problem.domain
    shape = problem.population.model_shape()
    here, there = RNG.uniform(0.2, 1.0, (2, *shape))

    @compiled
    def risks(part, weights, theta, deployed):
        """The decoupled risk, and the gradient of the performative one."""

        def performative(model):
            return decoupled_risk(part, weights, model, model)

        return decoupled_risk(part, weights, theta, deployed), jax.grad(performative)(theta)

    where = jnp.asarray(here), jnp.asarray(there)
    apart = risks(on_device(problem, jnp.float64), jnp.asarray(WEIGHED), *where)
    together = risks(on_device(one, jnp.float64), jnp.ones(1), *where)
    for alone, whole in zip(together, apart, strict=True):
        np.testing.assert_allclose(alone, whole, rtol=1e-9)


@pytest.mark.parametrize("name", ["Gaussian", "Strategic", "Linear shares"])
def test_points_are_those_of_the_federation(name):
    problem = FEDERATIONS[name]
    for solve in (pf.stable_point, pf.optimal_point):
        if (name, solve) != ("Strategic", pf.optimal_point):  # its risk has the same gradient, as seen above
            np.testing.assert_allclose(solve(problem.pooled()), solve(problem), rtol=1e-6)


def pooled_draws(problem, theta, world=None, count=40_000):
    """Samples of the one client, and whose they are."""
    mine = slice_client(on_device(problem.pooled(), jnp.float64).population, 0)
    theta = jnp.asarray(theta)
    world = mine.init(theta, problem.loss) if world is None else world
    noise = mine.draw(jax.random.key(3), (count,), theta)
    z = jax.jit(jax.vmap(lambda u: mine.sample(u, world, theta)))(noise)
    return jax.tree.map(np.asarray, z), np.asarray(noise[0])


def test_samples_come_from_each_client_by_its_weight():
    problem, theta, count = FEDERATIONS["Gaussian"], 0.7, 40_000
    z, who = pooled_draws(problem, theta, count=count)
    population = problem.population
    for client, p in enumerate(WEIGHED):
        own = z[who == client]
        assert abs(len(own) / count - p) < 5 * np.sqrt(p * (1 - p) / count)
        mean, scale = population.mean[client] + population.sensitivity[client] * theta, population.scale[client]
        assert abs(own.mean() - mean) < 5 * scale / np.sqrt(len(own))
        assert abs(own.var() - scale**2) < 5 * scale**2 * np.sqrt(2 / len(own))
    (x, y), who = pooled_draws(FEDERATIONS["Strategic"], [0.4, -0.3], count=count)
    for client, rows in enumerate(np.asarray(TABLE.count)):
        moved = np.asarray(TABLE.x)[client, :rows] - TABLE.strength[client] * np.asarray([0.4, -0.3])
        own = x[who == client]
        found = {tuple(row) for row in np.round(own, 9)}
        assert found == {tuple(row) for row in np.round(moved, 9)}  # its own rows, all of them, and no padding
        error = moved.std(axis=0) / np.sqrt(len(own))
        assert np.all(np.abs(own.mean(axis=0) - moved.mean(axis=0)) < 5 * error)
    assert set(np.unique(y)) == {0, 1}


def test_worlds_stay_each_clients_own():
    speed = np.asarray([0.1, 0.5, 1.0])
    slow = pf.Problem(pf.losses.squared, Sluggish(Gaussian(np.ones(3), 0.5, 0.0), speed), WEIGHED)
    mine = slice_client(on_device(slow.pooled(), jnp.float64).population, 0)
    world = mine.init(jnp.asarray(0.0), slow.loss)
    world = mine.deploy(world, jnp.asarray(1.0), slow.loss)
    np.testing.assert_allclose(world[0], speed, rtol=1e-12)
    z, who = pooled_draws(slow, 1.0, world, 1000)
    np.testing.assert_allclose(z, 1 + 0.5 * speed[who], rtol=1e-12)  # no noise: it is what that client has felt so far
    np.testing.assert_allclose(mine.settle(jnp.asarray(1.0), slow.loss)[0], np.ones(3))
    # In a run the worlds lag behind the model by their speeds.
    state = after_rounds(slow.pooled(), pf.p_fedavg(0.2, batch=pf.Fixed(5)), 3, theta=9.0)
    felt = np.asarray(state.clients.world[0])
    assert felt.shape == (1, 1, 3) and len(np.unique(felt)) == 3


def test_a_central_learner_reaches_the_optimum():
    prices = pf.Problem(
        pf.losses.negative_revenue, Pricing([6.0, 7.0, 6.5], [1.0, 2.0, 3.0], 1.0), WEIGHED, pf.Box(0.0, 9.0)
    )
    history = pf.run(
        prices.pooled(), pf.pg(0.05, window=5, batch=pf.Fixed(1000)), 60, theta=0.5, repeats=4, dtype="float64"
    )
    stable, optimal = pf.stable_point(prices), pf.optimal_point(prices)
    assert np.all(np.abs(history.final - optimal) < 0.2 * abs(stable - optimal))
