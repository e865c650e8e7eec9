"""Runs of P-FedAvg against the exact moments of the Gaussian problem."""

import numpy as np
import pytest

import performative as pf
from performative.theory import gaussian_moments

N, ROUNDS, REPEATS = 6, 30, 4000
_rng = np.random.default_rng(1)
MEAN, SENSITIVITY = 3 * _rng.normal(size=N), _rng.uniform(-0.3, 0.9, N)
SCALE, WEIGHTS = _rng.uniform(0.5, 2.0, N), _rng.dirichlet(2 * np.ones(N))
STABLE = WEIGHTS @ MEAN / (1 - WEIGHTS @ SENSITIVITY)


@pytest.mark.slow
def test_monte_carlo_agrees_with_the_recursion():
    """Schemes and deployments one by one: tests/moments/test_exact_forms.py."""
    E, n, k = 5, 2, 2
    exact = gaussian_moments(
        MEAN, SENSITIVITY, SCALE, 20.0 / (np.arange(ROUNDS * E) + 60.0), local_steps=E,
        weights=WEIGHTS, batch=n, start=4.0, scheme="two", k=k,
    )  # fmt: skip
    algorithm = pf.p_fedavg(
        pf.schedules.harmonic(20.0, 60.0), local_steps=E, batch=pf.Fixed(n), participation=pf.SchemeTwo(k)
    )
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, SENSITIVITY, SCALE), WEIGHTS)
    record = pf.Record(risks=False)
    history = pf.run(problem, algorithm, ROUNDS, theta=4.0, seed=3, repeats=REPEATS, dtype="float64", record=record)
    assert exact.mean[0] == 4.0 and exact.variance[0] == 0.0
    for samples, known in ((history.theta, exact.mean), ((history.theta - STABLE) ** 2, exact.mse)):
        error = samples.std(axis=0)[1:] / np.sqrt(REPEATS)
        np.testing.assert_array_less(np.abs(samples.mean(axis=0) - known)[1:], 4 * error)


def test_the_static_learner_settles_where_it_should():
    eta = np.full(4000, 0.05)
    moments = gaussian_moments(MEAN, SENSITIVITY, SCALE, eta, weights=WEIGHTS, start=4.0, deploy="never", local_steps=4)
    # Its data are those of D(theta_0) for ever.
    np.testing.assert_allclose(moments.mean[-1], WEIGHTS @ (MEAN + SENSITIVITY * 4.0), rtol=1e-10)
