"""Plans for data that drift, against an exact recursion of mean and covariance that knows nothing of the planner."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.paths import Jump, Linear, Periodic
from performative.plan import Tracking
from performative.populations import Drifting, Gaussian, Sluggish

BATCHES = (1, 8, 64)
LONG = 1500  # rounds of the recursion


def made(seed, size, sensitivity=None):
    """A random problem, what it is made of, and the cost."""
    rng = np.random.default_rng(seed)
    clients = 3
    weights = rng.dirichlet(np.full(clients, 4.0))
    mean, velocity = rng.normal(0.0, 1.0, (clients, size)), rng.normal(0.0, 0.05, (clients, size))
    eps = rng.uniform(-0.4, 0.5, (clients, size, size)) / math.sqrt(size) if sensitivity is None else sensitivity
    scale = rng.uniform(0.5, 2.0, clients)
    flat = (mean[:, 0], eps[:, 0, 0], velocity[:, 0]) if size == 1 else (mean, eps, velocity)
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian(*flat[:2], scale), Linear(flat[2])), weights=weights)
    cost = pf.Cost(step=rng.uniform(0.2, 1.0), sample=rng.choice([0.0, 0.01, 0.1]), communication=rng.uniform(0.0, 1.5))
    A = np.einsum("i,ijk->jk", weights, eps)
    s2 = float(np.sum(weights**2 * scale**2))
    return problem, (weights @ mean, A, weights @ velocity, s2), cost


def point(parts, time):
    m, A, v, _ = parts
    return np.linalg.solve(np.eye(len(m)) - A, m + v * time)


def by_steps(parts, rates, batch, time):
    """Mean square distance to the point of the time after very many rounds, for each rate: [G]."""
    m, A, v, s2 = parts
    d, G = len(m), len(rates)
    rate, theta, S = rates[:, None], np.zeros((G, d)), np.zeros((G, d, d))
    keep = np.eye(d) - rates[:, None, None] * (np.eye(d) - A)
    with np.errstate(over="ignore", invalid="ignore"):
        for r in range(LONG):
            theta = theta - rate * (theta - (m + v * (r * time) + theta @ A.T))
            S = keep @ S @ keep.transpose(0, 2, 1) + (rates**2 * s2 / batch)[:, None, None] * np.eye(d)
        far = theta - point(parts, LONG * time)
        found = np.sum(far**2, axis=1) + np.trace(S, axis1=1, axis2=2)
    return np.where(np.isfinite(found), found, np.inf)


def by_retraining(parts, period, rows):
    """Mean square distance over all units of time of the last of many retrainings."""
    m, A, v, s2 = parts
    theta, S = np.zeros(len(m)), np.zeros((len(m), len(m)))
    for j in range(200):
        theta, S = m + v * (j * period) + A @ theta, A @ S @ A.T + s2 / rows * np.eye(len(m))
    far = [theta - point(parts, 200 * period + age) for age in range(period)]
    return float(np.mean(np.sum(np.square(far), axis=1)) + np.trace(S))


@pytest.mark.parametrize(
    ("seed", "size"),
    [(0, 1), (1, 1), (3, 2), *(pytest.param(*more, marks=pytest.mark.slow) for more in [(2, 1), (4, 3), (6, 2)])],
)
def test_the_choice_is_within_a_tenth_of_the_best_on_an_exact_grid(seed, size):
    problem, parts, cost = made(seed, size)
    found = pf.plan(problem, cost, 0.1, batches=BATCHES)
    assert isinstance(found, Tracking)
    rates = np.geomspace(0.02, 4.0, 120)
    best, best_retraining = math.inf, math.inf
    for n in BATCHES:
        time = cost.step + cost.sample * n + cost.communication
        best = min(best, by_steps(parts, rates, n, time).min())
        periods = range(math.ceil(time), math.ceil(time) + 6)
        best_retraining = min([best_retraining, *(by_retraining(parts, P, n) for P in periods)])
    # What it says of its choice is so, and nothing on the grid is better by a tenth; the grid is fine to a hundredth.
    chosen, again = found.choice, found.retraining
    real = by_steps(parts, np.array([chosen.setting.rate]), chosen.setting.batch, chosen.round_time)[0]
    assert chosen.error.total == pytest.approx(real, rel=1e-6)
    assert again.error.total == pytest.approx(by_retraining(parts, again.period, again.rows), rel=1e-6)
    assert real <= 1.001 * best <= 1.1 * real
    assert again.error.total <= 1.001 * best_retraining


def test_in_one_dimension_it_is_the_closed_form():
    eps, scale, v = np.array([0.2, 0.5, 0.6]), np.array([1.0, 2.0, 0.5]), np.array([0.01, 0.02, 0.0])
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian(np.zeros(3), eps, scale), Linear(v)))
    found = pf.plan(problem, pf.Cost(step=1.0, communication=0.0), 0.3, batches=(4,))
    eta = pf.theory.best_step(v, eps, scale, batch=4)
    assert found.choice.setting.rate == pytest.approx(eta, rel=1e-4)
    known, again = (
        pf.theory.drift_error(v, eps, scale, eta, batch=4),
        pf.theory.retraining_error(v, eps, scale, 1, rows=4),
    )
    assert found.choice.error.total == pytest.approx(known.total, rel=1e-8)
    assert found.retraining.period == 1 and found.retraining.error.total == pytest.approx(again.total, rel=1e-12)
    assert found.reachable is (found.error <= 0.3) and found.choice.in_use == pytest.approx(known.total, rel=1e-8)
    # Rounds of 3.5 units of time; a retraining takes 4.
    longer = pf.plan(problem, pf.Cost(step=1.0, communication=2.5), 0.3, batches=(4,))
    known = pf.theory.drift_error(3.5 * v, eps, scale, longer.choice.setting.rate, batch=4)
    assert longer.choice.error.total == pytest.approx(known.total, rel=1e-8)
    again = pf.theory.retraining_error(v, eps, scale, 4, rows=4)
    assert longer.retraining.period == 4 and longer.retraining.error.total == pytest.approx(again.total, rel=1e-12)


def test_a_run_reaches_what_was_predicted():
    # The clients differ in their times too; a round lasts as long as the slowest.
    problem, _, _ = made(5, 2)
    cost = pf.Cost(step=[0.2, 0.5, 1.0], sample=0.05, communication=0.5)
    found = pf.plan(problem, cost, 0.1, theta=np.zeros(2), batches=(4, 16))
    history = pf.run(
        problem, found.algorithm, found.rounds + 40, theta=np.zeros(2), clock=found.clock, repeats=200,
        record=pf.Record(risks=False, consensus=False),
    )  # fmt: skip
    assert history["time"][0, 1] == pytest.approx(found.choice.round_time, rel=1e-6)
    each = np.mean(history["distance_to_stable"][:, found.rounds :] ** 2, axis=1)  # by repeat: these are independent
    assert abs(each.mean() - found.error**2) < 4 * each.std(ddof=1) / np.sqrt(len(each))


def test_nobody_waits_for_clients_without_weight():
    people = Drifting(Gaussian([0.0, 1.0, 2.0], 0.5, 1.0), Linear(0.1))
    problem = pf.Problem(pf.losses.squared, people, weights=[0.5, 0.5, 0.0])
    found = pf.plan(problem, pf.Cost(step=[1.0, 1.0, 5.0], communication=0.5), 0.5, batches=(4,))
    history = pf.run(problem, found.algorithm, 2, theta=0.0, clock=found.clock, record=pf.Record(risks=False))
    np.testing.assert_allclose(history["time"][0], found.choice.round_time * np.arange(3), rtol=1e-6)
    assert found.choice.round_time == 1.5


def test_the_line_may_begin_later():
    people = Gaussian([0.0, 2.0], 0.5, 1.0)
    late = pf.plan(pf.Problem(pf.losses.squared, Drifting(people, Linear(0.1) + Jump(30.0, 5.0))), pf.Cost(), 9.0)
    now = pf.plan(pf.Problem(pf.losses.squared, Drifting(people, Linear(0.1))), pf.Cost(), 9.0)
    assert late.since == 30.0 and now.since == 0.0 and late.rounds > now.rounds
    assert late.error == pytest.approx(now.error, rel=1e-9) and "From time 30 on" in str(late)


def test_what_it_says():
    problem, _, cost = made(1, 1)
    found = pf.plan(problem, cost, 1e-3)
    assert (
        not found.reachable and "0.001 is out of reach" in str(found) and "Follows" in str(pf.plan(problem, cost, 9.0))
    )
    told = json.loads(json.dumps(found.to_dict()))
    assert told["reached"] == found.error and told["better"] == found.better and told["why"] == list(found.why)
    assert told["choice"]["batch"] == found.choice.setting.batch and len(told["ranked"]) == 3
    # Without noise longer steps lag less, up to where they swing; where retraining runs away there is none.
    clean = pf.plan(pf.Problem(pf.losses.squared, Drifting(Gaussian([0.0, 0.0], 0.5, 0.0), Linear(1.0))), cost, 1.0)
    assert clean.better == "steps" and clean.choice.setting.rate == pytest.approx(0.98 * 2 / 0.5)
    swings = Drifting(Gaussian([0.0, 0.0], -1.5, 1.0), Linear(0.1))
    away = pf.plan(pf.Problem(pf.losses.squared, swings), cost, 1.0)
    assert away.retraining is None and away.better == "steps" and "it diverges" in str(away)


def test_where_one_step_cannot_serve_all_directions_retraining_follows_more_closely():
    size = np.array([1.0, 30.0])  # the longest step is 2 / 30; with it the first direction lags far behind

    def stretched(theta, z):
        return 0.5 * jnp.sum(size * (theta - z) ** 2)

    stretched.affine_gradient = True
    mean, eps = np.zeros((2, 2)), np.tile(0.5 * np.eye(2), (2, 1, 1))
    people = Drifting(Gaussian(mean, eps, 1.0), Linear(np.full((2, 2), 0.1)))
    found = pf.plan(pf.Problem(stretched, people), pf.Cost(step=1.0, communication=0.0), 0.7, batches=(16,))
    # v / c^2 in each direction, and the variance s^2 / (1 - eps^2), s^2 = 1 / (2 * 16).
    assert found.retraining.deployed == pytest.approx(2 * (0.1 / 0.25) ** 2 + 2 / 32 / 0.75, rel=1e-9)
    assert (
        found.better == "retraining" and not found.reachable and found.error > 2 * math.sqrt(found.retraining.deployed)
    )
    assert "retraining follows more closely" in str(found) and "within the accuracy" in str(found)
    assert "author's word" in str(found)


@pytest.mark.parametrize(
    ("path", "around", "options", "match"),
    [
        (Periodic(1.0, 20.0), None, {}, r"known exactly only if .* pf.sweep; .*\[target-moves\]"),
        (Linear(0.1), Sluggish, {}, r"no memory, no domain.*\[target-moves\]"),
        (Jump(3.0, 1.0), None, {}, r"stands still from time 3 on: plan\(problem.at\(3\), .*\[target-moves\]"),
        (Linear([0.1, -0.1]), None, {}, r"stands still from time 0 on"),
        (Linear(0.1), None, {"privacy": pf.Privacy(delta=1e-5, epsilon=1.0)}, "privacy= and clip= are not supported"),
        (Linear(0.1), None, {"local_steps": (4, 8)}, r"only E = 1 is supported; got local_steps = \(4, 8\)"),
        (
            Linear(0.1),
            None,
            {"cost": pf.Cost(latency=pf.participation.Exponential(1.0))},
            "latency=...\\) makes it random",
        ),
    ],
)
def test_elsewhere_it_refuses(path, around, options, match):
    people = Drifting(Gaussian([0.0, 1.0], 0.5, 1.0), path)
    problem = pf.Problem(pf.losses.squared, people if around is None else around(people, 0.5))
    with pytest.raises(ValueError, match=match):
        pf.plan(problem, **({"cost": pf.Cost(), "accuracy": 0.1} | options))


def test_what_no_step_follows_is_refused():
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian([0.0, 1.0], 1.5, 1.0), Linear(0.1)))
    with pytest.raises(ValueError, match=r"small steps do not settle .* -0.5.* follows it"):
        pf.plan(problem, pf.Cost(), 0.1)
