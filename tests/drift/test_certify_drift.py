"""What a certificate says of data that move by themselves: never "settles" where the target does not come to rest."""

import math

import numpy as np
import pytest

import performative as pf
from performative.paths import Jump, Linear, Periodic, RandomWalk
from performative.populations import Contaminated, Drifting, Gaussian, Sluggish

EPS, V = 0.5, 0.02
JUNK = Gaussian([0.0, 0.0], 0.0, 1.0)


def certify(path, eps=EPS, around=None, of=None, mean=(1.0, 2.0), **options):
    people = Drifting(Gaussian(np.asarray(mean), eps, 1.0), path, of)
    return pf.certify(pf.Problem(pf.losses.squared, people if around is None else around(people), **options))


def test_a_straight_line_is_followed_from_behind():
    c = certify(Linear(V))
    assert c.moves and c.still is False and not c.proved and c.unique is None
    assert c.speed == pytest.approx(V / (1 - EPS)) and c.lag == pytest.approx(V / (1 - EPS) ** 2)
    assert c.step_lag == pytest.approx(V / (1 - EPS) ** 2)  # times 1 / eta
    assert "Does not settle" in c.verdict and "follows it with a lag of 0.08" in c.verdict
    assert c.to_dict()["moves"] is True and "data frozen at time" in str(c)


@pytest.mark.slow
def test_the_lag_is_that_of_retraining():
    # A model of two numbers whose reaction mixes them.
    eps = np.array([[[0.3, 0.4], [-0.2, 0.1]]])
    problem = pf.Problem(pf.losses.squared, Drifting(Gaussian([[1.0, 2.0]], eps, 1.0), Linear([[0.1, -0.3]])))
    c = pf.certify(problem)
    path = pf.repeated_risk_minimization(problem, theta=np.zeros(2), deployments=40)
    behind = np.linalg.norm(path[-1] - pf.stable_point(problem, time=40.0))
    assert c.lag == pytest.approx(behind, rel=1e-6)


@pytest.mark.parametrize("path", [Linear(0.0), Jump([0.0, 3.0], 2.0), Periodic(0.0, 5.0) + RandomWalk(0.0)])
def test_what_has_come_to_rest_settles(path):
    c = certify(path)
    assert c.drifts and not c.moves and c.proved and "settles at the only stable point" in c.verdict
    jumped = isinstance(path, Jump)
    assert c.since == (3.0 if jumped else 0.0) and float(c.stable) == pytest.approx((1.5 + 2.0 * jumped) / (1 - EPS))


@pytest.mark.slow
def test_moves_that_cancel_leave_the_target_where_it_is():
    c = certify(Linear([0.1, -0.1]))
    assert c.still and c.speed == 0 and c.proved and "cancel" in str(c)
    assert certify(Linear([0.1, -0.1]), weights=[0.4, 0.6]).moves
    assert not certify(Linear(0.1) + Linear(-0.1)).moves


@pytest.mark.parametrize("eps", [1.5, -1.5])
def test_where_retraining_runs_away_it_does_not_follow(eps):
    c = certify(Linear(V), eps)
    assert c.still is False and math.isnan(c.lag) and "diverges from it" in c.verdict


@pytest.mark.parametrize(
    "made",
    [
        lambda: certify(RandomWalk(0.1)),
        pytest.param(lambda: certify(Linear(0.1), of="sensitivity"), marks=pytest.mark.slow),
        pytest.param(lambda: certify(Linear(0.1), around=lambda people: Sluggish(people, 0.5)), marks=pytest.mark.slow),
        pytest.param(lambda: certify(Linear(0.1), domain=pf.Box(-9.0, 9.0)), marks=pytest.mark.slow),
        pytest.param(
            lambda: certify(Linear(0.1), around=lambda people: Contaminated(people, 0.1, JUNK)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_does_not_know_what_no_closed_form_says(made):
    c = made()
    assert c.moves and c.still is None and math.isnan(c.lag) and c.verdict.startswith("Not known to settle")


def test_a_season_keeps_training_within_a_bound():
    path, eps = Periodic([0.5, 1.0], 20.0, 0.3), 0.5
    c = certify(path, eps)
    assert c.still is None and math.isnan(c.lag) and "stays within" in c.verdict
    theta, far, p = 0.0, [], np.array([0.5, 0.5])

    def level(t):
        season = np.array([0.5, 1.0]) * (np.sin(2 * np.pi * t / 20 + 0.3) - np.sin(0.3))
        return p @ (np.array([1.0, 2.0]) + season)

    for t in range(200):
        far.append(abs(theta - level(t) / (1 - eps)))
        theta = level(t) + eps * theta
    assert 0.3 * c.lag_bound < max(far[100:]) <= c.lag_bound
