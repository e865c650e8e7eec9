"""Stable points: closed forms, roots, domains, several equilibria, and none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solve_problems import MEAN, SENSITIVITY, WEIGHTS, Bistable, gaussian, strategic
from untold import Untold

import performative as pf
from performative import solve
from performative._engine import risk
from performative._engine.prepare import on_device
from performative.populations import Contaminated, Gaussian, Sluggish
from performative.solve import landscape


def test_the_closed_form_and_the_root_agree():
    problem = gaussian()
    known = WEIGHTS @ MEAN / (1 - WEIGHTS @ SENSITIVITY)
    closed = solve.stable_point(problem, report=True)
    np.testing.assert_allclose(closed.theta, known, rtol=1e-14)
    assert (closed.method, np.shape(closed.theta), closed.theta.dtype) == ("closed form", (), np.float64)
    np.testing.assert_allclose(closed.contraction, WEIGHTS @ SENSITIVITY)
    hidden = pf.Problem(problem.loss, Untold(problem.population), WEIGHTS)
    root = solve.stable_point(hidden, start=50.0, report=True)
    assert root.method != "closed form" and root.residual < 1e-12
    np.testing.assert_allclose(root.theta, known, rtol=1e-13)


def test_a_linear_map_of_vectors():
    rng = np.random.default_rng(1)
    reaction = rng.normal(size=(3, 2, 2)) / 2
    mean = rng.normal(size=(3, 2))
    population = Gaussian(mean, reaction, 1.0)
    average = np.einsum("i,ijk->jk", WEIGHTS, reaction)
    known = np.linalg.solve(np.eye(2) - average, WEIGHTS @ mean)
    for each in (population, Untold(population)):
        found = solve.stable_point(pf.Problem(pf.losses.squared, each, WEIGHTS), report=True)
        np.testing.assert_allclose(found.theta, known, rtol=1e-11)
        np.testing.assert_allclose(found.contraction, max(abs(np.linalg.eigvals(average))), rtol=1e-11)


def test_strategic_classification():
    problem = strategic()
    found = solve.stable_point(problem, report=True)
    assert found.residual < 1e-8 and found.attracting and found.settles and not found.others
    path = solve.repeated_risk_minimization(problem, None, 40)
    np.testing.assert_allclose(path[-1], found.theta, atol=1e-10)
    gaps = np.linalg.norm(path - found.theta, axis=1)
    # Far from the start and far from rounding the distance shrinks by the contraction factor.
    np.testing.assert_allclose(gaps[9] / gaps[8], found.contraction, rtol=0.02)
    np.testing.assert_allclose(solve.repeated_risk_minimization(problem, found.theta, 1)[1], found.theta, atol=1e-12)


def test_contaminated_and_sluggish_worlds():
    inner = Gaussian(MEAN, SENSITIVITY, 1.0)
    dirty = pf.Problem(pf.losses.squared, Contaminated(inner, 0.1, Gaussian(50.0, 0.0, 1.0)), WEIGHTS)
    known = (0.9 * WEIGHTS @ MEAN + 0.1 * 50) / (1 - 0.9 * WEIGHTS @ SENSITIVITY)
    np.testing.assert_allclose(solve.stable_point(dirty), known, rtol=1e-12)
    slow = pf.Problem(pf.losses.squared, Sluggish(inner, 0.3), WEIGHTS)
    np.testing.assert_allclose(solve.stable_point(slow), solve.stable_point(gaussian()), rtol=1e-14)


def test_several_equilibria():
    problem = pf.Problem(pf.losses.squared, Bistable(2.0))
    outer = 1.0
    for _ in range(200):
        outer = 2 * np.tanh(2 * outer)
    left, middle, right = sorted(solve.equilibria(problem), key=lambda point: float(point.theta))
    np.testing.assert_allclose([left.theta, middle.theta, right.theta], [-outer, 0, outer], atol=1e-10)
    assert [left.attracting, middle.attracting, right.attracting] == [True, False, True]
    np.testing.assert_allclose(middle.contraction, 4.0)
    np.testing.assert_allclose(right.contraction, 4 - outer**2, rtol=1e-8)
    assert float(solve.stable_point(problem, start=0.3)) > 1 > -1 > float(solve.stable_point(problem, start=-0.3))
    assert len(solve.stable_point(problem, start=0.3, report=True).others) == 2
    only = solve.equilibria(problem, starts=[1.5])
    assert len(only) == 1 and float(only[0].theta) > 1


def test_a_repelling_point_is_returned_with_a_warning_and_none_is_an_error():
    with pytest.warns(UserWarning, match=r"repels .*factor 1.5\).*diverge.*\[repelling-point\]"):
        found = solve.stable_point(gaussian(1.5), report=True)
    np.testing.assert_allclose(found.theta, WEIGHTS @ MEAN / (1 - 1.5))
    assert found.attracting is False and found.settles is False
    with pytest.warns(UserWarning, match="small gradient steps do settle"):
        assert solve.stable_point(gaussian(-2.0), report=True).settles
    with pytest.raises(ValueError, match=r"no stable point .* 2\.3.*sensitivity is 1.*domain.*no-stable-point"):
        solve.stable_point(gaussian(1.0))


def test_domains():
    inside = solve.stable_point(gaussian(domain=pf.Box(-10.0, 10.0)), report=True)
    np.testing.assert_allclose(inside.theta, solve.stable_point(gaussian()), rtol=1e-13)
    # The interior point repels: retraining runs into either end of the box.
    points = {
        round(float(p.theta), 9): (p.attracting, p.contraction)
        for p in solve.equilibria(gaussian(1.5, pf.Box(-10, 10)))
    }
    assert points == {-10.0: (True, 0.0), -4.6: (False, pytest.approx(1.5)), 10.0: (True, 0.0)}
    assert float(solve.stable_point(gaussian(1.5, pf.Box(-10, 10)), start=-1.0)) == -10.0
    # On a ball, one sensitivity for all: Phi(theta) = P(m_bar + eps theta), so theta_PS is m_bar on the rim.
    rng = np.random.default_rng(2)
    mean = rng.normal(size=(3, 3))
    ball = pf.Problem(pf.losses.squared, Gaussian(mean, 0.5, 1.0), WEIGHTS, pf.Ball(0.1))
    target = WEIGHTS @ mean
    found = solve.stable_point(ball, report=True)
    np.testing.assert_allclose(found.theta, 0.1 * target / np.linalg.norm(target), rtol=1e-10)
    # d Phi = (r / |y|) (I - n n') eps with y = m_bar + eps theta.
    reach = np.linalg.norm(target) + 0.5 * 0.1
    np.testing.assert_allclose(found.contraction, 0.5 * 0.1 / reach, rtol=1e-8)


def test_models_may_be_pytrees():
    class Two(pf.populations.AbstractPopulation):
        shift: pf.types.Numbers = pf.per_client()

        def draw(self, key, shape, theta, rows=None):
            return jax.random.normal(key, shape)

        def sample(self, noise, world, theta):
            return {"a": self.shift + 0.5 * theta["a"], "b": 0.1 * theta["b"] + 1.0}

        def quadrature(self, theta, count):
            return jnp.zeros(1), jnp.ones(1)

    problem = pf.Problem(pf.losses.squared, Two([1.0, 3.0]))
    start = {"a": 0.0, "b": np.zeros(2)}
    found = solve.stable_point(problem, start=start)
    np.testing.assert_allclose(found["a"], 4.0)
    np.testing.assert_allclose(found["b"], np.full(2, 1 / 0.9))
    assert solve.repeated_gradient_descent(problem, start, 0.1, 3)["b"].shape == (4, 2)
    with pytest.raises(ValueError, match="pass a starting point"):
        solve.stable_point(problem)


@pytest.mark.slow
def test_many_clients_are_taken_in_blocks(monkeypatch):
    problem = on_device(gaussian(), jnp.float32)
    weights = jnp.asarray(WEIGHTS, jnp.float32)

    def both(theta):
        return jax.value_and_grad(lambda t: risk.decoupled_risk(problem, weights, t, 2 * t))(np.float32(theta))

    whole = both(1.0)
    monkeypatch.setattr(risk, "_SAMPLES", 64)  # two clients of 32 nodes at a time
    np.testing.assert_allclose(both(1.0), whole, rtol=1e-6)


@pytest.mark.slow
def test_a_million_clients_and_no_second_compilation():
    rng = np.random.default_rng(0)
    N = 1_000_000

    def problem():
        return pf.Problem(pf.losses.squared, Gaussian(rng.normal(size=N), rng.uniform(0, 0.5, N), 1.0))

    first = problem()
    mean, eps = first.population.mean.mean(), first.population.sensitivity.mean()
    found = solve.stable_point(first, report=True)
    np.testing.assert_allclose(found.theta, mean / (1 - eps), rtol=1e-10)
    np.testing.assert_allclose(found.contraction, eps, rtol=1e-8)
    compiled = landscape._gradient._cached._cache_size(), landscape._hessian._cached._cache_size()
    assert min(compiled) >= 1
    solve.stable_point(problem(), start=3.0)
    assert (landscape._gradient._cached._cache_size(), landscape._hessian._cached._cache_size()) == compiled


@pytest.mark.slow
def test_class_weights_that_follow_the_losses():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=(2, 40))
    x = rng.normal(size=(2, 40, 2)) + 2 * np.eye(3)[y][..., :2]
    loss = pf.losses.cross_entropy(pf.losses.linear_scores)
    problem = pf.Problem(loss, pf.populations.Reweighted(x, y, 1.0))
    theta = rng.normal(size=(3, 2))
    # E l = sum_k w_k (mean loss of class k), w = softmax(mean losses): exact, not sampled.
    scores = np.einsum("kd,nmd->nmk", theta, x)
    each = np.log(np.exp(scores).sum(axis=2)) - np.take_along_axis(scores, y[..., None], 2)[..., 0]
    means = np.array([[each[i][y[i] == k].mean() for k in range(3)] for i in range(2)])
    weights = np.exp(means) / np.exp(means).sum(axis=1, keepdims=True)
    with jax.enable_x64(True):
        found = risk.client_risks(on_device(problem, jnp.float64), jnp.asarray(theta), jnp.asarray(theta))
    np.testing.assert_allclose(found, (weights * means).sum(axis=1), rtol=1e-12)
    # A constant added to all scores changes nothing, so stable points come in families: one is reported.
    (point,) = solve.equilibria(problem, starts=[np.zeros((3, 2)), np.ones((3, 2))], start=np.zeros((3, 2)))
    assert point.residual < 1e-12 and point.attracting and point.settles
    held = pf.Problem(loss, problem.population, None, pf.Ball(50.0))
    path = solve.repeated_risk_minimization(held, np.zeros((3, 2)), 9)
    gaps = [np.linalg.norm((p - point.theta) - (p - point.theta).mean(axis=0)) for p in path]
    np.testing.assert_allclose(gaps[9] / gaps[8], point.contraction, rtol=0.02)
