"""Drift at a point, spread between clients, the server's step, and local GD, SGD and shuffled SGD in a cycle."""

import numpy as np
import pytest

import performative as pf
from performative.aggregators import Extrapolate, Nova, Scaffold
from performative.batches import Whole
from performative.estimators import ControlVariate, Minibatch

pytestmark = pytest.mark.slow

P, M = np.asarray([0.4, 0.3, 0.2, 0.1]), np.asarray([1.0, -2.0, 3.0, 5.0])
REACTING, STATIC = np.asarray([0.5, -0.3, 0.8, 0.2]), np.zeros(4)
ETA, E = 0.2, 5


def gaussian(eps, scale=0.0):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(M, eps, scale), P)


@pytest.mark.parametrize("eps", [STATIC, REACTING], ids=["static", "performative"])
def test_average_drift_at_the_stable_point(eps):
    """|sum_i p_i R_i (m_i - lambda_i theta)| / (eta E), R_i = (1 - (1 - eta lambda_i)^E) / lambda_i; 0 for E = 1."""
    lam = 1 - eps
    stable = P @ M / (P @ lam)
    pull = (1 - (1 - ETA * lam) ** E) / lam * (M - lam * stable)
    expected = abs(P @ pull) / (ETA * E)
    drift = pf.average_drift(gaussian(eps), pf.p_fedavg(ETA, local_steps=E), stable)
    np.testing.assert_allclose(drift.value, expected, rtol=1e-12, atol=1e-14)
    assert (expected > 0.05) == (eps is REACTING)  # clients of equal curvature cancel however long they work
    once = pf.average_drift(gaussian(eps), pf.p_fedavg(ETA), stable)
    assert once.value < 1e-14


def test_drift_with_noise_unequal_work_and_control_variates():
    stable, tau = P @ M / (P @ (1 - REACTING)), [5, 1, 3, 2]
    lam = 1 - REACTING
    pull = (1 - (1 - ETA * lam) ** np.asarray(tau)) / lam * (M - lam * stable)
    algorithm = pf.p_fedavg(ETA, participation=pf.LocalWork(pf.SchemeOne(2), tau))
    drift = pf.average_drift(gaussian(REACTING, 1.0), algorithm, stable, repeats=4000)
    assert abs(drift.value - abs(P @ pull) / (ETA * E)) < 4 * drift.standard_error
    assert 0 < drift.standard_error < 0.02
    scaffold = pf.average_drift(gaussian(REACTING), pf.scaffold(ETA, local_steps=E), stable)
    plain = pf.average_drift(gaussian(REACTING), pf.p_fedavg(ETA, local_steps=E), stable)
    np.testing.assert_allclose(scaffold.value, plain.value, rtol=1e-12)  # nothing has been learned yet


def test_the_spread_of_risks_between_clients():
    """f_i(theta) = ((theta (1 - eps_i) - m_i)^2 + scale^2) / 2."""
    history = pf.run(
        gaussian(REACTING, 0.7),
        pf.p_fedavg(0.1, participation=pf.SchemeTwo(2)),
        6,
        theta=0.3,
        record=pf.Record(risks=3),
        dtype="float64",
    )
    theta = history.theta[0][history.risk_rounds]
    each = (np.square(np.outer(theta, 1 - REACTING) - M) + 0.49) / 2
    spread = np.sqrt(np.square(each - (each @ P)[:, None]) @ P)
    np.testing.assert_allclose(history["risk_spread"][0], spread, rtol=1e-12)


@pytest.mark.parametrize(
    "aggregator, estimator",
    [
        (Extrapolate(cap=2.0), Minibatch()),
        (Nova(Extrapolate(cap=2.0)), Minibatch()),
        (Scaffold(Extrapolate(cap=2.0)), ControlVariate(Minibatch())),
    ],
    ids=["alone", "in Nova", "in Scaffold"],
)
def test_the_step_of_the_server_is_recorded(aggregator, estimator):
    algorithm = pf.p_fedavg(ETA, aggregator=aggregator, estimator=estimator)
    history = pf.run(gaussian(STATIC), algorithm, 1, theta=0.5, dtype="float64", record=pf.Record(risks=False))
    delta = ETA * (M - 0.5)
    stretch = P @ delta**2 / (2 * ((P @ delta) ** 2 + 1e-3))
    assert 1 < stretch < 50
    np.testing.assert_allclose(history["server_step"][0, 1], min(stretch, 2.0), rtol=1e-12)


class TestCyclesOfLocalWork:
    """Groups {0, 1} and {2, 3} in turn, an epoch a round. Data react between rounds; within one only theta moves:

    theta_i = (1 - eta)^E theta + sum_e w_e z_e,      w_e = eta (1 - eta)^(E - 1 - e)

    Rows that are shuffled have n / (n - 1) sum (w_e - w_bar)^2 of the variance of a row where SGD has sum w_e^2.
    """

    ROWS = 6
    TABLE = np.random.default_rng(4).normal(np.asarray([1.0, 2.0, -1.0, 4.0])[:, None], 1.0, (4, ROWS))
    SHIFT = pf.populations.shifts.Linear(np.asarray([0.5, 0.2, 0.6, 0.1]))
    PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Database(TABLE, SHIFT), np.asarray([0.1, 0.3, 0.4, 0.2]))
    W = ETA * (1 - ETA) ** np.arange(ROWS - 1, -1, -1)
    LEFT = ROWS / (ROWS - 1) * np.square(W - W.mean()).sum() / (W**2).sum()

    def algorithm(self, batch):
        groups = pf.Cyclic([[0, 1], [2, 3]])
        return pf.p_fedavg(ETA, local_steps=self.ROWS, batch=batch, deploy="round", participation=groups)

    def after(self, batch, rounds, repeats):
        record = pf.Record(risks=False, theta="last")
        algorithm = self.algorithm(batch)
        return pf.run(
            self.PROBLEM, algorithm, rounds, theta=0.5, repeats=repeats, dtype="float64", record=record
        ).theta[:, -1]

    def test_runs_have_the_exact_moments(self):
        exact, repeats = pf.moments(self.PROBLEM, self.algorithm(pf.Fixed(1)), 60, theta=0.5), 8000
        np.testing.assert_allclose(self.after(Whole(), 60, 1), exact.mean[60], rtol=1e-12)
        for batch, left in ((pf.Fixed(1), 1.0), (pf.Shuffled(1), self.LEFT)):
            theta, variance = self.after(batch, 11, repeats), left * exact.covariance[11, 0, 0]
            assert abs(theta.mean() - exact.mean[11]) < 4 * np.sqrt(variance / repeats)
            # Var of a variance is about 2 v^2 / n for what is nearly normal; sums of few uniform rows are tamer.
            assert abs(theta.var() - variance) < 4 * variance * np.sqrt(2 / repeats)
        assert self.LEFT < 0.25  # shuffling takes most of the noise


def test_drift_is_of_updates_whatever_server_and_channel_do():
    stable = P @ M / (P @ (1 - REACTING))
    plain = pf.average_drift(gaussian(REACTING), pf.p_fedavg(ETA, local_steps=E), stable).value
    controlled = {"estimator": ControlVariate(Minibatch())}
    for parts in (
        {"channel": pf.channels.Quantized(3)},
        {"aggregator": Scaffold(pf.aggregators.Median()), **controlled},
        {"aggregator": Nova(Scaffold()), **controlled},
    ):
        drift = pf.average_drift(gaussian(REACTING), pf.p_fedavg(ETA, local_steps=E, **parts), stable)
        np.testing.assert_allclose(drift.value, plain, rtol=1e-12)
    with pytest.raises(ValueError, match="rate of the first round is 0"):
        pf.average_drift(gaussian(REACTING), pf.p_fedavg(0.0), stable)


def test_a_rejected_client_is_waited_for_and_counted():
    mean = np.asarray([1.0, 2.0, 1e200])  # its square is no number, and neither is its gradient's
    problem = pf.Problem(broken_far_out, pf.populations.Gaussian(mean, 0.0, 0.0))
    clock = pf.Clock(compute=[1.0, 1.0, 10.0], communication=1.0)
    record = pf.Record(risks=False, stable=1.5)
    with pytest.warns(pf.PerformativeWarning, match=r"3 of 9 updates were non-finite.*\[nonfinite-updates\]"):
        history = pf.run(problem, pf.p_fedavg(0.1), 3, theta=0.0, clock=clock, dtype="float64", record=record)
    assert history["nonfinite_updates"][0].tolist() == [0, 1, 2, 3]
    assert history["uploads"][0].tolist() == [0, 3, 6, 9]
    assert history["time"][0].tolist() == [0, 11, 22, 33]


def broken_far_out(theta, z):
    return (theta - z) ** 4


def test_the_recorded_server_step_is_that_of_evened_updates():
    tau = [5, 1, 3, 2]
    algorithm = pf.p_fedavg(ETA, participation=pf.LocalWork(pf.Full(), tau), aggregator=Nova(Extrapolate()))
    history = pf.run(gaussian(STATIC), algorithm, 1, theta=0.5, dtype="float64", record=pf.Record(risks=False))
    delta = (1 - (1 - ETA) ** np.asarray(tau)) * (M - 0.5) * (P @ tau) / tau
    step = max(1.0, P @ delta**2 / (2 * ((P @ delta) ** 2 + 1e-3)))
    np.testing.assert_allclose(history["server_step"][0, 1], step, rtol=1e-12)
    np.testing.assert_allclose(history.final[0], 0.5 + step * (P @ delta), rtol=1e-12)
