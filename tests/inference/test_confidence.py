"""Intervals from one run: closed forms, what they are in doubt about, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coverage_cases import CASES, gaussian, several
from scipy import stats

import performative as pf
from performative._base.describe import describe
from performative.inference.autoregression import autoregression
from performative.inference.batch_means import batch_means
from performative.inference.linear import Draws, Local, averages
from performative.inference.quantities import _least
from performative.theory.gaussian import weight_moments

RECORD = pf.Record(risks=False, consensus=False)
SLOW = pytest.mark.slow


def run(problem, algorithm, rounds=400, theta=0.0, repeats=3, **options):
    return pf.run(problem, algorithm, rounds, theta, repeats=repeats, **({"record": RECORD} | options))


def made(algorithm=None, clients=1, theta=None, **fields):
    """A history without a run: by default independent models around 1, as many as batch means ask for."""
    theta = np.random.default_rng(0).normal(1.0, 1.0, (3, 401)) if theta is None else theta
    rounds = np.arange(theta.shape[1])
    given = {
        "theta": theta, "rounds": rounds, "records": {}, "risk_rounds": rounds[1:1], "risks": {},
        "weights": np.full(clients, 1 / clients), "participation": None, "stopped_at": np.full(len(theta), -1),
        "meta": {} if algorithm is None else {"config": describe(algorithm)},
    }  # fmt: skip
    return pf.History(**(given | fields))


@pytest.mark.parametrize(
    "scheme, k, deploy",
    [
        ("two", 3, "round"),
        ("one", 2, "step"),
        *(pytest.param(*row, marks=SLOW) for row in [("full", None, "step"), ("one", 2, "round"), ("two", 3, "step")]),
    ],
)
def test_mean_and_variance_are_those_of_theory(scheme, k, deploy):
    """Counting the last round alone, against `pf.theory.gaussian_moments`: an independent recursion."""
    m, eps, sd = np.linspace(0, 2, 4), np.array([-0.3, 0.1, 0.4, 0.8]), np.linspace(0.5, 1.5, 4)
    p, eta = np.array([0.1, 0.2, 0.3, 0.4]), 2.0 / (np.arange(60) + 20.0)
    exact = pf.theory.gaussian_moments(
        m, eps, sd, eta, local_steps=3, weights=p, batch=2, start=5.0, scheme=scheme, k=k, deploy=deploy
    )
    stable = p @ m / (1 - p @ eps)
    moments = weight_moments(p, scheme, k)
    with jax.enable_x64(True):
        shape = (1, 4, 1, 1)
        near = Local(
            jnp.asarray((1 - eps) * stable - m)[None, :, None],
            jnp.ones(shape), jnp.asarray(-eps).reshape(shape), jnp.asarray(sd**2 / 2).reshape(shape),
        )  # fmt: skip
        found = averages(
            near, jnp.asarray([[5.0 - stable]]), jnp.asarray(p), jnp.asarray(eta.reshape(20, 3)),
            jnp.arange(20) == 19, Draws(*map(jnp.asarray, (moments.pair, moments.own, moments.square))),
            deploy == "step",
        )  # fmt: skip
        mean = stable + found.W[0, 0, 0] * (5.0 - stable) + found.c[0, 0]
    np.testing.assert_allclose(mean, exact.mean[-1], rtol=1e-9)
    np.testing.assert_allclose(found.covariance[0, 0, 0], exact.variance[-1], rtol=1e-9)


@SLOW
def test_the_error_of_averaged_steps_is_polyaks():
    """T Var -> sigma^2 / (1 - eps)^2."""
    problem, algorithm = gaussian(0.4, scale=2.0), pf.p_fedavg(0.05)
    history = run(problem, algorithm, 40_000, record=pf.Record(risks=False, consensus=False, every=10))
    found = pf.confidence(history, 0.95, problem, algorithm)
    rounds = 0.75 * 40_000
    np.testing.assert_allclose(rounds * found.error**2, 4.0 / 0.36, rtol=0.01)
    np.testing.assert_allclose(found.high - found.low, 2 * 1.959964 * found.error, rtol=1e-5)
    np.testing.assert_allclose(found.estimate, history.theta[:, history.rounds > 10_000].mean(axis=1), atol=1e-4)


def test_the_error_of_retraining_is_the_closed_form():
    """Models spread by sigma^2 / (n (1 - eps^2)), and their point is known up to sigma^2 / (n T (1 - eps)^2)."""
    rng, theta = np.random.default_rng(0), np.full((500, 401), 2.5)
    for t in range(400):
        theta[:, t + 1] = rng.normal(1.0 + 0.6 * theta[:, t, None], 1.0, (500, 20)).mean(axis=1)
    np.testing.assert_allclose(np.var(theta[:, 50:]), 1 / (20 * (1 - 0.36)), rtol=0.02)
    found, same = pf.confidence(theta), pf.confidence(made(theta=theta), method="autoregression")
    np.testing.assert_allclose(np.mean(found.error**2), 1 / (20 * 400 * 0.16), rtol=0.05)
    assert abs(np.mean(found.covers(2.5)) - 0.95) < 4 * np.sqrt(0.05 * 0.95 / 500)
    np.testing.assert_array_equal(found.low, same.low)
    assert found.method == same.method == "autoregression" and found.kept == 400 and not found.notes


def test_an_autoregression_of_several_coordinates():
    """Also that least squares' loss of M is made up for: in one dimension it is (1 + 3 M) / T."""
    rng = np.random.default_rng(0)
    M, level, T = np.array([[0.5, 0.2], [-0.3, 0.4]]), np.array([1.0, 2.0]), 300
    x = np.zeros((2000, T + 1, 2))
    for t in range(T):
        x[:, t + 1] = level + x[:, t] @ M.T + rng.normal(size=(2000, 2)) @ np.diag([1.0, 2.0])
    point, inverse = np.linalg.solve(np.eye(2) - M, level), np.linalg.inv(np.eye(2) - M)
    found = autoregression(x)
    exact = inverse @ np.diag([1.0, 4.0]) @ inverse.T / T
    np.testing.assert_allclose(found.covariance.mean(axis=0), exact, rtol=0.08, atol=0.02 * exact.max())
    np.testing.assert_allclose(found.center.mean(axis=0), point, atol=4 * np.sqrt(exact.max() / 2000))


def test_batch_means_of_correlated_records():
    """The corrected variance is that of the mean, where plain batches are a tenth too small."""
    rng = np.random.default_rng(1)
    n, rho, R = 2000, np.exp(-1 / 10), 2000
    x = np.empty((R, n, 1))
    x[:, 0] = rng.normal(size=(R, 1))
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=(R, 1))
    found = batch_means(x)
    lags = np.arange(1, n)
    exact = (1 + 2 * np.sum((1 - lags / n) * rho**lags)) / n
    plain = x.reshape(R, 20, n // 20).mean(axis=2).var(axis=1, ddof=1).mean() / 20
    assert plain < 0.93 * exact
    np.testing.assert_allclose(found.covariance.mean(), exact, rtol=0.04)
    assert "too short" in batch_means(x[:, :400]).doubts[0]
    assert not batch_means(rng.normal(size=(20, 2000, 2))).doubts


@SLOW
def test_a_wrong_curvature_does_not_cover():
    """The test above can fail: an interval for another reaction than the run's holds the point too rarely."""
    algorithm = pf.p_fedavg(0.2)
    history = run(gaussian(0.5), algorithm, 2000, repeats=200)
    wrong = pf.confidence(history, 0.95, gaussian(0.0), algorithm)
    assert np.mean(wrong.covers(2.0)) < 0.8


@SLOW
def test_local_steps_are_corrected_for():
    """Rounds of ten local steps settle elsewhere, by a multiple of the error."""
    problem = gaussian(np.array([0.0, 0.8]), np.array([0.0, 2.0]), 0.1)
    algorithm = pf.p_fedavg(0.1, local_steps=10)
    history = run(problem, algorithm, 2000, repeats=20)
    with pytest.warns(pf.PerformativeWarning, match="10 local steps.*interval-in-doubt"):
        plain = pf.confidence(history)
    stable = pf.stable_point(problem)
    assert np.all(np.abs(plain.estimate - stable) > 20 * plain.error)
    found = pf.confidence(history, 0.95, problem, algorithm)
    assert np.all(np.abs(found.estimate - stable) < 5 * found.error) and not found.notes


def test_intervals_hold_the_truth_in_a_few_hundred_runs():
    """Within four standard errors of 95%; `test_coverage.py` has more problems, over ten thousand runs each."""
    problem, case = several(), CASES["5 local steps, falling rate"]
    found = pf.confidence(run(problem, case.algorithm, 100, repeats=400), 0.95, problem, case.algorithm)
    inside = found.covers(pf.stable_point(problem))
    assert abs(inside.mean() - 0.95) < 4 * np.sqrt(0.05 * 0.95 / 400) and not found.notes
    assert np.all(found.risk.low < found.risk.estimate) and np.all(found.risk.estimate < found.risk.high)
    assert np.all(found.gap.low >= 0)
    least = found.risk.estimate - found.gap.estimate
    np.testing.assert_allclose(least, least[0], rtol=1e-9)
    text = str(found)
    assert "risk there" in text and "gap to optimal" in text and "95% intervals" in text


@SLOW
def test_the_gap_of_people_who_do_not_react():
    """The delta method has no width where the gradient vanishes; the region's image holds 0 as often as theta's."""
    problem, algorithm = gaussian(0.0), pf.p_fedavg(0.1)
    found = pf.confidence(run(problem, algorithm, repeats=300), 0.9, problem, algorithm)
    inside = found.covers(1.0)
    np.testing.assert_array_equal(found.gap.low <= 1e-12, inside)
    assert 0.8 < inside.mean() < 0.97 and np.all(found.gap.high > 0)


def test_the_least_of_a_quadratic_on_a_ball():
    rng = np.random.default_rng(2)
    slope, curvatures = rng.normal(size=(40, 2)), np.sort(rng.normal(size=(40, 2)), axis=1)
    slope[:5] = 0.0
    radius = rng.uniform(0.2, 3.0, 40)
    angle, size = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, 1, 201))
    v = np.stack([np.cos(angle) * size, np.sin(angle) * size], axis=-1).reshape(-1, 2)
    for k in range(40):
        w = radius[k] * v
        brute = np.min(w @ slope[k] + w**2 @ curvatures[k] / 2)
        found = _least(slope[k : k + 1], curvatures[k : k + 1], radius[k : k + 1])[0]
        np.testing.assert_allclose(found, brute, rtol=2e-3, atol=2e-3)
        assert found <= brute + 1e-9


def test_history_interval_is_confidence():
    history = made()
    found, same = history.interval(0.9), pf.confidence(history, 0.9)
    np.testing.assert_array_equal(found.low, same.low)
    assert found.method == "batch means" and found.estimate.shape == (3,) and found.repeats == 3 and not found.notes
    assert np.all(history.interval(0.99).low < found.low)
    t = stats.t.ppf(0.95, 19)
    np.testing.assert_allclose(found.high - found.low, 2 * t * found.error)


@SLOW
def test_recorded_risks_have_an_interval():
    problem = gaussian(0.2)
    history = run(problem, pf.p_fedavg(0.5), 4000, record=pf.Record(risks=400, consensus=False))
    found = history.interval()
    assert found.gap is None and np.all(found.risk.low < found.risk.high)
    # The models vary around theta_PS by eta sigma^2 / (c (2 - eta c)), c = 1 - eps.
    spread = 0.5 / (0.8 * (2 - 0.4))
    expected = (1 + (0.2 - 1.0) ** 2 * spread) / 2
    np.testing.assert_allclose(found.risk.estimate, expected, rtol=0.1)


def test_models_of_several_leaves():
    x = np.random.default_rng(3).normal(size=(3, 401, 2))
    history = made(theta=x)
    found = dataclasses.replace(history, theta={"a": x[..., 0], "b": np.stack([x, x], axis=-1)}).interval()
    assert found.estimate["b"].shape == (3, 2, 2)
    np.testing.assert_array_equal(found.low["b"][:, 1, 0], found.low["b"][:, 1, 1])
    np.testing.assert_array_equal(found.high["a"], history.interval().high[:, 0])
    assert "stable point['a']" in str(found)


def outliers(inner):
    return pf.populations.Contaminated(inner, 0.1, pf.populations.Outliers(np.array([9.0]), 1.0))


DOUBTS = {
    "clips": pf.pcsgd(0.3, clip=0.5, noise_multiplier=0.1),
    "clipped updates": pf.p_fedavg(0.3, channel=pf.channels.ClippedNoise(0.5, 0.1)),
    "learns people's reaction": pf.p_fedavg(0.3, estimator=pf.estimators.Performative(None, term="pathwise")),
    "not a weighted mean": pf.p_fedavg(0.3, aggregator=pf.aggregators.Median()),
    "not known to settle at the stable point": pf.fedprox(0.3, mu=0.1),
    "rate is not known to be constant": pf.p_fedavg(pf.schedules.harmonic(10.0, 20.0)),
    "5 local steps": pf.p_fedavg(0.3, local_steps=5),
    "never deployed": pf.fedavg(0.3),
}


@pytest.mark.parametrize("why", DOUBTS)
def test_what_speaks_against_an_interval_is_said(why):
    with pytest.warns(pf.PerformativeWarning, match="interval-in-doubt"):
        found = made(DOUBTS[why], clients=2).interval()
    assert any(why in note for note in found.notes), found.notes
    assert f"In doubt: {found.notes[0]}" in str(found)


def test_a_plain_run_is_not_in_doubt():
    heard = np.tile([0.501, 0.499], (3, 1))
    history = made(pf.p_fedavg(0.3, participation=pf.SchemeOne(1)), clients=2, participation=heard)
    assert not history.interval().notes


def test_clients_that_are_heard_too_often_are_told():
    heard = np.tile([0.8, 0.2], (3, 1))
    with pytest.warns(pf.PerformativeWarning, match="client . had a mean weight of 0"):
        made(clients=2, participation=heard).interval()


@SLOW
@pytest.mark.parametrize(
    "who",
    [
        pf.FirstK(2, pf.participation.Exponential(np.arange(1.0, 6.0))),
        pf.Available(np.linspace(0.2, 1.0, 5), weigh="renormalized"),
    ],
    ids=["fast clients first", "whoever is there"],
)
def test_unfair_cohorts_are_told_after_a_run(who):
    with pytest.warns(pf.PerformativeWarning, match="had a mean weight"):
        run(several(), pf.p_fedavg(0.5, participation=who), 4000).interval()


@SLOW
def test_contamination_is_said_where_the_problem_is_known():
    problem, algorithm = gaussian(np.array([0.2]), np.array([1.0]), around=outliers), pf.p_fedavg(0.3)
    history = run(problem, algorithm, 500)
    with pytest.warns(pf.PerformativeWarning, match="the stable point of the contaminated data"):
        found = pf.confidence(history, 0.95, problem, algorithm)
    stable = pf.stable_point(problem)
    assert np.all(np.abs(found.estimate - stable) < 5 * found.error)


@SLOW
def test_a_run_of_another_problem_is_told():
    algorithm = pf.p_fedavg(0.3)
    history = run(gaussian(0.2, scale=3.0), algorithm, 1000)
    with pytest.warns(pf.PerformativeWarning, match="times as much as problem and algorithm imply"):
        pf.confidence(history, 0.95, gaussian(0.2), algorithm)


def test_repeats_that_diverged_have_no_interval():
    history = made(stopped_at=np.asarray([-1, 40, -1]))
    with pytest.warns(pf.PerformativeWarning, match="1 of 3 repeats diverged"):
        found = history.interval()
    assert np.isnan(found.low[1]) and np.all(np.isfinite(found.low[[0, 2]]))
    with pytest.raises(ValueError, match="every repeat diverged"):
        dataclasses.replace(history, stopped_at=np.asarray([1, 1, 1])).interval()


def test_retraining_that_has_not_settled_is_told():
    with pytest.warns(pf.PerformativeWarning, match="has not settled"):
        pf.confidence(1.1 ** np.arange(40.0)[None])
    with pytest.warns(pf.PerformativeWarning, match="9 deployments are few"):
        pf.confidence(np.random.default_rng(0).normal(size=(1, 10)))


@SLOW
def test_what_the_plug_in_does_not_know_is_left_to_batch_means():
    problem, algorithm = several(), pf.p_fedavg(0.5, participation=pf.Available(np.full(5, 0.9)))
    history = run(problem, algorithm, 4000)
    found = pf.confidence(history, 0.95, problem, algorithm)
    assert found.method == "batch means" and found.gap is not None
    with pytest.raises(ValueError, match="does not support participation=Available"):
        pf.confidence(history, 0.95, problem, algorithm, method="plug-in")


def test_refusals():
    problem, algorithm = gaussian(0.2), pf.p_fedavg(0.5)
    history = made(algorithm)
    for arguments, message in (
        ((history, 1.5), "level must lie between 0 and 1"),
        ((history, 0.9, None, algorithm), "algorithm needs problem"),
        ((history, 0.9, problem, pf.p_fedavg(0.4)), "not that of the run: rate.value: 0.5 -> 0.4"),
        ((history, 0.9, several(), algorithm), "the run had 1 clients, the problem has 5"),
        ((np.zeros(5),), r"models\[None\] for one sequence"),
        ((np.full((1, 9), np.nan),), "must be finite"),
        ((np.zeros((1, 3)),), "too few to fit"),
        (("x",), "history must be a History"),
    ):
        with pytest.raises(ValueError, match=message):
            pf.confidence(*arguments)
    for options, message in (
        ({"method": "batch"}, "no method 'batch'"),
        ({"method": "plug-in"}, "needs problem and algorithm"),
        ({"problem": problem, "algorithm": algorithm, "method": "x"}, "no method 'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            pf.confidence(history, **options)
    few = made(theta=np.zeros((1, 21)))
    with pytest.raises(ValueError, match="too few for 20 batches"):
        few.interval()
    with pytest.raises(ValueError, match="models of the whole run"):
        dataclasses.replace(few, theta=np.zeros((1, 1))).interval()
    with pytest.raises(ValueError, match="every=1"):
        pf.confidence(dataclasses.replace(few, rounds=2 * few.rounds), method="autoregression")
    drifting = gaussian(0.2, around=lambda inner: pf.populations.Drifting(inner, pf.paths.Linear(0.1)))
    with pytest.raises(ValueError, match="target-moves"):
        pf.confidence(history, 0.9, drifting)
    wild = pf.populations.Outliers(np.array([0.0]), 1.0, law="cauchy")
    cauchy = gaussian(0.2, np.array([1.0]), around=lambda inner: pf.populations.Contaminated(inner, 0.1, wild))
    with pytest.raises(ValueError, match="no-variance"):
        pf.confidence(history, 0.9, cauchy)


@SLOW
def test_the_edge_of_a_domain_is_told():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(1.0, 0.0, 1.0), domain=pf.Box(0.0, 1.0))
    history = run(problem, pf.p_fedavg(0.3), 3000)
    with pytest.warns(pf.PerformativeWarning, match="boundary of the domain"):
        pf.confidence(history, 0.95, problem, method="batch means")


def test_retraining_by_fits_that_are_biased_on_few_rows_is_told():
    case = CASES["retraining, ridge on 500 rows"]
    models = case.models(jax.random.split(jax.random.key(0), 2))
    with pytest.warns(pf.PerformativeWarning, match="fitted to few rows"):
        pf.confidence(models, problem=case.problem)
