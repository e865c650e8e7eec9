"""Clients of unequal length: padding is never trained on, counted or measured, and without a count it is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.client_axis import client_axes
from performative._engine.prepare import on_device
from performative._engine.risk import client_risks
from performative.live.sources.population import Observed
from performative.partition import NO_LABEL
from performative.populations import Database, Mixture, Reweighted, Static, Strategic, shares, shifts
from performative.types import Scene

PART_EXAMPLES = {
    "pf.populations.Static": {
        "arguments": "x=X, y=Y",
        "loss": "pf.losses.logistic(0.1)",
        "theta": "np.zeros(X.shape[-1])",
    },
}

RNG = np.random.default_rng(0)
LENGTHS = (5, 6, 5)
X, Y = RNG.standard_normal((16, 2)), np.arange(16) % 2
PARTS = np.split(np.arange(16), np.cumsum(LENGTHS)[:-1])
THETA = np.asarray([0.7, -0.4])
LOGISTIC = pf.losses.logistic(0.1)
METHOD = pf.p_fedavg(rate=0.2, local_steps=2, batch=pf.Fixed(2))


def distance(theta, z):
    """A loss of (x, y) or of x alone."""
    x = z[0] if isinstance(z, tuple) else z
    return jnp.sum(jnp.square(theta - x)) / 2


def padded():
    return pf.partition.tables(X, Y, PARTS)


# Every population that takes tables: made of (x, y, count or None).
KINDS = {
    "Static": (lambda x, y, count: Static(x, y, count), LOGISTIC),
    "Strategic": (lambda x, y, count: Strategic(x, y, 0.5, count=count), LOGISTIC),
    "Strategic by label": (lambda x, y, c: Strategic(x, y, np.full((len(x), 2), [0.1, 0.5]), count=c), LOGISTIC),
    "Strategic, evading": (lambda x, y, count: Strategic(x, y, 0.5, count=count, response="evade"), LOGISTIC),
    "Database": (lambda x, y, count: Database(x, shifts.Linear(0.3), count=count), distance),
    "Database with noise": (lambda x, y, count: Database(x, shifts.Linear(0.3), 0.2, count=count), distance),
    "Reweighted": (lambda x, y, count: Reweighted(x, y, 1.5, 2, count=count), LOGISTIC),
    "Reweighted, held out": (
        lambda x, y, count: Reweighted(x, y, 1.5, 2, count=count, held_out=(x * 2, y, count)),
        LOGISTIC,
    ),
    "Observed": (lambda x, y, count: Observed(x, y, count), LOGISTIC),
    "Mixture": (
        lambda x, y, c: Mixture((Static(x, y, c), Strategic(x, y, 0.5, count=c)), shares.Constant([0.3, 0.7])),
        LOGISTIC,
    ),
    "Sluggish": (lambda x, y, c: pf.populations.Sluggish(Strategic(x, y, 0.5, count=c), 0.5), LOGISTIC),
    "Contaminated": (
        lambda x, y, c: pf.populations.Contaminated(Static(x, y, c), 0.2, Strategic(x, y, 0.5, count=c)),
        LOGISTIC,
    ),
}


QUICK = ("Strategic by label", "Database with noise", "Reweighted, held out", "Mixture")


@eqx.filter_jit
def figures(problem, theta):
    """Of each client: risk, its gradient and its derivative along the reaction, and samples."""

    def risks(theta, deployed):
        return client_risks(problem, theta, deployed, nodes=16)

    def drawn(mine):
        mine = eqx.combine(mine, rest)
        world = mine.settle(Scene(theta, problem.loss))
        noise = mine.draw(jax.random.key(3), (50,), theta)
        return jax.vmap(lambda u: mine.sample(u, world, theta))(noise)

    arrays, rest = eqx.partition(problem.population, eqx.is_array)
    each = jax.vmap(drawn, in_axes=(client_axes(arrays),), axis_size=problem.clients)(arrays)
    slopes = jax.jacrev(risks, argnums=(0, 1))(theta, theta)
    return jax.tree.leaves((risks(theta, theta), slopes, each))


@pytest.mark.parametrize("kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
@pytest.mark.usefixtures("double_precision")
def test_each_client_is_what_it_is_alone(kind):
    """Padded with NaN, with zeros, and not padded at all."""
    make, loss = KINDS[kind]

    def known(*tables):
        problem = on_device(pf.Problem(loss, make(*tables)), jnp.float64)
        return figures(problem, jnp.asarray(THETA))

    x, y, count = padded()
    here = known(x, y, count)
    assert all(np.all(np.isfinite(leaf)) for leaf in here)
    for one, other in zip(here, known(np.nan_to_num(x), np.where(y == NO_LABEL, 0, y), count), strict=True):
        np.testing.assert_array_equal(one, other)
    for client in (0, 2):  # of one length, so that one program serves both
        alone = known(X[PARTS[client]][None], Y[PARTS[client]][None], None)
        for one, other in zip(here, alone, strict=True):
            np.testing.assert_allclose(one[client], other[0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_without_a_count_is_refused(kind):
    make, _ = KINDS[kind]
    x, y, _ = padded()
    with pytest.raises(ValueError, match=r"2 of 3 clients have fewer than 6 rows \(client 0 has 5\).*padding-without"):
        make(x, y, None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_count_beyond_the_real_rows_is_refused(kind):
    make, _ = KINDS[kind]
    x, y, _ = padded()
    with pytest.raises(ValueError, match=r"count\[2\] = 6, but .* has 5 real rows of client 2 .*padding-without"):
        make(x, y, [5, 6, 6])


def test_padding_of_bytes_shows_in_their_labels():
    images = RNG.integers(0, 255, (16, 2, 2), np.uint8)
    x, y, count = pf.partition.tables(images, Y, PARTS)
    assert x.dtype == np.uint8 and y[0, -1] == NO_LABEL
    for make in (lambda c: Static(x, y, c), lambda c: Reweighted(x, y, 1.0, count=c)):
        assert make(count).clients == 3
        with pytest.raises(ValueError, match="padding-without-count"):
            make(None)
    assert Reweighted(x, y, 1.0, count=count).classes == 2


def test_missing_values_are_told_from_padding():
    x, y, count = padded()
    x[1, 2, 0] = np.nan
    with pytest.raises(ValueError, match="Static: x must be finite, but 1 of"):
        Static(x, y, count)
    with pytest.raises(ValueError, match=r"first at index \(0, 1, 1\)"):
        Static(np.asarray([[[1.0, 2.0], [1.0, np.nan]]]), [[0, 1]])


def test_padding_does_not_change_a_run():
    """Trajectories of the whole federation, with tables that are longer than anybody needs: the same to the bit."""
    x, y, count = padded()
    longer = np.pad(x, ((0, 0), (0, 4), (0, 0)), constant_values=np.nan)
    labels = np.pad(y, ((0, 0), (0, 4)), constant_values=NO_LABEL)
    runs = [
        pf.run(pf.Problem(LOGISTIC, Static(*tables, count)), METHOD, 3, THETA, callbacks=[pf.callbacks.Progress(False)])
        for tables in ((x, y), (longer, labels))
    ]
    np.testing.assert_array_equal(runs[0].theta, runs[1].theta)
    np.testing.assert_allclose(runs[0]["performative_risk"], runs[1]["performative_risk"], rtol=1e-6)


def test_a_population_of_ones_own_is_looked_at_too():
    class Own(pf.populations.AbstractPopulation):
        table: object = pf.per_client(table=True)

        def sample(self, noise, world, theta):
            return self.table[0]

    with pytest.raises(ValueError, match=r"Own: table ends in padding.*\[padding-without-count\]"):
        pf.Problem(distance, Own(padded()[0]))


def test_a_file_knows_how_many_rows_were_written(tmp_path):
    place = tmp_path / "x.npy"
    count = pf.tables.write(place, (X[part] for part in PARTS), rows=6)
    table = pf.tables.OnDisk(place)
    np.testing.assert_array_equal(table.count, LENGTHS)
    labels = np.zeros((3, 6), int)  # nothing shows in them
    assert Static(table, labels, count).clients == 3
    with pytest.raises(ValueError, match=r"Static: x ends in padding.*\[padding-without-count\]"):
        Static(table, labels)
    with pytest.raises(ValueError, match=r"count\[0\] = 6, but x has 5 real rows"):
        Static(table, labels, [6, 6, 6])
    np.testing.assert_array_equal(np.load(place), np.nan_to_num(padded()[0]))
    np.save(place, X[None])
    assert pf.tables.OnDisk(place).count is None


def test_counts_and_labels_that_would_be_cut_are_refused():
    x, y, count = padded()
    with pytest.raises(ValueError, match=r"count must contain whole numbers of rows; got \[5, 6, 2.5\]"):
        Static(x, y, [5, 6, 2.5])
    assert Static(x, y, count.astype(float)).count.dtype == np.int32
    with pytest.raises(ValueError, match="from 0 to 3000000000, which do not fit"):
        Static(np.ones((1, 2, 1)), [[0, 3_000_000_000]])


def test_a_lone_number_is_no_list_of_tables(tmp_path):
    with pytest.raises(ValueError, match="clients must be a list of tables"):
        pf.tables.write(tmp_path / "x.npy", np.array(2), rows=3)
