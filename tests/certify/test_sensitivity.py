"""Sensitivities: what populations tell, and what is estimated where they do not."""

import jax
import numpy as np
import pytest
from certify_problems import Bent
from scipy import stats
from untold import Untold

import performative as pf
from performative.certify import certify
from performative.certify.known_sensitivity import known_sensitivity
from performative.certify.sensitivity import estimate_sensitivity
from performative.certify.transport import paired_distance
from performative.populations import Classes, Contaminated, Database, Gaussian, Mixture, Outliers, Pricing, Strategic
from performative.populations.shares import Constant
from performative.populations.shares import Linear as LinearShare
from performative.populations.shifts import Linear
from performative.solve.landscape import survey

ONES = np.ones(2)
RNG = np.random.default_rng(0)
MATRICES = RNG.normal(size=(2, 3, 3))
X, Y = RNG.normal(size=(2, 4, 3)), np.array([[0, 0, 0, 1], [0, 1, 1, 1]])


@pytest.mark.parametrize(
    ("population", "expected"),
    [
        (Gaussian(ONES, np.array([-0.3, 0.7]), 1.0), [0.3, 0.7]),
        (Gaussian(np.ones((2, 3)), np.array([[1.0, -2.0, 0.5], [0.1, 0.2, 0.3]]), 1.0), [2.0, 0.3]),
        (Gaussian(np.ones((2, 3)), MATRICES, 1.0), np.linalg.svd(MATRICES)[1][:, 0]),
        (Pricing(ONES, 2.0, 1.0), [2.0, 2.0]),
        (Database(np.ones((2, 5))), [0.0, 0.0]),
        (Database(np.ones((2, 5)), Linear(-0.4)), [0.4, 0.4]),
        (Strategic(X, Y, np.array([0.5, 1.5]), features=[0]), [0.5, 1.5]),
        (Strategic(X, Y, np.array([[1.0, 2.0], [1.0, 2.0]])), [1.25, 1.75]),
        (Strategic(X, Y, 1.0, features=[]), [0.0, 0.0]),
        (Classes([[0.0], [1.0]], np.array([[0.0, 2.0], [1.0, 3.0]]), 1.0, share=[0.25, 0.75]), [1.5, 2.5]),
        (Contaminated(Gaussian(ONES, 0.5, 1.0), 0.2, Outliers(ONES, 1.0)), [0.4, 0.4]),
        (Mixture((Gaussian(ONES, 0.2, 1.0), Gaussian(ONES, 0.6, 1.0)), Constant([0.5, 0.5])), [0.4, 0.4]),
        (pf.Problem(pf.losses.squared, Gaussian(ONES, np.array([0.2, 0.6]), 1.0)).pooled().population, [0.4]),
        # Groups that move against each other, or shares that react, are not told.
        (Mixture((Gaussian(ONES, 0.2, 1.0), Gaussian(ONES, -0.6, 1.0)), Constant([0.5, 0.5])), None),
        (Mixture((Gaussian(ONES, 0.0, 1.0), Gaussian(ONES, 0.0, 1.0)), LinearShare([0.5, 0.5], [0.1, -0.1])), None),
        (Strategic(X, Y, 1.0, response="evade"), None),
        (Untold(Gaussian(ONES, 0.5, 1.0)), None),
    ],
)
def test_what_populations_tell(population, expected):
    found = known_sensitivity(population)
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(found, expected)


def test_what_a_subclass_does_is_not_known():
    """The slope of `Bent` is not how its data move."""
    assert known_sensitivity(Bent(np.array([0.2, 0.3]), 1.0)) is None
    c = certify(pf.Problem(pf.losses.squared, Bent(np.array([0.2, 0.3]), 1.0)), theta=0.5, samples=256)
    assert c.sensitivity_source == "estimated" and not c.proved


def test_a_translation_is_found_without_error():
    a = RNG.normal(size=(4, 256, 3))
    shift = np.array([0.3, -0.4, 1.2])
    for found in paired_distance(a, a + shift):
        np.testing.assert_allclose(found, 1.3)
    for found in paired_distance(a[..., :1], a[..., :1] - 0.7):
        np.testing.assert_allclose(found, 0.7)


def test_the_estimate_in_one_dimension_is_scipys():
    a = RNG.normal(size=(3, 200, 1))
    b = np.where(RNG.uniform(size=a.shape) < 0.2, 2.0 - a, a)
    expected = [stats.wasserstein_distance(x[:, 0], y[:, 0]) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(paired_distance(a, b)[0], expected)


def _switching(rng, worlds, n):
    """Shares 0.4 -> 0.5 of two normals 2 apart, drawn as `Mixture` draws: W_1 = 0.1 * 2."""
    u, first, second = rng.uniform(size=(worlds, n)), *rng.normal(size=(2, worlds, n))
    a, b = (np.where(u < share, 2.0 + 0.5 * second, 0.5 * first) for share in (0.4, 0.5))
    return a[..., None], b[..., None], 0.2


def _stretching(rng, worlds, n):
    """N(0, 1) -> N(0, 1.3^2): W_1 = 0.3 E|N(0, 1)|; the mean stays."""
    a = rng.normal(size=(worlds, n, 1))
    return a, 1.3 * a, 0.3 * np.sqrt(2 / np.pi)


def _switching_in_the_plane(rng, worlds, n):
    """As `_switching`, beside a number that stays."""
    a, b, truth = _switching(rng, worlds, n)
    still = rng.normal(size=a.shape)
    return np.concatenate([a, still], axis=2), np.concatenate([b, still], axis=2), truth


@pytest.mark.parametrize("law", [_switching, _stretching, _switching_in_the_plane])
def test_limits_cover_the_truth(law):
    worlds, n = 1000, 1024
    a, b, truth = law(np.random.default_rng(1), worlds, n)
    _, lower, upper = paired_distance(a, b)
    error = 3 * np.sqrt(0.05 * 0.95 / worlds)
    assert np.mean((lower <= truth) & (truth <= upper)) >= 0.95 - error
    # Limits that are far off would cover, too: they must tell an effect from none.
    assert np.median(lower) > 0.5 * truth and np.median(upper) < 1.6 * truth


@pytest.mark.slow
def test_shares_that_react_are_estimated():
    """nu = (0.5 + 0.3 theta, 0.5 - 0.3 theta) of two normals that lie 1 apart: eps_i = 0.3."""
    groups = tuple(Gaussian(np.full(400, level), 0.0, 0.25) for level in (0.0, 1.0))
    population = Mixture(groups, LinearShare([0.5, 0.5], [0.3, -0.3]))
    with jax.enable_x64(True):
        land, start = survey(pf.Problem(pf.losses.squared, population), 0.0)
        found = estimate_sensitivity(land, [start, start + 0.5], [start + 1.0], 1.0, 2048, 0)
    assert found.pairs == 3 and not found.exact
    # Each of 400 clients has draws of its own.
    covered = np.mean((found.lower <= 0.3) & (found.upper >= 0.3))
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 400)
    assert np.median(found.lower) > 0.2 and np.median(found.upper) < 0.4
    bound = pf.theory.mixture_sensitivity(0.0, 1.0, 0.3)
    np.testing.assert_allclose(bound, 0.3)


@pytest.mark.slow
def test_a_silent_population_gets_the_certificate_of_the_open_one():
    """One direction of three moves the data, which only a search finds."""
    matrix = np.zeros((2, 3, 3))
    matrix[:, 0, 2] = [0.3, 0.8]
    population = Gaussian(np.ones((2, 3)), matrix, 1.0)
    known, found = (certify(pf.Problem(pf.losses.squared, p), samples=256) for p in (population, Untold(population)))
    assert (known.sensitivity_source, found.sensitivity_source) == ("analytic", "estimated")
    np.testing.assert_allclose(known.sensitivity, [0.3, 0.8])
    np.testing.assert_allclose(found.sensitivity, [0.3, 0.8])
    np.testing.assert_allclose(found.stable, known.stable, atol=1e-7)
    assert found.sufficient and not found.proved and "not for all models" in str(found)


@pytest.mark.slow
def test_limits_that_do_not_decide_are_said_so():
    """eps_bar = 0.98 by shares that react, in noise: the limits hold mu / L = 1."""
    groups = tuple(Gaussian(np.full(2, level), 0.0, 1.0) for level in (0.0, 4.0))
    population = Mixture(groups, LinearShare([0.7, 0.3], [-0.245, 0.245]))
    c = certify(pf.Problem(pf.losses.squared, population, domain=pf.Box(0.0, 1.0)), samples=256)
    assert c.eps_bar_lower < 1.0 < c.eps_bar_upper and c.sufficient is None and "do not decide" in str(c)


@pytest.mark.slow
def test_many_clients_share_the_draws():
    clients = 10_000
    eps = np.linspace(0.1, 0.9, clients)
    c = certify(pf.Problem(pf.losses.squared, Untold(Gaussian(np.ones(clients), eps, 1.0))))
    np.testing.assert_allclose(c.sensitivity, eps)
    assert c.draws == 256 and c.sufficient
