"""mu, L, the contraction factor and the training error against formulas written out by hand."""

import jax
import numpy as np
import pytest
from certify_problems import gaussian, strategic
from scipy import stats

import performative as pf
from performative.certify import certify
from performative.certify.curvature import measure_curvature
from performative.populations import Database, Gaussian
from performative.populations.shifts import Linear
from performative.solve.landscape import survey


@pytest.fixture(scope="module")
def certificate():
    problem = strategic(1.0)
    return problem, certify(problem)


def test_logistic_constants_at_one_model_are_those_of_the_formulas():
    problem = strategic(1.0)
    population, theta = problem.population, np.array([0.7, -0.4])
    x = np.array(population.x)
    x[..., 0] -= np.asarray(population.strength)[:, None] * theta[0]
    s = 1 / (1 + np.exp(-x @ theta))
    bend = s * (1 - s)
    by_theta = bend[..., None, None] * x[..., :, None] * x[..., None, :] + 0.2 * np.eye(2)
    by_data = bend[..., None, None] * x[..., :, None] * theta + (s - np.asarray(population.y))[
        ..., None, None
    ] * np.eye(2)
    with jax.enable_x64(True):
        found = measure_curvature(survey(problem, theta)[0], [theta], True, 0)
    np.testing.assert_allclose(found.L_theta, np.linalg.norm(by_theta, 2, axis=(2, 3)).max())
    np.testing.assert_allclose(found.L_data, np.linalg.norm(by_data, 2, axis=(2, 3)).max())
    np.testing.assert_allclose(found.mu, np.linalg.eigvalsh(by_theta.mean(axis=(0, 1)))[0])
    assert found.rows == 180 and not found.mu_exact and not found.L_exact


def test_contraction_is_what_retraining_does(certificate):
    problem, c = certificate
    path = pf.repeated_risk_minimization(problem, c.stable + 1e-3, 4)
    gaps = np.linalg.norm(path - c.stable, axis=1)
    np.testing.assert_allclose(gaps[-1] / gaps[-2], c.contraction, rtol=0.02)
    # The theorem's own factor is an upper bound for it.
    assert c.contraction <= c.eps_bar * c.L_data / c.mu


def test_strategic_people_attract_although_no_theorem_promises_it(certificate):
    _, c = certificate
    np.testing.assert_allclose(c.sensitivity, [0.5, 1.0, 1.5])
    assert c.sensitivity_source == "analytic" and c.sufficient is False and c.attracting and not c.proved
    assert "no theorem guarantees" in c.verdict and "180 samples" in str(c)
    assert c.optimal_risk <= c.stable_risk


def test_weak_reactions_are_promised_as_far_as_was_measured():
    c = certify(strategic(0.005))
    assert c.sufficient and not c.proved and c.unique is None and "as far as" in c.verdict
    assert c.detectable is False and "is lost in the noise" in str(c)


def test_training_error_of_a_mean_is_that_of_the_mean():
    """Squared loss: theta_hat is the weighted mean of the tables' means."""
    z = [np.random.default_rng(k).normal(k, 1 + k, size=20 + 30 * k) for k in range(3)]
    p = np.array([0.5, 0.3, 0.2])
    c = certify(pf.Problem(pf.losses.squared, Database(z, Linear(0.4)), p))
    expected = np.sqrt(np.sum(p**2 * [np.var(table) / len(table) for table in z]))
    np.testing.assert_allclose(c.error, expected)
    assert c.error_source == "sampling"
    np.testing.assert_allclose(c.chance, stats.norm.cdf(-c.static_gap / (2 * expected)))
    assert certify(pf.Problem(pf.losses.squared, Gaussian(np.ones(2), 0.4, 1.0))).error is None


@pytest.mark.parametrize(("error", "shows"), [(0.1, True), (0.2, None), (0.5, False)])
def test_an_effect_shows_drowns_or_lies_between(error, shows):
    """m = 2.3 and eps = 0.14: static and stable are 0.374 apart."""
    c = certify(gaussian(), error=error)
    assert c.detectable is shows and c.error_source == "given"
    said = {True: "the effect is detectable", None: "may or may not be detectable", False: "is lost in the noise"}
    assert said[shows] in str(c)


def test_the_training_error_is_that_along_the_way():
    """One coordinate is loud and stays, one is quiet and follows: the effect shows beside the noise of the first."""
    z = np.random.default_rng(0).normal([0.0, 1.0], [50.0, 0.1], size=(1, 400, 2))
    c = certify(pf.Problem(pf.losses.squared, Database(z, Linear(np.array([[0.0, 0.5]])))), theta=[0.0, 0.0])
    np.testing.assert_allclose(c.error, np.std(z[0, :, 1]) / 20, rtol=0.01)
    assert c.static_gap < np.std(z[0, :, 0]) / 20 and c.detectable


@pytest.mark.slow
def test_house_prices_have_the_curvature_of_their_features():
    c = certify(pf.cases.house_pricing(clients=2), samples=512)
    np.testing.assert_allclose(c.mu, 1 + (5 / 3) ** 2 + 10 / 3)
    assert c.mu_exact and not c.L_exact and "L was measured" in str(c)
    np.testing.assert_allclose(c.optimal, -0.837438, atol=1e-6)
