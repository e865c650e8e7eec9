"""The problems of Li, Yemini and Wai 2024, against their equations written out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import performative as pf
from performative.testing.uses import slice_client

pytestmark = pytest.mark.slow

SETTINGS = [dict(beta=0.01), dict(beta=0.05), dict(a=1.0, b=6.0, beta=0.1), dict(a=1.0, b=6.0, beta=0.2, p=0.25)]


def points(p=0.1, a=10.0, b=1.0, beta=0.01):
    """Where the mean gradient on the data under theta is 0, found without a formula."""

    def mean_gradient(theta):
        low, high = -beta * theta, b - beta * theta
        return (1 - p) * (theta + a * low) + p * (theta + a * high)

    return scipy.optimize.brentq(mean_gradient, -1e3, 1e3, xtol=1e-14)


@pytest.mark.parametrize("rows", [None, 1000])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_stable_point_of_the_quadratic(rows, setting):
    problem = pf.cases.quadratic(rows=rows, **setting)
    wanted = points(**setting)
    p, a, b, beta = (setting.get(name, default) for name, default in (("p", 0.1), ("a", 10.0), ("b", 1.0), ("beta", 0)))
    assert wanted == pytest.approx(-p * a * b / (1 - a * beta), rel=1e-12)
    np.testing.assert_allclose(pf.stable_point(problem), wanted, rtol=1e-6)
    np.testing.assert_allclose(pf.optimal_point(problem), wanted, rtol=1e-6)


def test_the_table_holds_exactly_the_share_of_ones():
    table = pf.cases.quadratic(rows=250, p=0.13, b=6.0, a=1.0).population.z
    values, counts = np.unique(table, return_counts=True)
    np.testing.assert_array_equal(values, [0.0, 6.0])
    np.testing.assert_array_equal(counts, [218, 32])  # round(32.5) is even
    problem = pf.cases.quadratic(rows=250, p=0.13)
    np.testing.assert_allclose(pf.stable_point(problem), points(p=32 / 250), rtol=1e-9)


def test_a_table_of_the_papers_size_is_one_table():
    problem = pf.cases.quadratic(rows=100_000)
    assert problem.population.z.shape == (1, 100_000)
    assert problem.population.rows == 100_000
    assert pf.cases.quadratic(rows=100, clients=3).population.z.shape == (3, 100)
    assert pf.cases.quadratic(clients=3).clients == 3


def test_the_quadratic_runs_to_its_stable_point():
    # Whole tables: nothing is random. (1 - a beta) = 1/2 a step of 0.5 leaves 3/4 of the gap.
    problem = pf.cases.quadratic(beta=0.05, rows=20)
    history = pf.run(
        problem, pf.p_fedavg(0.5, batch=pf.Uniform(20)), 100, theta=5.0, record=pf.Record(risks=False), dtype="float64"
    )
    np.testing.assert_allclose(np.asarray(history.theta)[0, -1], -2.0, atol=1e-9)


def test_the_box_holds_the_stable_point_and_the_printed_one_does_not():
    setting = dict(a=1.0, b=6.0, beta=0.1)
    box = pf.cases.quadratic(**setting, box=None).domain
    assert box.hi == pytest.approx(2 * 0.1 * 6 / 0.9) and box.lo == -box.hi
    assert box.lo < points(**setting) < box.hi
    printed = 2 * max(1.0, 2.32) * 0.1 / 0.9
    assert abs(points(**setting)) > printed
    ten = pf.cases.quadratic().domain
    assert (ten.lo, ten.hi) == (-10, 10)


def test_other_numbers_are_the_same_program():
    first, second = (pf.cases.quadratic(beta, rows=50) for beta in (0.01, 0.05))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    over = {"population.shift.sensitivity": [-0.01, -0.05], "loss.scale": [1.0, 10.0]}
    swept = pf.sweep(first, pf.p_fedavg(0.1, batch=pf.Uniform(50)), over, 3, theta=5.0)
    assert swept.programs == 1
    last = [np.asarray(h.theta)[0, -1] for h in swept.histories]
    assert len(np.unique(np.round(last, 6))) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(p=0.0), "0 < p < 1"),
        (dict(a=-1.0), "a > 0"),
        (dict(b=0.0), "b > 0"),
        (dict(beta=0.1), r"a \* beta < 1"),
        (dict(beta=float("nan")), "beta must be"),
        (dict(rows=3), "rows=3 is too few"),
        (dict(rows=0), "rows must be a whole number"),
        (dict(clients=0), "clients must be a whole number"),
    ],
)
def test_what_the_quadratic_refuses(arguments, says):
    with pytest.raises(ValueError, match=says):
        pf.cases.quadratic(**arguments)


RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((40, 3)), RNG.integers(0, 2, 40)


def test_the_loss_of_credit_default_is_the_papers():
    problem = pf.cases.credit_default(X, Y)
    theta, eta = np.asarray([0.5, -1.0, 2.0]), 100 / 40
    with jax.enable_x64(True):
        for x, y in zip(X[:6], Y[:6], strict=True):
            score = x @ theta
            wanted = (y + 1) * (np.log1p(np.exp(score)) - y * score) + eta / 2 * theta @ theta
            loss = jax.tree.map(jnp.asarray, problem.loss)
            got = loss(jnp.asarray(theta), (jnp.asarray(x), jnp.asarray(y, jnp.int32)))
            np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert pf.cases.credit_default(X, Y, penalty=0.5).loss.penalty == 0.5


@pytest.mark.parametrize("size", [2.0, 1e-4], ids=["beyond the floor", "below it"])
def test_borrowers_answer_best(size):
    beta, floor, theta = 0.1, 1e-3, size * np.asarray([0.6, -0.8, 0.0])
    problem = pf.cases.credit_default(X, Y, beta=beta, floor=floor)
    with jax.enable_x64(True):
        mine = slice_client(jax.tree.map(jnp.asarray, problem.population), 0)
        for row in range(6):
            x, y = mine.sample(jnp.asarray(row, jnp.int32), None, jnp.asarray(theta))
            assert int(y) == Y[row]

            def loses(new, row=row):
                gain = -Y[row] * theta @ new / max(floor, np.linalg.norm(theta))
                return np.sum((new - X[row]) ** 2) / (2 * beta) - gain

            best = scipy.optimize.minimize(loses, X[row], tol=1e-12).x
            np.testing.assert_allclose(x, best, atol=1e-6)
            if Y[row]:
                assert np.linalg.norm(x - X[row]) == pytest.approx(beta * min(1, size / floor), rel=1e-9)
            else:
                np.testing.assert_array_equal(x, X[row])


def test_dealt_out_rows_are_the_same_problem():
    # Weights by rows: the federation's risk is that of one learner who holds all.
    one, three = (pf.cases.credit_default(X, Y, beta=0.1, clients=n) for n in (1, 3))
    assert (one.clients, three.clients) == (1, 3)
    np.testing.assert_array_equal(three.population.rows, [14, 13, 13])
    np.testing.assert_allclose(pf.stable_point(three), pf.stable_point(one), atol=1e-5)
    other = pf.cases.credit_default(X, Y, clients=3, seed=1)
    assert not np.array_equal(other.population.x, three.population.x)
    kept = {tuple(row) for table, n in zip(three.population.x, three.population.rows, strict=True) for row in table[:n]}
    assert kept == {tuple(row) for row in X}


def test_the_made_up_table_stands_in():
    problem = pf.cases.credit_default()
    rows = len(pf.cases.credit_table())
    assert problem.population.x.shape == (1, rows, 8)
    assert problem.loss.penalty == pytest.approx(100 / rows)
    np.testing.assert_allclose(problem.population.x[0].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(problem.population.x[0].std(axis=0), 1, rtol=1e-12)
    assert set(np.unique(problem.population.y)) == {0, 1}


def test_a_stable_point_of_credit_default_stays():
    # The gradient on the data as theta_PS makes them is 0, computed here by hand.
    problem = pf.cases.credit_default(X, Y, beta=0.1)
    theta = np.asarray(pf.stable_point(problem))
    x = X - 0.1 * Y[:, None] * theta / np.linalg.norm(theta)
    pull = (Y + 1) * (1 / (1 + np.exp(-x @ theta)) - Y)
    np.testing.assert_allclose(pull @ x / 40 + 2.5 * theta, 0, atol=1e-6)
    still = dataclasses.replace(problem.population, strength=0.0)
    assert not np.allclose(pf.stable_point(dataclasses.replace(problem, population=still)), theta, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(x=X), "pass both x and y"),
        (dict(y=Y), "pass both x and y"),
        (dict(x=X, y=Y[:5]), r"got \(40, 3\) and \(5,\)"),
        (dict(x=X, y=Y, clients=41), "40 rows cannot be split among clients=41"),
        (dict(x=X, y=Y + 1), "needs labels 0 and 1"),
    ],
)
def test_what_credit_default_refuses(arguments, says):
    with pytest.raises(ValueError, match=says):
        pf.cases.credit_default(**arguments)
