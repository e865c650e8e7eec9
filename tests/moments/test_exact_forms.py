"""`pf.moments` against closed forms and recursions that were worked out by hand."""

import numpy as np
import pytest

import performative as pf

N = 6
MEAN, EPS, SD = np.arange(1.0, 1.0 + N), np.linspace(-0.2, 0.6, N), np.linspace(0.5, 1.5, N)
P = np.arange(1, 1 + N) / np.arange(1, 1 + N).sum()
GAUSSIAN = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, EPS, SD), weights=P)


QUICK = [("two", "step")]
ALL = [(scheme, deploy) for scheme in ("full", "one", "two") for deploy in ("step", "round", "never")]


@pytest.mark.parametrize(
    ("scheme", "deploy"), [pytest.param(*one, marks=() if one in QUICK else pytest.mark.slow) for one in ALL]
)
def test_gaussian_moments(scheme, deploy):
    participation = {"full": pf.Full(), "one": pf.SchemeOne(2), "two": pf.SchemeTwo(2)}[scheme]
    rate = pf.schedules.harmonic(4.0, 20.0)
    algorithm = pf.p_fedavg(rate, local_steps=3, batch=pf.Fixed(2), participation=participation, deploy=deploy)
    rounds = 15
    eta = 4.0 / (20.0 + np.arange(3 * rounds))
    known = pf.theory.gaussian_moments(
        MEAN, EPS, SD, eta, local_steps=3, weights=P, batch=2, start=0.7, scheme=scheme, deploy=deploy,
        k=None if scheme == "full" else 2,
    )  # fmt: skip
    found = pf.moments(GAUSSIAN, algorithm, rounds, 0.7)
    np.testing.assert_allclose(found.mean, known.mean, rtol=1e-10)
    np.testing.assert_allclose(found.covariance[:, 0, 0], known.variance, rtol=1e-10)
    np.testing.assert_allclose(found.mse_stable, known.mse, rtol=1e-10)


@pytest.mark.slow
def test_the_long_run_of_one_client():
    """Var = eta sigma^2 / (c (2 - eta c)), c = 1 - eps; a round contracts by 1 - eta c."""
    eta, eps, sd = 0.3, 0.4, 1.3
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], [eps], sd))
    found, c = pf.moments(problem, pf.p_fedavg(eta), 5), 1 - eps
    assert found.verdict == "settles"
    np.testing.assert_allclose(found.stationary.covariance, eta * sd**2 / (c * (2 - eta * c)), rtol=1e-12)
    np.testing.assert_allclose(found.stationary.mean, 1 / c, rtol=1e-12)
    np.testing.assert_allclose(found.spectral_radius, (1 - eta * c, (1 - eta * c) ** 2), rtol=1e-12)


@pytest.mark.slow
def test_noise_alone_blows_up_a_regression():
    """x ~ N(0, 1): E(1 - eta x^2)^2 = 1 - 2 eta + 3 eta^2 passes one at eta = 2/3, the mean at eta = 2."""
    problem = pf.Problem(pf.losses.ridge(0.0), pf.populations.Regression([0.0], 1.0, [1.0], 0.0, 0.5))
    for eta, verdict in ((0.66, "settles"), (0.67, "settles in the mean only"), (2.01, "runs away")):
        found = pf.moments(problem, pf.p_fedavg(eta), 3)
        assert found.verdict == verdict
        np.testing.assert_allclose(found.spectral_radius, (abs(1 - eta), 1 - 2 * eta + 3 * eta**2), rtol=1e-12)


@pytest.mark.slow
def test_people_who_answer_late():
    """The border of steps that settle, with people who respond to the model of s rounds ago."""
    eps, late = -0.9, 2
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], [eps], 1.0))
    for eta in (0.3, 0.6, 0.9):
        found = pf.moments(problem, pf.p_fedavg(eta, deploy=pf.Late(late)), 8)
        np.testing.assert_allclose(found.spectral_radius.mean, pf.theory.stale_radius(eta, eps, 0, late), rtol=1e-9)


@pytest.mark.slow
def test_memory_is_told_on_request():
    found = pf.moments(GAUSSIAN, pf.fedvarp(0.1, participation=pf.SchemeTwo(2)), 4, full=True)
    mean, covariance = found.state
    assert mean.shape == (5, len(found.names))
    assert covariance.shape == (5, len(found.names), len(found.names))
    assert sum("last" in name for name in found.names) == N
    # After a round the server remembers an update of who came, on average p(came) of it.
    start = found.names.index("client 0: server.aggregator.last")
    np.testing.assert_allclose(mean[1, start], 2 / N * 0.1 * MEAN[0], rtol=1e-12)


@pytest.mark.slow
def test_time_that_depends_on_chance_is_no_part_of_the_verdict():
    """It goes on for ever, while the model follows the drift."""
    people = pf.populations.Drifting(pf.populations.Gaussian([0.0, 1.0], 0.3, 1.0), pf.paths.Linear(0.05))
    algorithm = pf.p_fedavg(0.2, participation=pf.LocalWork(pf.Full(), pf.participation.UniformSteps(1, 3)))
    exact = pf.moments(pf.Problem(pf.losses.squared, people), algorithm, 10)
    assert exact.verdict == "settles"
    still = pf.moments(pf.Problem(pf.losses.squared, people.inner), algorithm, 10)
    np.testing.assert_allclose(exact.spectral_radius.mean, still.spectral_radius.mean, rtol=1e-9)
    np.testing.assert_allclose(exact.spectral_radius.second, still.spectral_radius.second, rtol=1e-9)


@pytest.mark.slow
def test_the_limit_of_t_times_the_error():
    """beta^2 Var / (2 beta c - 1) for everyone and E = 1; no limit where beta c <= 1/2."""
    people = pf.populations.Gaussian([0.0, 1.0, 3.0], [0.1, 0.4, 0.6], 1.0)
    problem, c = pf.Problem(pf.losses.squared, people), 1 - 1.1 / 3
    exact = pf.moments(problem, pf.p_fedavg(pf.schedules.harmonic(3.0, 30.0)), 40)
    assert exact.rate_limit == pytest.approx(9.0 / 3 / (6 * c - 1), rel=1e-6)
    assert pf.moments(problem, pf.p_fedavg(pf.schedules.harmonic(0.5, 30.0)), 40).rate_limit == np.inf
    assert pf.moments(problem, pf.p_fedavg(0.1), 40).rate_limit is None


@pytest.mark.slow
def test_the_series_tends_to_its_limit():
    people = pf.populations.Gaussian([0.0, 1.0, 3.0], [0.1, 0.4, 0.6], 1.0)
    rate = pf.schedules.harmonic(3.0, 30.0)
    algorithm = pf.fedvarp(rate, local_steps=2, participation=pf.SchemeTwo(2))
    exact = pf.moments(pf.Problem(pf.losses.squared, people), algorithm, 8_000)
    # What is left falls as 1/t.
    assert 2 * exact.rate[8_000] - exact.rate[4_000] == pytest.approx(exact.rate_limit, rel=1e-4)
