"""Models shown beside the global one: exact directions from losses alone, and deployment at growing intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.deploy import as_deployment

PART_EXAMPLES = {
    "pf.Explore": ("radius=0.5", "radius=0.5, pairs=False, directions='axes', rounds=3"),
    "pf.Growing": "first=2, power=0.5",
    "pf.estimators.ZerothOrder": (
        {"arguments": "points=2", "beside": {"deploy": "pf.Explore(0.5)"}},
        {"arguments": "points=1", "beside": {"deploy": "pf.Explore(0.5, pairs=False)"}},
    ),
}

EPS = np.asarray([[0.5, 0.2], [-0.1, 0.3]])
PLANE = pf.Problem(pf.losses.squared, pf.populations.Gaussian([[1.0, -2.0]], EPS[None], 0.0))


def models(problem, algorithm, rounds, theta, repeats=1):
    record = pf.Record(risks=False, consensus=False)
    return pf.run(problem, algorithm, rounds, theta=theta, record=record, dtype="float64", repeats=repeats).theta


def risk_slope(theta):
    """grad PR of PLANE: (I - eps)^T ((I - eps) theta - m)."""
    C = np.eye(2) - EPS
    return C.T @ (C @ theta - np.asarray([1.0, -2.0]))


def test_two_points_along_the_axes_are_coordinate_descent_on_the_performative_risk():
    # Any radius: the risk is quadratic. A step is d times the derivative along one axis, every second round.
    theta, wanted = np.zeros(2), [np.zeros(2)]
    for turn in range(20):
        axis = np.eye(2)[turn % 2]
        wanted += [theta, theta := theta - 0.1 * 2 * axis * risk_slope(theta)]
    explore = pf.Explore(3.0, directions="axes")
    found = models(PLANE, pf.two_point(0.1, 1.0, deploy=explore, local_steps=1), 40, np.zeros(2))[0]
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_two_points_reach_the_optimal_point_at_any_radius():
    people = pf.populations.Gaussian([[1.0, -2.0], [0.0, 3.0]], np.stack([EPS, -EPS]), 0.0)
    problem = pf.Problem(pf.losses.squared, people)
    found = models(problem, pf.two_point(0.2, radius=2.0), 800, np.zeros(2))[0, -1]
    np.testing.assert_allclose(found, np.asarray(pf.optimal_point(problem)), atol=1e-7)
    assert np.abs(found - np.asarray(pf.stable_point(problem))).max() > 0.1


@pytest.mark.usefixtures("double_precision")
def test_one_point_is_unbiased():
    # One dimension: u is +1 or -1, so that the mean of the two directions is the derivative itself.
    def direction(shown):
        zero = jnp.asarray(0, jnp.int32)
        broadcast = pf.types.Broadcast(jnp.asarray(1.0), shown, {}, zero, 1)
        local = pf.types.Local(pf.losses.squared, None, None, shown, broadcast, zero, jnp.asarray(0.1))
        z = jnp.asarray([2.0 + 0.5 * shown])  # D(shown), without noise
        return pf.estimators.ZerothOrder(1).estimate(None, jnp.asarray(1.0), pf.types.Batch(z, z, None), local, None)

    both = [direction(jnp.asarray(1.0 + far)).direction for far in (0.7, -0.7)]
    assert float(sum(both)) / 2 == pytest.approx(0.5 * (0.5 - 2.0), abs=1e-12)  # (1 - eps)((1 - eps) theta - m)


def test_one_point_comes_close_in_the_mean():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 0.5, 0.0))
    found = models(problem, pf.one_point(pf.schedules.harmonic(8.0, 60.0), radius=1.0), 3000, 0.0)[0, -500:]
    assert float(np.mean(found)) == pytest.approx(2.0, abs=0.1)


def test_who_missed_the_first_of_two_models_says_nothing():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 1.0], 0.5, 0.0))
    apart = pf.Cyclic([[0], [1]])  # client 0 meets all first models, client 1 all second ones
    assert np.all(models(problem, pf.two_point(0.2, 1.0, participation=apart), 10, 0.0) == 0)


def test_exploration_is_asked_for_and_projected():
    with pytest.raises(ValueError, match="learns from models"):
        pf.run(PLANE, pf.two_point(0.1, 1.0, deploy="round"), 1, theta=np.zeros(2))
    with pytest.raises(ValueError, match="the one model that all clients share"):
        pf.run(PLANE, pf.p_fedavg(0.1, deploy=pf.Explore(1.0), sharing=pf.sharing.PerClient()), 1, theta=np.zeros(2))
    inside = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 0.5, 0.0), domain=pf.Box(0.0, 1.5))
    # Of 2.4 and 0.4 people meet 1.5 and 0.4: the slope of the risk half way between, (1 - eps)((1 - eps) 0.95 - 1).
    found = models(inside, pf.two_point(0.1, 1.0), 2, 1.4)[0, -1]
    assert found == pytest.approx(1.4 - 0.1 * 0.5 * (0.5 * 0.95 - 1.0), rel=1e-9)


def test_axes_in_turn_after_the_model_itself_then_nothing_else():
    rule = as_deployment(pf.Explore(0.5, pairs=False, directions="axes", rounds=4))
    theta, shown = jnp.asarray([1.0, 2.0]), jnp.asarray([9.0, 9.0])
    seen = []
    for round in range(6):
        shown = rule.next(shown, theta, jnp.asarray(round, jnp.int32))
        seen.append(np.asarray(shown - theta).tolist())
    assert seen == [[0, 0], [0.5, 0], [0, 0.5], [0, 0], [0, 0], [0, 0]]
    pair = as_deployment(pf.Explore(2.0))
    one, other = (pair.next(theta, theta, jnp.asarray(round, jnp.int32)) - theta for round in (6, 7))
    np.testing.assert_allclose(one, -other, atol=1e-6)
    assert float(jnp.linalg.norm(one)) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(("first", "power", "rounds"), [(2, 1.0, [0, 2, 6, 12]), (1, 0.5, [0, 1, 3, 5, 7, 10, 13])])
def test_intervals_grow(first, power, rounds):
    rule = as_deployment(pf.Growing(first, power))
    now = jax.vmap(lambda t: rule.next(jnp.asarray(0.0), jnp.asarray(1.0), t))(jnp.arange(14, dtype=jnp.int32))
    assert np.flatnonzero(np.asarray(now)).tolist() == rounds


def test_training_goes_on_between_growing_deployments():
    theta, shown, wanted = 0.0, 0.0, [0.0]
    for t in range(20):
        shown = theta if t in (0, 2, 6, 12) else shown
        theta -= 0.4 * (theta - 1.0 - 0.5 * shown)
        wanted.append(theta)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 0.5, 0.0))
    found = models(problem, pf.p_fedavg(0.4, deploy=pf.Growing(2, 1.0)), 20, 0.0)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_what_does_not_repeat_has_no_moments():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 0.5, 1.0))
    for rule in (pf.Growing(), pf.Explore(0.1)):
        with pytest.raises(ValueError, match="is not periodic"):
            pf.moments(problem, pf.p_fedavg(0.1, deploy=rule), 3, theta=0.0)
