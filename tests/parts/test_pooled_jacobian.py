"""What a server learns of the reaction, what it remembers of clients, and all data in one place."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.reaction import Experience, Sighting
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.keys import run_keys
from performative._engine.prepare import on_device, read_theta
from performative._engine.risk import decoupled_risk
from performative._engine.setup import init_state, prepare
from performative._engine.simulated import federated_round
from performative.aggregators import Mean, PooledJacobian, Varp
from performative.populations import Gaussian, Mixture, Outliers, Pricing, Sluggish, Strategic
from performative.populations.pooled import Pooled
from performative.testing.uses import scene_of, slice_client
from performative.types import Cohort, Scene, Upload

PART_EXAMPLES = {
    "pf.aggregators.PooledJacobian": (
        {"arguments": "", "beside": {"estimator": "pf.estimators.Performative(7)"}},
        {
            "arguments": "memory=9",
            "beside": {"estimator": "pf.estimators.Performative(7)"},
        },
        {
            "arguments": "inner=pf.aggregators.Varp(), clusters=2, alike=True",
            "beside": {"estimator": "pf.estimators.Performative(7)"},
        },
    ),
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("double_precision")]
RNG = np.random.default_rng(0)
CLIENTS, D, M = 5, 2, 3


# What the server makes of clients' moments.


def some_moments(slopes=None, rows=30):
    """What each client has seen: rows of models and of f-hat, which follow the models by its own slope."""
    slopes = RNG.standard_normal((CLIENTS, M, D)) if slopes is None else slopes
    models = RNG.standard_normal((CLIENTS, rows, D))
    parameters = models @ np.swapaxes(slopes, 1, 2) + 0.1 * RNG.standard_normal((CLIENTS, rows, M))

    @jax.vmap
    def seen(models, parameters):
        start = Experience.empty(jnp.zeros(D), jnp.zeros(M))
        return jax.lax.scan(lambda e, row: (e.write(*row, row[1]), None), start, (models, parameters))[0]

    return jax.jit(seen)(jnp.asarray(models), jnp.asarray(parameters))


def told(seen, ready):
    """An upload of every client: what it has seen, and whether its window is full."""
    one = jnp.asarray(1, jnp.int32)
    return jax.vmap(lambda mine: Upload(jnp.zeros(D), one, {"reaction": mine}, {}))(Sighting(seen, jnp.asarray(ready)))


def spoilt(upload, active):
    """NaN in the rows of clients that sit out, which may hold anything."""
    rows = jnp.asarray(active)

    def spoil(leaf):
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.where(rows.reshape(rows.shape + (1,) * (leaf.ndim - 1)), leaf, jnp.nan) if floating else leaf

    return jax.tree.map(spoil, upload)


def begun(part, upload):
    return part.init(jnp.zeros(D), CLIENTS, jax.tree.map(lambda leaf: leaf[0], upload.extra))


def cohort(active, weight=None):
    ids = jnp.where(jnp.asarray(active), jnp.arange(CLIENTS, dtype=jnp.int32), CLIENTS)
    weight = np.full(CLIENTS, 1 / CLIENTS) if weight is None else weight
    return Cohort(ids, jnp.where(jnp.asarray(active), jnp.asarray(weight), 0), jnp.asarray(active))


AGGREGATE = quickly_compiled(lambda part, *given: part.aggregate(*given))
WEIGHTS = jnp.full(CLIENTS, 1 / CLIENTS)
EVERYONE = np.ones(CLIENTS, bool)


def take_part(part, kept, upload, who):
    return AGGREGATE(part, jnp.zeros(D), upload, who, WEIGHTS, kept)


def test_the_estimate_is_the_regression_over_all_clients():
    """About each client's own means: levels that differ between clients are no reaction."""
    part, seen = on_device(PooledJacobian(rtol=1e-6), jnp.float64), some_moments()
    weight = RNG.uniform(0.1, 1.0, CLIENTS)
    upload = told(seen, EVERYONE)
    kept = begun(part, upload)
    assert not (kept.heard[0] > 0)
    move, kept = take_part(part, kept, upload, cohort(EVERYONE, weight))
    gram, cross = (np.einsum("k,kij->ij", weight, leaf) for leaf in (seen.moments.gram, seen.moments.cross))
    assert np.all(np.asarray(move) == 0) and (kept.heard[0] > 0)
    np.testing.assert_allclose(kept.jacobian[0], cross @ np.linalg.inv(gram), rtol=1e-8)
    np.testing.assert_allclose(kept.moments.gram[0], gram / weight.sum(), rtol=1e-10)


def test_who_sits_out_counts_with_what_was_said_last():
    part, seen = on_device(PooledJacobian(rtol=1e-6), jnp.float64), some_moments()
    upload, kept = told(seen, EVERYONE), None
    kept = begun(part, upload)
    for r in range(200):  # one client a round, in turn
        who = np.arange(CLIENTS) == r % CLIENTS
        _, kept = take_part(part, kept, spoilt(upload, who), cohort(who, np.ones(CLIENTS)))
    # A mean with weights (1 - 1/N)^age: none of the five has less than 0.8^4 of the share of another.
    share = 0.8 ** ((CLIENTS - 1 - np.arange(CLIENTS)) % CLIENTS)
    gram, cross = (np.einsum("k,kij->ij", share, leaf) for leaf in (seen.moments.gram, seen.moments.cross))
    np.testing.assert_allclose(kept.jacobian[0], cross @ np.linalg.inv(gram), rtol=1e-6)
    # Nobody at all, or nobody with a full window: whatever stands in the rows, nothing changes.
    _, after = take_part(part, kept, spoilt(upload, ~EVERYONE), cohort(~EVERYONE))
    assert eqx.tree_equal(after, kept)
    _, after = take_part(part, kept, told(seen, ~EVERYONE), cohort(EVERYONE))
    assert eqx.tree_equal(after, kept)


def test_a_cluster_of_which_nobody_came_keeps_its_estimate():
    part = on_device(PooledJacobian(clusters=2), jnp.float64)
    slopes = np.where(np.arange(CLIENTS) < 2, -1.0, -5.0)[:, None, None] * np.eye(M, D)
    upload = told(some_moments(slopes), EVERYONE)
    kept = begun(part, upload)
    one = np.arange(CLIENTS) == 0
    _, early = take_part(part, kept, spoilt(upload, one), cohort(one))
    assert not np.any(early.heard)  # one client cannot be split in two
    _, kept = take_part(part, kept, upload, cohort(EVERYONE))
    assert np.all(kept.heard > 0)
    first = np.sort(np.asarray(kept.jacobian)[:, 0, 0])
    np.testing.assert_allclose(first, [-5.0, -1.0], atol=0.1)
    for who in (np.arange(CLIENTS) < 2, np.arange(CLIENTS) == 4):
        news = told(some_moments(slopes), EVERYONE)
        _, after = take_part(part, kept, spoilt(news, who), cohort(who))
        changed = np.any(np.asarray(after.jacobian) != np.asarray(kept.jacobian), axis=(1, 2))
        came = np.abs(np.asarray(kept.jacobian)[:, 0, 0] - slopes[np.flatnonzero(who)[0], 0, 0]) < 1
        np.testing.assert_array_equal(changed, came)
        assert np.all(np.isfinite(after.jacobian))


# In rounds.


@quickly_compiled
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


@pytest.mark.parametrize("steps", [1, 8])
def test_one_estimate_is_the_mean_slope(steps):
    """Also where models move on within a round, and the data with them."""
    algorithm = pf.pofl(0.01, window=5, batch=pf.Fixed(50), local_steps=steps, aggregator=PooledJacobian(alike=True))
    shared = after_rounds(two_kinds(), algorithm, 20).server.aggregator
    np.testing.assert_allclose(np.asarray(shared.jacobian).ravel(), [-3.0], rtol=0.05)


@pytest.mark.parametrize("who", [pf.Full(), pf.SchemeTwo(4)], ids=["everyone", "four of twelve"])
def test_clusters_keep_two_kinds_of_clients_apart(who):
    """Levels differ between clients: who came must not pass for reaction.

    The slope of one run has a standard deviation of up to 0.08 (four of twelve), so it is the mean over runs that is
    compared with the truth, within 4 standard errors; every client finds its own kind in every run.
    """
    algorithm = pf.pofl(0.01, 5, batch=pf.Fixed(50), participation=who, aggregator=PooledJacobian(clusters=2))
    runs = 100
    state = after_rounds(two_kinds(), algorithm, 90, seeds=range(runs))
    part = algorithm.aggregator
    shared = jax.vmap(part.shared)(state.server.aggregator)
    assert np.all(shared.known)
    slopes = np.asarray(shared.jacobian).reshape(runs, 2)
    error = np.std(np.sort(slopes), axis=0, ddof=1) / np.sqrt(runs)
    assert np.all(error < 0.01)
    assert np.all(np.abs(np.mean(np.sort(slopes), axis=0) - [-5.0, -1.0]) < 4 * error)
    label = jax.vmap(lambda one, seen: jax.vmap(one.nearest)(seen))(shared, state.clients.estimator.seen)
    weak = np.argmax(slopes, axis=1)
    np.testing.assert_array_equal(np.asarray(label) == weak[:, None], np.tile(np.arange(12) < 6, (runs, 1)))
    # Repeats do not mix: each is the same in other company.
    again = after_rounds(two_kinds(), algorithm, 90, seeds=(2, 7, 0)).server.aggregator
    np.testing.assert_allclose(np.asarray(again.jacobian).reshape(3, 2), slopes[[2, 7, 0]], rtol=1e-9)


def test_slips_are_named():
    with pytest.raises(ValueError, match=r"PooledJacobian needs clients that track.*Performative\(window=H\)"):
        pf.run(two_kinds(), pf.p_fedavg(0.1, aggregator=PooledJacobian()), 1, theta=0.0)
    with pytest.raises(ValueError, match=r"clusters=13\) has only 12 clients"):
        pf.run(two_kinds(), pf.pofl(0.1, 5, batch=pf.Fixed(9), aggregator=PooledJacobian(clusters=13)), 1, theta=0.0)
    with pytest.raises(ValueError, match=r"PooledJacobian needs clients that track"):
        still = pf.estimators.Performative(None, term="pathwise")
        pf.run(two_kinds(), pf.p_fedavg(0.1, estimator=still, aggregator=PooledJacobian()), 1, theta=0.0)
    with pytest.raises(ValueError, match=r"clusters=3\) groups clients of one round, of which SchemeTwo has 2"):
        few = pf.pofl(0.1, 5, batch=pf.Fixed(9), participation=pf.SchemeTwo(2), aggregator=PooledJacobian(clusters=3))
        pf.run(two_kinds(), few, 1, theta=0.0)
    with pytest.raises(ValueError, match=r"memory=1 rounds cannot tell how data follow 1 parameters"):
        pf.run(two_kinds(), pf.pofl(0.1, 5, batch=pf.Fixed(9), aggregator=PooledJacobian(memory=1)), 1, theta=0.0)
    for bad, words in (
        ({"clusters": 0}, "clusters must be a whole number >= 1; got 0"),
        ({"memory": 1.5}, "memory must be a whole number >= 1; got 1.5"),
        ({"alike": 1}, "alike must be True or False; got 1"),
        ({"rtol": np.nan}, "rtol must be finite"),
        ({"rtol": 1.0}, r"rtol must lie in \[0, 1\)"),
    ):
        with pytest.raises(ValueError, match=words):
            PooledJacobian(**bad)


# FedVARP.

P = np.asarray([0.3, 0.25, 0.2, 0.15, 0.1])
UNEVEN = pf.Problem(pf.losses.squared, Gaussian(RNG.standard_normal((5, 2)), RNG.uniform(0, 0.6, 5), 1.0), P)


def test_varp_with_everyone_present_is_the_mean():
    runs = [
        pf.run(
            UNEVEN, pf.p_fedavg(0.1, local_steps=2, aggregator=part), 6, dtype="float64", record=pf.Record(risks=False)
        ).theta
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

    @quickly_compiled
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
    world = mine.init(Scene(theta, problem.loss)) if world is None else world
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
    seen = scene_of(mine, jnp.asarray(1.0), slow.loss)
    world = mine.deploy(mine.init(scene_of(mine, jnp.asarray(0.0), slow.loss)), seen)
    np.testing.assert_allclose(world[0][0], speed, rtol=1e-12)
    z, who = pooled_draws(slow, 1.0, world, 1000)
    np.testing.assert_allclose(z, 1 + 0.5 * speed[who], rtol=1e-12)  # no noise: it is what that client has felt so far
    np.testing.assert_allclose(mine.settle(seen)[0][0], np.ones(3))
    # In a run the worlds lag behind the model by their speeds.
    state = after_rounds(slow.pooled(), pf.p_fedavg(0.2, batch=pf.Fixed(5)), 3, theta=9.0)
    felt = np.asarray(state.clients.world[0][0])
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
