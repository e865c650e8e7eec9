"""`pf.forecast`: problems that are not linear, near the point where they settle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

import performative as pf
from performative.moments.facts import check_numbers

RNG = np.random.default_rng(0)


def strategic(clients=4, rows=60, d=2):
    x = RNG.standard_normal((clients, rows, d))
    y = (RNG.uniform(size=(clients, rows)) < 1 / (1 + np.exp(-2 * x[..., 0]))).astype(float)
    return pf.Problem(pf.losses.logistic(0.5), pf.populations.Strategic(x, y, 0.3))


def measured(problem, algorithm, stable, rounds, repeats=400):
    """E|theta - theta_PS|^2 of runs that start there, once they have settled, and its standard error."""
    record = pf.Record(stable=stable, every=20)
    history = pf.run(problem, algorithm, rounds, stable, repeats=repeats, dtype="float64", record=record)
    each = np.mean(history["distance_to_stable"][:, len(history.rounds) // 2 :] ** 2, axis=1)
    return each.mean(), each.std() / np.sqrt(repeats)


@pytest.mark.slow
def test_on_a_linear_problem_it_is_exact():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0, 4.0], [0.1, 0.3, 0.5], 1.0))
    algorithm = pf.p_fedavg(0.2, local_steps=2, participation=pf.SchemeTwo(2))
    found, known = pf.forecast(problem, algorithm), pf.moments(problem, algorithm, 1).stationary
    np.testing.assert_allclose(found.mse_stable, known.mse_stable, rtol=1e-8)
    assert found.valid
    assert found.doubt < 1e-8


def test_a_point_that_the_domain_holds_is_refused():
    people = pf.populations.Gaussian([1.0, 2.0], 0.2, 1.0)
    problem = pf.Problem(pf.losses.squared, people, domain=pf.Box(-1.0, 1.0))
    with pytest.raises(ValueError, match="boundary of domain=Box"):
        pf.forecast(problem, pf.p_fedavg(0.1))


@pytest.mark.slow
def test_strategic_people():
    problem, algorithm = strategic(), pf.p_fedavg(0.3, local_steps=2, batch=pf.Fixed(4), participation=pf.SchemeTwo(2))
    found = pf.forecast(problem, algorithm)
    assert found.valid
    mse, error = measured(problem, algorithm, found.stable, 400)
    assert abs(found.mse_stable / mse - 1) < 0.15 + 3 * error / mse


def test_a_step_that_is_too_long_for_a_line_is_said_to_be():
    """Far from the point the curve is another: the forecast doubts itself."""
    found = pf.forecast(strategic(), pf.p_fedavg(12.0, batch=pf.Fixed(1)))
    assert not found.valid


@pytest.mark.slow
@pytest.mark.parametrize("make", [
    lambda: pf.p_fedavg(0.2, local_steps=2, batch=pf.Fixed(8), participation=pf.SchemeTwo(3)),
    lambda: pf.fedvarp(0.2, local_steps=3, batch=pf.Fixed(8), participation=pf.SchemeTwo(3)),
    lambda: pf.scaffold(0.2, local_steps=3, batch=pf.Fixed(8), deploy="round"),
], ids=["p_fedavg", "fedvarp", "scaffold"])  # fmt: skip
def test_strategic_credit(make):
    problem, algorithm = pf.cases.credit(), make()
    found = pf.forecast(problem, algorithm)
    assert found.valid
    mse, error = measured(problem, algorithm, found.stable, 1500, repeats=200)
    assert abs(found.mse_stable / mse - 1) < 0.15 + 3 * error / mse


@pytest.mark.slow
@pytest.mark.parametrize("table", [pf.cases.strategic_credit, pf.cases.strategic_adult], ids=["credit", "adult"])
def test_real_tables(table):
    """Predicted over measured."""
    try:
        problem = table("p_fedavg", "strong", rows=1500, download=False).problem
    except pf.data.NotHereError as missing:
        pytest.skip(f"the table is not on this machine: {missing}")
    algorithm = pf.p_fedavg(0.1, local_steps=2, batch=pf.Fixed(8), participation=pf.SchemeTwo(3))
    found = pf.forecast(problem, algorithm)
    assert found.valid
    mse, error = measured(problem, algorithm, found.stable, 800, repeats=100)
    assert abs(found.mse_stable / mse - 1) < 0.15 + 3 * error / mse


def network(theta, z):
    """Two hidden units, a score and a ridge."""
    x, y = z
    score = theta["c"] @ jnp.tanh(theta["a"] @ x + theta["b"]) + theta["d"]
    ridge = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta))
    return jax.nn.softplus(jnp.where(y == 1, -score, score)) + 0.025 * ridge


@pytest.mark.slow
def test_a_network_on_digits():
    """Threes and eights in four patches of light; classes with the larger loss come to be seen more often."""
    digits = load_digits()
    some = np.flatnonzero(np.isin(digits.target, (3, 8)))[:356]
    some = np.random.default_rng(0).permutation(some)
    x = digits.images[some].reshape(-1, 2, 4, 2, 4).mean(axis=(2, 4)).reshape(-1, 4)
    x, y = (x - x.mean(axis=0)) / x.std(axis=0), digits.target[some] == 8
    people = pf.populations.Reweighted(x.reshape(4, -1, 4), y.reshape(4, -1).astype(int), 2.0)
    problem, rng = pf.Problem(network, people), np.random.default_rng(1)
    start = {"a": rng.standard_normal((2, 4)), "b": np.zeros(2), "c": rng.standard_normal(2), "d": np.zeros(())}
    train = pf.p_fedavg(0.5, local_steps=5, batch=pf.Fixed(64), deploy="round")
    trained = pf.run(problem, train, 600, start, dtype="float64", record=pf.Record(risks=False)).theta
    trained = jax.tree.map(lambda leaf: np.asarray(leaf)[0, -1], trained)

    def recipe(rate, n):
        return pf.p_fedavg(rate, local_steps=2, batch=pf.Fixed(n), participation=pf.SchemeTwo(2), deploy="round")

    found = pf.forecast(problem, recipe(0.05, 64), start=trained)
    assert found.valid
    mse, error = measured(problem, recipe(0.05, 64), found.stable, 2000, repeats=100)
    assert abs(found.mse_stable / mse - 1) < 0.15
    assert error / mse < 0.05
    assert not pf.forecast(problem, recipe(1.0, 2), start=trained).valid


@pytest.mark.slow
def test_chances_that_depend_on_the_model_are_seen():
    """One class has y = 1, the other y = 0; the mean follows the share of ones, which follows the loss.

    A round of one step: theta' = theta - eta (theta - w(theta)), w the share, known in closed form.
    """
    people = pf.populations.Reweighted(np.array([[[0.0], [1.0]]]), np.array([[0, 1]]), -3.0)
    problem = pf.Problem(lambda theta, z: 0.5 * jnp.sum((theta - z[0][0]) ** 2), people)
    found = pf.forecast(problem, pf.p_fedavg(0.1, batch=pf.Fixed(1000)), start=0.5)

    def share(theta):
        return jax.nn.sigmoid(-3.0 * 0.5 * ((theta - 1.0) ** 2 - theta**2))

    slope = float(jax.grad(share)(float(found.stable)))
    assert slope == pytest.approx(0.75)
    assert found.spectral_radius.mean == pytest.approx(1 - 0.1 * (1 - slope), abs=1e-6)
    with pytest.raises(ValueError, match="not-affine"):
        pf.moments(problem, pf.p_fedavg(0.1), 3, 0.5)


def test_maps_that_do_not_fit_are_refused_with_their_size():
    with pytest.raises(ValueError, match=r"4\.3 GB of derivatives; at most 2\.1 GB"):
        check_numbers(1 << 29)


@pytest.mark.slow
def test_a_point_that_repels_is_told():
    """eps > 1: small steps run away from the only stable point."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 1.5, 1.0))
    with pytest.warns(pf.PerformativeWarning, match="repelling-point"):
        found = pf.forecast(problem, pf.p_fedavg(0.1))
    assert found.verdict == "runs away" and not found.valid
