"""Examples and propositions of Jin et al. (2024) and of the 2023 preprint, in corrected form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative import solve
from performative._engine.prepare import on_device
from performative._engine.risk import client_risks, decoupled_risk
from performative.theory import Assumptions


def gradients(problem, theta):
    """grad_1 f_i(theta; theta) of each client, and grad_1 f(theta; theta)."""
    with jax.enable_x64(True):
        on, at = on_device(problem, jnp.float64), jnp.asarray(theta)
        weights = jnp.asarray(np.asarray(problem.client_weights))
        each = jax.jacobian(lambda t: client_risks(on, t, at))(at)
        return np.asarray(each), float(jax.grad(lambda t: decoupled_risk(on, weights, t, at))(at))


@pytest.mark.slow
def test_example_2_7():
    # D_1 = N(theta / 2, 1), D_2 = N(-theta / 2, 1); theta/8, 9 theta/8 and 5 theta/8 are misprints.
    eps = np.array([0.5, -0.5])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, eps, 1.0))
    assert float(solve.stable_point(problem)) == 0.0
    constants = Assumptions.of_gaussian(0.0, eps, 1.0, start=3.0)
    assert (constants.varsigma, constants.sigma, constants.eps_bar, constants.distance) == (
        0.5,
        1.0,
        0.5,
        9.0,
    )
    for theta in (-40.0, 0.1, 3.0):
        each, whole = gradients(problem, theta)
        np.testing.assert_allclose(each, [theta / 2, 3 * theta / 2], rtol=1e-12)
        np.testing.assert_allclose(whole, theta, rtol=1e-12)
        # Assumption 2.6 holds with varsigma = 1/2, though the gradients are unbounded.
        assert np.all((each - whole) ** 2 <= 0.25 * (1 + theta**2) + 1e-12)


@pytest.mark.parametrize("eps_bar", [1.0, 1.5])
def test_the_divergent_instance_of_proposition_2_8(eps_bar):
    mean, eps = np.array([1.0, 2.0, 0.0]), eps_bar + np.array([-0.3, 0.0, 0.3])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, eps, 1.0))
    path = solve.repeated_risk_minimization(problem, theta=0.5, deployments=40)
    steps = np.arange(41)
    total = steps if eps_bar == 1.0 else (eps_bar**steps - 1) / (eps_bar - 1)
    np.testing.assert_allclose(path, eps_bar**steps * 0.5 + total * 1.0, rtol=1e-9)
    assert np.all(np.diff(path) > 0.99)
    if eps_bar == 1.0:
        with pytest.raises(ValueError, match="no stable point"):
            solve.stable_point(problem)
        return
    # A stable point exists all the same, which the paper denies; it repels.
    with pytest.warns(UserWarning, match="repels.*repelling-point"):
        assert float(solve.stable_point(problem)) == pytest.approx(-2.0)
    with pytest.warns(UserWarning, match="run-diverged"):
        history = pf.run(
            problem, pf.p_fedavg(rate=0.5), rounds=150, theta=0.5, repeats=2, record=pf.Record(risks=False)
        )
    assert history.status == "diverged"


def test_the_stable_point_is_the_limit_of_best_responses():
    # 2023 preprint, Section 3.3: {theta_PS, D_i(theta_PS)} is where nobody moves any more.
    problem = pf.Problem(
        pf.losses.squared,
        pf.populations.Gaussian([4.0, -1.0, 2.0], [0.9, 0.2, -0.4], 1.0),
        [0.5, 0.3, 0.2],
    )
    stable = solve.stable_point(problem)
    for start in (-100.0, 7.0):
        path = solve.repeated_risk_minimization(problem, start, 40)
        np.testing.assert_allclose(path[-1], stable, rtol=1e-12)
        small_steps = solve.repeated_gradient_descent(problem, start, 0.5, 100)
        np.testing.assert_allclose(small_steps[-1], stable, rtol=1e-12)
    np.testing.assert_allclose(solve.repeated_risk_minimization(problem, stable, 1)[1], stable, rtol=1e-14)
    # ... while a leader who sees the reaction coming does better.
    optimal = solve.optimal_point(problem, report=True)
    assert optimal.risk < solve.stable_point(problem, report=True).risk - 0.01
