"""What a client has seen of its reaction, what it makes of the server's word, and whether clients react alike."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from performative.aggregators.alike import Comparison
from performative.estimators.performative import Watch
from performative.reaction import Experience, SharedReaction, Window

pytestmark = pytest.mark.usefixtures("double_precision")
D, M = 2, 3


@jax.jit
def experience(models, parameters, pace=0.0):
    """After the given rows [..., T, d] and [..., T, m]; leading axes are clients."""

    def one(models, parameters):
        start = Experience.empty(jnp.zeros(D), jnp.zeros(M))
        return jax.lax.scan(lambda seen, row: (seen.write(*row, pace), None), start, (models, parameters))[0]

    for _ in range(models.ndim - 2):
        one = jax.vmap(one)
    return one(models, parameters)


def rows(slope, length=40, noise=0.1, seed=0, level=0.0):
    rng = np.random.default_rng(seed)
    models = rng.standard_normal((*np.shape(slope)[:-2], length, D))
    f = models @ np.swapaxes(slope, -1, -2) + noise * rng.standard_normal((*models.shape[:-1], M))
    return models, f + level


@pytest.mark.parametrize("pace", [0.0, 0.1])
def test_experience_is_weighted_least_squares(pace):
    models, f = rows(np.random.default_rng(1).standard_normal((M, D)), level=7.0)
    seen = experience(models, f, pace)
    step = np.maximum(4 / (np.arange(len(models)) + 4), pace)
    weight = step * np.append(np.cumprod((1 - step)[:0:-1])[::-1], 1)
    assert weight.sum() == pytest.approx(1)
    if pace == 0:  # in proportion to s (s + 1) (s + 2), which is s^3
        s = np.arange(1, len(models) + 1)
        np.testing.assert_allclose(weight, s * (s + 1) * (s + 2) / np.sum(s * (s + 1) * (s + 2)))
    apart, change = models - weight @ models, f - weight @ f
    np.testing.assert_allclose(seen.model, weight @ models, atol=1e-12)
    np.testing.assert_allclose(seen.parameters, weight @ f)
    np.testing.assert_allclose(seen.moments.gram, apart.T @ (weight[:, None] * apart))
    np.testing.assert_allclose(seen.moments.cross, change.T @ (weight[:, None] * apart))
    np.testing.assert_allclose(seen.spread, weight @ change**2)
    np.testing.assert_allclose(seen.crowding, np.sum(weight**2))
    slope = np.linalg.lstsq(np.sqrt(weight)[:, None] * apart, np.sqrt(weight)[:, None] * change, rcond=None)[0].T
    np.testing.assert_allclose(seen.moments.jacobian(1e-6)[0], slope, rtol=1e-8)


def test_what_was_forgotten_has_no_weight():
    models, f = rows(np.ones((M, D)))
    seen = experience(models, f)
    assert eqx.tree_equal(seen.forget_if(jnp.asarray(False)), seen)
    again = seen.forget_if(jnp.asarray(True)).write(jnp.ones(D), jnp.zeros(M))
    fresh = Experience.empty(jnp.zeros(D), jnp.zeros(M)).write(jnp.ones(D), jnp.zeros(M))
    for left, right in zip(jax.tree.leaves(again), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-15)


def shared(jacobians, trust=0.1, known=True, gram=2.0):
    jacobians = jnp.asarray(jacobians)
    C = len(jacobians)
    grams = jnp.broadcast_to(gram * jnp.eye(D), (C, D, D))
    return SharedReaction(jacobians, grams, jnp.broadcast_to(known, (C,)), jnp.asarray(trust), jnp.asarray(0.0))


@jax.jit
def choose(told, seen, ready, rtol):
    return told.choose(seen, jnp.asarray(ready), rtol)


def test_own_and_pooled_meet_as_in_ridge_regression():
    slope, pooled = np.random.default_rng(2).standard_normal((2, M, D))
    seen = experience(*rows(slope))
    gram, cross = np.asarray(seen.moments.gram), np.asarray(seen.moments.cross)
    for trust in (0.0, 0.1, 1e9):
        found, known = choose(shared(pooled[None], trust), seen, False, 1e-6)
        a = 40 * trust / (1 + 40 * trust)
        expected = (a * cross + (1 - a) * 2.0 * pooled) @ np.linalg.inv(a * gram + (1 - a) * 2.0 * np.eye(D))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert known
    np.testing.assert_allclose(found, seen.moments.jacobian(1e-6)[0], rtol=1e-6)  # in the end one's own
    new = Experience.empty(jnp.zeros(D), jnp.zeros(M))
    np.testing.assert_array_equal(choose(shared(pooled[None]), new, False, 1e-6)[0], pooled)
    assert not choose(shared(pooled[None], known=False), seen, True, 1e-6)[1]


def test_a_direction_that_a_client_never_went_is_the_servers():
    models, _ = rows(np.full((M, D), 3.0))
    models[:, 1] = 0.0
    seen = experience(models, models @ np.full((D, M), 3.0))
    found, _ = choose(shared(np.ones((1, M, D)), trust=1e9), seen, True, 1e-2)
    np.testing.assert_allclose(found, np.tile([3.0, 1.0], (M, 1)), rtol=1e-6)


def test_a_client_gets_the_reaction_of_its_cluster():
    maps = np.stack([np.eye(M, D), -2 * np.eye(M, D), 5 * np.eye(M, D)])
    known = jnp.asarray([True, True, False])
    seen = experience(*rows(np.stack([-2.0, 1.0, 5.0])[:, None, None] * np.eye(M, D)))
    told = shared(maps, trust=0.0, known=known)
    for client, cluster in enumerate([1, 0, 0]):  # that of the third is not known yet
        mine = jax.tree.map(lambda leaf, client=client: leaf[client], seen)
        own, sure = choose(told, mine, True, 1e-6)
        np.testing.assert_array_equal(own, maps[cluster])
        assert sure
        # Before its window is full a client cannot tell where it belongs.
        assert not choose(told, mine, False, 1e-6)[1]


def compared(slopes, noise=0.1, seed=0, repeats=2):
    """Clients [N] with these slopes, and a server that has their mean."""
    maps = np.broadcast_to(np.asarray(slopes)[:, None, None] * np.eye(M, D), (repeats, len(slopes), M, D))
    seen = experience(*rows(maps, noise=noise, seed=seed))
    server = np.broadcast_to(np.mean(slopes) * np.eye(M, D), (repeats, 1, M, D))
    memory = Watch(Window.empty(3, jnp.zeros(D), jnp.zeros(M)), seen)
    return Comparison.of(server, np.ones((repeats, 1), bool), (None, memory), np.full(len(slopes), 1 / len(slopes)))


def test_clients_that_react_alike_lie_apart_by_chance():
    found = compared(np.full(200, 2.0))
    assert found.apart < 1 + 4 * found.error and found.excess < 4
    assert found.bound < 0.2 and found.differ < 0.02
    # Little is known where noise is large: then nothing is shown.
    assert compared(np.full(200, 2.0), noise=20.0).bound > 0.5


def test_clients_that_react_differently_are_seen():
    found = compared(np.linspace(1.0, 3.0, 50))
    assert found.excess > 4
    assert found.differ == pytest.approx(np.std(np.linspace(1.0, 3.0, 50)) / 2.0, rel=0.1)
    assert compared(np.linspace(1.0, 3.0, 50), noise=0.0).excess > 4
    assert compared(np.full(50, 2.0), noise=0.0).bound < 0.01


def test_clients_that_never_moved_say_nothing():
    seen = experience(np.zeros((1, 4, 9, D)), np.ones((1, 4, 9, M)))
    found = Comparison.of(np.zeros((1, 1, M, D)), np.ones((1, 1), bool), seen, np.full(4, 0.25))
    assert not found.excess > 4 and not found.bound <= 0.2
