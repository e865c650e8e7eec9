"""Draws of clients and rows: exact, and checked at the size at which shortcuts show."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base import sampling
from performative._base.sampling import alias_table, distinct, draw_alias, merge_duplicates, shuffled_positions
from performative.participation import Selection

MILLION = 1_000_000


def chi_square_is_plausible(observed, expected):
    """Within four standard deviations of its mean: chi-square with f degrees of freedom is f +- sqrt(2 f)."""
    observed, expected = np.ravel(observed), np.broadcast_to(np.ravel(expected), np.ravel(observed).shape)
    assert expected.min() > 5
    freedom = observed.size - 1
    value = np.sum((observed - expected) ** 2 / expected)
    assert abs(value - freedom) < 4 * np.sqrt(2 * freedom), f"chi-square {value:.1f} for {freedom} degrees"


def implied(table):
    """The probabilities that an alias table draws with."""
    threshold, alias = table
    chance = threshold / 2.0**32
    np.add.at(chance, alias, 1 - threshold / 2.0**32)
    return chance / len(threshold)


@pytest.mark.parametrize("clients", [1, 2, 7, 10_000])
def test_an_alias_table_holds_the_weights_exactly(clients):
    weights = np.random.default_rng(clients).dirichlet(np.full(clients, 0.3))
    weights[: clients // 4] = 0.0
    weights /= weights.sum()
    # To the 2^-32 of a cell that the thresholds are kept to; a large client may stand in for all others.
    assert np.max(np.abs(implied(alias_table(weights)) - weights)) <= 2.0**-32


def test_weights_that_miss_one_by_a_rounding_error_give_no_chance_to_the_impossible():
    # Within the tolerance of Problem; the deficit used to fall to the client of weight zero.
    weights = np.asarray([0.0, *np.full(3, (1 - 9e-7) / 3)])
    assert implied(alias_table(weights))[0] == 0
    np.testing.assert_allclose(implied(alias_table(weights)), weights / weights.sum(), rtol=1e-9)


def test_a_client_of_weight_zero_is_never_drawn():
    table = alias_table(np.asarray([0.25, 0.0, 0.5, 0.25]))
    table = tuple(jnp.asarray(leaf) for leaf in table)
    drawn = np.bincount(draw_alias(jax.random.key(0), table, 100_000), minlength=4)
    assert drawn[1] == 0
    chi_square_is_plausible(drawn[[0, 2, 3]], np.asarray([25_000, 50_000, 25_000]))


@pytest.mark.slow
def test_scheme_one_draws_a_million_clients_by_weight():
    # A ramp: the last client is three times as likely as the first.
    weights = np.linspace(0.5, 1.5, MILLION)
    weights /= weights.sum()
    scheme = pf.SchemeOne(100)
    tables = tuple(jnp.asarray(leaf) for leaf in scheme.tables(weights))
    selection = Selection(jnp.asarray(weights, jnp.float32), tables, jnp.asarray(0), jnp.zeros(()))

    @jax.jit
    def bins(keys):
        def one(key):
            cohort, _ = scheme.select(key, selection, None)
            return jnp.zeros(1001).at[cohort.ids // 1000].add(100 * cohort.weight)

        return jnp.sum(jax.vmap(one)(keys), axis=0)

    counts = np.asarray(bins(jax.random.split(jax.random.key(1), 5000)))
    chi_square_is_plausible(counts[:1000], 500_000 * weights.reshape(1000, 1000).sum(axis=1))


def test_scheme_two_draws_a_million_clients_evenly_and_none_twice():
    scheme = pf.SchemeTwo(100)
    selection = Selection(jnp.full(MILLION, 1e-6), None, jnp.asarray(0), jnp.zeros(()))
    draw = jax.jit(jax.vmap(lambda key: scheme.select(key, selection, None)[0].ids))
    ids = np.sort(np.asarray(draw(jax.random.split(jax.random.key(2), 5000))), axis=1)
    assert np.all(np.diff(ids, axis=1) > 0)
    chi_square_is_plausible(np.bincount(ids.ravel() // 1000, minlength=1000), 500)


@pytest.mark.parametrize("path", ["shuffle", "pairs", "sort"])
def test_every_pair_is_equally_likely(path, monkeypatch):
    # K(K-1)/(N(N-1)) for each pair. The two ways to find repeats are tried at a size where all pairs can be counted.
    if path != "shuffle":
        monkeypatch.setattr(sampling, "_SMALL", 0)
        monkeypatch.setattr(sampling, "_PAIRS", 0 if path == "sort" else 128)
    n, k, draws = (6, 3, 20_000) if path == "shuffle" else (16, 2, 24_000)
    ids = np.asarray(jax.jit(jax.vmap(lambda key: distinct(key, k, n)))(jax.random.split(jax.random.key(3), draws)))
    assert ids.min() >= 0 and ids.max() < n
    present = np.zeros((draws, n))
    np.put_along_axis(present, ids, 1.0, axis=1)
    assert np.all(present.sum(axis=1) == k)
    together = present.T @ present
    chance = k * (k - 1) / (n * (n - 1))
    error = np.sqrt(draws * chance * (1 - chance))
    for i, j in itertools.combinations(range(n), 2):  # 4.5: there are 120 of them
        assert abs(together[i, j] - draws * chance) < 4.5 * error, (i, j)


def test_many_of_many_and_a_count_that_is_not_known_ahead():
    many = np.asarray(jax.jit(jax.vmap(lambda key: distinct(key, 200, 2000)))(jax.random.split(jax.random.key(4), 50)))
    assert all(len(np.unique(row)) == 200 for row in many) and many.max() < 2000
    for capacity in (10, 2000):  # shuffled, and drawn with rejection
        pick = jax.jit(jax.vmap(lambda key, count, c=capacity: distinct(key, 3, count, c)))
        rows = np.asarray(pick(jax.random.split(jax.random.key(5), 64), jnp.arange(64, dtype=jnp.int32) % 8 + 3))
        assert all(len(np.unique(row)) == 3 for row in rows)
        assert np.all(rows < (np.arange(64) % 8 + 3)[:, None])


@pytest.mark.parametrize("k", [6, 300])
def test_duplicates_are_merged_with_their_multiplicity(k):
    drawn = np.random.default_rng(0).integers(0, k // 2, k)
    ids, times = map(np.asarray, merge_duplicates(jnp.asarray(drawn, jnp.int32), spare=k))
    assert times.sum() == k
    assert np.all((ids == k) == (times == 0))
    assert dict(zip(ids[times > 0].tolist(), times[times > 0].tolist(), strict=True)) == {
        int(i): int(c) for i, c in zip(*np.unique(drawn, return_counts=True), strict=True)
    }


@pytest.mark.parametrize("count", [1, 3, 16, 257])
def test_the_shuffle_that_stores_nothing_is_a_permutation(count):
    every = jnp.arange(count, dtype=jnp.int32)
    sent = np.asarray(shuffled_positions(jax.random.key(count), every, count))
    assert sorted(sent.tolist()) == list(range(count))
    np.testing.assert_array_equal(shuffled_positions(jax.random.key(count), every, count, needed=False), every)
