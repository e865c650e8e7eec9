"""Momentum, adaptive and fair servers against recursions and points worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.aggregators.fair import project_simplex
from performative.types import Cohort, Upload

PART_EXAMPLES = {
    "pf.estimators.WithLoss": "inner=pf.estimators.Minibatch()",
    "pf.aggregators.QFair": {
        "arguments": "q=2.0",
        "beside": {"estimator": "pf.estimators.WithLoss(pf.estimators.Minibatch())"},
    },
    "pf.aggregators.Agnostic": {
        "arguments": "step=0.1",
        "beside": {"estimator": "pf.estimators.WithLoss(pf.estimators.Minibatch())"},
    },
}

EPS = 0.5
ONLY_MODELS = pf.Record(risks=False, consensus=False)


def people(mean, weights=None, sensitivity=EPS):
    """Clients without noise: F_i = ((1 - eps) theta - m_i)^2 / 2."""
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, sensitivity, 0.0), weights)


def models(problem, algorithm, rounds, theta=0.0):
    return pf.run(problem, algorithm, rounds, theta=theta, record=ONLY_MODELS, dtype="float64").theta[0]


def test_momentum_is_its_recursion():
    theta, m, wanted = 0.0, 0.0, [0.0]
    for _ in range(12):
        m = 0.7 * m - 0.1 * ((1 - EPS) * theta - 2.0)
        theta += 0.5 * m
        wanted.append(theta)
    found = models(people([1.0, 3.0]), pf.fedavgm(0.1, server_rate=0.5, momentum=0.7), 12)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("recipe", [pf.fedadam, pf.fedyogi])
def test_adaptive_servers_divide_by_the_size_of_the_update_and_settle_at_the_stable_point(recipe):
    found = models(people([1.0, 3.0]), recipe(0.1, server_rate=0.5, b1=0.0, eps=0.5), 400)
    assert found[1] == pytest.approx(0.5 * 0.2 / (0.2 + 0.5), rel=1e-3)  # the first update is 0.2
    assert found[-1] == pytest.approx(4.0, abs=1e-6)


@pytest.mark.parametrize("q", [1.0, 3.0])
def test_fair_weights_settle_where_powers_of_losses_balance(q):
    # p_1 u^(2q+1) = p_2 (1-u)^(2q+1) with u = (1 - eps) theta
    ratio = (0.2 / 0.8) ** (1 / (2 * q + 1))
    found = models(people([0.0, 1.0], [0.8, 0.2]), pf.qffl(0.5, q=q), 300, theta=1.5)
    assert found[-1] * (1 - EPS) == pytest.approx(ratio / (1 + ratio), abs=1e-6)


def test_fairness_of_nothing_is_the_mean():
    p, m, c = np.asarray([0.8, 0.2]), np.asarray([0.0, 1.0]), 1 - EPS
    theta, wanted = 0.0, [0.0]
    for _ in range(5):
        theta = np.sum(p * (m / c + (1 - 0.5 * c) ** 2 * (theta - m / c)))  # two local steps
        wanted.append(theta)
    np.testing.assert_allclose(models(people(m, p), pf.qffl(0.5, q=0.0, local_steps=2), 5), wanted, rtol=1e-12)


@pytest.mark.usefixtures("double_precision")
def test_one_fair_step_is_the_printed_one():
    eta, q, p = 0.1, 2.0, np.asarray([0.8, 0.2])
    F, g = np.asarray([0.5, 2.0]), np.asarray([1.0, -2.0])
    wanted = -np.sum(p * F**q * g) / np.sum(p * (q * F ** (q - 1) * g**2 + F**q / eta))  # L = 1/eta
    reach = jnp.full(2, eta)

    def sent(delta, loss, reach):
        return Upload(delta, jnp.asarray(1, jnp.int32), {"loss": loss}, {}, effective_step=reach)

    upload = jax.vmap(sent)(jnp.asarray(-eta * g), jnp.asarray(F), reach)
    cohort = Cohort(jnp.arange(2, dtype=jnp.int32), jnp.asarray(p))
    for part in (pf.aggregators.QFair(q), pf.aggregators.QFair(q, lipschitz=1 / eta)):
        move, _ = part.aggregate(jnp.zeros(()), upload, cohort, jnp.asarray(p), None)
        assert float(move) == pytest.approx(wanted, rel=1e-12)


def test_the_loss_is_that_of_the_first_step():
    eta, p, m = 0.1, np.asarray([0.8, 0.2]), np.asarray([0.0, 3.0])
    delta = (m - 1.0) * (1 - (1 - eta) ** 2)  # two steps from theta = 1 with eps = 0
    F, reach = (1.0 - m) ** 2 / 2, 2 * eta
    wanted = np.sum(p * F * delta) / np.sum(p * (F + delta**2 / reach))
    found = models(people(m, p, sensitivity=0.0), pf.qffl(eta, q=1.0, local_steps=2), 1, theta=1.0)
    assert found[1] == pytest.approx(1.0 + wanted, rel=1e-12)


def test_the_worst_mixture_does_not_depend_on_the_weights():
    # The largest of three losses is smallest half way between 0 and 4.
    found = models(people([0.0, 1.0, 4.0], [0.8, 0.1, 0.1]), pf.afl(0.3, step=0.02), 1500)
    assert found[-1] * (1 - EPS) == pytest.approx(2.0, abs=1e-3)


def test_weights_stay_on_the_simplex():
    for v in ([0.2, 0.3, 0.5], [2.0, 0.0, 0.0], [0.6, 0.6, -3.0], [5.0, 4.9, 0.0]):
        found = np.asarray(project_simplex(jnp.asarray(v)))
        assert found.min() >= 0 and found.sum() == pytest.approx(1.0, abs=1e-6)
        inside = found > 0  # max(v - c, 0) with one c
        assert np.ptp((np.asarray(v) - found)[inside]) < 1e-6 and np.all(np.asarray(v)[~inside] <= np.max(v) - 1 + 1e-6)


def test_fair_servers_ask_for_losses():
    for server in (pf.aggregators.QFair(1.0), pf.aggregators.Agnostic(0.1)):
        with pytest.raises(ValueError, match="use it with the estimator"):
            pf.run(people([0.0, 1.0]), pf.p_fedavg(0.1, aggregator=server), 1, theta=0.0)


def test_control_variates_take_the_drift_from_the_performative_gradient_too():
    m, c = np.asarray([0.0, 4.0]), 1 - np.asarray([0.0, 0.8])
    optimal = np.sum(c * m) / np.sum(c**2)
    shrunk = 1 - (1 - 0.2 * c**2) ** 4  # four plain local steps would settle at
    assert abs(np.sum(shrunk * m / c) / np.sum(shrunk) - optimal) > 0.05
    whole = pf.estimators.Performative(None, term="pathwise")
    found = models(people(m, sensitivity=1 - c), pf.scaffold(0.2, local_steps=4, estimator=whole), 120)
    assert found[-1] == pytest.approx(optimal, abs=1e-8)
