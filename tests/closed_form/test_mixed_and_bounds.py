"""No-regret play and its mixed stable distributions; a search by confidence bounds. Both against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.populations import AbstractPopulation

PART_EXAMPLES = {
    "pf.estimators.ModelRisks": {
        "arguments": "models=[0.0, 0.5, 1.0]",
        "population": "G",
        "beside": {"aggregator": "pf.aggregators.ConfidenceBounds([0.0, 0.5, 1.0], 1.0)"},
    },
    "pf.aggregators.ConfidenceBounds": {
        "arguments": "models=[0.0, 0.5, 1.0], slope=1.0",
        "population": "G",
        "beside": {"estimator": "pf.estimators.ModelRisks([0.0, 0.5, 1.0])"},
    },
    "pf.schedules.Power": "scale=0.1",
}
RECORD = pf.Record(risks=False, consensus=False)


def people(mean, eps, domain=None, scale=1.0):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, eps, scale), domain=domain)


@pytest.mark.parametrize("eps", [1.5, 0.3, -2.0])
def test_the_regret_of_a_distribution(eps):
    models, w = np.asarray([-1.0, 0.5, 2.0]), np.asarray([0.2, 0.5, 0.3])
    mean = w @ models
    var = w @ (models - mean) ** 2
    wanted = ((1 - 2 * eps) * var + ((1 - eps) * mean - 1.0) ** 2) / 2
    assert pf.mixed_regret(people([1.0], eps), models, 2 * w) == pytest.approx(wanted, abs=1e-9)
    assert pf.mixed_regret(people([1.0], eps), [1 / (1 - eps)]) == pytest.approx(0.0, abs=1e-9)  # one stable model


def test_the_best_answer_lies_in_the_domain():
    # Data under theta = 4 have the mean 7; within the box nobody can do better than 4.
    assert pf.mixed_regret(people([1.0], 1.5, pf.Box(-4.0, 4.0)), [4.0]) == pytest.approx(0.0, abs=1e-9)
    for wrong in ({"models": 1.0}, {"models": [1.0], "weights": [1.0, 2.0]}, {"models": [1.0], "weights": [-1.0]}):
        with pytest.raises(ValueError, match="mixed_regret"):
            pf.mixed_regret(people([1.0], 0.5), **wrong)


class Contrary(AbstractPopulation):
    """People who do the opposite of what is foretold: no single model is stable."""

    side: jnp.ndarray = pf.per_client()

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jnp.zeros(shape, jnp.asarray(theta).dtype)

    def sample(self, noise, world, theta):
        return noise + jnp.where(theta > 0, -self.side, self.side)


@pytest.mark.slow
def test_no_regret_play_is_stable_in_the_mean_where_no_model_is():
    problem = pf.Problem(pf.losses.squared, Contrary(np.ones(1)), domain=pf.Box(-2.0, 2.0))
    history = pf.run(problem, pf.no_regret(0.5), 400, theta=1.5, record=RECORD, dtype="float64")
    assert (
        history.theta[0, 1] == pytest.approx(1.5 - 0.5 * 2.5) and len(np.unique(np.sign(history.theta[0, 200:]))) == 2
    )
    # Data are +1 or -1: E f(theta; theta) - min E f = (E (theta - z)^2 - Var z) / 2.
    theta = history.theta[0, 1:]
    z = np.where(theta > 0, -1.0, 1.0)
    regret = pf.mixed_regret(problem, theta)
    assert regret == pytest.approx((np.mean((theta - z) ** 2) - np.var(z)) / 2, abs=1e-6)
    assert regret < 0.06 < pf.mixed_regret(problem, [0.01])  # a single model has (0.01 + 1)^2 / 2


def test_certificates_tell_of_mixed_stability_where_nothing_attracts():
    def codes(eps):
        return {found.code for found in pf.certify(people([1.0], eps)).findings}

    assert "near.mixed" in codes(1.5)
    assert "near.mixed" not in codes(0.5) and "near.mixed" not in codes(-1.5)  # small steps settle there


GRID = np.linspace(0.0, 4.0, 41)
LEVEL, EPS = np.asarray([1.0, 3.0]), np.asarray([0.2, 0.6])


def decoupled(shown, models):
    return np.mean([(models - m - e * shown) ** 2 / 2 for m, e in zip(LEVEL, EPS, strict=True)], axis=0)


def test_the_search_deploys_what_could_be_best_and_finds_the_best():
    slope = 2.0  # |theta - z| <= 3.4 and eps <= 0.6, in the mean of both clients
    shown, lower, path = 0.0, np.full(len(GRID), -np.inf), [0.0]
    for _ in range(30):
        lower = np.maximum(lower, decoupled(shown, GRID) - slope * np.abs(GRID - shown))
        shown = GRID[np.argmin(lower)]
        path.append(shown)
    history = pf.run(
        people(LEVEL, EPS, scale=0.0), pf.confidence_bounds(GRID, slope), 30, theta=0.0, record=RECORD, dtype="float64"
    )
    np.testing.assert_allclose(history.theta[0], path, atol=1e-12)
    risks = [decoupled(theta, theta) for theta in GRID]
    assert history.theta[0, -1] == GRID[np.argmin(risks)] and len(np.unique(path)) < 0.7 * len(GRID)
    assert history["bound_gap"][0, -1] == pytest.approx(0.0, abs=1e-12)


def test_the_bounds_hold_the_performative_risk():
    for shown in GRID[::5]:
        away = np.abs(decoupled(shown, GRID) - [decoupled(theta, theta) for theta in GRID])
        assert np.all(away <= 2.0 * np.abs(GRID - shown) + 1e-12)


def test_lists_of_models_fit_the_model():
    with pytest.raises(ValueError, match="a model in each row"):
        pf.run(people(LEVEL, EPS), pf.confidence_bounds(np.zeros((3, 2)), 1.0), 1, theta=0.0)
    with pytest.raises(ValueError, match="of the same models"):
        pf.run(
            people(LEVEL, EPS), pf.p_fedavg(0.1, aggregator=pf.aggregators.ConfidenceBounds(GRID, 1.0)), 1, theta=0.0
        )
