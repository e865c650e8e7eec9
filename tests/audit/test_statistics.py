"""False alarms, coverage and power over thousands of simulated logs whose truth is known."""

import numpy as np
import pytest
import worlds

from performative import audit
from performative.audit.drift import deviations, guesses
from performative.audit.effect import effect_arrays
from performative.audit.instruments import weights
from performative.audit.response import slopes

LEVEL = 0.05


def some_quick(first, second):
    """Every pair; each value of either axis is in a quick one, and the other pairs are slow."""
    n = min(len(first), len(second))
    return [
        pytest.param(one, other, marks=() if i % n == j % n else pytest.mark.slow)
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]


def three_errors(rate, count):
    return 3 * np.sqrt(rate * (1 - rate) / count)


def alarms(world, drift):
    return np.mean(effect_arrays(*world.series, world.theta, world.time, drift).p_value < LEVEL)


# What the test stands on


def test_weights_know_the_past_only_and_spend_all():
    theta = np.random.default_rng(0).normal(size=(50, 12, 2)).cumsum(axis=1)
    other = theta.copy()
    other[:, 7:] += 5.0
    for w, v in zip(weights(theta, 10), weights(other, 10), strict=True):
        np.testing.assert_allclose((w**2).sum(axis=-1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(w[..., :7], v[..., :7])
        assert np.all(np.any(w[..., 7:] != v[..., 7:], axis=-1))


@pytest.mark.parametrize("drift", ["none", "linear", "walk", "smooth"])
def test_deviations_are_white_forward_and_blind_to_the_trend(drift):
    rng = np.random.default_rng(1)
    T, q = 9, 2
    time = np.cumsum(rng.uniform(0.5, 2.0, T))
    variance = rng.uniform(0.5, 2.0, (q, T))
    trend = 3.0 + (0.0 if drift == "none" else 2.0) * time
    at_zero = np.broadcast_to(trend, (q, T))
    unit = (time - time[0]) / np.ptp(time) * (T - 1)
    # The rows of the transform, one by one: the deviations of unit vectors.
    units = [deviations(np.tile(row, (q, 1)), variance, np.ones((T, 1)), time, drift) for row in np.eye(T)]
    for guess in guesses(drift, unit):
        M = np.stack([next(each).u for each in units], axis=-1)
        for j in range(q):
            S = np.diag(variance[j]) + variance[j].mean() * guess
            np.testing.assert_allclose(M[j] @ S @ M[j].T, np.eye(M.shape[1]), atol=1e-7)
            np.testing.assert_allclose(M[j] @ at_zero[j], 0.0, atol=1e-7)
            np.testing.assert_allclose(np.tril(M[j], -1), 0.0, atol=1e-9)


def test_a_single_log_gets_the_answer_of_its_batch():
    world = worlds.make(2, worlds=3, T=12, d=2)
    for drift in ("linear", "walk"):
        batch = effect_arrays(*world.series, world.theta, world.time, drift)
        for w in range(3):
            assert audit.effect_test(world.log(w), drift).p_value == pytest.approx(batch.p_value[w], rel=1e-9)


# False alarms: at most the level


@pytest.mark.parametrize(("training", "gap"), some_quick(worlds.TRAINING, (0.05, 1.0)))
def test_no_alarm_without_effect(training, gap):
    for drift, fitted in (("none", "none"), ("linear", "linear")):
        world = worlds.make(
            3, T=14, d=2, response="none", drift=drift, training=training, gap=gap, over_dispersion=0.03
        )
        assert alarms(world, fitted) <= LEVEL + three_errors(LEVEL, 2000)


@pytest.mark.parametrize(("training", "drift"), some_quick(worlds.TRAINING, ("walk", "jump")))
def test_no_alarm_under_walks_and_jumps(training, drift):
    size = {"walk": 0.1, "jump": 0.3}[drift]
    world = worlds.make(4, T=16, response="none", drift=drift, drift_size=size, training=training)
    assert alarms(world, "walk") <= LEVEL + three_errors(LEVEL, 2000)


@pytest.mark.parametrize(
    "training",
    [pytest.param(t, marks=() if t in ("retrained", "damped") else pytest.mark.slow) for t in worlds.TRAINING],
)
def test_no_alarm_under_slow_waves(training):
    world = worlds.make(5, T=14, response="none", drift="wave", drift_size=0.3, training=training)
    assert alarms(world, "smooth") <= LEVEL + three_errors(LEVEL, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("T", [12, 30])
@pytest.mark.parametrize("training", worlds.TRAINING)
@pytest.mark.parametrize(
    ("drift", "size"), [("none", 0.0), ("linear", 0.05), ("walk", 0.05), ("walk", 0.2), ("wave", 0.3)]
)
def test_no_alarm_by_default(T, training, drift, size):
    for gap in (0.05, 1.0):
        world = worlds.make(6, T=T, response="none", drift=drift, drift_size=size, training=training, gap=gap)
        assert alarms(world, "smooth") <= LEVEL + three_errors(LEVEL, 2000)


@pytest.mark.parametrize(("drift", "size", "rows"), [("wave", 2.0, 400), ("season", 0.3, 8000), ("season", 1.5, 400)])
def test_no_alarm_under_tall_waves_and_seasons(drift, size, rows):
    """24 deployments, half a standard deviation or more of season: models that were trained on it follow it."""
    for training in ("retrained", "damped", "explored"):
        world = worlds.make(
            7, worlds=200, T=24, rows=rows, response="none", drift=drift, drift_size=size, training=training, gap=0.1
        )
        assert alarms(world, "smooth") <= LEVEL + three_errors(LEVEL, 200)


def test_what_the_test_cannot_tell():
    """A drift that settles as retrained models do looks like a response, and most often is said to be explicable.

    A jump looks like a response to a test for trends.
    """
    settling = worlds.make(
        7, worlds=400, T=24, rows=400, response="none", drift="settling", drift_size=1.5, training="damped", gap=0.1
    )
    found = effect_arrays(*settling.series, settling.theta, settling.time, "smooth")
    fooled = np.mean(found.p_value < LEVEL)
    assert fooled > 0.2
    assert np.mean(found.p_any_drift < LEVEL) < 0.5 * fooled
    jump = worlds.make(7, T=16, response="none", drift="jump", drift_size=0.5, training="damped", gap=1.0)
    assert alarms(jump, "linear") > 0.15


def test_models_off_the_path_of_the_data_leave_no_drift_to_explain_them():
    """Models drawn by hand: no drift, however large, explains a response of half a standard deviation."""
    world = worlds.make(9, worlds=400, T=20, size=0.5, training="by hand", gap=1.0)
    found = effect_arrays(*world.series, world.theta, world.time, "smooth")
    assert np.all(found.p_any_drift >= found.p_value)
    assert np.mean(found.p_any_drift < LEVEL) > 0.9


@pytest.mark.slow
def test_many_parameters():
    quiet = worlds.make(8, T=20, d=12, response="none", drift="linear", training="cumulative")
    assert alarms(quiet, "linear") <= LEVEL + three_errors(LEVEL, 2000)
    loud = worlds.make(8, worlds=300, T=20, d=12, size=0.5, training="by hand")
    assert alarms(loud, "linear") > 0.9
    answer = audit.response(loud.log(0))
    assert answer.identified
    assert not audit.response(worlds.make(8, worlds=1, T=14, d=12).log(0)).identified


# Power


def test_power():
    """400 rows, models explored by 0.2: 30 deployments show a response of 0.3 standard deviations per unit."""
    world = worlds.make(9, T=30, size=0.3, training="explored")
    assert alarms(world, "linear") > 0.9 + three_errors(0.9, 2000)
    assert alarms(world, "walk") > 0.9 + three_errors(0.9, 2000)


@pytest.mark.slow
def test_power_by_default():
    explored = worlds.make(9, T=30, size=0.3, training="explored")
    assert alarms(explored, "smooth") > 0.8 + three_errors(0.8, 2000)
    by_hand = worlds.make(9, T=12, size=0.5, training="by hand", gap=1.0)
    assert alarms(by_hand, "smooth") > 0.9


def test_what_is_detectable_is_detected():
    """`detectable` is the response that is seen nine times in ten; the models are drawn alike in all worlds."""
    quiet = worlds.make(10, worlds=200, T=20, response="none", training="by hand")
    found = [audit.effect_test(quiet.log(w), "linear").detectable[0, 0] for w in range(200)]
    loud = worlds.make(11, T=20, size=float(np.median(found)), training="by hand")
    assert 0.8 < alarms(loud, "linear") < 0.97


# Coverage


def covers(world, drift="linear", method="exact", draws=1000):
    found = slopes(*world.series, world.theta, world.time, drift, 0.95, method, draws)
    entries = ((found.lower <= world.B) & (found.upper >= world.B)).mean(axis=0)
    true = np.linalg.norm(world.B, 2, axis=(1, 2))
    return entries, np.mean((found.sensitivity_lower <= true) & (true <= found.sensitivity_upper))


@pytest.mark.parametrize(("response", "training"), some_quick(worlds.MAPS, worlds.TRAINING))
def test_intervals_hold_the_truth(response, training):
    # Models that hardly leave the noise where a trend is fitted for nothing, and ones that do where there is a trend.
    gap, drift = (0.05, "none") if training in ("damped", "cumulative") else (0.8, "linear")
    world = worlds.make(12, T=12, response=response, training=training, gap=gap, drift=drift, drift_size=0.02)
    entries, sensitivity = covers(world)
    assert entries.min() >= 0.95 - three_errors(0.95, 2000)
    assert sensitivity >= 0.95 - three_errors(0.95, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("response", worlds.MAPS)
@pytest.mark.parametrize("training", worlds.TRAINING)
@pytest.mark.parametrize(("T", "d"), [(16, 2), (30, 3), (40, 1)])
def test_intervals_hold_the_truth_with_more_parameters(response, training, T, d):
    world = worlds.make(13, T=T, d=d, response=response, training=training, gap=0.8, drift="linear", drift_size=0.005)
    entries, sensitivity = covers(world)
    assert entries.min() >= 0.95 - three_errors(0.95, 2000)
    assert sensitivity >= 0.95 - three_errors(0.95, 2000)


def test_intervals_under_a_walk():
    for training in ("retrained", "explored"):
        world = worlds.make(14, T=14, drift="walk", drift_size=0.1, training=training)
        entries, sensitivity = covers(world, "walk", draws=500)
        assert min(entries.min(), sensitivity) >= 0.95 - three_errors(0.95, 2000)


def test_least_squares_misses_more_often_than_it_says():
    """The trap: models trained on earlier errors bias least squares. By hand it is right."""
    trained = worlds.make(15, T=12, response="mixture", training="damped", gap=0.05)
    assert covers(trained, method="least squares")[0].min() < 0.9
    by_hand = worlds.make(15, T=12, training="by hand")
    assert covers(by_hand, method="least squares")[0].min() >= 0.95 - three_errors(0.95, 2000)


# One log


def test_the_answer_names_column_and_parameter():
    rng = np.random.default_rng(16)
    T, rows = 24, 500
    theta = rng.normal(size=(T, 2))
    data = rng.normal(size=(T, rows, 3))
    data[..., 1] = 3.0 * data[..., 1] - 1.5 * theta[:, None, 0]
    log = audit.ClientLog(
        theta, np.arange(T), np.full(T, rows), data.mean(axis=1), np.stack([np.cov(z.T) for z in data]), data,
        ("age", "income", "default"), ("w_age", "w_income"),
    )  # fmt: skip
    effect = audit.effect_test(log)
    assert (effect.column, effect.parameter) == ("income", "w_age")
    assert effect.p_value < 0.001
    assert effect.by_column[1] < 0.001 < effect.by_column[[0, 2]].min()
    answer = audit.response(log)
    assert [(line.column, line.parameter) for line in answer.directions] == [("income", "w_age")]
    assert answer.directions[0].in_sd == pytest.approx(-0.5, abs=0.05)
    assert answer.sensitivity_lower < 1.5 < answer.sensitivity_upper


@pytest.mark.parametrize(
    ("theta", "T", "word"),
    [
        (lambda t: 0 * t + 2.0, 12, "hardly changed"),
        (lambda t: 1 - 0.3 * t, 12, "linearly in time"),
        (lambda t: np.sin(t), 5, "needs 6"),
        (lambda t: np.sin(t), 1, "needs 6"),
    ],
)
def test_not_identified(theta, T, word):
    t = np.arange(1.0 * T)
    log = audit.ClientLog(theta(t)[:, None], t, np.full(T, 100), theta(t)[:, None], np.ones((T, 1, 1)))
    effect, answer = audit.effect_test(log), audit.response(log)
    assert not effect.identified and effect.p_value == 1.0
    assert word in effect.reasons[0]
    assert not answer.identified and answer.sensitivity_upper == np.inf


def test_a_response_that_leaves_the_means_alone():
    rng = np.random.default_rng(17)
    T, rows = 30, 1000
    theta = rng.normal(size=(T, 1))
    x = rng.normal(size=(T, rows))
    y = (1.0 - 0.5 * theta) * x + rng.normal(size=(T, rows))
    data = np.stack([x, y], axis=-1)
    log = audit.ClientLog(
        theta, np.arange(T), np.full(T, rows), data.mean(axis=1), np.stack([np.cov(z.T) for z in data])
    )
    assert audit.effect_test(log, "linear").p_value > 0.1
    seen = audit.effect_test(audit.with_covariances(log), "linear")
    assert seen.p_value < 0.001 and seen.column == "cov(x0, x1)"


def test_a_log_that_makes_no_sense_is_refused():
    good = dict(
        theta=np.zeros((3, 1)), time=np.arange(3.0), count=np.full(3, 9), mean=np.zeros((3, 1)), cov=np.ones((3, 1, 1))
    )
    for change, word in (
        ({"time": np.array([0.0, 2.0, 1.0])}, "time must increase"),
        ({"count": np.array([9, 1, 9])}, r"count\[1\] = 1"),
        ({"mean": np.zeros((2, 1))}, "mean must have shape"),
        ({"columns": ("a", "b")}, "columns must contain 1 names"),
        ({"theta": np.full((3, 1), np.nan)}, "theta contains non-finite"),
    ):
        with pytest.raises(ValueError, match=word):
            audit.ClientLog(**{**good, **change})
    with pytest.raises(ValueError, match="drift must be one of"):
        audit.effect_test(audit.ClientLog(**good), "seasonal")


def test_a_rare_label_that_never_occurred():
    """Deployments without one positive have no variance of their own; a column without any has none at all."""
    rng = np.random.default_rng(19)
    T, rows = 20, 200
    data = (rng.uniform(size=(T, rows, 1)) < 0.01).astype(float)
    within = np.stack([np.atleast_2d(np.cov(z.T)) for z in data])
    assert np.any(within == 0)
    log = audit.ClientLog(rng.normal(size=(T, 1)), np.arange(T), np.full(T, rows), data.mean(axis=1), within)
    assert audit.effect_test(log, "linear").p_value > LEVEL
    assert np.all(np.isfinite(audit.response(log).upper))
    still = audit.ClientLog(log.theta, log.time, log.count, 0 * log.mean, 0 * within, columns=("label",))
    with pytest.raises(ValueError, match=r"'label'.* constant"):
        audit.effect_test(still)


# Distances


def test_distances_of_shifted_rows():
    rng = np.random.default_rng(18)
    T, rows = 12, 400
    theta = rng.normal(size=(T, 2))
    B = np.array([[0.8, 0.0], [0.0, 0.8]])
    for q in (1, 2):
        data = rng.normal(size=(T, rows, q)) + (theta @ B.T)[:, None, :q]
        one = theta if q == 2 else theta[:, :1]
        log = audit.ClientLog(
            one, np.arange(T), np.full(T, rows), data.mean(axis=1),
            np.stack([np.atleast_2d(np.cov(z.T)) for z in data]), data,
        )  # fmt: skip
        found = audit.shift_distances(log)
        assert found.sliced == (q == 2)
        assert found.sensitivity == pytest.approx(0.8, rel=0.1)
        pair = max(found.pairs, key=lambda pair: pair.models)
        # Two samples of one law never coincide; the floor is that of 400 rows, however far the rows moved.
        assert 0.02 < pair.floor < 0.25 < pair.distance


@pytest.mark.slow
@pytest.mark.parametrize("drift", ["smooth", "linear"])
def test_what_is_called_detectable_is_mostly_seen(drift):
    """A world with the response that it says would be seen with 90% power. Student's t is an approximation."""
    seen, repeats, T, rows = [], 150, 12, 60
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        theta, noise = rng.normal(size=(T, 1)), rng.normal(size=(T, rows, 1))

        def world(slope, theta=theta, noise=noise):
            z = slope * theta[:, None] + noise
            within = z.var(axis=1, ddof=1)[..., None]
            return audit.ClientLog(theta, np.arange(float(T)), np.full(T, float(rows)), z.mean(axis=1), within)

        claimed = audit.effect_test(world(0.0), drift).detectable[0, 0]
        seen.append(audit.effect_test(world(claimed), drift).p_value <= 0.05)
    assert np.mean(seen) >= 0.9 - 3 * np.sqrt(0.09 / repeats)
