"""Large tables: searches begin on some of the rows, and end on all of them."""

import jax
import numpy as np
import pytest
from solve_problems import strategic

import performative as pf
from performative.solve import landscape


@pytest.fixture
def evaluations(monkeypatch):
    """Second derivatives that were computed, by the share of rows: {1: on all, k: on every k-th}."""
    seen = {}
    compiled = landscape._hessian

    def counted(*arguments):
        every = arguments[0].every
        seen[every] = seen.get(every, 0) + 1
        return compiled(*arguments)

    monkeypatch.setattr(landscape, "_hessian", counted)
    return seen


def small_is_large(monkeypatch):
    monkeypatch.setattr(landscape, "_LARGE", 100)
    monkeypatch.setattr(landscape, "_ROUGH", 1 << 10)
    monkeypatch.setattr(landscape, "_ROWS_EACH", 10)


def points(problem):
    stable = pf.stable_point(problem, report=True)
    return stable, pf.optimal_point(problem), pf.repeated_risk_minimization(problem, None, 1)[1]


@pytest.mark.slow
def test_points_are_those_of_all_rows(monkeypatch, evaluations):
    """200 people taken for many: nearly all of the work is done on every third, and the points are the same."""
    wanted = points(strategic())
    assert set(evaluations) == {1}
    before = evaluations.pop(1)
    small_is_large(monkeypatch)
    found = points(strategic())
    np.testing.assert_allclose(found[0].theta, wanted[0].theta, atol=1e-10)
    assert found[0].residual < 1e-12 and found[0].contraction == pytest.approx(wanted[0].contraction, rel=1e-8)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-7)
    np.testing.assert_allclose(found[2], wanted[2], atol=1e-7)
    (every,) = set(evaluations) - {1}
    # A few Newton steps from where every third row leads, for each of three points, and what judging them takes.
    assert every == 3 and evaluations[1] <= 30 < before / 4


@pytest.mark.slow
def test_a_search_that_ends_nowhere_on_some_rows_begins_again_on_all(monkeypatch):
    """Every sixth person is a zero: a fit to these alone, without a penalty, goes to infinity."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(1, 60, 1)), np.ones((1, 60, 1))], axis=2)
    y = (rng.uniform(size=(1, 60)) < 0.5).astype(int)
    y[:, ::6] = 0
    problem = pf.Problem(pf.losses.logistic(0.0), pf.populations.Strategic(x, y, 0.1, features=[0]))
    wanted = points(problem)
    small_is_large(monkeypatch)
    monkeypatch.setattr(landscape, "_ROUGH", 40)
    monkeypatch.setattr(landscape, "_ROWS_EACH", 5)
    with jax.enable_x64(True):
        assert landscape.survey(problem, None)[0].rough().every == 6
    found = points(problem)
    np.testing.assert_allclose(found[0].theta, wanted[0].theta, atol=1e-10)
    np.testing.assert_allclose(found[1:], wanted[1:], atol=1e-6)
