"""A table of rows that move with the model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import performative as pf
from performative._base.run_once import quickly_compiled
from performative.testing.uses import slice_client

PART_EXAMPLES = {
    "pf.populations.Database": (
        "z=X[..., 0], shift=pf.populations.shifts.Linear(0.5)",
        "z=X[..., 0], shift=pf.populations.shifts.Linear(0.3), count=[1, 2, 3, 4, 6, 5, 2]",
        "z=X, shift=pf.populations.shifts.Linear(np.abs(X[:, :3]) / 9), noise=np.linspace(0, 1, N)",
        {"arguments": "z=X", "theta": "np.zeros(3)"},
    ),
    "pf.populations.shifts.Linear": "sensitivity=0.5",
}

RNG = np.random.default_rng(0)
Database, Linear = pf.populations.Database, pf.populations.shifts.Linear
TABLES = [RNG.standard_normal((rows, 2)) + rows for rows in (4, 1, 6)]
WEIGHTS = np.asarray([0.2, 0.5, 0.3])
MATRICES = RNG.uniform(-0.4, 0.4, (3, 2, 2))
SLOPES = {"number": 0.3, "one a client": [0.1, -0.2, 0.5], "by coordinate": MATRICES[:, 0], "matrix": MATRICES}


class Bend(pf.populations.shifts.AbstractShift):
    """A shift of somebody's own."""

    strength: jax.Array | np.ndarray = pf.number()

    def __call__(self, theta):
        return self.strength * jnp.tanh(theta)


def reaction(slope, client, theta):
    """s_i(theta), written out."""
    slope = np.asarray(slope)
    mine = slope if slope.ndim == 0 else slope[client]
    return mine @ theta if mine.ndim == 2 else mine * theta


@quickly_compiled
def every_row(population, client, theta):
    mine = slice_client(population, client)
    noise, weight = mine.quadrature(theta, 8)
    return jax.vmap(lambda u: mine.sample(u, None, theta))(noise), weight


def rows_under(population, client, theta):
    """Samples and weights of one client's `quadrature` under a model."""
    population = jax.tree.map(jnp.asarray, population)
    z, weight = every_row(population, jnp.asarray(client, jnp.int32), jnp.asarray(theta))
    return np.asarray(z), np.asarray(weight)


@pytest.mark.parametrize("kind", SLOPES)
def test_every_real_row_moves_by_the_shift(kind):
    population, theta = Database(TABLES, Linear(SLOPES[kind])), np.asarray([1.5, -2.0])
    assert (population.clients, population.capacity, population.model_shape()) == (3, 6, (2,))
    np.testing.assert_array_equal(population.rows, [4, 1, 6])
    for client, table in enumerate(TABLES):
        z, weight = rows_under(population, client, theta)
        rows = len(table)
        np.testing.assert_allclose(z[:rows], table + reaction(SLOPES[kind], client, theta), rtol=1e-5)
        np.testing.assert_allclose(weight, np.where(np.arange(6) < rows, 1 / rows, 0), rtol=1e-6)


def test_forms_of_the_table():
    numbers = np.arange(5.0)
    for one in (numbers, numbers.tolist(), numbers[None]):
        population = Database(one, Linear(0.5))
        assert (population.clients, population.rows, population.row_shape) == (1, 5, ())
    assert Database(RNG.standard_normal((3, 4))).row_shape == ()
    images = Database(RNG.standard_normal((3, 4, 2, 5)), Linear(0.5))
    assert (images.clients, images.rows, images.row_shape, images.model_shape()) == (3, 4, (2, 5), (2, 5))
    padded, count = pf.partition.pad_tables(TABLES)
    theta = np.ones(2)
    for a, b in zip(
        rows_under(Database(padded, Linear(0.3), count=count), 2, theta),
        rows_under(Database(TABLES, Linear(0.3)), 2, theta),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_rows_that_stay_and_rows_that_bend():
    theta = np.asarray([0.7, -3.0])
    np.testing.assert_allclose(rows_under(Database(TABLES), 2, theta)[0], TABLES[2], rtol=1e-6)
    bent = rows_under(Database(TABLES, Bend(2.0)), 2, theta)[0]
    np.testing.assert_allclose(bent, TABLES[2] + 2 * np.tanh(theta), rtol=1e-5)
    assert Database(TABLES).model_shape() is Database(TABLES, Bend(2.0)).model_shape() is None


def test_a_map_from_more_parameters_than_a_row_has():
    A = RNG.standard_normal((1, 2, 3))
    population = Database(TABLES[0][None], Linear(A))
    theta = np.asarray([1.0, 2.0, -1.0])
    assert population.model_shape() == (3,)
    np.testing.assert_allclose(rows_under(population, 0, theta)[0], TABLES[0] + A[0] @ theta, rtol=1e-5)
    assert population.stable_point(pf.losses.squared, [1.0]) is None


def test_draws_are_rows_with_equal_chances_and_normal_noise():
    draws, theta = 20_000, jnp.zeros(2)
    population = jax.tree.map(jnp.asarray, Database(TABLES, Linear(0.3), noise=[0.5, 2.0, 0.0]))
    mine = slice_client(population, 0)
    rows, xi = mine.draw(jax.random.key(0), (draws,), theta)
    share = np.bincount(rows, minlength=6) / draws
    np.testing.assert_array_less(np.abs(share - np.asarray([0.25] * 4 + [0.0] * 2)), 4.5 * np.sqrt(0.1875 / draws))
    assert share[4:].sum() == 0
    z = jax.vmap(lambda u: mine.sample(u, None, theta))((rows, xi))
    away = np.asarray(z) - TABLES[0][np.asarray(rows)]
    assert abs(away.mean()) < 4.5 * 0.5 / np.sqrt(2 * draws)
    assert abs(away.var() - 0.25) < 4.5 * 0.25 * np.sqrt(2 / (2 * draws))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_expectations_with_noise_are_exact(d):
    tables = [RNG.standard_normal((rows, d)) for rows in (3, 5)]
    theta, sd = np.linspace(0.5, 1.0, d), np.asarray([0.7, 1.3])
    population = Database(tables, Linear(0.4), noise=sd)
    for client, table in enumerate(tables):
        z, weight = rows_under(population, client, theta)
        moved = table + 0.4 * theta
        np.testing.assert_allclose(weight.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(weight @ z, moved.mean(axis=0), rtol=1e-4)
        second = moved.T @ moved / len(table) + sd[client] ** 2 * np.eye(d)
        np.testing.assert_allclose((weight * z.T) @ z, second, rtol=1e-3, atol=1e-4)


LOSSES = {"squared": (pf.losses.squared, 1.0), "quadratic": (pf.losses.quadratic(-0.7), 0.7)}


@pytest.mark.parametrize("kind", SLOPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_stable_point_is_where_retraining_stays(kind, loss):
    function, factor = LOSSES[loss]
    population = Database(TABLES, Linear(SLOPES[kind]), noise=0.5)
    theta = np.zeros(2)
    for _ in range(400):  # the minimizer of the loss on the data under theta is the mean of factor * z
        means = [factor * (t.mean(axis=0) + reaction(SLOPES[kind], i, theta)) for i, t in enumerate(TABLES)]
        theta = WEIGHTS @ np.asarray(means)
    np.testing.assert_allclose(population.stable_point(function, WEIGHTS), theta, rtol=1e-9)


@pytest.mark.parametrize("kind", ["number", "one a client", "by coordinate"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimal_point_is_the_minimizer_of_the_risk(kind, loss):
    function, factor = LOSSES[loss]

    def risk(theta):
        moved = [factor * (t + reaction(SLOPES[kind], i, theta)) for i, t in enumerate(TABLES)]
        return WEIGHTS @ [0.5 * np.mean(np.sum((theta - z) ** 2, axis=1)) for z in moved]

    found = scipy.optimize.minimize(risk, np.zeros(2), tol=1e-12).x
    population = Database(TABLES, Linear(SLOPES[kind]))
    np.testing.assert_allclose(population.optimal_point(function, WEIGHTS), found, rtol=1e-5)
    problem = pf.Problem(function, population, WEIGHTS)
    np.testing.assert_array_equal(pf.optimal_point(problem), population.optimal_point(function, WEIGHTS))


def test_no_closed_form_is_claimed_where_there_is_none():
    for population in (Database(TABLES, Bend(0.5)), Database(np.ones((2, 3, 2, 2)), Linear(0.1))):
        assert population.stable_point(pf.losses.squared, WEIGHTS[:2]) is None
        assert population.optimal_point(pf.losses.squared, WEIGHTS[:2]) is None
    assert Database(TABLES, Linear(0.1)).stable_point(pf.losses.negative_revenue, WEIGHTS) is None
    np.testing.assert_allclose(Database(np.arange(5.0)).stable_point(pf.losses.squared, [1.0]), 2.0)


def test_a_run_over_whole_tables_ends_at_the_stable_point():
    tables = RNG.standard_normal((2, 3, 2))
    problem = pf.Problem(pf.losses.squared, Database(tables, Linear([0.3, 0.6])))
    history = pf.run(problem, pf.p_fedavg(0.5, batch=pf.Uniform(3)), 80, record=pf.Record(risks=False), dtype="float64")
    np.testing.assert_allclose(np.asarray(history.theta)[0, -1], pf.stable_point(problem), atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(z=3.0), r"z must be \[rows\], \[clients, rows\] or longer; got shape \(\)"),
        (dict(z=np.zeros((2, 0))), r"got shape \(2, 0\)"),
        (dict(z=[1.0, np.nan]), "z must be finite"),
        (dict(z=[np.zeros((2, 3)), np.zeros((4, 2))]), "need rows of the same shape"),
        (dict(z=TABLES, count=[4, 1, 6]), "leave it out"),
        (dict(z=np.zeros((2, 3)), count=[3, 4]), r"count must lie in 1\.\.3"),
        (dict(z=np.zeros((2, 3)), count=[0, 3]), r"count must lie in 1\.\.3"),
        (dict(z=np.zeros(3), shift=0.5), "shift must be a shift such as"),
        (dict(z=np.zeros(3), noise=-1.0), "noise is a standard deviation"),
        (dict(z=np.zeros((2, 3, 2)), noise=np.ones((2, 2))), "noise must be a number or one per client"),
        (dict(z=np.zeros((2, 3)), shift=Linear([0.1, 0.2, 0.3])), "one row per client, but z has 2"),
    ],
)
def test_what_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        Database(**arguments)


def test_shifts_refuse():
    for wrong in (None, [np.inf], np.zeros((1, 2, 2, 2))):
        with pytest.raises(ValueError, match="sensitivity must"):
            Linear(wrong)


def test_a_shift_that_does_not_fit_the_rows_is_told():
    problem = pf.Problem(pf.losses.squared, Database(np.zeros((2, 3)), Bend(1.0)))
    with pytest.raises(ValueError, match=r"Database: shift returns shape \(2,\) for rows of z of shape \(\)"):
        pf.run(problem, pf.p_fedavg(0.1), 1, theta=np.zeros(2))
