"""What a client has seen of its reaction, what it makes of the server's word, and whether clients react alike."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from performative._base.reaction import Experience, SharedReaction, Window
from performative.aggregators.alike import Comparison
from performative.estimators.performative import Watch

pytestmark = pytest.mark.usefixtures("double_precision")
D, M = 2, 3


@jax.jit
def experience(models, parameters, pace=0.0, answers=None):
    """After the given rows [..., T, d] and [..., T, m]; leading axes are clients. By default s is f-hat."""

    def one(models, parameters, answers):
        start = Experience.empty(jnp.zeros(D), jnp.zeros(M))
        return jax.lax.scan(lambda seen, row: (seen.write(*row, pace), None), start, (models, parameters, answers))[0]

    for _ in range(models.ndim - 2):
        one = jax.vmap(one)
    return one(models, parameters, parameters if answers is None else answers)


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
    np.testing.assert_allclose(seen.answer, weight @ f)
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
    again = seen.forget_if(jnp.asarray(True)).write(jnp.ones(D), jnp.zeros(M), jnp.ones(M))
    fresh = Experience.empty(jnp.zeros(D), jnp.zeros(M)).write(jnp.ones(D), jnp.zeros(M), jnp.ones(M))
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
    models = rows(np.full((M, D), 3.0))[0]
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


def compared(slopes, costs, noise=0.1, seed=0, repeats=2):
    """Clients [N] with these slopes and these s, and a server that has the mean slope."""
    maps = np.broadcast_to(np.asarray(slopes)[:, None, None] * np.eye(M, D), (repeats, len(slopes), M, D))
    models, f = rows(maps, noise=noise, seed=seed)
    seen = experience(models, f, 0.0, np.broadcast_to(np.asarray(costs)[:, None, None], f.shape))
    server = np.broadcast_to(np.mean(slopes) * np.eye(M, D), (repeats, 1, M, D))
    memory = Watch(Window.empty(3, jnp.zeros(D), jnp.zeros(M)), seen)
    return Comparison.of(server, np.ones((repeats, 1), bool), (None, memory), np.full(len(slopes), 1 / len(slopes)))


UP = np.linspace(1.0, 3.0, 50)


def test_reactions_that_go_with_their_cost_are_seen():
    found = compared(UP, UP)
    assert found.chance < 1e-6
    # Each entry of theta has its own f and s: |Cov(J, s)| over mean |J s|.
    assert found.off == pytest.approx(np.var(UP) / (2 * 2), rel=0.05)
    assert found.bound >= found.off
    assert compared(UP, UP, noise=0.0).chance < 1e-6


def test_one_reaction_does_for_clients_that_are_alike():
    found = compared(np.full(50, 2.0), UP)
    assert found.chance > 1e-4 and found.bound < 0.05
    assert compared(np.full(50, 2.0), UP, noise=0.0).bound < 1e-6
    # ... and for clients that differ, where what a reaction costs is the same for all.
    found = compared(UP, np.full(50, 2.0))
    assert found.chance > 1e-4 and found.bound < 1e-6


def test_chance_is_chance():
    """Under the null the probability is (at least) uniform: no alarm in 200 worlds at a level of 1 in 10,000."""
    chances = np.asarray([compared(np.full(50, 2.0), UP, noise=1.0, seed=s, repeats=1).chance for s in range(200)])
    assert chances.min() > 1e-4
    assert np.mean(chances < 0.1) < 0.1 + 4 * np.sqrt(0.1 * 0.9 / 200)


def test_little_known_is_not_shown():
    assert compared(np.full(50, 2.0), UP, noise=20.0).bound > 0.1
    still = experience(np.zeros((1, 4, 9, D)), np.ones((1, 4, 9, M)))
    found = Comparison.of(np.zeros((1, 1, M, D)), np.ones((1, 1), bool), still, np.full(4, 0.25))
    assert found.chance == 1 and not found.bound <= 0.1
