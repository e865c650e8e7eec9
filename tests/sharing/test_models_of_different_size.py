"""Clients that carry a part of the model: each entry is the mean over those that train it, and counted."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.sharing import Rolling, Widths

PART_EXAMPLES = {
    "pf.sharing.Widths": (
        "masks=np.ones(2, bool), kind=np.arange(N) % 2",
        "masks=np.arange(3) <= np.arange(N)[:, None]",
    ),
    "pf.sharing.Rolling": ("fraction=np.linspace(0.4, 1.0, N)", "fraction=0.5, step=2, weigh='unbiased'"),
}
P = np.array([0.5, 0.3, 0.2])
MEAN = np.array([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 5.0, 2.0], [0.5, 0.5, -2.0, 1.0]])
EPS = np.array([0.3, -0.2, 0.6])
MASKS = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]], bool)


def problem(scale=0.0, weights=P, **options):
    return pf.Problem(
        pf.losses.squared, pf.populations.Gaussian(MEAN, EPS[:, None] * np.ones(4), scale), weights, **options
    )


def run(sharing, rounds, rate=0.5, theta=None, people=None, **options):
    names = ("participation", "local_steps", "aggregator", "deploy", "channel")
    parts = {name: options.pop(name) for name in names if name in options}
    theta = np.ones(4) if theta is None else theta
    options = {"dtype": "float64", "record": pf.Record(risks=False)} | options
    algorithm = pf.p_fedavg(rate, sharing=sharing, **parts)
    return pf.run(problem() if people is None else people, algorithm, rounds, theta=theta, **options)


def test_each_entry_settles_at_the_stable_point_of_those_who_carry_it():
    history = run(Widths(MASKS), 200)
    carried = P[:, None] * MASKS
    want = np.sum(carried * MEAN, axis=0) / np.sum(carried * (1 - EPS[:, None]), axis=0)
    np.testing.assert_allclose(history.final[0], want, rtol=1e-10)
    np.testing.assert_allclose(history.models[0], MASKS * want, rtol=1e-10)  # people meet 0 where nothing is carried
    np.testing.assert_array_equal(history.trained[0], 200 * MASKS.sum(axis=0))


def test_kinds_of_clients_are_rows_given_once():
    kinds = Widths(MASKS[[1, 0, 2]], kind=[1, 0, 2])
    np.testing.assert_array_equal(run(kinds, 5).theta, run(Widths(MASKS), 5).theta)


def windows(fraction, r, n=4, step=1):
    return np.array([[(e - step * r) % n < np.ceil(f * n - 1e-9) for e in range(n)] for f in fraction])


@pytest.mark.parametrize("step", [1, 3])
def test_rolling_windows_are_the_recursion_by_hand(step):
    fraction, theta = np.array([0.25, 0.5, 0.75]), np.ones(4)
    history = run(Rolling(fraction, step=step), 9, rate=0.3)
    trained = np.zeros(4, int)
    for r in range(9):
        mask = windows(fraction, r, step=step)
        delta = mask * 0.3 * (MEAN + EPS[:, None] * (mask * theta) - mask * theta)
        weight = P[:, None] * mask
        carried = np.sum(weight, axis=0)
        theta = theta + np.sum(weight * delta, axis=0) / np.where(carried > 0, carried, 1)
        trained += mask.sum(axis=0)
        np.testing.assert_allclose(history.theta[0, r + 1], theta, rtol=1e-12)
    np.testing.assert_array_equal(history.trained[0], trained)


def test_every_entry_is_trained_as_often_once_windows_have_gone_round():
    history = run(Rolling([0.25, 0.5, 0.5]), 8)
    np.testing.assert_array_equal(history.trained[0], 8 * np.array([1, 2, 2]).sum() // 4)


@pytest.mark.parametrize(
    "participation", [pytest.param(pf.Full(), marks=pytest.mark.slow), pf.SchemeTwo(2)], ids=["all", "some"]
)
def test_whole_models_are_one_model(participation):
    plain, whole = (
        run(sharing, 6, participation=participation, local_steps=2, people=problem(1.0)).theta
        for sharing in (pf.sharing.OneModel(), Rolling(1.0))
    )
    np.testing.assert_allclose(whole, plain, rtol=1e-12)


def test_with_sampled_clients_an_entry_moves_by_the_mean_of_those_who_carry_it():
    people = problem(weights=None)
    history = run(Widths(MASKS), 1, people=people, participation=pf.SchemeTwo(2), repeats=3000, dtype=None)
    moves = np.asarray(history.theta)[:, 1] - 1
    delta = MASKS * 0.5 * (MEAN + EPS[:, None] * MASKS - MASKS)
    for e in range(4):
        heard = moves[history.trained[:, e] > 0, e]  # given that somebody carries it
        want = delta[MASKS[:, e], e].mean()
        assert abs(heard.mean() - want) < 4.5 * heard.std() / np.sqrt(len(heard)) + 1e-6
        np.testing.assert_array_equal(moves[history.trained[:, e] == 0, e], 0)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(6, marks=pytest.mark.slow)])
def test_unbiased_moves_are_over_a_turn_of_the_windows_those_of_one_model(step):
    n, turn = 6, 6 // math.gcd(step, 6)
    mean, fraction = np.arange(18.0).reshape(3, n), np.array([0.34, 0.5, 1.0])
    people = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, 0.0, 0.0), P)
    history = run(Rolling(fraction, step=step, weigh="unbiased"), turn, 1e-6, np.zeros(n), people)
    size = np.ceil(fraction * n - 1e-9)
    starts = np.arange(turn) * step % n
    ever = np.array([[np.any((e - starts) % n < k) for e in range(n)] for k in size])
    want = np.sum(P[:, None] * ever * mean, axis=0) / np.sum(P[:, None] * ever, axis=0)
    np.testing.assert_allclose(history.final[0] / (turn * 1e-6), want, rtol=1e-4)  # up to the move of theta meanwhile


@pytest.mark.slow
def test_unbiased_settles_where_one_model_does_and_the_mean_leans_to_who_carries_most():
    people = pf.Problem(pf.losses.squared, pf.populations.Gaussian([[0.0] * 4, [1.0] * 4, [6.0] * 4], 0.5, 0.0))
    ends = {
        weigh: run(Rolling([0.25, 0.5, 1.0], weigh=weigh), 3000, 0.01, np.zeros(4), people, dtype=None).final[0]
        for weigh in ("mean", "unbiased")
    }
    np.testing.assert_allclose(ends["unbiased"], 14 / 3, atol=0.2)  # it wavers with the windows, by some steps
    assert np.all(ends["mean"] > 8)


@pytest.mark.slow
def test_local_steps_noise_and_domains_do_not_leave_the_mask():
    people = problem(1.0, domain=pf.Box(0.5, 3.0))
    history = run(Widths(MASKS), 3, people=people, local_steps=3, channel=pf.channels.ClippedNoise(1.0, 1.0))
    np.testing.assert_array_equal(history.models[0][~MASKS], 0)
    only = Widths(np.array([[1, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1]], bool))
    alone = run(only, 1, rate=0.0, channel=pf.channels.ClippedNoise(1.0, 1.0), repeats=400)
    spread = np.std(np.asarray(alone.theta)[:, 1], axis=0)
    assert spread[3] < 0.8 * spread[0]  # the noise of clients that do not carry an entry does not reach it


def test_a_network_of_which_clients_carry_a_width():
    theta, scores = pf.networks.mlp(2, 2, width=4)
    _, narrow = pf.networks.mlp(2, 2, width=2)
    leaves, structure = jax.tree.flatten(theta)
    sharing = Rolling([0.5, 1.0], axes=[1, 0, 0, ()])  # columns of the first layer are rows of the second
    for round in (0, 3):
        mine = sharing.of(theta, jnp.asarray(0), jnp.asarray(round)).local(theta, None, None)
        units = (round + np.arange(2)) % 4
        cut = [leaves[0][:, units], leaves[1][units], leaves[2][units], leaves[3]]
        x = jnp.asarray([0.3, -1.2])
        np.testing.assert_allclose(scores(mine, x), narrow(jax.tree.unflatten(structure, cut), x), rtol=1e-6)
    sharing.check(theta)
    with pytest.raises(ValueError, match=r"weight\[0, 2\] of theta is trained by no client.*4 of 8 entries"):
        Rolling(0.5, axes=[1, 0, 0, ()], step=0).check(theta)


@pytest.mark.slow
def test_histories_keep_the_counts(tmp_path):
    history = run(Rolling([0.25, 0.5, 0.5]), 3, repeats=2)
    back = pf.History.load(history.save(tmp_path / "history.nc"))
    np.testing.assert_array_equal(back.trained, history.trained)
    assert (
        history.to_xarray()["trained"].dims == ("repeat", "trained_axis0")
        and run(pf.sharing.OneModel(), 1).trained is None
    )


@pytest.mark.parametrize(
    ("message", "make"),
    [
        (
            r"Widths: entry theta\[3\] of theta is trained by no client",
            lambda: run(Widths(MASKS & [1, 1, 1, 0] > 0), 1),
        ),
        (r"Rolling: entry theta\[2\] of theta is trained by no", lambda: run(Rolling([0.25, 0.5, 0.5], step=0), 1)),
        (r"Rolling: entry theta\[1\] of theta .*2 of 4", lambda: run(Rolling(0.25, step=2), 1)),
        ("masks has 2 rows for 3 clients", lambda: run(Widths(MASKS[:2]), 1)),
        ("kind has 2 rows for 3 clients", lambda: run(Widths(MASKS, [0, 1]), 1)),
        (r"kind must lie in 0..2", lambda: Widths(MASKS, [0, 1, 3])),
        (r"shaped like theta, \[4\]; got \[3\]", lambda: run(Widths(MASKS[:, :3]), 1)),
        ("masks must contain True and False", lambda: Widths(MASKS.astype(float))),
        ("the same number of rows in each leaf", lambda: Widths({"a": MASKS, "b": MASKS[:1]})),
        ("fraction must be above 0", lambda: Rolling(0.0)),
        (r"fraction must lie in \[0, 1\]", lambda: Rolling([0.5, 1.5])),
        (r"fraction has shape \(2,\) for 3 clients", lambda: run(Rolling([0.5, 1.0]), 1)),
        ("axes must list the axis", lambda: Rolling(0.5, axes=["a"])),
        ("axes has 2 entries for the 1 leaves", lambda: run(Rolling(0.5, axes=[0, 0]), 1)),
        (r"axis 1 of a leaf with shape \(4,\)", lambda: run(Rolling(0.5, axes=[1]), 1)),
        ('weigh must be "mean" or "unbiased"', lambda: Widths(MASKS, weigh="fair")),
        ("only for windows of one axis", lambda: Rolling(0.5, [(0, 1)], weigh="unbiased").check(np.ones((4, 4)))),
        ("step must be a whole number", lambda: Rolling(0.5, step=-1)),
        (
            "Rolling with Median: clients train different",
            lambda: run(Rolling(0.5), 1, aggregator=pf.aggregators.Median()),
        ),
    ],
)
def test_what_cannot_be_is_refused(message, make):
    with pytest.raises(ValueError, match=message):
        make()
