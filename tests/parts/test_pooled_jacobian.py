"""What a server learns of the reaction, what it remembers of clients, and all data in one place."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.aggregators import Mean, PooledJacobian, Varp
from performative.engine.clock import Clock
from performative.engine.keys import run_keys
from performative.engine.round import federated_round
from performative.engine.setup import init_state, on_device, prepare, read_theta
from performative.populations import Gaussian, Mixture, Outliers, Pricing, Sluggish, Strategic
from performative.populations.pooled import Pooled
from performative.reaction import Moments, Sighting
from performative.risk import decoupled_risk
from performative.testing.uses import compiled, slice_client
from performative.types import Cohort, Upload

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("double_precision")]
RNG = np.random.default_rng(0)
CLIENTS, D, M = 5, 2, 3


# The regression over rounds.


def told(rows, ready, slopes=None):
    """An upload of every client: the model it began with, its mean model and mean f-hat, whether its window is full.

    `slopes` are what the clients' own windows show, one number each.
    """
    begin, model, parameters = (jnp.asarray(row) for row in rows)
    K = len(begin)
    slopes = jnp.zeros(K) if slopes is None else jnp.asarray(slopes)
    windows = Moments(jnp.broadcast_to(jnp.eye(D), (K, D, D)), slopes[:, None, None] * jnp.eye(M, D))
    seen = Sighting(windows, begin, model, parameters, jnp.asarray(ready))
    one = jnp.asarray(1, jnp.int32)
    return jax.vmap(lambda mine: Upload(jnp.zeros(D), one, {"reaction": mine}, {}))(seen)


def some_rows():
    """Start, mean model and mean f-hat of every client in one round; the mean model owes something to the start."""
    begin = RNG.standard_normal((CLIENTS, D))
    return begin, begin + RNG.standard_normal((CLIENTS, D)), RNG.standard_normal((CLIENTS, M))


def begun(part, upload):
    return part.init(jnp.zeros(D), CLIENTS, jax.tree.map(lambda leaf: leaf[0], upload.extra))


def cohort(active, weight=None):
    ids = jnp.where(jnp.asarray(active), jnp.arange(CLIENTS, dtype=jnp.int32), CLIENTS)
    weight = np.full(CLIENTS, 1 / CLIENTS) if weight is None else weight
    return Cohort(ids, jnp.where(jnp.asarray(active), jnp.asarray(weight), 0), jnp.asarray(active))


AGGREGATE = compiled(lambda part, *given: part.aggregate(*given))
WEIGHTS = jnp.full(CLIENTS, 1 / CLIENTS)
EVERYONE = np.ones(CLIENTS, bool)


def take_part(part, kept, upload, who):
    return AGGREGATE(part, jnp.zeros(D), upload, who, WEIGHTS, kept)


def line(rounds):
    """Cov(f, start) pinv(Cov(model, start)): for start = model the least squares [df] pinv [dtheta]."""
    begin, model, parameters = (np.asarray(rows) - np.mean(rows, axis=0) for rows in zip(*rounds, strict=True))
    return parameters.T @ begin @ np.linalg.pinv(model.T @ begin)


@pytest.mark.parametrize("memory", [6, 50], ids=["a ring that turns", "a ring not full"])
def test_the_estimate_is_the_regression_over_the_last_rounds(memory):
    part = on_device(PooledJacobian(memory=memory, rtol=1e-6), jnp.float64)
    kept, rounds, full = None, [], 5
    for r in range(15):
        rows = some_rows()
        active = RNG.uniform(size=CLIENTS) < 0.6
        active[r % CLIENTS] = True
        weight = RNG.uniform(0.1, 1.0, CLIENTS)
        rounds.append([np.average(row[active], axis=0, weights=weight[active]) for row in rows])
        rows = tuple(np.where(active[:, None], row, np.nan) for row in rows)  # inactive rows may hold anything
        upload = told(rows, np.full(CLIENTS, r >= full), np.where(active, 1.0, np.nan))
        kept = begun(part, upload) if kept is None else kept
        move, kept = take_part(part, kept, upload, cohort(active, weight))
        shared = part.broadcast(kept)["reaction"]
        assert np.all(np.asarray(move) == 0)
        assert bool(shared.known[0]) == (r >= full)
        if r >= full:
            np.testing.assert_allclose(shared.jacobian[0], line(rounds[-memory:]), rtol=1e-7, atol=1e-9)


def test_models_that_stay_as_they_began_give_least_squares():
    part, kept, rounds = on_device(PooledJacobian(memory=50, rtol=1e-6), jnp.float64), None, []
    for _ in range(9):
        begin, _, parameters = some_rows()
        rounds.append((begin.mean(axis=0), parameters.mean(axis=0)))
        upload = told((begin, begin, parameters), EVERYONE)
        kept = begun(part, upload) if kept is None else kept
        _, kept = take_part(part, kept, upload, cohort(EVERYONE))
    models, parameters = (np.asarray(rows) - np.mean(rows, axis=0) for rows in zip(*rounds, strict=True))
    np.testing.assert_allclose(kept.shared.jacobian[0], parameters.T @ np.linalg.pinv(models.T), rtol=1e-8)


def grouped():
    """A server of two clusters after ten rounds of everyone: clients 0 and 1 of one kind, the rest of another."""
    part = on_device(PooledJacobian(clusters=2, memory=20), jnp.float64)
    slopes, kept = np.where(np.arange(CLIENTS) < 2, -1.0, -5.0), None
    for r in range(10):
        upload = told(some_rows(), EVERYONE & (r > 2), slopes)
        kept = begun(part, upload) if kept is None else kept
        _, kept = take_part(part, kept, upload, cohort(EVERYONE))
        if r == 2:
            assert not np.any(kept.shared.known) and np.all(np.asarray(kept.shared.jacobian) == 0)
    return part, kept, slopes


def test_a_cluster_of_which_nobody_came_keeps_its_estimate():
    part, kept, slopes = grouped()
    label = np.asarray(kept.shared.label)
    assert np.all(kept.shared.known)
    assert len(np.unique(label[:2])) == len(np.unique(label[2:])) == 1 and label[0] != label[2]
    for who in (EVERYONE & (np.arange(CLIENTS) < 2), np.arange(CLIENTS) == 4):
        rows = tuple(np.where(who[:, None], row, np.nan) for row in some_rows())
        _, after = take_part(part, kept, told(rows, EVERYONE, np.where(who, slopes, np.nan)), cohort(who))
        came = np.arange(2) == label[np.flatnonzero(who)[0]]
        np.testing.assert_array_equal(after.shared.jacobian[~came], kept.shared.jacobian[~came])
        assert np.all(np.asarray(after.shared.jacobian[came]) != np.asarray(kept.shared.jacobian[came]))
        assert np.all(np.isfinite(after.shared.jacobian)) and np.all(after.shared.label == label)
    # Nobody at all: whatever stands in the rows, nothing changes.
    lost = told(tuple(np.full_like(row, np.nan) for row in some_rows()), EVERYONE, np.full(CLIENTS, np.nan))
    _, after = take_part(part, kept, lost, cohort(~EVERYONE))
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


def two_kinds():
    """Six clients whose demand falls by 1 with the price and six whose demand falls by 5; no two begin alike."""
    return pf.Problem(pf.losses.negative_revenue, Pricing(np.linspace(6.0, 8.0, 12), np.repeat([1.0, 5.0], 6), 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 8])
def test_one_estimate_is_the_mean_slope(steps):
    """Also where models move on within a round, and the data with them."""
    algorithm = pf.pofl(0.01, window=5, batch=pf.Fixed(50), local_steps=steps, aggregator=PooledJacobian(memory=20))
    shared = after_rounds(two_kinds(), algorithm, 20).server.aggregator.shared
    np.testing.assert_allclose(np.asarray(shared.jacobian).ravel(), [-3.0], rtol=0.05)


@pytest.mark.slow
def test_clusters_keep_two_kinds_of_clients_apart():
    algorithm = pf.pofl(0.01, window=5, batch=pf.Fixed(50), aggregator=PooledJacobian(clusters=2))
    shared = after_rounds(two_kinds(), algorithm, 30, seeds=(0, 1, 2)).server.aggregator.shared
    assert np.all(shared.known)
    label, slopes = np.asarray(shared.label), np.asarray(shared.jacobian).reshape(3, 2)
    own = np.take_along_axis(slopes, label, axis=1)
    np.testing.assert_allclose(own, np.tile(np.repeat([-1.0, -5.0], 6), (3, 1)), rtol=0.1)
    # Repeats do not mix: each is the same in other company.
    again = after_rounds(two_kinds(), algorithm, 30, seeds=(2, 7, 0)).server.aggregator.shared
    np.testing.assert_allclose(again.jacobian[::2][::-1], shared.jacobian[::2], rtol=1e-9)


def test_slips_are_named():
    with pytest.raises(ValueError, match=r"PooledJacobian needs clients that watch.*Performative\(window=H\)"):
        pf.run(two_kinds(), pf.p_fedavg(0.1, aggregator=PooledJacobian()), 1, theta=0.0)
    with pytest.raises(ValueError, match=r"clusters=13\) has only 12 clients"):
        pf.run(two_kinds(), pf.pofl(0.1, 5, batch=pf.Fixed(9), aggregator=PooledJacobian(clusters=13)), 1, theta=0.0)
    with pytest.raises(ValueError, match=r"PooledJacobian needs clients that watch"):
        still = pf.estimators.Performative(None, term="pathwise")
        pf.run(two_kinds(), pf.p_fedavg(0.1, estimator=still, aggregator=PooledJacobian()), 1, theta=0.0)
    for bad, words in (
        ({"clusters": 0}, "clusters must be a whole number >= 1; got 0"),
        ({"memory": 1.5}, "memory must be a whole number >= 1; got 1.5"),
        ({"rtol": np.nan}, "rtol must be finite"),
        ({"rtol": 1.0}, r"rtol must lie in \[0, 1\)"),
    ):
        with pytest.raises(ValueError, match=words):
            PooledJacobian(**bad)


def test_clusters_want_everyone():
    weights, many = np.full(12, 1 / 12), PooledJacobian(clusters=2)
    with pytest.warns(UserWarning, match=r"clusters=2\) with SchemeTwo: .* Use Full\(\) or clusters=1"):
        many.check(weights, pf.SchemeTwo(4))
    # Warnings are errors here: these say nothing.
    many.check(weights, pf.Full())
    PooledJacobian().check(weights, pf.SchemeTwo(4))


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_central_learner_reaches_the_optimum():
    prices = pf.Problem(
        pf.losses.negative_revenue, Pricing([6.0, 7.0, 6.5], [1.0, 2.0, 3.0], 1.0), WEIGHED, pf.Box(0.0, 9.0)
    )
    history = pf.run(
        prices.pooled(), pf.pg(0.05, window=5, batch=pf.Fixed(1000)), 60, theta=0.5, repeats=4, dtype="float64"
    )
    stable, optimal = pf.stable_point(prices), pf.optimal_point(prices)
    assert np.all(np.abs(history.final - optimal) < 0.2 * abs(stable - optimal))
