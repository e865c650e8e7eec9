"""Clients that sit out: their memory stays, their worlds stay or move as asked, and nothing of theirs leaks."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.keys import run_keys
from performative._engine.prepare import on_device, read_theta
from performative._engine.records import levels_of, view_of
from performative._engine.setup import init_state, prepare
from performative._engine.simulated import federated_round

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
SPEED = RNG.uniform(0.2, 0.9, 5)
SLUGGISH = pf.Problem(
    pf.losses.squared, pf.populations.Sluggish(pf.populations.Gaussian(np.arange(5.0), 0.5, 1.0), SPEED)
)
IMAGES, CLASSES = RNG.standard_normal((5, 6, 3)), np.tile([0, 1, 0, 1, 1, 0], (5, 1))
REWEIGHTED = pf.Problem(
    pf.losses.cross_entropy(pf.losses.linear_scores), pf.populations.Reweighted(IMAGES, CLASSES, 1.5)
)


def rounds(problem, theta, count, executor="gather", **parts):
    """States of a few rounds in float64, the start first."""
    algorithm = pf.p_fedavg(**{"rate": 0.1, "participation": pf.SchemeTwo(2), "deploy": "round", **parts})
    setup = on_device(prepare(problem, algorithm, Clock()), jnp.float64)
    states = [init_state(setup, read_theta(setup.problem, theta, jnp.float64), True)]
    step = quickly_compiled(lambda setup, state, keys: federated_round(setup, state, keys, executor)[0])
    for _ in range(count):
        states.append(step(setup, states[-1], run_keys(jax.random.key(3))))
    return states


def absent_of(before, after):
    return before.participation.value() == after.participation.value()


@pytest.mark.parametrize("executor", ["gather", "dense"])
@pytest.mark.parametrize("batch", [pf.Fixed(1), pf.Shuffled(2)], ids=["Fixed", "Shuffled"])
def test_frozen_worlds_and_memories_are_bitwise_unchanged(batch, executor):
    table = pf.populations.Strategic(IMAGES, CLASSES, 0.5)
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Sluggish(table, SPEED))
    with jax.enable_x64(True):
        states = rounds(problem, np.ones(3), 4, executor, batch=batch, deploy="step")
    moved = np.zeros(5, bool)
    for before, after in itertools.pairwise(states):
        absent = absent_of(before, after)
        assert absent.sum() == 3
        for was, now in zip(jax.tree.leaves(before.clients), jax.tree.leaves(after.clients), strict=True):
            np.testing.assert_array_equal(np.asarray(was)[absent], np.asarray(now)[absent])
        moved |= np.asarray(before.clients.world[0][0] != after.clients.world[0][0]).any(axis=1)
    assert moved.sum() > 2  # those who took part did react


def test_moving_worlds_move_as_deploy_says():
    # felt <- felt + speed (deployed - felt), for everyone, whether drawn or not.
    with jax.enable_x64(True):
        states = rounds(SLUGGISH, np.asarray(2.0), 4, absent="reacts")
    felt = np.full(5, 2.0)
    for before, after in itertools.pairwise(states):
        felt = felt + SPEED * (float(before.theta) - felt)
        np.testing.assert_allclose(after.clients.world[0][0], felt, rtol=1e-13)
    with jax.enable_x64(True):
        frozen = rounds(SLUGGISH, np.asarray(2.0), 4)
    assert not np.allclose(frozen[-1].clients.world[0][0], felt)


def test_class_weights_persist_until_a_client_takes_part():
    theta = RNG.standard_normal((2, 3))

    def weights(theta, client):
        scores = IMAGES[client] @ theta.T
        losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(6), CLASSES[client]]
        powers = np.exp(1.5 * np.asarray([losses[CLASSES[client] == k].mean() for k in (0, 1)]))
        return powers / powers.sum()

    with jax.enable_x64(True):
        frozen, moves = (rounds(REWEIGHTED, theta, 4, absent=absent) for absent in ("frozen", "reacts"))
    expected = np.full((5, 2), 0.5)  # three of each class
    np.testing.assert_allclose(frozen[0].clients.world, expected, rtol=1e-12)
    for before, after in itertools.pairwise(frozen):
        for client in np.flatnonzero(~absent_of(before, after)):
            expected[client] = weights(np.asarray(before.theta), client)
        np.testing.assert_allclose(after.clients.world, expected, rtol=1e-9)
    assert np.sum(expected[:, 0] != 0.5) >= 2
    for before, after in itertools.pairwise(moves):
        everyone = np.stack([weights(np.asarray(before.theta), client) for client in range(5)])
        np.testing.assert_allclose(after.clients.world, everyone, rtol=1e-9)


@pytest.mark.parametrize("executor", ["gather", "dense"])
def test_nan_in_rows_that_do_not_count_never_reaches_the_model(executor):
    # Spare rows compute on the last client's data: give it NaN, and weight zero so that it is never drawn itself.
    population = pf.populations.Gaussian(np.arange(5.0), 0.5, 1.0)
    poisoned = eqx.tree_at(lambda g: g.mean, population, np.asarray([0.0, 1.0, 2.0, 3.0, np.nan]))
    problem = pf.Problem(pf.losses.squared, poisoned, weights=[0.4, 0.3, 0.2, 0.1, 0.0])
    algorithm = pf.p_fedavg(rate=0.1, local_steps=2, participation=pf.SchemeOne(6))
    setup = on_device(prepare(problem, algorithm, Clock()), jnp.float32)
    state = init_state(setup, jnp.zeros(()), True)
    step = quickly_compiled(lambda state, keys: federated_round(setup, state, keys, executor))
    for _ in range(5):
        state, report = step(state, run_keys(jax.random.key(0)))
        assert np.sum(report.asked.present) < 6  # six draws from four clients: some row was spare
        assert np.isfinite(state.theta)
        for number in jax.tree.leaves(levels_of(setup, view_of(setup, state, report))):
            assert np.all(np.isfinite(number))
        assert not np.any(report.asked.present & (report.asked.ids == 4))
