"""Aggregators, domains, schedules and losses against their equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._engine.prepare import on_device
from performative.aggregators import Mean, weighted_sum
from performative.types import Cohort, Upload

PART_EXAMPLES = {
    "pf.Box": ("lo=-1.0, hi=1.0", "lo=-1.0, hi=[0.5, 1.0, 2.0]"),
    "pf.Ball": "radius=2.0",
    "pf.schedules.Constant": "value=0.1",
    "pf.schedules.Harmonic": "scale=2.0, offset=20.0",
    "pf.schedules.Table": "values=[0.4, 0.2, 0.1], steps=2",
    "pf.losses.Quadratic": "scale=1.0",
    "pf.losses.Ridge": {"arguments": "penalty=0.1", "population": "pf.populations.Strategic(X, Y, 0.1)"},
    "pf.losses.Logistic": {"arguments": "penalty=0.1", "population": "pf.populations.Strategic(X, Y, 0.1)"},
    "pf.losses.CrossEntropy": {
        "arguments": "model=pf.losses.linear_scores",
        "population": "pf.populations.Static(X, Y)",
        "theta": "np.zeros((2, X.shape[-1]))",
    },
}

THETA = {"a": jnp.asarray([3.0, -4.0]), "b": jnp.asarray(12.0)}


def test_a_weighted_sum_leaves_out_what_is_not_active():
    rows = {"a": jnp.asarray([[1.0, 2.0], [3.0, 4.0], [jnp.nan, jnp.inf]])}
    weight = jnp.asarray([0.5, 0.25, 0.0])
    total = weighted_sum(rows, weight, jnp.asarray([True, True, False]))["a"]
    np.testing.assert_array_equal(total, [0.5 * 1 + 0.25 * 3, 0.5 * 2 + 0.25 * 4])
    assert np.all(np.isnan(weighted_sum(rows, weight)["a"]))


@pytest.mark.parametrize("total", [1.0, 1.5])
def test_the_mean_of_models_is_the_mean_of_updates_where_weights_sum_to_one(total):
    delta, weight = jnp.asarray([1.0, 3.0]), total * jnp.asarray([0.25, 0.75])
    upload = jax.vmap(lambda d: Upload(d, jnp.asarray(1), None, {}))(delta)
    cohort = Cohort(jnp.asarray([0, 2]), weight)
    theta, p = jnp.asarray(8.0), jnp.full(4, 0.25)
    moves = [Mean(of).aggregate(theta, upload, cohort, p, None)[0] for of in ("updates", "models")]
    models = float(jnp.sum(weight * (theta + delta)) - theta)
    assert moves[0] == total * 2.5
    assert moves[1] == pytest.approx(models)
    assert (moves[0] == moves[1]) == (total == 1.0)


def test_the_mean_of_models_is_refused_where_it_would_not_converge():
    unequal, equal = np.asarray([0.5, 0.25, 0.25]), np.full(3, 1 / 3)
    for scheme in (
        pf.SchemeTwo(2),
        pf.FirstK(2, pf.participation.Exponential()),
        pf.LocalWork(pf.SchemeTwo(2), [1, 1, 2]),
    ):
        with pytest.raises(ValueError, match=r'Mean\(of="models"\) with .* needs equal weights'):
            Mean("models").check(unequal, scheme)
        Mean("models").check(equal, scheme)
        Mean().check(unequal, scheme)
    Mean("models").check(unequal, pf.SchemeOne(2))
    Mean("models").check(unequal, pf.Full())


def test_a_box_clips_each_entry_and_a_ball_shrinks_the_whole():
    box = on_device(pf.Box(-1.0, 5.0), jnp.float32).project(THETA)
    np.testing.assert_array_equal(box["a"], [3.0, -1.0])
    assert box["b"] == 5.0
    ball = on_device(pf.Ball(6.5), jnp.float32).project(THETA)  # |theta| = 13
    np.testing.assert_allclose(ball["a"], [1.5, -2.0], rtol=1e-6)
    np.testing.assert_allclose(ball["b"], 6.0, rtol=1e-6)
    inside = on_device(pf.Ball(13.5), jnp.float32).project(THETA)
    np.testing.assert_array_equal(inside["a"], THETA["a"])
    assert not np.any(np.isnan(on_device(pf.Ball(1.0), jnp.float32).project(jnp.zeros(3))))


def test_step_sizes():
    t = jnp.asarray(7, jnp.int32)
    assert float(pf.schedules.harmonic(20.0, 200.0)(t)) == pytest.approx(20 / 207)
    assert float(pf.schedules.constant(0.3)(t)) == pytest.approx(0.3)
    assert float(pf.p_fedavg(rate=0.25).rate(t)) == 0.25


X, MODEL = np.asarray([0.5, -1.0, 2.0]), np.asarray([1.0, 2.0, 0.25])
SCORE = X @ MODEL


def value(loss, theta, z):
    with jax.enable_x64(True):
        return float(on_device(loss, jnp.float64)(*on_device((theta, z), jnp.float64)))


def test_losses_are_their_equations():
    assert value(pf.losses.squared, MODEL, X) == pytest.approx(np.sum((MODEL - X) ** 2) / 2)
    assert value(pf.losses.negative_revenue, MODEL, X) == pytest.approx(-SCORE)
    penalty = 0.3 * np.sum(MODEL**2) / 2
    assert value(pf.losses.ridge(0.3), MODEL, (X, np.asarray(2.0))) == pytest.approx((SCORE - 2) ** 2 / 2 + penalty)
    for y in (0, 1):
        plain = np.log1p(np.exp(SCORE)) - y * SCORE
        z = (X, np.asarray(y))
        assert value(pf.losses.logistic(0.3), MODEL, z) == pytest.approx(plain + penalty)
        weighted = pf.losses.logistic(0.3, class_weight=(1.0, 2.0))
        assert value(weighted, MODEL, z) == pytest.approx((1 + y) * plain + penalty)
        free = pf.losses.logistic(0.3, intercept=2)
        assert value(free, MODEL, z) == pytest.approx(plain + 0.3 * np.sum(MODEL[:2] ** 2) / 2)
    weights = np.stack([MODEL, -MODEL, X])
    scores = weights @ X
    entropy = pf.losses.cross_entropy(pf.losses.linear_scores)
    assert value(entropy, weights, (X, np.asarray(2))) == pytest.approx(np.log(np.exp(scores).sum()) - scores[2])


def test_the_logistic_loss_stays_finite_far_out():
    far = 1e4 * MODEL
    assert value(pf.losses.logistic(), far, (X, np.asarray(0))) == pytest.approx(max(1e4 * SCORE, 0.0))
    assert value(pf.losses.logistic(), -far, (X, np.asarray(0))) == pytest.approx(max(-1e4 * SCORE, 0.0))


def test_schedules_and_losses_take_plain_numbers():
    """As people type them, outside of any run."""
    assert float(pf.schedules.harmonic(1.0, 10.0)(0)) == pytest.approx(0.1)
    assert float(pf.schedules.constant(0.3)(7)) == pytest.approx(0.3)
    x = jnp.asarray([1.0, 2.0])
    assert float(pf.losses.ridge()(x, (x, 1))) == pytest.approx(8.0)
    assert float(pf.losses.logistic()(0.0 * x, (x, 1))) == pytest.approx(np.log(2.0))
    scores = pf.losses.cross_entropy(lambda theta, z: theta * z)
    assert float(scores(x, (x, 1))) == pytest.approx(np.log1p(np.exp(-3.0)))
