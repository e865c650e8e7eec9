"""Every single row or client, every pair and every triple is as likely as the sampler says: what privacy rests on.

Counts are compared with their law by chi-square. A p-value below 1e-6 fails, with fixed seeds; the tests below look at
some 150 of them.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import performative as pf
from performative._base.run_once import quickly_compiled
from performative._base.sampling import alias_table, draw_alias, first_of, shuffled_positions
from performative.batches import geometric_waits
from performative.participation import Selection
from performative.testing.uses import slice_client

SIZES = (2, 3, 4, 5, 6, 8, 11, 16, 17, 24, 40)
ALL_SIZES = range(2, 41)
QUICK_SIZES = (2, 3, 5, 8, 17, 40)


def plausible(seen, law=None, label=""):
    """Chi-square of counts against a law (even where none is given)."""
    wanted = seen.sum() * (np.full(seen.size, 1 / seen.size) if law is None else law / law.sum())
    assert wanted.min() > 5, label
    p = scipy.stats.chi2.sf(np.sum((seen - wanted) ** 2 / wanted), seen.size - 1)
    assert p > 1e-6, f"{label}: p = {p:.1g}, up to {np.max(np.abs(seen / wanted - 1)):.1%} off"


def tuples(ids, n):
    """How often each ordered tuple of different numbers below n stands in a row of `ids`."""
    q = ids.shape[1]
    code = np.bincount(ids @ n ** np.arange(q), minlength=n**q)
    different = [sum(v * n**i for i, v in enumerate(one)) for one in itertools.permutations(range(n), q)]
    assert code[different].sum() == len(ids), "a number came twice, or one that is too large"
    return code[different]


def check_tuples(ids, n, label):
    """Singles, pairs and triples in the order in which they came, and all orders of up to 5."""
    for q in range(1, min(ids.shape[1], n if n <= 5 else 3) + 1):
        if len(ids) > 6 * np.prod(np.arange(n, n - q, -1)) and np.prod(np.arange(n, n - q, -1)) > 1:
            plausible(tuples(ids[:, :q], n), label=f"{label}: {q} of {n}")


@jax.jit
def shuffles(keys, positions, count):
    return jax.vmap(lambda key: shuffled_positions(key, positions, count))(keys)


@pytest.mark.parametrize(
    "count", [n if n in QUICK_SIZES else pytest.param(n, marks=pytest.mark.slow) for n in (*ALL_SIZES, 64, 100)]
)
def test_a_shuffle_that_stores_nothing_is_uniform(count):
    keys = jax.random.split(jax.random.key(count), 40_000)
    # The last position and the first ones; all of them where there are up to five.
    positions = jnp.arange(5) if count <= 5 else jnp.asarray([count - 1, 0, 1, 2, 3])
    check_tuples(np.asarray(shuffles(keys, positions, count))[:, :count], count, "shuffle")


@pytest.mark.parametrize("count", [1000, 65_537, 1_000_000])
def test_a_shuffle_of_many_rows_is_uniform(count):
    sent = np.asarray(shuffles(jax.random.split(jax.random.key(7), 40_000), jnp.asarray([5, 6, count // 2]), count))
    assert sent.min() >= 0 and sent.max() < count
    tenth = sent * 10 // count
    plausible(np.bincount(tenth @ [1, 10, 100], minlength=1000), label=f"three of {count}")
    # How far apart neighbors end.
    plausible(np.bincount((sent[:, 1] - sent[:, 0]) % count * 100 // count, minlength=100), label=f"gap of {count}")


# One client for each size, padded to the largest.
TABLES = pf.populations.Database([np.arange(float(rows)) for rows in SIZES])
MIXED = pf.populations.Database([np.arange(float(rows)) for rows in (5, 9, 16, 600, 5000)])


@quickly_compiled
def rows_of_clients(batch, population, draws, key):
    """Rows and mask of `draws` first steps of every client, [N, draws, n]."""
    clients = population.clients

    def one(client, key):
        mine = slice_client(population, client)
        return batch.draw(key, key, mine, jnp.zeros(()), 1, batch.init())

    keys = jax.random.split(key, (clients, draws))
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(jnp.arange(clients), keys)


def drawn(batch, population, draws, key=0):
    rows, mask = rows_of_clients(batch, jax.tree.map(jnp.asarray, population), draws, jax.random.key(key))
    return np.asarray(rows)[:, :, 0], None if mask is None else np.asarray(mask)[:, :, 0]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [pf.Uniform(2), pf.Shuffled(2)], ids=["Uniform", "Shuffled"])
def test_rows_without_replacement_in_tables_of_every_size(batch):
    rows, _ = drawn(batch, TABLES, 12_000)
    for client, count in enumerate(SIZES):
        check_tuples(rows[client], count, type(batch).__name__)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [pf.Uniform(3), pf.Shuffled(3)], ids=["Uniform", "Shuffled"])
def test_rows_of_small_tables_beside_large_ones(batch):
    # A client's rows are drawn in the way that the largest table asks for.
    rows, _ = drawn(batch, MIXED, 30_000)
    for client, count in enumerate((5, 9, 16)):
        check_tuples(rows[client], count, type(batch).__name__)
    for client, count in ((3, 600), (4, 5000)):
        plausible(np.bincount(rows[client] * 10 // count @ [1, 10, 100], minlength=1000), label=f"three of {count}")


@pytest.mark.slow
def test_shuffled_is_uniform_in_later_epochs_too():
    # The fourth step of 8 rows, 3 a step, is the second of the second epoch, whose order is another.
    batch, mine = pf.Shuffled(3), slice_client(jax.tree.map(jnp.asarray, TABLES), SIZES.index(8))
    keys = jax.random.split(jax.random.key(1), 40_000)
    draw = jax.jit(jax.vmap(lambda key: batch.draw(key, key, mine, jnp.zeros(()), 4, jnp.asarray(0))[0]))
    rows = np.asarray(draw(keys))
    check_tuples(rows[:, 3], 8, "second epoch")
    plausible(np.bincount(rows[:, 0, 0] * 8 + rows[:, 2, 0], minlength=64), label="two epochs")


def test_poisson_cut_at_n_max_keeps_every_set_alike():
    rows, mask = drawn(pf.Poisson(0.9, 3), TABLES, 12_000)
    for client, count in enumerate(SIZES):
        full = mask[client].all(axis=1)
        cut = scipy.stats.binom.sf(2, count, np.float32(0.9))
        assert abs(full.mean() - cut) <= 4.5 * np.sqrt(cut * (1 - cut) / len(full))
        if 3 < count <= 20:
            plausible(_sets(rows[client][full], count), label=f"sets of 3 of {count}")
        elif count > 20:
            plausible(np.bincount(rows[client][full].ravel(), minlength=count), label=f"rows of {count}")


def _sets(rows, n):
    """How often each set of different numbers below n was drawn."""
    code = np.sort(rows, axis=1) @ n ** np.arange(rows.shape[1])
    sets = [sum(v * n**i for i, v in enumerate(one)) for one in itertools.combinations(range(n), rows.shape[1])]
    seen = np.bincount(code, minlength=n ** rows.shape[1])[sets]
    assert seen.sum() == len(rows)
    return seen


@pytest.mark.parametrize("chance", [1e-6, *(pytest.param(c, marks=pytest.mark.slow) for c in (1e-4, 0.01, 0.3, 1.0))])
def test_a_rare_row_has_its_chance_in_float32(chance):
    # All 2^23 uniforms of a float32; a single one for the whole wait was 8% off at 1e-6.
    grid = jnp.arange(1, 1 << 23, dtype=jnp.float32) / (1 << 23)
    no_stretch = jnp.full_like(grid, 1 - 2.0**-23)
    waits = jax.jit(geometric_waits)(jnp.stack([no_stretch, grid]), jnp.float32(chance), jnp.int32(10**7))
    m = max(1, int(1 / (256 * chance)))
    seen = np.bincount(np.asarray(waits) - 1, minlength=m)
    law = (1 - chance) ** np.arange(m)
    np.testing.assert_allclose(seen / seen.sum(), law / law.sum(), rtol=1e-3)


SCHEMES = {
    "SchemeTwo": pf.SchemeTwo(3),
    "FirstK": pf.FirstK(3, pf.participation.Exponential(1.0)),
    "Available": pf.participation.Available(0.7, k=3),
    "PowerOfChoice, equals": pf.participation.PowerOfChoice(3, 4, estimate="last"),
    "PowerOfChoice, all": pf.participation.PowerOfChoice(3, 5, estimate="last"),
    "Cyclic": pf.participation.Cyclic(1, k=3),
}


@pytest.mark.parametrize("clients", [pytest.param(5, marks=pytest.mark.slow), 12])
@pytest.mark.parametrize(
    "name", ["SchemeTwo", *(pytest.param(s, marks=pytest.mark.slow) for s in SCHEMES if s != "SchemeTwo")]
)
def test_every_set_of_equal_clients_takes_part_alike(name, clients):
    scheme = SCHEMES[name]
    weights = np.full(clients, 1 / clients)
    selection = Selection(
        jnp.asarray(weights), jax.tree.map(jnp.asarray, scheme.tables(weights)), jnp.asarray(0), jnp.zeros(())
    )
    draw = jax.jit(jax.vmap(lambda key: scheme.select(key, selection, scheme.init(clients))[0].ids))
    ids = np.asarray(draw(jax.random.split(jax.random.key(clients), 40_000)))
    ids = ids[(ids < clients).all(axis=1)]  # of Available, rounds with three or more present
    plausible(_sets(ids, clients), label=name)


def test_candidates_of_unequal_weight_come_in_proportion():
    # Nearly all weight on one client: the draw by Gumbel noise. The other candidate is any of the rest.
    weights = np.r_[0.99, np.full(20, 0.01 / 20)]
    scheme = pf.participation.PowerOfChoice(2, 2, estimate="last")
    tables = jnp.asarray(scheme.tables(weights), jnp.float32)
    selection = Selection(jnp.asarray(weights, jnp.float32), tables, jnp.asarray(0), jnp.zeros(()))
    draw = jax.jit(jax.vmap(lambda key: scheme.select(key, selection, scheme.init(21))[0].ids))
    ids = np.sort(np.asarray(draw(jax.random.split(jax.random.key(3), 40_000))), axis=1)
    first = ids[ids[:, 0] == 0]
    assert len(first) > 0.99 * len(ids)
    plausible(np.bincount(first[:, 1] - 1, minlength=20))


def test_of_equal_latencies_no_client_always_wins():
    # Four possible values for 12 clients: the smallest is nearly always shared.
    def one(key):
        key_value, key_ties = jax.random.split(key)
        return first_of(key_ties, jax.random.randint(key_value, (12,), 0, 4).astype(float), 1)

    smallest, ids = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(4), 40_000))
    assert np.mean(np.asarray(smallest) == 0) > 0.9
    plausible(np.bincount(np.asarray(ids)[:, 0], minlength=12))


def test_clients_with_replacement_by_weight_down_to_one_in_a_hundred_thousand():
    weights = np.asarray([0.5, 0.3, 0.2 - 1e-3 - 1e-5, 1e-3, 1e-5])
    table = tuple(jnp.asarray(leaf) for leaf in alias_table(weights))
    pairs = np.asarray(jax.jit(draw_alias, static_argnums=2)(jax.random.key(5), table, 2_000_000)).reshape(-1, 2)
    once = np.bincount(pairs.ravel(), minlength=5)
    plausible(once, weights)
    common = pairs[(pairs < 3).all(axis=1)]
    plausible(np.bincount(common @ [1, 3], minlength=9), np.outer(weights[:3], weights[:3]).ravel())


def test_fixed_draws_every_ordered_pair_alike():
    rows, _ = drawn(pf.Fixed(2), TABLES, 12_000)
    for client, count in enumerate(SIZES):
        plausible(np.bincount(rows[client] @ [1, count], minlength=count**2), label=f"Fixed: two of {count}")
