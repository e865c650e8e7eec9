"""Which rows a client's local steps see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.testing.uses import compiled, slice_client

# Row r of a client carries the number r, so that samples tell which rows were picked.
ROWS = np.broadcast_to(np.arange(12.0)[:, None], (3, 12, 1))
LABELS = np.zeros((3, 12), int)
COUNT = np.asarray([12, 7, 4])
POPULATION = pf.populations.Strategic(ROWS, LABELS, 0.0, count=COUNT)


@compiled
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
