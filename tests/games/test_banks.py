"""People who change banks: their shares by hand, the coupled point by an independent quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.cases.games import KINDS
from performative.types import Scene

LOSS = pf.losses.squared
APART = np.array([[1.5, 0.5, 0.0], [0.5, 1.5, 0.0]])


def shares(theta, sharpness, size=(0.5, 0.5)):
    """nu [banks, kinds] and s [banks, kinds]."""
    good = np.concatenate([KINDS[:, 0], np.ones((2, 1))], axis=1)
    pull = np.exp(-sharpness * theta @ good.T)
    chosen = pull / pull.sum(axis=0)
    here = chosen * np.asarray(size)
    return here / here.sum(axis=1, keepdims=True), chosen


def gradients(theta, sharpness, reaction=0.1, penalty=0.02):
    """Of each bank's logistic risk in its own model, on its own applicants."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).reshape(-1)
    nu, _ = shares(theta, sharpness)
    out = []
    for bank, own in enumerate(theta):
        total = penalty * own
        for kind in range(2):
            for y in range(2):
                x = KINDS[kind, y] - reaction * own[:2] + 0.8 * grid
                x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
                miss = 1 / (1 + np.exp(-x @ own)) - y
                total = total + nu[bank, kind] / 2 * (mass * miss) @ x
        out.append(total)
    return np.stack(out)


@pytest.fixture(scope="module")
def apart():
    """Two banks whose applicants choose sharply, as found from a start that tells them apart."""
    return pf.stable_point(pf.cases.competing_banks(2, 2.0), start=APART, report=True)


def test_shares_are_the_logit_of_merits():
    theta, sharpness = np.random.default_rng(0).standard_normal((3, 3)), 1.3
    population = pf.cases.competing_banks(3, sharpness, size=(0.3, 0.7)).problem.population
    nu, chosen = shares(theta, sharpness, (0.3, 0.7))
    with jax.enable_x64(True):
        for bank in range(3):
            mine = jax.tree.map(lambda leaf, bank=bank: leaf[bank] if np.ndim(leaf) else leaf, population.share)
            own, models = jnp.asarray(theta[bank]), jnp.asarray(theta)
            known = mine.remember(Scene(own, LOSS, None, models, jnp.asarray(bank)))
            np.testing.assert_allclose(mine.beside(own, known), nu[bank], rtol=1e-9)
            np.testing.assert_allclose(mine.chosen(own, known), chosen[bank], rtol=1e-9)
            # What stands in the scene for these people's own model may be old: it does not count.
            stale = models.at[bank].set(9.0)
            again = mine.remember(Scene(own, LOSS, None, stale, jnp.asarray(bank)))
            np.testing.assert_allclose(again, known, rtol=1e-12)


@pytest.mark.slow
def test_extremes_stay_numbers():
    share = pf.populations.shares.Logit([0.0, 1.0, 2.0], [1.0, -1.0, 0.0], 1.0)

    def first(theta, other):
        scene = Scene(theta, LOSS, None, jnp.stack([theta, other]), jnp.asarray(0))
        return share.beside(theta, share.remember(scene))

    for theta in (1e4, -1e4):
        found = first(jnp.asarray(theta), jnp.asarray(0.0))
        slope = jax.jacfwd(first)(jnp.asarray(theta), jnp.asarray(0.0))
        assert np.all(np.isfinite(found)) and np.all(np.isfinite(slope)) and found[0] == 0
        np.testing.assert_allclose(np.sum(found), 1.0, rtol=1e-6)
    # One bank for all: nothing to choose.
    np.testing.assert_allclose(share(jnp.asarray(3.0)), [0.0, 1 / 3, 2 / 3], rtol=1e-6)


def test_the_coupled_point_is_a_root(apart):
    assert apart.attracting and apart.contraction < 1
    np.testing.assert_allclose(gradients(apart.theta, 2.0), 0.0, atol=2e-7)
    np.testing.assert_allclose(apart.theta[0, :2], apart.theta[1, 1::-1], rtol=1e-6)
    assert apart.theta[0, 0] > 10 * apart.theta[0, 1]  # each knows one kind of people


def test_sharp_choice_makes_equal_banks_repel(apart):
    """The equal point is among those found, and repels; with little sharpness it is the only one."""
    equal = [point for point in apart.others if np.allclose(point.theta[0], point.theta[1])]
    assert len(equal) == 1 and equal[0].contraction > 1 and equal[0].attracting is False
    np.testing.assert_allclose(gradients(equal[0].theta, 2.0), 0.0, atol=2e-7)
    mild = pf.stable_point(pf.cases.competing_banks(2, 1.0), start=APART, report=True)
    assert not mild.others and mild.attracting
    np.testing.assert_allclose(mild.theta, np.broadcast_to(equal[0].theta[0], (2, 3)), rtol=1e-6)


@pytest.mark.slow
def test_play_ends_where_banks_are_apart(apart, optimized_programs):
    game = pf.cases.competing_banks(2, 2.0)
    algorithm = pf.p_fedavg(0.5, batch=pf.Fixed(400))
    history = pf.run(game, algorithm, 500, seed=1, record=pf.Record(risks=False))
    ends = history.theta[0, -100:].mean(axis=0)
    order = slice(None) if ends[0, 0] > ends[0, 1] else slice(None, None, -1)
    np.testing.assert_allclose(ends[order], apart.theta, atol=0.1)
