"""`pf.stable_point(problem, sharing=...)` against closed forms, and against runs."""

import numpy as np
import pytest
from test_sharing_points import EPS, MEAN, WEIGHTS, ditto_point

import performative as pf

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, EPS, 1.0), weights=WEIGHTS)


@pytest.mark.parametrize("sharing", [pf.sharing.Ditto, pf.sharing.PFedMe])
def test_pulled_models(sharing):
    """With the squared loss both settle at the same point."""
    found, expected = pf.stable_point(PROBLEM, sharing=sharing(0.7)), ditto_point(0.7)
    np.testing.assert_allclose(found.shared, expected[-1], rtol=1e-9)
    np.testing.assert_allclose(found.own, expected[:-1], rtol=1e-9)
    assert found.residual < 1e-9


@pytest.mark.slow
def test_alone_in_groups_and_all_together():
    alone = pf.stable_point(PROBLEM, start=3.0, sharing=pf.sharing.PerClient())
    np.testing.assert_allclose(alone.own, MEAN / (1 - EPS), rtol=1e-9, atol=1e-12)
    assert alone.shared == 3.0  # nobody trains it
    groups = pf.stable_point(PROBLEM, sharing=pf.sharing.Groups([0, 1, 1, 0]))
    for place, members in enumerate(([0, 3], [1, 2])):
        p = WEIGHTS[members] / WEIGHTS[members].sum()
        point = (p @ MEAN[members]) / (1 - p @ EPS[members])
        np.testing.assert_allclose(groups.shared[place], point, rtol=1e-9)
        np.testing.assert_allclose(groups.own[members], point, rtol=1e-9)
    one = pf.stable_point(PROBLEM)
    assert pf.stable_point(PROBLEM, sharing=pf.sharing.OneModel()) == one
    for same in (pf.sharing.Heads(False), pf.sharing.Interpolated(0.0), pf.sharing.Groups([0] * 4)):
        np.testing.assert_allclose(np.ravel(pf.stable_point(PROBLEM, sharing=same).shared), one, rtol=1e-9)
    np.testing.assert_allclose(pf.stable_point(PROBLEM, sharing=pf.sharing.Interpolated(1.0)).own, alone.own, atol=1e-9)


def credit():
    """Logistic loss over tables: no closed form."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(3, 30, 2)), rng.integers(0, 2, (3, 30))
    population = pf.populations.Strategic(x, y.astype(float), np.array([0.3, 0.1, 0.5]))
    return pf.Problem(pf.losses.logistic(0.3), population, weights=[0.5, 0.2, 0.3])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sharing",
    [
        pf.sharing.Ditto(0.5), pf.sharing.PFedMe(0.5), pf.sharing.Interpolated(0.4), pf.sharing.PerClient(),
        pf.sharing.Heads(np.array([True, False])), pf.sharing.Groups([0, 1, 0]),
    ],
    ids=lambda part: type(part).__name__,
)  # fmt: skip
def test_runs_without_noise_end_there(sharing):
    problem = credit()
    found = pf.stable_point(problem, sharing=sharing)
    algorithm = pf.p_fedavg(0.3, batch=pf.Whole(), sharing=sharing, deploy="round")
    run = pf.run(problem, algorithm, 4000, dtype="float64", record=pf.Record(risks=False))
    np.testing.assert_allclose(run.final[0], found.shared, atol=1e-6)
    np.testing.assert_allclose(run.models[0], found.own, atol=1e-6)


def test_refusals():
    with pytest.raises(ValueError, match="sharing=LearnedGroups chooses models from data"):
        pf.stable_point(PROBLEM, sharing=pf.sharing.LearnedGroups(2))
    boxed = pf.Problem(pf.losses.squared, PROBLEM.population, WEIGHTS, domain=pf.Box(-1.0, 1.0))
    with pytest.raises(ValueError, match="outside the domain"):
        pf.stable_point(boxed, sharing=pf.sharing.PerClient())
    flat = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, np.array([0.2, 0.5, 1.0, -0.5]), 1.0))
    with pytest.raises(ValueError, match="no stable point with sharing=PerClient was found"):
        pf.stable_point(flat, sharing=pf.sharing.PerClient())
