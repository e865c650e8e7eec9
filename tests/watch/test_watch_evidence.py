"""The e-process is what its equations say, is rarely wrong, and shows what is there."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from performative.watch import crossing, evidence, randomized
from performative.watch.elimination import eliminate
from performative.watch.guesses import guesses
from performative.watch.intervals import invert

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks import streams as made

LAWS = ("none", "linear", "walk", "smooth")


def series(law, looks=40, effect=0.0, seed=0, d=1, q=1):
    """Sums after so many looks at a level with noise."""
    rng = np.random.default_rng(seed)
    sums, told = evidence.begin(law, q, d), guesses(law)
    theta, y = rng.normal(size=(looks, d)), rng.normal(size=(looks, q))
    y += effect * theta[:, :1]
    for t in range(looks):
        sums = evidence.look(sums, told, y[t] - y[0], theta[t] - theta[0], 1.0, np.float64(t), float(t > 0))
    return sums, y, theta


def test_elimination_is_the_solution():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 4, 4))
    A = A @ A.swapaxes(1, 2) + np.eye(4)
    B = rng.normal(size=(5, 4, 2))
    solved, size = eliminate(np.moveaxis(A, 0, -1), np.moveaxis(B, 0, -1))
    np.testing.assert_allclose(np.moveaxis(solved, -1, 0), np.linalg.solve(A, B), rtol=1e-10)
    np.testing.assert_allclose(size, np.linalg.slogdet(A)[1], rtol=1e-10)


def test_innovations_are_those_of_the_covariance():
    """A walk's filter whitens as the Cholesky factor of its covariance does."""
    T, law = 12, "walk"
    told, rng = guesses(law), np.random.default_rng(1)
    y = rng.normal(size=T)
    sums, found = evidence.begin(law, 1, 1), []
    for t in range(T):
        before = sums.yy.copy()
        sums = evidence.look(sums, told, y[t : t + 1], np.zeros(1), 1.0, np.float64(t), float(t > 0))
        found.append((sums.yy - before)[0, 0])
    for g, level in enumerate(told.level):
        times = np.arange(T)
        cov = np.eye(T) + level * np.minimum.outer(times, times)
        white = np.linalg.solve(np.linalg.cholesky(cov), y)
        np.testing.assert_allclose([one[g] for one in found[1:]], white[1:] ** 2, rtol=1e-8)


@pytest.mark.parametrize("effect", [0.0, 0.6, 2.0])
def test_evidence_is_below_the_least_over_levels(effect):
    """The closed form against a numeric search over the level, of the two terms as they are written down."""
    sums, y, theta = series("none", 40, effect)
    found = evidence.log_evidence(sums)[0, 0]
    n = int(sums.looks)
    y, x = y[1:, 0] - y[0, 0], theta[1:, 0] - theta[0, 0]
    z = np.array([x[i] - x[: i + 1].mean() for i in range(n)])
    design = np.column_stack([np.ones(n), x])
    phi = ((y - design @ np.linalg.lstsq(design, y)[0]) ** 2).sum() / (n - 2)

    def marginal(rho):
        cov = phi * (np.eye(n) + np.ones((n, n)) + rho * np.outer(x, x))
        return -0.5 * (n * np.log(2 * np.pi) + np.linalg.slogdet(cov)[1] + y @ np.linalg.solve(cov, y))

    unit = x[np.flatnonzero(x)[0]] ** 2
    q = np.logaddexp.reduce([marginal(effect / unit) for effect in crossing._EFFECTS[::2]]) - np.log(2)

    def log_M(level):
        r = y - level
        null = -0.5 * (n * np.log(2 * np.pi * phi) + (r**2).sum() / phi)
        V, S = (z**2).sum(), (z * r).sum()
        first = [
            -0.5 * np.log1p(rho * V) + 0.5 * S**2 / (phi * (V + 1 / rho)) for rho in np.array(crossing._EFFECTS) / unit
        ]
        mixed = np.logaddexp.reduce(first) - np.log(len(first))
        return np.logaddexp(np.log(0.9) + mixed, np.log(0.1) + q - null)

    least = min(log_M(level) for level in np.linspace(-4, 4, 4001) + y.mean())
    assert found <= least + 1e-6
    degrees = n - 2  # Student's form takes off more the larger it is
    student = least if least < 0 else degrees / 2 * np.log1p(2 * least / degrees)
    assert found >= student - np.log(2 * len(crossing._EFFECTS)) - 0.5


@pytest.mark.parametrize("law", ["none", *(pytest.param(law, marks=pytest.mark.slow) for law in LAWS[1:])])
def test_a_compiled_look_is_the_same(law):
    with jax.enable_x64(True):
        y = np.random.default_rng(0).normal(size=(3, 30))
        x = np.random.default_rng(1).normal(size=(3, 30))
        many = np.asarray(made._evidence(jnp.asarray(y), jnp.asarray(x), law))
    told = guesses(law)
    for i in range(3):
        sums = evidence.begin(law, 1, 1)
        for t in range(30):
            sums = evidence.look(
                sums, told, y[i, t : t + 1] - y[i, 0], x[i, t : t + 1] - x[i, 0], 1.0, np.float64(t), float(t > 0)
            )
        np.testing.assert_allclose(many[i, -1], evidence.log_evidence(sums)[0, 0], rtol=1e-6, atol=1e-6)


def test_units_do_not_matter():
    plain, y, theta = series("linear", 40, 0.5)
    sums, told = evidence.begin("linear", 1, 1), guesses("linear")
    for t in range(40):
        moved = 1e3 * (y[t] - y[0]), 1e-3 * (theta[t] - theta[0])
        sums = evidence.look(sums, told, *moved, 1.0, np.float64(t), float(t > 0))
    np.testing.assert_allclose(evidence.log_evidence(sums), evidence.log_evidence(plain), rtol=1e-6)


# The chance allowed is 5%; in 2000 streams its standard error is 0.5%.
@pytest.mark.parametrize(
    ("law", "skewed"),
    [
        ("none", False),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("none", True), ("linear", True), ("walk", True))),
    ],
)
def test_false_alarms_are_rare(law, skewed, optimized_programs):
    count = 200 if law == "walk" else 2000
    found = made.watched(made.simulate(made.World(law, 0.0, 0.5 * skewed, skewed=skewed), count, 100), law, count)
    assert (found > 0).mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("law", ["none", "linear", "walk", "bending", "season"])
@pytest.mark.parametrize("policy", ["last", "half"])
def test_false_alarms_are_rare_over_many_looks(law, policy, optimized_programs):
    allowed = {"bending": "smooth", "season": "smooth"}.get(law, law)
    count = 1000 if allowed == "smooth" else 4000
    found = made.watched(made.simulate(made.World(law, policy=policy), count, 500), allowed)
    assert (found > 0).mean() <= 0.05


def test_a_repeated_test_is_not_valid():
    """What the e-process is for: on the same streams a test made anew at each look is often wrong."""
    plain = made.simulate(made.World(), 1000, 300)
    assert (made.repeated_test(plain) > 0).mean() > 0.2


def test_random_moves_are_exact_under_any_drift():
    for law in ("season", "walk", "bending"):
        world = made.World(law, 0.0, 1.0, skewed=True)
        assert (made.watched(made.simulate(world, 2000, 200), "any") > 0).mean() <= 0.05
    reacting = made.simulate(made.World("season", 0.5, 2.0), 300, 300)
    assert (made.watched(reacting, "any") > 0).mean() > 0.3


def test_exploration_decides_the_power(optimized_programs):
    shown = {
        explore: (made.watched(made.simulate(made.World("none", 0.3, explore), 500, 200), "none", 500) > 0).mean()
        for explore in (0.0, 2.0)
    }
    assert shown[2.0] > 0.95 and shown[0.0] < shown[2.0] - 0.1


@pytest.mark.parametrize("law", LAWS)
def test_models_that_stand_still_show_nothing(law):
    rng = np.random.default_rng(0)
    sums, told = evidence.begin(law, 1, 1), guesses(law)
    for t in range(60):
        sums = evidence.look(sums, told, rng.normal(size=1) + 0.1 * t, np.zeros(1), 1.0, np.float64(t), float(t > 0))
    assert evidence.log_evidence(sums)[0, 0] < 0.1
    assert np.isnan(evidence.estimate(sums)[0]).all()


@pytest.mark.parametrize("law", ["none", "linear"])
def test_sequences_of_the_strength_hold_the_truth(law):
    """Skewed noise; the truth is outside where the evidence against it reaches 20, at any of 100 looks: at most 5%."""
    rng, S, T = np.random.default_rng(3), 400, 100
    sums, told = evidence.begin(law, 1, 1, (S,)), guesses(law)
    theta = rng.normal(size=(T, S, 1))
    y = 0.4 * theta + rng.exponential(size=(T, S, 1))
    outside = np.zeros(S, bool)
    for t in range(T):
        sums = evidence.look(sums, told, y[t] - y[0], theta[t] - theta[0], 1.0, np.float64(t), float(t > 0))
        outside |= evidence.log_evidence(sums, 0.4)[:, 0, 0] >= np.log(20)
    assert outside.mean() <= 0.05
    assert (evidence.log_evidence(sums, 0.0)[:, 0, 0] >= np.log(20)).mean() > 0.2


def test_an_end_is_where_the_evidence_reaches_the_limit():
    sums, _, _ = series("linear", 60, 0.8)
    value, error = evidence.estimate(sums)
    low, high = invert(lambda b: evidence.log_evidence(sums, b), value, error, 0.05)
    for end in (low, high):
        np.testing.assert_allclose(evidence.log_evidence(sums, end), np.log(20), atol=1e-4)
    root = optimize.brentq(lambda b: evidence.log_evidence(sums, np.full((1, 1), b))[0, 0] - np.log(20), value[0, 0], 9)
    np.testing.assert_allclose(high[0, 0], root, rtol=1e-6)


def test_each_parameter_has_its_own_strength():
    """A column that reacts to the first of two parameters that move together is not laid to the second."""
    rng = np.random.default_rng(0)
    told, sums = guesses("none"), evidence.begin("none", 1, 2)
    first = rng.normal(size=200)
    theta = np.column_stack([first, first + 0.5 * rng.normal(size=200)])
    y = theta[:, :1] + 0.5 * rng.normal(size=(200, 1))
    for t in range(200):
        sums = evidence.look(sums, told, y[t] - y[0], theta[t] - theta[0], 1.0, np.float64(t), float(t > 0))
    found = evidence.log_evidence(sums)[:, 0]
    assert found[0] > np.log(20) > 1.0 > found[1]
    np.testing.assert_allclose(evidence.estimate(sums)[0][:, 0], [1.0, 0.0], atol=0.3)


def test_signs_of_chance_give_no_evidence_by_themselves():
    signs = randomized.begin(2, 1)
    rng = np.random.default_rng(0)
    for _ in range(50):
        signs = randomized.look(signs, rng.normal(size=2), np.zeros(1))
    np.testing.assert_array_equal(randomized.log_evidence(signs), 0.0)
