"""`pf.tune` against closed forms and fine grids."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import performative as pf
from performative.moments.descend import descend
from performative.papers.ours.tuned import best_chances

EPS, SD, START = 0.4, 1.3, 10.0
C = 1 - EPS
ONE = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], [EPS], SD))
AWAY = (START - 1 / C) ** 2
ROUNDS = 12
FINAL = {"cost": "final", "rounds": ROUNDS, "theta": START}

N = 4
MEAN, SENSITIVITY, SCALE = (
    np.asarray([0.5, -1.0, 2.0, 0.0]),
    np.asarray([0.6, -0.2, 0.3, 0.8]),
    np.linspace(0.3, 1.5, N),
)
P = np.arange(1, 1 + N) / np.arange(1, 1 + N).sum()
UNEQUAL = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, SENSITIVITY, SCALE), weights=P)


def error(eta):
    """(1 - eta c)^(2 R) (theta_0 - theta_PS)^2 + eta^2 s^2 (1 - (1 - eta c)^(2 R)) / (1 - (1 - eta c)^2)."""
    shrinks = (1 - eta * C) ** 2
    return shrinks**ROUNDS * AWAY + eta**2 * SD**2 * (1 - shrinks**ROUNDS) / (1 - shrinks)


def test_the_best_constant_step():
    """Against the closed form; and the time to an accuracy, in whole rounds, against a grid of steps."""
    found = pf.tune(ONE, pf.p_fedavg(0.1), ["rate"], **FINAL)
    known = minimize_scalar(error, bounds=(0.01, 1.5), method="bounded", options={"xatol": 1e-12})
    assert found.values["rate"] == pytest.approx(known.x, rel=1e-6)
    assert found.after == pytest.approx(known.fun, rel=1e-10)
    assert found.before == pytest.approx(error(0.1), rel=1e-10)
    assert found.gradient < 1e-8
    assert found.path[-1] == pytest.approx(found.after, rel=1e-10)
    assert found.ratio == found.before / found.after > 1
    again = pf.tune(ONE, found.algorithm, ["rate"], **FINAL)
    assert 1.0 <= again.ratio < 1.0 + 1e-9
    assert f"{found.after:.6g} at best" in str(found)


@pytest.mark.slow
def test_the_best_chances():
    """q_i ~ p_i (E|delta_i|^2)^(1/2) at the stationary law."""
    eta, k = 0.3, 2
    recipe = pf.p_fedavg(eta, participation=pf.participation.Weighted(k, P))
    found = pf.tune(UNEQUAL, recipe, ["participation.chance"], starts=2)
    known = best_chances(MEAN, SENSITIVITY, SCALE, P, eta, 1, k)
    np.testing.assert_allclose(found.values["participation.chance"], known.chance, rtol=1e-6)
    assert found.after == pytest.approx(known.error, rel=1e-9)
    scheme_one = pf.moments(UNEQUAL, pf.p_fedavg(eta, participation=pf.SchemeOne(k)), 1).stationary
    assert found.before == pytest.approx(scheme_one.mse_stable, rel=1e-12)


@pytest.mark.slow
def test_the_best_of_all_schedules_is_harmonic():
    """With one client 1 / MSE_R = 1 / MSE_0 + R c^2 / s^2, at steps 1 / (c (t + 1 + s^2 / (c^2 MSE_0)))."""
    found = pf.tune(ONE, pf.p_fedavg(0.1), ["rate"], schedule="steps", **FINAL)
    offset = 1 + SD**2 / (C**2 * AWAY)
    np.testing.assert_allclose(found.values["rate.values"], 1 / (C * (np.arange(ROUNDS) + offset)), rtol=1e-6)
    assert found.after == pytest.approx(1 / (1 / AWAY + ROUNDS * C**2 / SD**2), rel=1e-10)
    harmonic = pf.tune(ONE, pf.p_fedavg(pf.schedules.harmonic(1.0, 2.0)), ["rate"], **FINAL)
    assert harmonic.values["rate.scale"] == pytest.approx(1 / C, rel=1e-6)
    assert harmonic.values["rate.offset"] == pytest.approx(offset, rel=1e-6)


@pytest.mark.slow
def test_the_least_time():
    """In whole rounds, against a grid; with a price a round counts as much."""
    how = {"cost": "time", "accuracy": 1.0, "rounds": 40, "theta": START}
    found = pf.tune(ONE, pf.p_fedavg(0.1), ["rate"], **how)

    def time(eta):
        errors = pf.moments(ONE, pf.p_fedavg(float(eta)), 40, START).mse_stable
        outside = np.flatnonzero(errors > 1.0)
        return np.inf if outside[-1] == 40 else outside[-1] + 1

    assert found.after == min(time(eta) for eta in np.linspace(0.2, 1.0, 41))
    priced = pf.tune(ONE, pf.p_fedavg(0.1), ["rate"], price=lambda algorithm: 2.0 + algorithm.local_steps, **how)
    assert priced.after == 3 * found.after


@pytest.mark.slow
def test_momentum_and_whole_numbers():
    """Several numbers at once are no worse than each of them; values to try are all tried."""
    server = pf.aggregators.ServerOpt(pf.aggregators.Mean(), pf.optimizers.Momentum(0.5))
    recipe = pf.p_fedavg(0.05, aggregator=server)
    how = {"cost": "final", "rounds": 10, "theta": START}
    one = pf.tune(UNEQUAL, recipe, ["rate"], **how)
    both = pf.tune(UNEQUAL, recipe, ["rate", "aggregator.tx.decay"], **how)
    assert both.after <= one.after * (1 + 1e-9)
    assert 0 <= both.values["aggregator.tx.decay"] < 1
    counts = pf.tune(UNEQUAL, pf.p_fedavg(0.05), {"local_steps": [1, 3], "rate": (0.001, 0.5)}, **how)
    assert [name for name, _ in counts.tried] == ["local_steps=1", "local_steps=3"]
    assert counts.after == min(after for _, after in counts.tried)
    assert counts.algorithm.local_steps == counts.values["local_steps"]


def test_descent_into_a_region_without_values():
    """The function is infinite beyond 1; its least value lies close to that border."""

    def function(x):
        if x[0] >= 1.0:
            return np.inf, np.zeros(2)
        far = x - np.asarray([0.999, 3.0])
        return float(far @ far), 2 * far

    x, value, _, path = descend(function, np.asarray([-5.0, 40.0]), 100, 1e-12)
    np.testing.assert_allclose(x, [0.999, 3.0], atol=1e-9)
    assert value < 1e-18
    assert path == sorted(path, reverse=True)


@pytest.mark.parametrize(
    ("algorithm", "free", "how", "message"),
    [
        (pf.p_fedavg(0.1), ["rat"], {}, "does not lead to a number of the algorithm. Did you mean 'rate'"),
        (pf.p_fedavg(0.1), [], {}, "at least one name"),
        (pf.p_fedavg(0.1), ["local_steps"], {}, "not a differentiable number; pass values to try"),
        (pf.p_fedavg(0.1), {"rate": (1.0, 0.5)}, {}, "low < high"),
        (pf.p_fedavg(0.1), {"rate": 3}, {}, "bounds .* or with a list of values"),
        (pf.p_fedavg(0.1), {"weights": [None]}, {}, "belongs to the problem"),
        (pf.p_fedavg(0.1), ["rate"], {"cost": "least"}, 'cost must be "stationary", "final" or "time"'),
        (pf.p_fedavg(0.1), ["rate"], {"cost": "final"}, "needs rounds"),
        (pf.p_fedavg(0.1), ["rate"], {"cost": "time", "rounds": 5}, "needs an accuracy"),
        (pf.p_fedavg(0.1), ["rate"], {"to": "best"}, 'to must be "stable" or "optimal"'),
        (pf.p_fedavg(0.1), ["rate"], {"schedule": "steps"}, "a number of rounds"),
        (pf.p_fedavg(pf.schedules.harmonic(1.0, 2.0)), ["rate"], {}, "needs a constant rate"),
    ],
)
def test_refusals(algorithm, free, how, message):
    with pytest.raises(ValueError, match=message):
        pf.tune(ONE, algorithm, free, **how)


@pytest.mark.slow
def test_refusals_of_searches():
    with pytest.raises(ValueError, match="none of 1 starts settles"):
        pf.tune(ONE, pf.p_fedavg(50.0), ["rate"], starts=1)
    there = pf.p_fedavg(0.1, participation=pf.Available(np.full(N, 0.5)))
    with pytest.raises(ValueError, match="has no derivatives; pass values to try"):
        pf.tune(UNEQUAL, there, ["participation.probability"])
