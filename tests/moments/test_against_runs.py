"""`pf.moments` against runs: means and variances of many repeats, at a level that holds for all of them together."""

import numpy as np
import pytest
from random_recipes import draw_recipe
from scipy import stats

import performative as pf

LEVEL = 1e-3


def least_p(problem, algorithm, rounds, repeats, seed=0):
    """The least p-value of means and variances at a few rounds, corrected for how many there are."""
    exact = pf.moments(problem, algorithm, rounds)
    history = pf.run(problem, algorithm, rounds=rounds, seed=seed, repeats=repeats, dtype="float64")
    theta = np.asarray(history.theta).reshape(repeats, rounds + 1, -1)
    found = []
    for r in sorted({1, 2, rounds // 2, rounds}):
        x, mean = theta[:, r], exact.mean[r].ravel()
        variance = np.diagonal(exact.covariance[r])
        for j in range(x.shape[1]):
            if variance[j] <= 1e-20 * (1 + mean[j] ** 2):
                assert np.ptp(x[:, j]) <= 1e-9 * (1 + abs(mean[j]))
                continue
            away = (x[:, j] - mean[j]) ** 2
            found.append(stats.norm.sf(abs(x[:, j].mean() - mean[j]) / np.sqrt(variance[j] / repeats)) * 2)
            found.append(stats.norm.sf(abs(away.mean() - variance[j]) / (away.std() / np.sqrt(repeats))) * 2)
    return min(found) * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5])
def test_a_sample_of_recipes(seed):
    problem, algorithm = draw_recipe(seed)
    assert least_p(problem, algorithm, rounds=8, repeats=4_000) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_recipes(seed):
    problem, algorithm = draw_recipe(seed)
    assert least_p(problem, algorithm, rounds=12, repeats=20_000, seed=1) > LEVEL / 100
