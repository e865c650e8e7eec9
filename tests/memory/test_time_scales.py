"""Data that remember past models: several speeds, a model every k spells, model and worlds judged together."""

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.populations import AbstractPopulation, Gaussian, Pools, Sluggish
from performative.populations.nodes import standard_nodes

PART_EXAMPLES = {
    "pf.populations.Pools": (
        "inner=G, share=[0.7, 0.3], speed=[0.9, 0.1]",
        "inner=pf.populations.Strategic(X, Y, 0.3), share=np.tile([0.5, 0.2, 0.3], (N, 1)), speed=[1.0, 0.4, 0.2]",
    )
}
P = np.array([0.5, 0.3, 0.2])
MEAN, EPS = np.array([1.0, -0.5, 2.0]), np.array([0.9, -0.4, 0.6])
SHARE = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]])
SPEED = np.array([[0.9, 0.05], [0.6, 0.2], [1.0, 0.3]])


def pools(share=SHARE, speed=SPEED, eps=EPS, mean=MEAN, scale=1.0):
    return pf.Problem(pf.losses.squared, Pools(Gaussian(mean, eps, scale), share, speed), P)


def slow(eps, speed, scale=1.0):
    return pf.Problem(pf.losses.squared, Sluggish(Gaussian([1.0], eps, scale), speed))


def joint(p, eps, share, speed, spells):
    """The matrix of (felt_ij, theta) -> the same one retraining and so many spells later, and what it adds.

    q_ij = (1 - s_ij)^k,   felt' = q felt + (1 - q) theta,   theta' = sum_ij p_i (m_i + eps_i share_ij felt_ij').
    """
    q = np.ravel((1 - speed) ** spells)
    felt = np.concatenate([np.diag(q), (1 - q)[:, None]], axis=1)
    answer = np.ravel((p * eps)[:, None] * share)
    return np.concatenate([felt, (answer @ felt)[None]])


def closed_form(eps, speed, spells):
    left = (1 - speed) ** spells
    return left + eps * (1 - left)


@pytest.mark.parametrize(("eps", "speed", "spells"), [(0.5, 0.3, 1), (0.5, 0.1, 4), (-0.8, 0.6, 3), (1.3, 0.2, 2)])
def test_full_retraining_shrinks_an_error_by_the_closed_form(eps, speed, spells):
    problem, factor = slow(eps, speed), closed_form(eps, speed, spells)
    gap = np.diff(pf.repeated_risk_minimization(problem, 5.0, 6, spells=spells))[1:]  # the first finds a world at rest
    np.testing.assert_allclose(gap[1:] / gap[:-1], factor, rtol=1e-9)
    (found,) = pf.equilibria(problem, spells=spells)
    np.testing.assert_allclose(found.contraction, abs(factor), rtol=1e-9)
    assert found.attracting == (abs(factor) < 1)
    np.testing.assert_allclose(pf.equilibria(problem, spells=None)[0].contraction, abs(eps), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("eps", "speed", "spells"), [(0.5, 0.3, 3), (-0.8, 0.6, 2)])
def test_so_does_a_run_that_deploys_every_k_rounds(eps, speed, spells):
    algorithm = pf.p_fedavg(1.0, deploy=pf.Every(spells))  # without noise a step of length 1 is a full retraining
    history = pf.run(slow(eps, speed, 0.0), algorithm, rounds=6 * spells, theta=5.0, dtype="float64")
    gap = np.diff(np.asarray(history.theta)[0, ::spells])[1:]
    np.testing.assert_allclose(gap[1:] / gap[:-1], closed_form(eps, speed, spells), rtol=1e-9)


@pytest.mark.parametrize("spells", [1, 3])
def test_two_pools_are_the_linear_recursion(spells):
    matrix = joint(P, EPS, SHARE, SPEED, spells)
    state, path = np.full(7, 4.0), [4.0]
    for _ in range(5):
        state = matrix @ state
        state[-1] += P @ MEAN
        path.append(state[-1])
    np.testing.assert_allclose(pf.repeated_risk_minimization(pools(), 4.0, 5, spells=spells), path, rtol=1e-12)
    found = pf.stable_point(pools(), report=True, spells=spells)
    np.testing.assert_allclose(found.contraction, max(abs(np.linalg.eigvals(matrix))), rtol=1e-9)
    np.testing.assert_allclose(found.theta, P @ MEAN / (1 - P @ EPS), rtol=1e-9)


@pytest.mark.slow
def test_the_mean_of_runs_follows_the_recursion_of_two_pools():
    felt, theta = np.full((3, 2), 4.0), 4.0
    for mean in pf.moments(pools(), pf.p_fedavg(0.5, deploy="round"), 4, theta).mean[1:]:
        felt = felt + SPEED * (theta - felt)
        theta = theta - 0.5 * (theta - P @ (MEAN + EPS * np.sum(SHARE * felt, axis=1)))
        np.testing.assert_allclose(mean, theta, rtol=1e-12)


@pytest.mark.slow
def test_one_pool_is_sluggish_to_the_bit():
    inner = Gaussian(MEAN, EPS, 1.0)
    runs = [
        pf.run(pf.Problem(pf.losses.squared, people, P), pf.p_fedavg(0.1), rounds=5, theta=1.0).theta
        for people in (Sluggish(inner, SPEED[:, 0]), Pools(inner, [1.0], SPEED[:, :1]))
    ]
    np.testing.assert_array_equal(*runs)


@pytest.mark.slow
def test_certify_settles_or_runs_away_as_the_joint_matrix_does():
    rng, seen = np.random.default_rng(5), []
    for _ in range(10):
        spells, eps = int(rng.integers(1, 4)), rng.normal(0.0, 2.0, 3)
        share, speed = rng.dirichlet(np.ones(2), 3), rng.uniform(0.05, 1.0, (3, 2))
        problem = pf.Problem(pf.losses.squared, Pools(Gaussian(MEAN, eps, 1.0), share, speed), P)
        c = pf.certify(problem, error=1.0, spells=spells)
        radius = max(abs(np.linalg.eigvals(joint(P, eps, share, speed, spells))))
        np.testing.assert_allclose(c.contraction, radius, rtol=1e-7)
        assert c.attracting == (radius < 1) and ("diverges" in c.verdict) == (radius > 1)
        assert not c.proved or radius <= c.memory_rate < 1
        seen.append((bool(radius < 1), c.proved))
    assert {attracts for attracts, _ in seen} == {True, False} and any(proved for _, proved in seen)


@pytest.mark.slow
def test_waiting_can_settle_what_retraining_at_once_runs_away_from():
    share, speed = np.array([[1.0, 0.0]] * 2), np.array([[1.0, 1.0], [0.1, 0.1]])
    problem = pf.Problem(pf.losses.squared, Pools(Gaussian([1.0, 1.0], [3.0, -3.0], 1.0), share, speed))
    at_once, waits = (pf.certify(problem, error=1.0, spells=spells) for spells in (1, None))
    assert at_once.attracting is False and waits.attracting is True
    assert "diverges" in at_once.verdict and "diverges" not in waits.verdict


class Habits(AbstractPopulation):
    """A user's own memory: w <- w + (level + theta / 4 - w) / 2; the data are at w."""

    level: pf.types.Numbers = pf.per_client()

    def model_shape(self):
        return ()

    def init(self, scene):
        return jnp.zeros((), scene.theta.dtype)

    def deploy(self, world, scene):
        return world + 0.5 * (self.level + 0.25 * scene.theta - world)

    def draw(self, key, shape, theta, rows=None):
        return standard_nodes((), 8)[0][:1].repeat(shape[0])

    def sample(self, noise, world, theta):
        return world + noise

    def quadrature(self, theta, count):
        return standard_nodes((), count)


def test_of_a_memory_that_it_does_not_know_certify_promises_nothing():
    problem = pf.Problem(pf.losses.squared, Habits([0.0, 1.0]))
    c = pf.certify(problem, samples=256, error=1.0)
    assert c.contracts is False and not c.proved and np.isnan(c.memory_rate)
    assert "guarantee nothing" in str(c) and "no theorem guarantees" in c.verdict
    np.testing.assert_allclose(c.contraction, closed_form(0.25, 0.5, 1), rtol=1e-8)
    assert pf.certify(problem, samples=256, error=1.0, spells=None).contracts  # settled data are another matter


@pytest.mark.parametrize(
    ("message", "share", "speed"),
    [
        ("share must sum to 1", [0.5, 0.4], [1.0, 0.1]),
        ("one entry for each pool; they have 2 and 3", [0.5, 0.5], [1.0, 0.5, 0.1]),
        (r"speed must lie in \[0, 1\]; got 1.5", [0.5, 0.5], [1.5, 0.1]),
        (r"share must lie in \[0, 1\]", [1.5, -0.5], [1.0, 0.1]),
        ("speed needs one entry", [0.5, 0.5], 0.3),
        ("axis too many", np.full((3, 2, 1), 0.5), [0.1, 0.2]),
    ],
)
def test_bad_pools_are_refused(message, share, speed):
    with pytest.raises(ValueError, match=message):
        Pools(Gaussian(MEAN, EPS, 1.0), share, speed)
