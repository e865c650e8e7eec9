"""Steps on the last k data sets: the recursion of retraining on them, and the border of its convergence."""

import numpy as np
import pytest

import performative as pf

PART_EXAMPLES = {"pf.estimators.Snapshots": ("k=2, rows=4", "k=3, rows=2, weights=[0.5, 0.3, 0.2]")}


def retrained(m, eps, rounds, weights):
    """theta_{t+1} = m + eps sum_j w_j theta_{t-j}, of as many data sets as there are."""
    path = [0.0]
    for _ in range(rounds):
        last = np.asarray(path[::-1][: len(weights)])
        w = np.asarray(weights[: len(last)])
        path.append(m + eps * float(w @ last) / w.sum())
    return np.asarray(path)


def models(eps, rounds, algorithm, scale=0.0):
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], eps, scale))
    record = pf.Record(risks=False, consensus=False)
    return pf.run(problem, algorithm, rounds, theta=0.0, record=record, dtype="float64").theta[0]


@pytest.mark.parametrize(
    ("k", "eps", "settles"), [(2, -1.5, True), (2, -2.2, False), pytest.param(3, -2.2, True, marks=pytest.mark.slow)]
)
def test_it_settles_iff_eps_lies_above_minus_k(k, eps, settles):
    found = models(eps, 120, pf.snapshots(1.0, k))
    np.testing.assert_allclose(found, retrained(1.0, eps, 120, [1.0] * k), rtol=1e-9, atol=1e-9)
    assert (abs(found[-1] - 1 / (1 - eps)) < 1e-3) == settles


def test_data_sets_have_weights_and_last_as_long_as_their_model():
    # Four steps of 1/2 on samples without noise, three of them under one model: pf.Every(3).
    weights, theta, data, wanted = [0.5, 0.3, 0.2], 0.0, [], [0.0]
    for t in range(12):
        if t % 3 == 0:
            data.insert(0, 1.0 - 0.8 * theta)
        w = np.asarray(weights[: len(data)])
        theta = theta - 0.5 * (theta - w @ np.asarray(data[:3]) / w.sum())
        wanted.append(theta)
    algorithm = pf.snapshots(0.5, 3, weights=weights, deploy=pf.Every(3))
    np.testing.assert_allclose(models(-0.8, 12, algorithm), wanted, rtol=1e-12)


def test_rows_of_a_round_are_kept_up_to_their_number():
    algorithm = pf.snapshots(0.1, 2, batch=pf.Fixed(3), local_steps=2)
    assert algorithm.estimator.rows == 6 and algorithm.deploy == pf.deploy.Deployment(False, 1)
    with pytest.raises(ValueError, match="pass rows"):
        pf.snapshots(0.1, 2, batch=pf.Whole())
    for wrong in ({"weights": [1.0]}, {"weights": [0.0, 1.0]}, {"weights": [1.0, -1.0]}):
        with pytest.raises(ValueError, match="weights must"):
            pf.snapshots(0.1, 2, **wrong)
