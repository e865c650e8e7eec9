"""Points from draws say how far they may be off; points from exact rules say that they are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from solve_problems import MEAN, SENSITIVITY, WEIGHTS
from untold import Untold

import performative as pf
from performative import solve
from performative.populations import AbstractPopulation, Classes, Database, Gaussian
from performative.populations.nodes import BATCHES, Count, standard_nodes

pytestmark = pytest.mark.usefixtures("optimized_programs")


class Waiting(AbstractPopulation):
    """Z_i = level_i + eps theta + an exponential wait of mean 1, without a rule of its own."""

    level: pf.types.Numbers = pf.per_client()
    eps: pf.types.Numbers = pf.number(default=0.5)

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.exponential(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return self.level + self.eps * theta + noise


class Stubborn(Waiting):
    """Its own rule always takes the same draws, more of them where more are asked for."""

    def quadrature(self, theta, count):
        return self.draw(jax.random.key(1), (int(count),), theta), jnp.full((int(count),), 1.0 / int(count))


WAITING = pf.Problem(pf.losses.squared, Waiting([1.0, 2.0]))
TRUTH = (1.5 + 1.0) / (1 - 0.5)  # of both points: one sensitivity for all


@pytest.mark.parametrize("find", [solve.stable_point, solve.optimal_point])
def test_the_error_is_that_of_the_draws(find):
    for samples in (2048, 50_000):
        found = find(WAITING, report=True, samples=samples)
        # Standard deviation of a mean of n waits, over 1 - eps; from eight batches within a factor of 2 or so (a
        # chi-square of 7 degrees of freedom leaves [0.25, 2.1] once in 2000).
        known = 1 / np.sqrt(samples) / 0.5
        assert 0.25 < found.error / known < 2.1
        assert abs(found.theta - TRUTH) < 5 * known and found.residual < 1e-10
    with pytest.warns(UserWarning, match=r"_point: the point has a standard error of about 0\.0\d.*sampled-point"):
        find(WAITING)


def test_retraining_tells_it_too():
    with pytest.warns(UserWarning, match=r"repeated_risk_minimization: each model has a .*\[sampled-point\]"):
        solve.repeated_risk_minimization(WAITING, 0.0, 1)
    with pytest.warns(UserWarning, match=r"repeated_gradient_descent: each step has a .*\[sampled-point\]"):
        solve.repeated_gradient_descent(WAITING, 0.0, 0.5, 1)
    few, many = (solve.equilibria(WAITING, samples=n)[0] for n in (500, 50_000))
    assert many.error < few.error / 4


def test_exact_rules_have_no_error():
    table = pf.Problem(
        pf.losses.squared, Database([[1.0, 2.0, 4.0]], pf.populations.shifts.Linear(0.5)), None, pf.Box(0, 9)
    )
    assert solve.equilibria(table, starts=[1.0])[-1].error == 0.0
    hidden = pf.Problem(pf.losses.squared, Untold(Gaussian(MEAN, SENSITIVITY, 1.0)), WEIGHTS)
    assert solve.stable_point(hidden, report=True).error < 1e-14
    closed = solve.stable_point(pf.Problem(pf.losses.squared, Gaussian(MEAN, SENSITIVITY, 1.0), WEIGHTS), report=True)
    assert closed.method == "closed form" and closed.error == 0.0


def test_a_rule_that_cannot_be_checked_has_an_unknown_error():
    found = solve.stable_point(pf.Problem(pf.losses.squared, Stubborn([1.0, 2.0])), report=True)
    assert np.isnan(found.error)


def sharp(theta, z):
    """|z - theta| but for a twelfth of a standard deviation around its kink: too sharp for 32 nodes."""
    return jnp.logaddexp(12 * (z - theta), -12 * (z - theta)) / 12 + 0.05 * theta**2


def test_a_quadrature_that_the_loss_is_too_sharp_for_says_so():
    # E tanh(12 (theta - Z)) + theta / 10 = 0 with Z ~ N(1 + theta / 2, 1), by a fine sum over Z.
    noise = np.linspace(-9.0, 9.0, 20_001)
    weight = np.exp(-(noise**2) / 2) / np.exp(-(noise**2) / 2).sum()
    known = brentq(lambda t: weight @ np.tanh(12 * (t / 2 - 1 - noise)) + 0.1 * t, -5.0, 5.0, xtol=1e-13)
    problem = pf.Problem(sharp, Gaussian([1.0], 0.5, 1.0))
    coarse, fine = (solve.stable_point(problem, start=1.0, report=True, samples=n) for n in (None, 50_000))
    off = abs(coarse.theta - known)
    assert off > 1e-3 and off / 10 < coarse.error < 10 * off
    assert abs(fine.theta - known) < 1e-9 and fine.error < 1e-9


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("count", [512, pytest.param(2048, marks=pytest.mark.slow), 5000])
def test_every_batch_is_exact_for_quadratics_and_turns_the_rest(size, count, double_precision):
    def moments(nodes, weights):
        x = np.asarray(nodes)
        return (
            np.einsum("n,ni->i", weights, x),
            np.einsum("n,ni,nj->ij", weights, x, x),
            weights @ np.abs(x @ np.ones(size)),
        )

    found = [moments(*standard_nodes((size,), Count(count, jnp.asarray(b)))) for b in range(BATCHES)]
    for mean, square, _ in [moments(*standard_nodes((size,), count)), *found]:
        np.testing.assert_allclose(mean, 0.0, atol=1e-12)
        np.testing.assert_allclose(square, np.eye(size), atol=1e-11)
    kinks = np.array([kink for _, _, kink in found])
    assert len(np.unique(np.round(kinks, 12))) == BATCHES
    # E |sum x_j| = sqrt(2 size / pi)
    assert abs(kinks.mean() - np.sqrt(2 * size / np.pi)) < 0.1


def test_normal_classes_in_three_dimensions_are_as_good_as_a_million_draws():
    rng = np.random.default_rng(0)
    classes = pf.Problem(pf.losses.logistic(0.1), Classes(rng.normal(size=(2, 3)), 0.3, 2.0))
    found = solve.stable_point(classes, report=True)
    assert found.error < 1e-5


@pytest.mark.parametrize("samples", [1, 0, True])
def test_bad_samples(samples):
    with pytest.raises(ValueError, match="samples must be a whole number"):
        solve.stable_point(WAITING, samples=samples)
