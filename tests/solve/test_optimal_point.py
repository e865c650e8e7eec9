"""Optimal points: closed forms, descent through the map, local optima, domains, and none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solve_problems import MEAN, SENSITIVITY, WEIGHTS, Pricing, gaussian, strategic
from untold import Untold

import performative as pf
from performative import solve
from performative._engine.prepare import on_device
from performative._engine.risk import decoupled_risk
from performative.populations import AbstractPopulation


def performative_risk(problem, theta):
    with jax.enable_x64(True):
        on, weights = on_device(problem, jnp.float64), jnp.asarray(problem.client_weights)
        return float(decoupled_risk(on, weights, jnp.asarray(theta), jnp.asarray(theta)))


def test_the_formula_and_the_descent_agree():
    # theta_PO = sum p (1 - eps) m / sum p (1 - eps)^2
    slope = 1 - SENSITIVITY
    known = np.sum(WEIGHTS * slope * MEAN) / np.sum(WEIGHTS * slope**2)
    closed = solve.optimal_point(gaussian(), report=True)
    assert closed.method == "closed form"
    np.testing.assert_allclose(closed.theta, known, rtol=1e-14)
    hidden = pf.Problem(pf.losses.squared, Untold(gaussian().population), WEIGHTS)
    found = solve.optimal_point(hidden, report=True)
    assert found.method != "closed form" and found.residual < 1e-12 and not found.others
    np.testing.assert_allclose(found.theta, known, rtol=1e-12)
    np.testing.assert_allclose(found.risk, closed.risk, rtol=1e-14)


@pytest.mark.slow
def test_strategic_classification():
    problem = strategic()
    optimal, stable = solve.optimal_point(problem, report=True), solve.stable_point(problem, report=True)
    np.testing.assert_allclose(optimal.risk, performative_risk(problem, optimal.theta), rtol=1e-13)
    assert optimal.risk < stable.risk - 1e-6
    assert optimal.residual < 1e-10
    step = 1e-5
    for direction in np.eye(4):
        ahead, behind = (performative_risk(problem, optimal.theta + s * step * direction) for s in (1, -1))
        # Central differences: rounding of about 1e-16 / step.
        assert abs(ahead - behind) / (2 * step) < 1e-9
        assert min(ahead, behind) > optimal.risk


class Follow(AbstractPopulation):
    """Z = theta + shift + noise."""

    noise: pf.types.Numbers = pf.number()
    shift: pf.types.Numbers = pf.number(default=0.0)

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return theta + self.shift + self.noise * noise

    def quadrature(self, theta, count):
        return jnp.asarray([-1.0, 1.0]), jnp.asarray([0.5, 0.5])


def double_well(theta, z):
    """Blind to theta: only the reaction of the data makes it matter."""
    return (z**2 - 1.0) ** 2 + 0.3 * z


def dips(theta, z):
    """z^2 / 2 near 0, falling without bound beyond 1/3."""
    return z**2 / 2 - 2 * z**4


def test_local_optima_are_reported():
    problem = pf.Problem(double_well, Follow(0.1))
    found = solve.optimal_point(problem, report=True)
    # E over +-0.1: theta^4 + (6 * 0.01 - 2) theta^2 + 0.3 theta + const
    roots = np.sort(np.roots([4, 0, 2 * (0.06 - 2), 0.3]).real)
    np.testing.assert_allclose(found.theta, roots[0], rtol=1e-10)
    (other,) = found.others
    np.testing.assert_allclose(other.theta, roots[2], rtol=1e-10)
    assert other.risk > found.risk
    with pytest.warns(UserWarning, match=r"local minimum; the risk is .* there and .* at theta = .*lower-elsewhere"):
        near = solve.optimal_point(problem, start=0.9, starts=0)
    np.testing.assert_allclose(near, roots[2], rtol=1e-10)


class Claims(Follow):
    """Names a point that is none."""

    def stable_point(self, loss, weights):
        return np.asarray(0.7)

    def optimal_point(self, loss, weights):
        return np.asarray(0.7)


def test_a_closed_form_that_is_wrong_is_told():
    problem = pf.Problem(double_well, Claims(0.1))
    with pytest.warns(UserWarning, match=r"optimal_point: .*closed form is 1\.\d*, not 0.*closed-form-disagrees"):
        solve.optimal_point(problem)
    with pytest.warns(UserWarning, match=r"stable_point: .*closed form is 1, not 0.*closed-form-disagrees"):
        solve.equilibria(pf.Problem(pf.losses.squared, Claims(0.1, shift=1.0)))


def test_a_risk_that_falls_for_ever_from_some_starts_is_told():
    with pytest.warns(UserWarning, match=r"keeps decreasing far out.*local minimum.*risk-falls-far-out"):
        found = solve.optimal_point(pf.Problem(dips, Follow(0.0)), start=0.1)
    np.testing.assert_allclose(found, 0.0, atol=1e-9)


def saddle(theta, z):
    """z_0^2 - z_1^2 + z_1^4 / 2: descent along z_1 = 0 ends at a saddle."""
    return z[0] ** 2 - z[1] ** 2 + z[1] ** 4 / 2


class Plane(AbstractPopulation):
    """Z = theta, two numbers."""

    noise: pf.types.Numbers = pf.number(default=0.0)

    def model_shape(self):
        return (2,)

    def draw(self, key, shape, theta, rows=None):
        return jnp.zeros((*shape, 2), theta.dtype)

    def sample(self, noise, world, theta):
        return theta + self.noise * noise

    def quadrature(self, theta, count):
        return jnp.zeros((1, 2)), jnp.ones(1)


@pytest.mark.parametrize("domain", [None, pf.Box(-3.0, 3.0), pf.Ball(4.0)], ids=["everywhere", "box", "ball"])
def test_a_saddle_is_left(domain):
    # z_1 stays 0 on the way down from (1, 0), and on the way from the maximum of the double well at 0.
    found = solve.optimal_point(pf.Problem(saddle, Plane(), None, domain), start=[1.0, 0.0], starts=0, report=True)
    np.testing.assert_allclose(np.abs(found.theta), [0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(found.risk, -0.5, rtol=1e-9)


def hidden_hole(theta, z):
    """z^2 / 2 near 0; beyond 60 it falls for ever."""
    return z**2 / 2 - (z / 60) ** 4 * 2000


def far_well(theta, z):
    """A shallow well at 0 and a deep one at 40."""
    return jnp.minimum(z**2 / 2, (z - 40) ** 2 / 2 - 10)


def test_what_is_lower_far_away_is_found_or_told():
    with pytest.warns(UserWarning, match="risk-falls-far-out"):
        found = solve.optimal_point(pf.Problem(hidden_hole, Follow(0.0)))
    np.testing.assert_allclose(found, 0.0, atol=1e-9)
    with pytest.warns(UserWarning, match=r"lower-elsewhere"):
        solve.optimal_point(pf.Problem(hidden_hole, Follow(0.0)), start=0.1, starts=0)
    np.testing.assert_allclose(solve.optimal_point(pf.Problem(far_well, Follow(0.0))), 40.0, rtol=1e-9)


class Peak(Follow):
    """Names the top of the hill between the wells."""

    def optimal_point(self, loss, weights):
        return np.roots([4, 0, 2 * (0.06 - 2), 0.3]).real[np.argmin(np.abs(np.roots([4, 0, 2 * (0.06 - 2), 0.3])))]


def test_a_closed_form_that_is_a_maximum_is_told_and_left():
    with pytest.warns(UserWarning, match=r"closed form is not the minimizer of the risk.*closed-form-disagrees"):
        found = solve.optimal_point(pf.Problem(double_well, Peak(0.1)), report=True)
    np.testing.assert_allclose(found.theta, np.sort(np.roots([4, 0, 2 * (0.06 - 2), 0.3]).real)[0], rtol=1e-9)


def test_prices():
    demand, slope = np.array([8.0, 12.0, 4.0]), np.array([1.0, 2.0, 0.5])
    problem = pf.Problem(pf.losses.negative_revenue, Pricing(demand, slope), WEIGHTS)
    d, s = WEIGHTS @ demand, WEIGHTS @ slope
    np.testing.assert_allclose(solve.optimal_point(problem), d / (2 * s), rtol=1e-12)
    for top, best in ((100.0, d / (2 * s)), (2.0, 2.0)):
        boxed = pf.Problem(pf.losses.negative_revenue, Pricing(demand, slope), WEIGHTS, pf.Box(0.0, top))
        np.testing.assert_allclose(solve.optimal_point(boxed), best, rtol=1e-10)
    upward = pf.Problem(pf.losses.negative_revenue, Pricing(demand, -slope), WEIGHTS)
    with pytest.raises(ValueError, match=r"optimal_point: .*decreasing far out.*pf\.Box.*no-optimal-point"):
        solve.optimal_point(upward)


def test_a_ball():
    rng = np.random.default_rng(2)
    mean = rng.normal(size=(3, 3))
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, SENSITIVITY, 1.0), WEIGHTS, pf.Ball(0.1))
    # The risk is a |theta|^2 / 2 - b . theta + const, so on a small ball the best point is b on the rim.
    b = (WEIGHTS * (1 - SENSITIVITY)) @ mean
    np.testing.assert_allclose(solve.optimal_point(problem), 0.1 * b / np.linalg.norm(b), rtol=1e-10)
