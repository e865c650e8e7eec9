"""Data that remember past models: worlds at rest, retraining one spell at a time, and worlds that never rest."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from solve_problems import MEAN, SENSITIVITY, WEIGHTS, gaussian

import performative as pf
from performative import solve
from performative.populations import AbstractPopulation, Gaussian, Sluggish
from performative.populations.nodes import standard_nodes

SPEED = np.array([0.3, 0.8, 0.1])


def slow(speed=SPEED, sensitivity=SENSITIVITY):
    return pf.Problem(pf.losses.squared, Sluggish(Gaussian(MEAN, sensitivity, 1.0), speed), WEIGHTS)


def follow(theta, speed, deployments, spells, step=None):
    """The recursion by hand: felt_i <- felt_i + s_i (theta - felt_i), theta <- sum_i p_i (m_i + eps_i felt_i)."""
    felt, path = np.full(3, theta), [theta]
    for _ in range(deployments):
        for _ in range(spells):
            felt = felt + speed * (theta - felt)
        target = WEIGHTS @ (MEAN + SENSITIVITY * felt)
        theta = target if step is None else theta - step * (theta - target)
        path.append(theta)
    return path


@pytest.mark.parametrize("spells", [1, 3])
def test_each_deployment_moves_the_world_by_its_spells(spells):
    retrained = solve.repeated_risk_minimization(slow(), 5.0, 6, spells=spells)
    np.testing.assert_allclose(retrained, follow(5.0, SPEED, 6, spells), rtol=1e-14)
    steps = solve.repeated_gradient_descent(slow(), 5.0, 0.4, 6, spells=spells)
    np.testing.assert_allclose(steps, follow(5.0, SPEED, 6, spells, step=0.4), rtol=1e-14)


def test_an_error_shrinks_by_what_speed_and_reaction_leave_of_it():
    # (1-s)^k + eps (1 - (1-s)^k), from the second deployment on: the first finds the world at rest under the start.
    eps, point = WEIGHTS @ SENSITIVITY, solve.stable_point(gaussian())
    for spells in (1, 4):
        left = (1 - 0.3) ** spells
        gap = np.diff(solve.repeated_risk_minimization(slow(0.3), 5.0, 4, spells=spells) - point)[1:]
        np.testing.assert_allclose(gap[1:] / gap[:-1], left + eps * (1 - left), rtol=1e-12)
    np.testing.assert_allclose(solve.stable_point(slow(0.3), report=True).contraction, 0.7 + 0.3 * eps, rtol=1e-12)
    waiting = solve.repeated_risk_minimization(slow(), 5.0, 4, spells=None)
    np.testing.assert_allclose(waiting, solve.repeated_risk_minimization(gaussian(), 5.0, 4), rtol=1e-12)


@pytest.mark.slow
def test_different_speeds_can_make_retraining_run_away_from_a_point_that_attracts_without_memory():
    def problem(speed):
        return pf.Problem(pf.losses.squared, Sluggish(Gaussian([1.0, 1.0], [3.0, -3.0], 1.0), speed))

    for speed, grows in ((np.array([1.0, 1.0]), False), (np.array([1.0, 0.1]), True)):
        # felt_i' = (1 - s_i) felt_i + s_i (m + sum_j p_j eps_j felt_j)
        joint = np.diag(1 - speed) + np.outer(speed, [1.5, -1.5])
        (found,) = solve.equilibria(problem(speed))
        np.testing.assert_allclose(found.contraction, max(abs(np.linalg.eigvals(joint))), atol=1e-7)
        path = solve.repeated_risk_minimization(problem(speed), 0.0, 60)
        assert found.attracting is not grows and (abs(path[-1] - found.theta) > 1.0) == grows
        assert found.settles  # steps that are small against the speeds do settle


def test_more_clients_than_a_matrix_takes():
    rng = np.random.default_rng(0)
    n = 520  # 512 rows at most make a matrix
    speed, eps = rng.uniform(0.2, 1.0, n), rng.uniform(-1.0, 1.5, n)
    found = solve.stable_point(
        pf.Problem(pf.losses.squared, Sluggish(Gaussian(np.ones(n), eps, 1.0), speed)), report=True
    )
    joint = np.diag(1 - speed) + np.outer(speed, eps / n)
    np.testing.assert_allclose(found.contraction, max(abs(np.linalg.eigvals(joint))), rtol=1e-8)


@pytest.mark.parametrize("speed", [pytest.param(0.0, marks=pytest.mark.slow), np.array([0.5, 0.0, 0.5])])
def test_people_who_never_react_have_no_point_and_stay_where_they_were(speed):
    for find in (solve.stable_point, solve.optimal_point, solve.equilibria, pf.certify):
        with pytest.raises(ValueError, match=r"does not come to rest.*world-never-rests"):
            find(slow(speed))
    path = solve.repeated_risk_minimization(slow(speed), 5.0, 3)
    np.testing.assert_allclose(path, follow(5.0, speed, 3, 1), rtol=1e-14)
    run = pf.run(slow(speed), pf.p_fedavg(0.1), rounds=2, theta=5.0, record=pf.Record(risks=1))
    assert np.all(np.isnan(run["performative_risk"])) and np.all(np.isfinite(run["decoupled_risk"]))
    assert "distance_to_stable" not in run.to_xarray()


class Habits(AbstractPopulation):
    """A user's own: habits move a part of the way to what the model suggests, and shape the data.

    w <- w + speed (level + pull tanh(theta) - w) + twist sin(w).
    """

    level: pf.types.Numbers = pf.per_client()
    pull: pf.types.Numbers = pf.number(default=0.8)
    speed: pf.types.Numbers = pf.number(default=0.4)
    twist: pf.types.Numbers = pf.number(default=0.1)

    def model_shape(self):
        return ()

    def init(self, scene):
        return jnp.zeros((), scene.theta.dtype)

    def deploy(self, world, scene):
        return (
            world + self.speed * (self.level + self.pull * jnp.tanh(scene.theta) - world) + self.twist * jnp.sin(world)
        )

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return world + 0.1 * theta + noise

    def quadrature(self, theta, count):
        return standard_nodes((), count)


def rest(level, theta, pull=0.8, speed=0.4, twist=0.1):
    w = 0.0
    for _ in range(300):
        w = w + speed * (level + pull * math.tanh(theta) - w) + twist * math.sin(w)
    return w


@pytest.mark.slow
def test_a_memory_without_settle_is_followed_to_its_limit():
    levels = np.array([0.2, 0.9])
    problem = pf.Problem(pf.losses.squared, Habits(levels))
    theta = 0.0
    for _ in range(200):
        theta = np.mean([rest(level, theta) for level in levels]) + 0.1 * theta
    found = solve.stable_point(problem, report=True)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-12)
    # One spell instead of the limit, as it was, is elsewhere.
    one = 0.0
    for _ in range(200):
        one = np.mean([0.4 * (level + 0.8 * np.tanh(one)) for level in levels]) + 0.1 * one
    assert abs(one - theta) > 0.3
    path = solve.repeated_risk_minimization(problem, 0.0, 60)
    np.testing.assert_allclose(path[-1], theta, rtol=1e-9)
    # Linear around the point: w_i' = keep_i w_i + push theta, then theta' = mean w' + theta / 10.
    keep = 1 - 0.4 + 0.1 * np.cos([rest(level, theta) for level in levels])
    push = 0.4 * 0.8 / np.cosh(theta) ** 2
    joint = np.array([[keep[0], 0, push], [0, keep[1], push], [keep[0] / 2, keep[1] / 2, push + 0.1]])
    np.testing.assert_allclose(found.contraction, max(abs(np.linalg.eigvals(joint))), rtol=1e-10)
    # The optimum needs the derivative of the limit: against a search on the risk by hand.
    best = minimize_scalar(lambda x: np.mean([(0.9 * x - rest(level, x)) ** 2 + 1 for level in levels]) / 2, tol=1e-12)
    np.testing.assert_allclose(solve.optimal_point(problem), best.x, rtol=1e-5)
    np.testing.assert_allclose(solve.optimal_point(problem, report=True).risk, best.fun, rtol=1e-10)


class Impatient(Habits):
    """Its `settle` stops after one spell."""

    def settle(self, scene):
        return self.deploy(self.init(scene), scene)


class Loyal(Habits):
    """Half of what they heard first stays with them for good."""

    def init(self, scene):
        return scene.theta, jnp.zeros((), jnp.int32)

    def deploy(self, world, scene):
        return world

    def sample(self, noise, world, theta):
        return 0.5 * (world[0] + theta) + noise


class Restless(Habits):
    """They change their minds each spell; the world is a whole number."""

    def init(self, scene):
        return jnp.zeros((), jnp.int32)

    def deploy(self, world, scene):
        return 1 - world

    def sample(self, noise, world, theta):
        return 0.5 * theta + world.astype(theta.dtype) + noise


@pytest.mark.parametrize(
    ("population", "code"),
    [
        (Impatient([0.2, 0.9]), "settle-is-no-limit"),
        (Loyal([0.2, 0.9]), "world-keeps-its-start"),
        (Restless([0.2, 0.9]), "settle-is-no-limit"),
        (Habits([0.2, 0.9], twist=3.0), "world-never-rests"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AbstractPopulation) else "",
)
def test_worlds_without_one_limit_are_refused_by_name(population, code):
    problem = pf.Problem(pf.losses.squared, population)
    with pytest.raises(ValueError, match=rf"{type(population).__name__}: .*{code}"):
        solve.stable_point(problem)
    path = solve.repeated_risk_minimization(problem, 0.3, 3)
    assert np.all(np.isfinite(path))


def test_a_start_of_which_the_memory_is_never_lost_shows_in_retraining():
    # theta' = (theta_0 + theta) / 2 stays at theta_0, whatever it is.
    np.testing.assert_allclose(
        solve.repeated_risk_minimization(pf.Problem(pf.losses.squared, Loyal([0.0])), 0.3, 3), 0.3
    )


def test_bad_spells():
    for spells in (0, -1, True):
        with pytest.raises(ValueError, match="spells must be a whole number"):
            solve.repeated_risk_minimization(slow(), 0.0, 1, spells=spells)
