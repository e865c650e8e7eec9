"""Which rows a client's local steps see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import performative as pf
from performative._base.run_once import quickly_compiled
from performative.batches import bernoulli_rows
from performative.testing.uses import slice_client

PART_EXAMPLES = {
    "pf.Poisson": "rate=0.5, n_max=6",
}

# Row r of a client carries the number r, so that samples tell which rows were picked.
ROWS = np.broadcast_to(np.arange(12.0)[:, None], (3, 12, 1))
LABELS = np.zeros((3, 12), int)
COUNT = np.asarray([12, 7, 4])
POPULATION = pf.populations.Strategic(ROWS, LABELS, 0.0, count=COUNT)


@quickly_compiled
def picked(batch, client, steps, memory, key):
    mine = slice_client(jax.tree.map(jnp.asarray, POPULATION), client)
    rows, mask = batch.draw(key, jax.random.key(100), mine, jnp.zeros(1), steps, memory)
    assert mask is None
    return rows


def draw(batch, client, steps, memory, key=0):
    """Rows picked in `steps` local steps, [steps, n]."""
    return np.asarray(picked(batch, jnp.asarray(client, jnp.int32), steps, memory, jax.random.key(key)))


@pytest.mark.parametrize(("client", "n"), [(0, 3), (0, 12), (1, 2), (2, 1)])
def test_shuffled_visits_each_row_once_an_epoch(client, n):
    batch, count = pf.Shuffled(n), int(COUNT[client])
    an_epoch = count // n
    memory = batch.init()
    orders = []
    for _ in range(3):
        seen = []
        # An epoch in two rounds, of which the second may be empty: the memory carries the place.
        for steps in (an_epoch - an_epoch // 2, an_epoch // 2):
            if steps:
                seen += draw(batch, client, steps, memory).ravel().tolist()
            memory = batch.advance(memory, jnp.asarray(steps, jnp.int32))
        assert len(set(seen)) == len(seen) == an_epoch * n
        assert max(seen) < count
        orders.append(tuple(seen))
    assert int(memory) == 3 * an_epoch
    if count > 4:
        assert len(set(orders)) == 3


def test_shuffled_leaves_out_another_short_batch_each_epoch():
    # 7 rows, 2 a step: one row is left out of each epoch, and not always the same.
    batch, missed = pf.Shuffled(2), set()
    for epoch in range(12):
        seen = draw(batch, 1, 3, jnp.asarray(3 * epoch, jnp.int32)).ravel()
        missed |= set(range(7)) - set(seen.tolist())
    assert len(missed) > 2


def test_uniform_draws_different_rows_and_every_set_alike():
    for client in (0, 1, 2):
        rows = draw(pf.Uniform(4), client, 500, None)
        assert all(len(set(row)) == 4 for row in rows.tolist())
        assert rows.max() < COUNT[client]
    rows = draw(pf.Uniform(2), 1, 21_000, None, key=3)
    pairs = np.zeros((7, 7))
    np.add.at(pairs, tuple(np.sort(rows, axis=1).T), 1)
    counts = pairs[np.triu_indices(7, 1)]
    assert np.all(np.abs(counts - 1000) < 4 * np.sqrt(1000 * 20 / 21))


def test_fixed_draws_with_replacement():
    rows = draw(pf.Fixed(2), 2, 16_000, None)
    same = np.mean(rows[:, 0] == rows[:, 1])
    assert abs(same - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 16_000)


def test_uniform_without_a_table_is_independent_draws():
    population = pf.populations.Gaussian(0.0, 0.0, 1.0)
    arguments = (jax.random.key(0), jax.random.key(1), population, jnp.zeros(()), 3, None)
    np.testing.assert_array_equal(pf.Uniform(2).draw(*arguments)[0], pf.Fixed(2).draw(*arguments)[0])


@pytest.mark.parametrize(
    ("batch", "capacity", "says"),
    [
        (pf.Uniform(5), 4, r"Uniform\(n=5\).*only 4"),
        (pf.Shuffled(5), 4, r"Shuffled\(n=5\).*only 4 rows"),
        (pf.Shuffled(5), None, r"Shuffled\(n\) needs a population with a finite table"),
    ],
)
def test_a_client_that_cannot_serve_a_batch_is_refused(batch, capacity, says):
    with pytest.raises(ValueError, match=says):
        batch.check(capacity)


def test_small_enough_batches_are_taken():
    for batch in (pf.Uniform(4), pf.Shuffled(4), pf.Fixed(40)):
        batch.check(4)


def table(*count):
    """Clients with that many rows, padded; row r holds the number r."""
    return pf.populations.Database([np.arange(float(rows)) for rows in count])


@quickly_compiled
def drawn(batch, population, client, steps, key):
    mine = slice_client(jax.tree.map(jnp.asarray, population), client)
    rows, mask = batch.draw(key, jax.random.key(100), mine, jnp.zeros(()), steps, None)
    here = jnp.zeros((steps, mine.capacity), jnp.int32)
    return here.at[jnp.arange(steps)[:, None], rows].add(mask.astype(jnp.int32)), rows, mask


def included(batch, population, client, steps, key=0):
    """How often each row stands in each of `steps` batches, [steps, rows of the client]."""
    here, rows, mask = drawn(batch, population, jnp.asarray(client, jnp.int32), steps, jax.random.key(key))
    held = int(np.broadcast_to(population.rows, 3)[client])
    assert mask.shape == rows.shape == (steps, batch.n_max)
    assert np.max(rows) < held, "places that do not count name real rows too"
    assert np.max(here) <= 1, "a row entered twice"
    return np.asarray(here)[:, :held]


def chi_square(seen, chance):
    """The chance of counts at least as far from their law, cells of fewer than 10 expected taken together."""
    wanted = seen.sum() * chance
    rare = wanted < 10
    seen, wanted = (np.append(v[~rare], v[rare].sum()) for v in (seen, wanted))
    keep = wanted > 0
    return scipy.stats.chi2.sf(np.sum((seen - wanted)[keep] ** 2 / wanted[keep]), max(keep.sum() - 1, 1))


@pytest.mark.parametrize(
    ("rows", "rate", "most", "draws"),
    [
        (1, 0.3, 1, 100_000),
        pytest.param(10, 0.1, 10, 100_000, marks=pytest.mark.slow),
        (7, 1.0, 7, 100),
        (100, 0.95, 100, 50_000),
        pytest.param(1000, 0.02, 60, 50_000, marks=pytest.mark.slow),
        (1000, 0.02, 20, 50_000),  # half of the batches are cut
        (100_000, 1e-5, 12, 100_000),
        pytest.param(100_000, 5e-4, 110, 50_000, marks=pytest.mark.slow),
        (1_000_000, 1e-4, 180, 50_000),
    ],
)
def test_poisson_counts_are_binomial(rows, rate, most, draws):
    trials = jnp.asarray(rows, jnp.int32)
    count = jax.jit(jax.vmap(lambda key: jnp.sum(bernoulli_rows(key, trials, jnp.asarray(rate), most)[1])))
    seen = np.bincount(count(jax.random.split(jax.random.key(0), draws)), minlength=most + 1)
    law = scipy.stats.binom(rows, float(np.float32(rate)))
    chance = law.pmf(np.arange(most + 1))
    chance[-1] = law.sf(most - 1)
    assert len(seen) == most + 1
    assert chi_square(seen, chance) > 1e-4


# Rows of each client, n_max: shuffled; all three ways to pick rows; more places than any client has rows.
POISSON = {"small": ((12, 7, 5), 12), "mixed": ((600, 7, 5), 20), "roomy": ((6, 7, 5), 40)}


@pytest.mark.parametrize(("tables", "rate"), [("small", 0.15), ("small", 0.6), ("mixed", 0.6), ("roomy", 0.6)])
def test_poisson_rows_enter_independently(tables, rate):
    # All sets of a client's rows against the product law: singles, pairs and all the rest at once.
    rows, n_max = POISSON[tables]
    batch, population = pf.Poisson(rate, n_max), table(*rows)
    for client in (1, 2):
        held, steps = rows[client], 5_000
        here = included(batch, population, client, steps, key=client)
        seen = np.bincount(here @ (1 << np.arange(held)), minlength=1 << held)
        size = np.asarray([bin(chosen).count("1") for chosen in range(1 << held)])
        assert chi_square(seen, rate**size * (1 - rate) ** (held - size)) > 1e-4


def test_poisson_takes_few_of_many_rows_alike():
    steps, rate, rows = 10_000, 0.01, 600
    here = included(pf.Poisson(rate, 20), table(rows, 7, 5), 0, steps)
    assert chi_square(here.sum(axis=0), np.full(rows, 1 / rows)) > 1e-4
    # Neighbors in the table, and rows far apart: a pair enters with chance rate^2.
    for apart in (1, 97):
        pairs = np.sum(here * np.roll(here, apart, axis=1))
        wanted = steps * rows * rate**2
        assert abs(pairs - wanted) < 4.5 * np.sqrt(wanted)


def test_poisson_keeps_a_random_part_of_what_is_too_much():
    here = included(pf.Poisson(0.9, 2), table(5, 5, 5), 0, 20_000)
    size = here.sum(axis=1)
    law = scipy.stats.binom(5, 0.9)
    assert chi_square(np.bincount(size, minlength=3), np.asarray([law.pmf(0), law.pmf(1), law.sf(1)])) > 1e-4
    pairs = np.bincount(here[size == 2] @ (1 << np.arange(5)))
    pairs = pairs[[(1 << i) | (1 << j) for i in range(5) for j in range(i)]]
    assert chi_square(pairs, np.full(10, 0.1)) > 1e-4


def test_poisson_differs_from_step_to_step_and_key_to_key():
    batch, population = pf.Poisson(0.5, 40), table(40, 40, 40)
    first, second = (included(batch, population, 0, 20, key) for key in (1, 2))
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == 40


def test_an_empty_batch_moves_nothing():
    population = pf.populations.Database(np.arange(1.0, 5.0), pf.populations.shifts.Linear(0.1))
    problem = pf.Problem(pf.losses.squared, population)
    history = pf.run(problem, pf.p_fedavg(0.5, batch=pf.Poisson(0.05, 4)), 40, theta=9.0, record=pf.Record(risks=False))
    moves = np.diff(np.asarray(history.theta)[0])
    none = np.diff(np.asarray(history["samples"])[0]) == 0
    assert 20 < none.sum() < 40, "most of these batches are empty, with chance 0.81 each"
    assert np.all(moves[none] == 0)
    assert np.all(moves[~none] != 0)


def test_poisson_costs_what_it_draws():
    # Whatever is computed on the way is small; the table itself is only looked up.
    population = jax.eval_shape(lambda: table_like(1_000_000))
    batch = pf.Poisson(1e-4, 160)

    def draw(population, rate, key):
        mine = slice_client(population, 0)
        return pf.Poisson(rate, 160).draw(key, key, mine, jnp.zeros(()), 3, None)

    closed = jax.make_jaxpr(draw)(population, jnp.asarray(batch.rate), jax.random.key(0))
    assert largest(closed.jaxpr) <= 3 * 2 * 160 * 160


def table_like(rows):
    return jax.tree.map(jnp.asarray, pf.populations.Database(np.zeros((2, rows)), count=np.asarray([rows, 10])))


def largest(jaxpr):
    """Entries of the largest array that a program makes, the client's own slice of its table aside."""
    sizes = [1]
    for equation in jaxpr.eqns:
        inside = [p for p in jax.tree.leaves(list(equation.params.values())) if hasattr(p, "jaxpr")]
        sizes += [largest(p.jaxpr) for p in inside]
        if equation.primitive.name not in ("dynamic_slice", "squeeze", "slice", "reshape", "gather"):
            sizes += [v.aval.size for v in equation.outvars]
    return max(sizes)


@pytest.mark.parametrize("batch", [pf.Fixed(3), pf.Uniform(3), pf.Shuffled(3)], ids=lambda b: type(b).__name__)
def test_expected_is_n_where_n_is_fixed(batch):
    assert batch.expected(POPULATION) == 3.0


def test_expected_of_poisson_is_the_mean_before_it_is_cut():
    np.testing.assert_allclose(pf.Poisson(0.5, 2).expected(POPULATION), [6.0, 3.5, 2.0])
    assert float(pf.Poisson(1e-4, 2).expected(pf.cases.quadratic(rows=1000).population)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0.0, 5), "0 < rate <= 1; got 0"),
        ((1.5, 5), "0 < rate <= 1; got 1.5"),
        ((float("nan"), 5), "rate must be finite"),
        (([0.1, 0.2], 5), "rate must"),
        ((None, 5), "rate must"),
        ((0.1, 0), "n_max must be a whole number >= 1.*got 0"),
        ((0.1, None), "n_max must be a whole number >= 1.*got None"),
        ((0.1, 2.5), "n_max must be a whole number"),
    ],
)
def test_poisson_refuses(arguments, says):
    with pytest.raises(ValueError, match=says):
        pf.Poisson(*arguments)


def test_poisson_needs_a_table():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"Poisson\(rate, n_max\) needs a population with a finite table.*Fixed"):
        pf.run(problem, pf.p_fedavg(0.1, batch=pf.Poisson(0.1, 5)), 1)
