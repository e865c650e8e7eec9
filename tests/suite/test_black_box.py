"""What a learner meets: budgets, refusals, and rows that are the same for everybody."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.populations import Gaussian
from performative.suite.parts.releases import Released


@pytest.fixture(scope="module")
def env():
    return pf.suite.make("gaussian-contracting-v1")


def test_the_same_seed_gives_the_same_rows(env):
    first = env.reset(5)
    second = env.deploy(1.0, rows=7)
    assert np.array_equal(env.reset(5)["z"], first["z"]) and np.array_equal(env.deploy(1.0, rows=7)["z"], second["z"])
    assert second["z"].shape == (1, 7) and second["z"].dtype == np.float64
    assert not np.array_equal(env.reset(6)["z"], first["z"])
    assert np.array_equal(pf.suite.make(env.id).reset(5)["z"], first["z"])


def test_rows_come_from_the_world_under_the_model(env):
    env.reset(0)
    mean = env.deploy(4.0, rows=10_000)["z"].mean()
    assert abs(mean - 3.0) < 4 / np.sqrt(10_000)


def test_what_is_spent_is_counted_and_no_more_can_be(env):
    env.reset(0)
    env.deploy(0.0, rows=10, spells=3)
    assert env.spent == pf.suite.Budget(1, 10, 3)
    assert env.left == pf.suite.Budget(env.budget.deployments - 1, env.budget.samples - 10, env.budget.time - 3)
    with pytest.raises(pf.suite.BudgetSpent, match=r"samples: 99999 requested, 19990 left.*Nothing was deployed"):
        env.deploy(0.0, rows=99_999)
    assert env.refusals == 1 and env.spent == pf.suite.Budget(1, 10, 3)
    for _ in range(env.left.time):
        env.deploy(0.0, rows=1)
    with pytest.raises(pf.suite.BudgetSpent, match="time: 1 requested, 0 left"):
        env.deploy(0.0, rows=1)
    assert env.refusals == 2
    env.reset(0)
    assert env.refusals == 0 and env.left == env.budget


@pytest.mark.parametrize(
    ("theta", "words"),
    [
        ([1.0, 2.0], r"deploy: theta must have shape \(\).*got \(2,\)\. Start from env\.start"),
        (np.nan, r"deploy: theta must be finite, but 1 of 1 entries"),
        ("big", r"deploy: theta must be an array of numbers; got 'big'"),
    ],
)
def test_models_that_do_not_fit_are_refused(env, theta, words):
    env.reset(0)
    with pytest.raises(ValueError, match=words):
        env.deploy(theta)
    assert env.spent == pf.suite.Budget(0, 0, 0)


def test_a_model_outside_of_the_domain_is_refused():
    env = pf.suite.make("pricing-contribution-v1")
    with pytest.raises(ValueError, match=r"must lie inside Box.*env\.project\(theta\)"):
        env.deploy(7.0)
    assert env.project(7.0) == 3.0


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match="Did you mean 'gaussian-contracting-v1'"):
        pf.suite.make("gaussian-contracting-v9")
    with pytest.raises(ValueError, match=r"there is no family 'gausian'\. Did you mean 'gaussian'"):
        pf.suite.ids("gausian")
    with pytest.raises(ValueError, match="rows must be a whole number"):
        pf.suite.make("gaussian-contracting-v1").deploy(0.0, rows=0)


def test_score_is_the_share_of_the_gap_that_is_closed(env):
    assert env.score(env.never) == pytest.approx(0.0, abs=1e-12)
    assert env.score(env.optimal.theta) == pytest.approx(1.0)
    # f(theta) = (1 + ((1 - eps) theta - m)^2) / 2, never retrained at m = 1: 0.625 against 0.5.
    assert env.risk(1.5) == pytest.approx((1 + 0.25**2) / 2)
    assert env.score(1.5) == pytest.approx((0.625 - (1 + 0.25**2) / 2) / 0.125)


def test_an_environment_is_a_function_with_a_docstring(monkeypatch):
    from performative.suite import registry

    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._entries()))
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([3.0], 0.2, 1.0))

    @pf.suite.register("tiny-v2", family="mine")
    def tiny():
        """A small world."""
        return pf.suite.Setting(problem, pf.suite.Budget(5, 50, 5), rows=10)

    made = pf.suite.make("tiny-v2")
    assert (made.version, made.card, made.family) == (2, "A small world.", "mine")
    assert "mine" in pf.suite.families() and pf.suite.ids("mine") == ("tiny-v2",)
    with pytest.raises(ValueError, match="already exists; increase the version"):
        pf.suite.register("tiny-v2", family="mine", card="Another.")(tiny)
    with pytest.raises(ValueError, match="words and a version"):
        pf.suite.register("tiny", family="mine")
    with pytest.raises(ValueError, match="needs a family and a card"):
        pf.suite.register("tiny-v3", family="mine")(lambda: None)


def test_slow_clients_show_the_rows_they_got_through():
    env = pf.suite.make("unequal-work-v1")
    seen = env.deploy(0.0, rows=20)
    assert seen["rows"].tolist() == [int(share * 20) for share in env.work]
    assert np.isfinite(seen["z"]).sum(axis=1).tolist() == seen["rows"].tolist()
    assert np.all(np.isfinite(seen["z"][0, :4])) and np.all(np.isnan(seen["z"][0, 4:]))


def test_what_methods_meet_are_the_releases_that_a_black_box_shows():
    env = pf.suite.make("private-means-v1")
    people = env.shown.population
    assert isinstance(people, Released) and people.rows_each == env.rows
    one = Released(Gaussian(jnp.asarray(3.0), jnp.asarray(0.5), jnp.asarray(1.0)), env.rows, 12.0, 4.0)
    theta, count = jnp.asarray(1.0), 4000
    noise = one.draw(jax.random.key(0), (count,), theta)
    z = np.asarray(jax.vmap(lambda u: one.sample(u, None, theta))(noise))
    spread = np.hypot(1.0 / np.sqrt(env.rows), 4.0 * 12.0 / env.rows)
    assert abs(z.mean() - 3.5) < 4 * spread / np.sqrt(count)
    assert abs(z.std() / spread - 1) < 4 / np.sqrt(2 * count)
    black = np.array([env.reset(seed)["mean"][4] for seed in range(200)])
    assert abs(black.std() / spread - 1) < 4 / np.sqrt(2 * 200)
