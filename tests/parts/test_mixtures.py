"""Groups of people in shares that follow the model: what the data do, and the rules expectations are taken by."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from client_samples import DRAWS, assert_normal, expectation, one_client

import performative as pf
from performative._engine.prepare import on_device
from performative._engine.risk import client_risks
from performative.config import load_experiment
from performative.families import Proportions
from performative.populations import Gaussian, Mixture, Pricing, Regression, Reweighted, Sluggish, Strategic
from performative.populations.base import collect
from performative.populations.shares import AbstractShare, Budgets, Constant, Linear, Losses
from performative.types import Scene

PART_EXAMPLES = {
    "pf.populations.Mixture": (
        "groups=(G, G), share=pf.populations.shares.Constant([0.5, 0.5])",
        {
            "arguments": (
                "groups=(pf.populations.Gaussian(X[:, 0, 0], 0.0, 1.0), G), "
                "share=pf.populations.shares.Linear([0.5, 0.5], [0.1, -0.1])"
            ),
            "loss": "pf.losses.negative_revenue",
        },
        {
            "arguments": (
                "groups=[pf.populations.Regression(np.ones(N), 1.0, slope, 0.0, 2.0) for slope in (1.0, 3.0)], "
                "share=pf.populations.shares.Losses([1.0, 3.0], 2.0, 2.0, np.arange(1.0 * N))"
            ),
            "loss": "pf.losses.ridge(0.1)",
        },
        {
            "arguments": (
                "groups=(pf.populations.Sluggish(pf.populations.Pricing(X[:, 0], 0.5, 1.0), 0.3), "
                "pf.populations.Outliers(1.0, 1.0)), share=pf.populations.shares.Budgets(np.abs(X[:, :2]), "
                "10.0)"
            ),
            "loss": "pf.losses.negative_revenue",
        },
    ),
    "pf.populations.shares.Constant": "share=[0.5, 0.5]",
    "pf.populations.shares.Linear": "level=[0.5, 0.5], slope=[0.1, -0.1]",
    "pf.populations.shares.Budgets": "demand=[0.1, 0.2], budget=1.0",
    "pf.populations.shares.Losses": "slope=[0.1, 0.2], second_moment=1.0, noise=1.0",
}

pytestmark = pytest.mark.usefixtures("double_precision")
RNG = np.random.default_rng(0)


# Shares.


def test_shares_by_their_formulas():
    theta = 0.3
    cases = {
        "D.2.2": (Linear([0.5, 0.5], [0.5, -0.5]), [0.65, 0.35]),
        "three": (Linear([0.2, 0.3, 0.5], [1.0, -0.5, -0.5]), [0.5, 0.15, 0.35]),
        "beyond": (Linear([0.9, 0.1], [0.5, -0.5]), [1.0, 0.0]),
        "constant": (Constant([0.1, 0.2, 0.7]), [0.1, 0.2, 0.7]),
        "budgets": (Budgets([2.0, 5.0], 3.0), np.asarray([2.4, 1.5]) / 3.9),
        "spent": (Budgets([20.0, 5.0], 3.0), [0.0, 1.0]),
        "all spent": (Budgets([20.0, 50.0], 3.0), [0.5, 0.5]),
        # l = (0.49, 7.29) * 2 + 4, offset 1: the group that is served worse shrinks.
        "losses": (Losses([1.0, 3.0], 2.0, 2.0, 1.0), np.asarray([19.58, 5.98]) / 25.56),
    }
    for name, (share, wanted) in cases.items():
        got = share(jnp.asarray(theta))
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15, err_msg=name)
        assert share.groups == len(wanted) and share.reacts == (name != "constant")


def test_shares_of_clients_and_of_vectors():
    demand, level = RNG.uniform(0, 1, (4, 2, 3)), np.asarray([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0], [0.0, 1.0]])
    theta = np.asarray([1.0, 0.5, 2.0])
    budgets, still = Budgets(demand, [5.0, 6.0, 7.0, 8.0]), Constant(level)
    for i in range(4):
        left = 5.0 + i - demand[i] @ theta
        np.testing.assert_allclose(one_client(budgets, i)(jnp.asarray(theta)), left / left.sum(), rtol=1e-12)
        np.testing.assert_allclose(one_client(still, i)(jnp.asarray(theta)), level[i], rtol=1e-12)
    slope = np.stack([demand[:, 0], -demand[:, 0]], axis=1) / 10
    moved = one_client(Linear(level, slope), 1)(jnp.asarray(theta))
    np.testing.assert_allclose(moved, level[1] + slope[1] @ theta, rtol=1e-12)
    with pytest.raises(ValueError, match=r"Budgets: demand has shape \(\) per group, theta \(3,\).*\[N, K, d\]"):
        Budgets([1.0, 2.0], 3.0)(jnp.asarray(theta))


# Mixture.


MEANS = np.asarray([[0.5, -0.5], [1.0, -2.0], [2.0, -1.0]])
PAIR = tuple(Gaussian(MEANS[:, k], 0.0, 0.5) for k in range(2))


def test_groups_come_in_their_shares():
    population = Mixture(PAIR, Linear([0.5, 0.5], [0.5, -0.5]))
    assert population.clients == 3 and population.family == Proportions(2) and not population.smooth
    theta, mine = jnp.asarray(0.4), one_client(population, 1)
    world = mine.init(Scene(theta, pf.losses.squared))
    noise = mine.draw(jax.random.key(1), (DRAWS,), theta)
    batch = jax.jit(lambda noise: collect(mine, noise, None, world, theta))(noise)
    group, z = np.asarray(batch.group), np.asarray(batch.z)
    assert group.dtype == np.int32
    assert abs(np.mean(group == 0) - 0.7) < 5 * np.sqrt(0.7 * 0.3 / DRAWS)
    for k in range(2):
        assert_normal(z[group == k], MEANS[1, k], 0.5)
    exact = expectation(mine, theta, world, lambda z: jnp.stack([z, z**2]))
    np.testing.assert_allclose(exact, [0.7 * 1.0 - 0.3 * 2.0, 0.7 * 1.25 + 0.3 * 4.25], rtol=1e-12)


def test_the_risk_of_a_mixture_and_its_derivatives_are_exact():
    """Against the same risk written out, at a price where one client's first group has spent its budget."""
    demand, budget = np.asarray([[0.5, 0.2], [1.0, 2.0], [4.0, 1.0]]), np.asarray([3.0, 5.0, 6.0])
    groups = tuple(Pricing(demand[:, k], 0.3 * k, 0.5) for k in range(2))
    problem = on_device(pf.Problem(pf.losses.negative_revenue, Mixture(groups, Budgets(demand, budget))), jnp.float64)

    def by_hand(theta, deployed):
        left = np.maximum(budget[:, None] - deployed * demand, 0)
        mean = demand - deployed * np.asarray([0.0, 0.3])
        return -theta * np.sum(left / left.sum(axis=1, keepdims=True) * mean, axis=1)

    both = jax.jit(jax.jacobian(lambda at: client_risks(problem, at[0], at[1])))
    for theta in (0.7, 1.9):
        risk = client_risks(problem, jnp.asarray(theta), jnp.asarray(theta))
        np.testing.assert_allclose(risk, by_hand(theta, theta), rtol=1e-12)
        step = 1e-6
        slopes = [
            (by_hand(theta + step, theta) - by_hand(theta - step, theta)) / (2 * step),
            (by_hand(theta, theta + step) - by_hand(theta, theta - step)) / (2 * step),
        ]
        np.testing.assert_allclose(both(jnp.asarray([theta, theta])), np.transpose(slopes), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_groups_may_hold_tables_and_memories():
    x, y = RNG.standard_normal((2, 5, 3)), RNG.integers(0, 2, (2, 5))
    slow = Sluggish(Strategic(x, y, 0.5), 0.25)
    population = Mixture([slow, Strategic(x[:, :2], y[:, :2], 0.0)], Constant([[0.25, 0.75], [1.0, 0.0]]))
    assert population.capacity is None and population.model_shape() == (3,)
    assert population.smooth and population.family is None
    assert not Mixture((Reweighted(x, y, 1.0),), Constant([1.0])).smooth
    mine, loss = one_client(population, 0), pf.losses.logistic()
    theta = RNG.standard_normal(3)
    world = mine.deploy(mine.init(Scene(jnp.zeros(3), loss)), Scene(jnp.asarray(theta), loss))
    mean = expectation(mine, jnp.asarray(theta), world, lambda z: z[0])
    felt = x[0].mean(axis=0) - 0.5 * 0.25 * theta
    np.testing.assert_allclose(mean, 0.25 * felt + 0.75 * x[0, :2].mean(axis=0), rtol=1e-10)
    settled = expectation(mine, jnp.asarray(theta), mine.settle(Scene(jnp.asarray(theta), loss)), lambda z: z[0])
    np.testing.assert_allclose(settled - mean, -0.25 * 0.5 * 0.75 * theta, rtol=1e-9)


@pytest.mark.slow
def test_a_mixture_runs_and_can_be_written_in_a_file(tmp_path):
    (tmp_path / "shop.toml").write_text("""
        [problem]
        loss = "negative_revenue"
        domain = {name = "Box", lo = -1.0, hi = 1.0}
        [problem.population]
        name = "Mixture"
        groups = [
            {name = "Gaussian", mean = [-0.5, -0.4, -0.6], sensitivity = 0.0, scale = 0.5},
            {name = "Pricing", demand = 0.3, sensitivity = 0.0, scale = 0.5},
        ]
        share = {name = "Linear", level = [0.5, 0.5], slope = [[0.5, -0.5], [0.4, -0.4], [0.3, -0.3]]}
        [algorithm]
        recipe = "p_fedavg"
        rate = 0.1
        batch = {name = "Fixed", n = 20}
        [run]
        rounds = 200
        repeats = 4
        seed = 1
    """)
    experiment = load_experiment(tmp_path / "shop.toml")
    slope = np.asarray([[0.5, -0.5], [0.4, -0.4], [0.3, -0.3]])
    means = np.asarray([[-0.5, 0.3], [-0.4, 0.3], [-0.6, 0.3]])
    stable = -np.mean(0.5 * means.sum(axis=1)) / np.mean(np.sum(slope * means, axis=1))
    history = experiment.run()
    population = experiment.problem.population
    closed = population.stable_point(pf.losses.negative_revenue, experiment.problem.client_weights)
    np.testing.assert_allclose(closed, stable, rtol=1e-12)
    late = np.asarray(history.theta)[:, 100:].mean()
    # A step has noise 0.1 * sd / sqrt(3 * 20), sd <= 0.75; theta forgets by 1 - 0.1 * B, B = 0.32 a round.
    assert abs(late - stable) < 5 * 0.75 / np.sqrt(3 * 20 * 100 * 4) / 0.32


def test_a_share_of_ones_own():
    class Fashion(AbstractShare):
        pull: float = pf.number()

        @property
        def groups(self):
            return 2

        def __call__(self, theta):
            first = jax.nn.sigmoid(self.pull * theta)
            return jnp.stack([first, 1 - first])

    mine = one_client(Mixture(PAIR, Fashion(2.0)), 0)
    theta = jnp.asarray(0.7)
    mean = expectation(mine, theta, (None, None), lambda z: z)
    first = 1 / (1 + np.exp(-1.4))
    np.testing.assert_allclose(mean, first * 0.5 - (1 - first) * 0.5, rtol=1e-12)


# What is refused.


BAD = {
    r"Mixture: groups must be a tuple of populations": lambda: Mixture(PAIR[0], Constant([1.0])),
    r"Mixture: groups must be populations; groups\[1\] is 3": lambda: Mixture((PAIR[0], 3), Constant([0.5, 0.5])),
    r"share is for 3 groups, but groups has 2": lambda: Mixture(PAIR, Constant([0.2, 0.3, 0.5])),
    r"theta of the same shape, but they take groups\[0\] \(\), groups\[1\] \(5,\)": (
        lambda: Mixture((PAIR[0], Strategic(np.zeros((3, 4, 5)), np.zeros((3, 4), int), 0.1)), Constant([0.5, 0.5]))
    ),
    r"Mixture: all per-client arrays need one row per client": lambda: Mixture(PAIR, Constant(np.full((4, 2), 0.5))),
    r"Constant: share must not be negative; the smallest is -0.5": lambda: Constant([1.5, -0.5]),
    r"Constant: share must sum to 1 over the groups; it sums to 0.9": lambda: Constant([[0.5, 0.5], [0.5, 0.4]]),
    r"Constant: share needs one entry for each group": lambda: Constant(0.5),
    r"Constant: share must be numeric": lambda: Constant(["a", "b"]),
    r"Constant: share must be finite.*index \(1, 0\)": lambda: Constant([[0.5, 0.5], [np.nan, 0.5]]),
    r"Linear: slope must sum to 0": lambda: Linear([0.5, 0.5], [0.5, 0.5]),
    r"Linear: level must sum to 1": lambda: Linear([0.5, 0.6], [0.5, -0.5]),
    r"Linear: level and slope need one entry for each group; they have 2 and 3": (
        lambda: Linear([0.5, 0.5], [0.5, -0.5, 0.0])
    ),
    r"Linear: level must be \[K\] or \[N, K\]": lambda: Linear(np.full((2, 2, 2), 0.5), [0.5, -0.5]),
    r"Budgets: budget must be finite": lambda: Budgets([1.0, 2.0], np.nan),
    r"Budgets: budget must be a number or one per client; got shape \(2, 2\)": lambda: Budgets(
        [1.0, 2.0], np.ones((2, 2))
    ),
    r"Losses: slope must have two groups; got 3": lambda: Losses([1.0, 2.0, 3.0], 1.0, 1.0, 0.0),
    r"Losses: offset must not be negative": lambda: Losses([1.0, 2.0], 1.0, 1.0, -0.5),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        BAD[message]()


def test_a_share_is_a_module(monkeypatch):
    # The tests' own type checks would speak first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"Mixture: share must be a share such as .*; got \[0.5, 0.5\]"):
        Mixture(PAIR, [0.5, 0.5])


def test_groups_with_other_samples_are_refused_when_they_meet():
    pairs = Mixture((Regression([1.0, 2.0], 1.0, 1.0, 0.0, 1.0), Gaussian([1.0, 2.0], 0.0, 1.0)), Constant([0.5, 0.5]))
    with pytest.raises(
        ValueError, match=r"are incompatible: Mixture: groups need samples of the same structure and shape"
    ):
        pf.run(pf.Problem(pf.losses.ridge(), pairs), pf.p_fedavg(rate=0.1), rounds=1)
