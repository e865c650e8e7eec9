"""Points of the environments against formulas that do not use our solvers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import performative as pf
from performative._base.client_axis import slice_client
from performative.suite.parts.best_response import BestResponse, ScoreLoss, network_score, quadratic_score


@pytest.mark.parametrize(
    ("id", "eps"),
    [("contracting", 0.5), ("oscillating", -1.5), ("near-one", 0.95), ("beyond-one", 1.5)],
)
def test_one_gaussian(id, eps):
    env = pf.suite.make(f"gaussian-{id}-v1")
    assert env.stable.theta == pytest.approx(1 / (1 - eps)) == env.optimal.theta
    assert env.stable.contraction == pytest.approx(abs(eps)) and env.stable.attracting == (abs(eps) < 1)
    assert env.never == pytest.approx(1.0) and env.optimal.risk == pytest.approx(0.5)


def test_a_federation():
    env = pf.suite.make("gaussian-federation-v1")
    eps, m = np.linspace(-0.5, 1.3, 10), np.arange(9.0, -1.0, -1.0)
    assert env.stable.theta == pytest.approx(m.mean() / (1 - eps.mean()))
    assert env.optimal.theta == pytest.approx(np.sum((1 - eps) * m) / np.sum((1 - eps) ** 2))
    assert 0.5 < env.score(env.stable.theta) < 0.6


def test_newsvendor():
    env = pf.suite.make("newsvendor-v1")
    a, b, s, under, over, c = 20.0, 0.5, 4.0, 4.0, 1.0, 1.0
    for point, cost in ((env.stable, c), (env.optimal, c / (1 - b))):
        assert point.theta == pytest.approx((a + s * stats.norm.ppf((under - cost) / (under + over))) / (1 - b))
        assert point.residual < 1e-12
    draws = a + b * 30.0 + s * np.random.default_rng(0).standard_normal(400_000)
    cost = under * np.maximum(draws - 30, 0) + over * np.maximum(30 - draws, 0) + c * 30
    assert env.risk(30.0) == pytest.approx(cost.mean(), abs=5 * cost.std() / np.sqrt(len(draws)))


def test_newsvendors_of_a_federation():
    env = pf.suite.make("newsvendor-federation-v1")
    level, slope = np.linspace(24.0, 10.0, 8), np.linspace(0.0, 0.8, 8)

    def gradient(order, follow):
        miss = (order - level - slope * order) / 4.0
        return np.mean((1 - follow * slope) * (5.0 * stats.norm.cdf(miss) - 4.0) + follow * 0.0) + 1.0

    assert env.stable.theta == pytest.approx(optimize.brentq(lambda x: gradient(x, 0), 1, 90), rel=1e-6)
    assert env.optimal.theta == pytest.approx(optimize.brentq(lambda x: gradient(x, 1), 1, 90), rel=1e-6)


def test_prices():
    env = pf.suite.make("pricing-demand-v1")
    mu = np.random.default_rng(0).uniform(6.0, 7.0, (10, 5)).mean(axis=0)
    np.testing.assert_allclose(env.stable.theta, mu / 2)
    np.testing.assert_allclose(env.optimal.theta, mu / 4)
    np.testing.assert_allclose(env.never, 4.0)


def test_a_generator_that_foresees_makes_itself_narrower():
    env = pf.suite.make("generator-gaussian-v1")
    np.testing.assert_allclose(env.stable.theta, [2.0, np.log(1.5)])
    np.testing.assert_allclose(env.optimal.theta, [2.0, np.log(1.5 / np.sqrt(3))])
    assert max(env.stable.residual, env.optimal.residual) < 1e-10


@pytest.mark.slow
def test_few_rows_a_generation_lose_variance():
    """E(mu_t - mu)^2 + E s_t^2 = s^2, the first tends to (s^2/n) / (1 - b^2 + b^2/n), b the share of made rows."""
    env = pf.suite.make("generator-gaussian-v1")
    n, b, seeds = 10, 2 / 3, 150
    ends = []
    for seed in range(seeds):
        env.reset(seed)
        theta = np.array([2.0, np.log(1.5)])
        for _ in range(12):
            z = env.deploy(theta, rows=n)["z"][0]
            theta = np.array([z.mean(), np.log(z.std())])
        ends.append([(theta[0] - 2.0) ** 2, np.exp(2 * theta[1])])
    ends = np.array(ends)
    error = ends.std(axis=0, ddof=1) / np.sqrt(seeds)
    off = (1.5**2 / n) / (1 - b**2 + b**2 / n)
    assert abs(ends[:, 0].mean() - off) < 4 * error[0]
    assert abs(ends[:, 1].mean() - (1.5**2 - off)) < 4 * error[1]


def test_one_step_against_a_linear_score_is_the_best_response():
    rng = np.random.default_rng(0)
    x, y, strength = rng.standard_normal((2, 5, 3)), rng.integers(0, 2, (2, 5)), np.array([0.3, 0.7])
    theta = np.array([1.0, -2.0, 0.5])

    def linear(theta, x):
        return jnp.sum(theta * x)

    one = pf.Problem(ScoreLoss(linear, 1.0), BestResponse(linear, x, y, strength, rate=1.0, steps=1))
    other = pf.Problem(pf.losses.logistic(1.0), pf.populations.Strategic(x, y, strength))
    found = [pf.stable_point(problem, start=theta) for problem in (one, other)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.slow
def test_people_stop_where_a_move_costs_what_it_gains():
    """With many steps x' solves strength grad score(x') + x' - x = 0, and no step costs more than it gains."""
    x = np.array([[[0.5, -1.0], [2.0, 0.3]]])
    people = BestResponse(quadratic_score, x, np.array([[0, 1]]), 0.2, steps=60)
    theta = np.array([0.1, 0.2, -0.3, 0.5, 0.1, 0.4])
    with jax.enable_x64(True):
        mine = jax.tree.map(jnp.asarray, people)
        for row in range(2):
            moved, _ = slice_client(mine, 0).sample(jnp.asarray(row), None, jnp.asarray(theta))
            push = jax.grad(lambda at: quadratic_score(jnp.asarray(theta), at))(moved)
            np.testing.assert_allclose(0.2 * push + moved - x[0, row], 0.0, atol=1e-10)


def test_a_network_reads_its_numbers_in_order():
    theta, x = np.arange(17.0) / 10, np.array([0.3, -0.2])
    W, b, v, c = theta[:8].reshape(4, 2), theta[8:12], theta[12:16], theta[16]
    with jax.enable_x64(True):
        found = network_score(jnp.asarray(theta), jnp.asarray(x))
    assert float(found) == pytest.approx(v @ np.tanh(W @ x + b) + c)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["recommender-exposure-v2", "generator-mixture-v1", "outcome-defeating-v1"])
def test_rows_cost_on_average_what_the_exact_risk_says(id):
    env = pf.suite.make(id)
    rng = np.random.default_rng(7)
    theta = env.start + 0.5 * rng.standard_normal(env.shape)
    env.reset(1)
    rows = 2000
    z = env.deploy(theta, rows=rows)
    sample = (z["x"], z["y"]) if "x" in z else z["z"]
    with jax.enable_x64(True):
        each = jax.vmap(jax.vmap(lambda one: env._on.loss(jnp.asarray(theta), one)))(jax.tree.map(jnp.asarray, sample))
    each = np.asarray(each)
    error = np.sqrt(np.sum(each.var(axis=1) / rows)) / env.clients
    assert abs(each.mean() - env.risk(theta)) < 4 * error


def test_clients_who_do_not_answer_send_nothing():
    env = pf.suite.make("unequal-rare-v1")
    env.reset(0)
    shares = np.mean([env.deploy(env.start, rows=1)["present"] for _ in range(60)], axis=0)
    assert shares[0] == 1.0 and shares[-1] < 0.3
    seen = env.deploy(env.start, rows=3)
    assert np.array_equal(np.isnan(seen["z"]).all(axis=1), ~seen["present"])


def test_means_that_are_seen_are_clipped_and_noisy():
    env = pf.suite.make("private-means-v1")
    env.reset(0)
    seen = env.deploy(np.asarray(0.0), rows=4000)
    assert set(seen) == {"mean"} and seen["mean"].shape == (10,)
    noise = 4.0 * 12.0 / 4000
    np.testing.assert_allclose(seen["mean"], np.arange(9.0, -1.0, -1.0), atol=5 * np.hypot(noise, 1 / np.sqrt(4000)))
    delta = stats.norm.cdf(1 / 8 - 4 * env.clipping.epsilon)
    delta -= np.exp(env.clipping.epsilon) * stats.norm.cdf(-1 / 8 - 4 * env.clipping.epsilon)
    assert delta == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.slow
def test_memory_waits_and_drift_moves():
    slow = pf.suite.make("memory-sluggish-v1")
    means = []
    for spells in (1, 40):
        slow.reset(0)
        means.append(slow.deploy(np.asarray(100.0), rows=400, spells=spells)["z"].mean(axis=1)[-1])
    # m = 0, eps = 1.3: after one spell people feel 20, after forty 100.
    np.testing.assert_allclose(means, [26.0, 130.0], atol=0.5)
    drift = pf.suite.make("drift-linear-v1")
    drift.reset(0)
    seen = [drift.deploy(np.asarray(0.0), rows=400, spells=10)["z"].mean() for _ in range(2)]
    np.testing.assert_allclose(seen, [5.5, 6.5], atol=5 / np.sqrt(4000))
    assert drift.optimal.theta == pytest.approx(pf.optimal_point(drift.problem, time=60.0))
