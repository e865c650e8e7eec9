"""Where unequal work and local steps take FedAvg, FedNova, FedProx and SCAFFOLD, against closed forms.

Gaussian problem without noise: client i pulls by lambda_i theta - m_i with lambda_i = 1 - eps_i, so its update is
-R_i (lambda_i theta - m_i), and a rule that weighs it by w_i ends at sum w_i R_i m_i / sum w_i R_i lambda_i.
"""

import numpy as np
import pytest

import performative as pf
from performative.aggregators import Mean, Nova, Scaffold, ServerOpt
from performative.estimators import ControlVariate, Minibatch, Preconditioned, Prox
from performative.optimizers import Adagrad, Adam, Momentum, Yogi

P, M = np.asarray([0.4, 0.3, 0.2, 0.1]), np.asarray([1.0, -2.0, 3.0, 5.0])
STATIC, REACTING = np.zeros(4), np.asarray([0.5, -0.3, 0.8, 0.2])
TAU = np.asarray([5, 1, 3, 2])
ETA, DECAY, MU = 0.2, 0.6, 0.7


def final(eps, rounds=2000, mean=M, weights=P, theta=0.5, rate=ETA, repeats=1, **parts):
    """The last model of each repeat, on data without noise."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, eps, 0.0), weights)
    algorithm = pf.p_fedavg(rate, **parts)
    history = pf.run(
        problem,
        algorithm,
        rounds,
        theta=theta,
        repeats=repeats,
        dtype="float64",
        record=pf.Record(risks=False, consensus=False),
    )
    return history.theta[:, -1]


def stable(eps, weight=P):
    return weight @ M / (weight @ (1 - eps))


# --- R_i and the reach of local solvers, by matrices and geometric sums, not by running the steps


def plain(lam, tau, eta):
    return (1 - (1 - eta * lam) ** tau) / lam, eta * tau


def prox(lam, tau, eta):
    settled = (1 - (1 - eta * (lam + MU)) ** tau) / (lam + MU)
    return settled, (1 - (1 - eta * MU) ** tau) / MU


def momentum(lam, tau, eta):
    """(u, m) -> (u - eta m', m') with m' = lam u + DECAY m, u the distance to the client's own root."""
    step = np.asarray([[1 - eta * lam, -eta * DECAY], [lam, DECAY]])
    reach = eta * (tau - DECAY * (1 - DECAY**tau) / (1 - DECAY)) / (1 - DECAY)
    return (1 - np.linalg.matrix_power(step, tau)[0, 0]) / lam, reach


def prox_of_momentum(lam, tau, eta):
    """(u, m, u_0), the pull to the start outside of the momentum. The reach is the limit of a weak pull, lam -> 0."""

    def gone(lam):
        step = np.asarray([[1 - eta * (lam + MU), -eta * DECAY, eta * MU], [lam, DECAY, 0.0], [0.0, 0.0, 1.0]])
        return (1 - (np.linalg.matrix_power(step, tau) @ [1.0, 0.0, 1.0])[0]) / lam

    near, far = gone(1e-5), gone(2e-5)
    return gone(lam), 2 * near - far


SOLVERS = {
    "plain": (Minibatch(), plain),
    "prox": (Prox(Minibatch(), MU), prox),
    "momentum": (Preconditioned(Minibatch(), Momentum(DECAY)), momentum),
    "prox of momentum": (Prox(Preconditioned(Minibatch(), Momentum(DECAY)), MU), prox_of_momentum),
}


def ends(solver, eps, tau=TAU, eta=ETA):
    """Where FedAvg and FedNova end."""
    R, reach = np.asarray([solver(lam, t, eta) for lam, t in zip(1 - eps, tau, strict=True)]).T
    return stable(eps, P * R), stable(eps, P * R / reach)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVERS)
def test_unequal_work_moves_the_point_as_predicted(name):
    estimator, solver = SOLVERS[name]
    work = {"estimator": estimator, "participation": pf.LocalWork(pf.Full(), TAU)}
    for eps in (STATIC, REACTING):
        averaged, normalized = ends(solver, eps)
        assert abs(averaged - stable(eps)) > 0.1  # there is a bias to see
        np.testing.assert_allclose(final(eps, **work), averaged, rtol=1e-9)
        np.testing.assert_allclose(final(eps, aggregator=Nova(), **work), normalized, rtol=1e-8)


def test_only_fednova_goes_to_the_stable_point_with_the_rate():
    work = {"participation": pf.LocalWork(pf.Full(), TAU)}
    gaps = []
    for eta in (0.02, 0.01):
        averaged, normalized = ends(plain, REACTING, eta=eta)
        found = final(REACTING, rate=eta, aggregator=Nova(), **work)[0]
        np.testing.assert_allclose(found, normalized, rtol=1e-8)
        np.testing.assert_allclose(final(REACTING, rate=eta, **work)[0], averaged, rtol=1e-8)
        gaps.append((abs(averaged - stable(REACTING)), abs(found - stable(REACTING))))
    (fedavg_before, nova_before), (fedavg_after, nova_after) = gaps
    assert nova_after / nova_before == pytest.approx(0.5, abs=0.02)
    # FedAvg goes to the point with weights p_i tau_i.
    assert fedavg_after == pytest.approx(abs(stable(REACTING, P * TAU) - stable(REACTING)), rel=0.02)
    assert fedavg_after > 0.9 * fedavg_before


@pytest.mark.slow
def test_unequal_work_makes_fedavg_diverge_where_fednova_settles():
    eps, tau, eta, rounds = np.asarray([1.6, 0.6, 0.6, 0.6]), np.asarray([5, 1, 1, 1]), 0.05, 60
    p, mean = np.full(4, 0.25), np.asarray([1.0, 0.0, 2.0, -1.0])
    given = {"mean": mean, "weights": None, "rate": eta, "participation": pf.LocalWork(pf.Full(), tau)}
    R = np.asarray([plain(lam, t, eta)[0] for lam, t in zip(1 - eps, tau, strict=True)])
    w = p * R
    growth, root = 1 - w @ (1 - eps), w @ mean / (w @ (1 - eps))
    assert growth > 1.02
    np.testing.assert_allclose(final(eps, rounds, **given), root + growth**rounds * (0.5 - root), rtol=1e-9)
    w = w / tau
    nova = final(eps, aggregator=Nova(), **given)
    np.testing.assert_allclose(nova, w @ mean / (w @ (1 - eps)), rtol=1e-8)
    # The stable point exists and attracts: mean eps = 0.85 < 1.
    assert abs(nova[0] - p @ mean / (1 - p @ eps)) < 0.6 < abs(p @ mean / (1 - p @ eps))


SCHEMES = {
    "Full": pf.Full(),
    "SchemeOne": pf.SchemeOne(2),
    "SchemeTwo": pf.SchemeTwo(2),
    "FirstK": pf.FirstK(2, pf.participation.UniformLatency()),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "SchemeTwo" else pytest.mark.slow) for name in SCHEMES]
)
def test_scaffold_removes_the_drift(name):
    """With whoever comes: fast clients may come more often, too, as no client moves once c_i is its gradient."""
    scheme = SCHEMES[name]
    if name == "FirstK":
        scheme = pf.FirstK(2, pf.participation.Exponential([1.0, 2.0, 3.0, 4.0]))
    scaffold = {"estimator": ControlVariate(Minibatch()), "aggregator": Scaffold(), "rate": 0.1}
    if name == "Full":  # with the same number of steps for all FedAvg is biased, where clients react differently
        averaged = ends(plain, REACTING, tau=np.full(4, 4), eta=0.1)[0]
        assert abs(averaged - stable(REACTING)) > 0.05
        np.testing.assert_allclose(final(REACTING, local_steps=4, rate=0.1), averaged, rtol=1e-9)
        np.testing.assert_allclose(final(REACTING, local_steps=4, **scaffold), stable(REACTING), rtol=1e-8)
    for eps in (STATIC, REACTING):
        unequal = final(eps, participation=pf.LocalWork(scheme, TAU), **scaffold)
        np.testing.assert_allclose(unequal, stable(eps), rtol=1e-8)


@pytest.mark.slow
def test_scaffold_removes_the_drift_of_unequal_curvature():
    """Static data, the same work for all: features x_i make curvatures x_i^2, and FedAvg is biased by those."""
    x, slope, E = np.asarray([0.5, 1.0, 1.5, 2.0]), np.asarray([1.0, -2.0, 3.0, 5.0]), 5
    population = pf.populations.Regression(x, 0.0, slope, 0.0, 0.0)
    problem = pf.Problem(pf.losses.ridge(0.0), population, P)
    truth = P * x**2 @ slope / (P @ x**2)
    w = P * (1 - (1 - ETA * x**2) ** E)
    for parts, point in (
        ({}, w @ slope / np.sum(w)),
        ({"estimator": ControlVariate(Minibatch()), "aggregator": Scaffold()}, truth),
    ):
        algorithm = pf.fedavg(ETA, local_steps=E, **parts)
        history = pf.run(problem, algorithm, 300, theta=0.0, dtype="float64", record=pf.Record(risks=False))
        np.testing.assert_allclose(history.theta[:, -1], point, rtol=1e-9)
    assert abs(w @ slope / np.sum(w) - truth) > 0.1


def test_nova_around_scaffold_and_solvers_around_control_variates():
    estimator = Prox(Preconditioned(ControlVariate(Minibatch()), Momentum(0.3)), 0.2)
    parts = {"estimator": estimator, "aggregator": Nova(Scaffold()), "rate": 0.05}
    found = final(REACTING, participation=pf.LocalWork(pf.SchemeTwo(2), TAU), **parts)
    np.testing.assert_allclose(found, stable(REACTING), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SchemeOne", "SchemeTwo", "FirstK"])
def test_on_average_every_scheme_ends_at_fednovas_point(name):
    """All is linear and the cohort does not depend on the model, so the mean obeys the recursion of Full."""
    estimator, solver = SOLVERS["prox of momentum"]
    aggregator = ServerOpt(Nova(), Momentum(0.3), rate=0.6)
    found = final(
        REACTING, 100, repeats=400, estimator=estimator, aggregator=aggregator,
        participation=pf.LocalWork(SCHEMES[name], TAU), rate=0.1,
    )  # fmt: skip
    point = ends(solver, REACTING, eta=0.1)[1]
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - point) < 5 * error + 1e-7  # the reach above is a limit, known to about 1e-9
    assert abs(ends(solver, REACTING, eta=0.1)[0] - point) > 20 * error  # FedAvg's point would have been told apart


@pytest.mark.slow
def test_the_mean_reach_of_a_cohort_takes_fednova_back_to_fedavg():
    """With one client a round r = r_k, and the printed form changes nothing; the mean over all clients does."""
    work = {"participation": pf.LocalWork(pf.SchemeOne(1), TAU), "rounds": 80, "repeats": 300, "rate": 0.1}
    fedavg = final(REACTING, **work)
    np.testing.assert_allclose(final(REACTING, aggregator=Nova(over="cohort"), **work), fedavg, rtol=1e-9)
    found = final(REACTING, aggregator=Nova(), **work)
    averaged, normalized = ends(plain, REACTING, eta=0.1)
    for samples, point in ((fedavg, averaged), (found, normalized)):
        assert abs(samples.mean() - point) < 5 * samples.std() / np.sqrt(len(samples))
    assert abs(found.mean() - averaged) > 10 * found.std() / np.sqrt(len(found))


@pytest.mark.parametrize(
    ("tx", "rate"),
    [
        pytest.param(Adam(0.5, 0.9, 0.1), 0.1, id="Adam"),
        pytest.param(Adagrad(), 0.5, id="Adagrad", marks=pytest.mark.slow),
        pytest.param(Yogi(0.5, 0.9, 0.1), 0.1, id="Yogi", marks=pytest.mark.slow),
    ],
)
def test_server_optimizers_settle_where_the_mean_does(tx, rate):
    averaged = ends(plain, REACTING)[0]
    server = ServerOpt(Mean(), tx, rate)
    found = final(REACTING, aggregator=server, participation=pf.LocalWork(pf.Full(), TAU))
    np.testing.assert_allclose(found, averaged, rtol=1e-7)
