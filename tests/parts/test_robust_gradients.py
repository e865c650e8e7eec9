"""Gradients that leave outliers out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimator_calls import PRICES, direct, short_run
from hypothesis import given, settings
from hypothesis import strategies as st

import performative as pf
from performative._base.run_once import quickly_compiled
from performative._engine.prepare import on_device
from performative.estimators import AdaptiveSize, Filtered, Minibatch, Performative
from performative.estimators.filtered import masked_median, top_direction

PART_EXAMPLES = {
    "pf.estimators.Filtered": (
        "inner=pf.estimators.Performative(window=7)",
        "inner=pf.estimators.Minibatch()",
    ),
}

ROWS, WIDTH = 512, 5  # one compilation serves batches of every size up to this
REPAIRED, PRINTED = (on_device(Filtered(Minibatch(), rule=rule), jnp.float32) for rule in ("repaired", "printed"))
KEEP = quickly_compiled(lambda part, gradients, start: part.keep(gradients, start))


def keep(part, gradients):
    """Which of the gradients stay. Padded with rows that do not count, and with coordinates in which nobody differs."""
    n, d = gradients.shape
    padded = np.zeros((ROWS, WIDTH), np.float32)
    padded[:n, :d] = gradients
    kept = np.asarray(KEEP(part, jnp.asarray(padded), jnp.arange(ROWS) < n))
    assert not np.any(kept[n:])
    return kept[:n]


def contaminated(seed, n, d, fraction, away):
    """Gradients around 5, of which floor(fraction n) lie around `away`; and which those are."""
    rng = np.random.default_rng(seed)
    stray = np.zeros(n, bool)
    stray[: int(fraction * n)] = True
    return rng.standard_normal((n, d)) + np.where(stray[:, None], away, 5.0), rng.permutation(n), stray


# What stays.


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(2, 64),
    d=st.sampled_from([1, 3]),
    fraction=st.floats(0.0, 0.49),
    away=st.sampled_from([-1e6, -5.0, 5.5, 8.0, 20.0, 1e6]),
)
def test_never_fewer_than_half(seed, n, d, fraction, away):
    gradients, order, _ = contaminated(seed, n, d, fraction, away)
    assert 2 * keep(REPAIRED, gradients[order]).sum() >= n


@pytest.mark.parametrize("n", [2, 3, 4, 5, 50])
def test_odd_batches_keep_half(n):
    rng = np.random.default_rng(n)
    halves = np.where(np.arange(n) % 2 == 0, -10.0, 10.0)[:, None] + 1e-3 * rng.standard_normal((n, 1))
    equal = np.full((n, 1), 7.0)
    one_far = rng.standard_normal((n, 1))
    one_far[0] = 1e6
    heavy = rng.standard_cauchy((n, 1))
    for gradients in (halves, one_far, heavy):
        assert 2 * keep(REPAIRED, gradients).sum() >= n
    # No score is above 0: there is nothing to leave out.
    assert keep(REPAIRED, equal).all() and keep(PRINTED, equal).all()
    if n > 2:
        assert not keep(REPAIRED, one_far)[0]


@pytest.mark.parametrize("seed", range(6))
def test_at_forty_percent_the_printed_rule_keeps_nothing(seed):
    gradients, order, stray = contaminated(seed, 500, 1, 0.4, 20.0)
    assert keep(PRINTED, gradients[order]).sum() == 0
    kept = keep(REPAIRED, gradients[order])
    np.testing.assert_array_equal(kept, ~stray[order])


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_clean_gradients_stay_whole(d):
    for seed in range(6):
        gradients = np.random.default_rng(seed).normal(3.0, 1.0, (500, d))
        assert keep(REPAIRED, gradients).mean() >= 0.999
        assert 0.5 < keep(PRINTED, gradients).mean() < 0.999


@pytest.mark.parametrize("d", [1, 3, 5])
def test_where_the_mean_gradient_is_zero_the_printed_rule_goes_on(d):
    far, near = [], []
    for seed in range(6):
        gradients = np.random.default_rng(seed).standard_normal((500, d))
        gradients = gradients - gradients.mean(axis=0)
        assert keep(REPAIRED, gradients).mean() >= 0.999
        near.append(keep(PRINTED, gradients).mean())
        far.append(keep(PRINTED, gradients + 10.0).mean())
    assert np.mean(near) < np.mean(far) - 0.05 and np.mean(near) < 0.92


def test_outliers_along_many_coordinates_are_found():
    """The widest single coordinate lies in a block of its own, and the outliers in the other one."""
    rng = np.random.default_rng(0)
    n, d = 400, WIDTH
    gradients = np.zeros((n, d))
    gradients[: n // 2, 0] = np.where(rng.uniform(size=n // 2) < 0.5, 1.0, -1.0)
    gradients[n // 2 :, 1:] = 0.01 * rng.standard_normal((n // 2, d - 1))
    stray = np.arange(n) >= n - 40
    gradients[stray, 1:] = 2.0
    moments = gradients.T @ gradients
    assert np.all(moments[0, 1:] == 0) and np.argmax(np.diagonal(moments)) == 0
    np.testing.assert_array_equal(keep(REPAIRED, gradients), ~stray)


# By group.


def labeled(y):
    """A table of people alike but for their label, which at theta = 0 turns the gradient round: -x/2 or x/2."""
    x = 8.0 + 0.1 * np.random.default_rng(0).standard_normal((1, len(y), 2))
    return pf.Problem(pf.losses.logistic(0.0), pf.populations.Strategic(x, y[None], 0.1))


class Noted(pf.estimators.AbstractEstimator):
    """Tells which rows it was handed."""

    def estimate(self, noise, theta, batch, local, memory):
        return pf.types.Estimate(theta, memory, {}, {"mask": batch.mask})


def test_a_minority_is_not_taken_for_outliers():
    problem, theta = labeled((np.arange(200) < 10).astype(int)), np.zeros(2)
    with jax.enable_x64(True):
        for seed in range(4):
            out, batch = direct(Filtered(Noted()), problem, theta, 500, seed)
            kept, minority = np.asarray(out.facts["mask"]), np.asarray(batch.group) == 1
            assert 10 <= minority.sum() <= 45  # 5% of them
            assert 2 * kept[minority].sum() >= minority.sum()
            assert kept[~minority].mean() > 0.99
            # Compared with the majority all of them would go: the test can tell.
            x, y = (np.asarray(v) for v in batch.z)
            assert not np.any(keep(REPAIRED, (0.5 - y[:, None]) * x)[minority])


@pytest.mark.slow
def test_classes_are_told_apart():
    population = pf.populations.Classes([[8.0, 8.0], [8.0, 8.0]], 0.0, 1.0, [0.95, 0.05])
    with jax.enable_x64(True):
        problem = pf.Problem(pf.losses.logistic(0.0), population)
        out, batch = direct(Filtered(Noted()), problem, np.zeros(2), 500)
    minority = np.asarray(batch.group) == 1
    assert 2 * np.asarray(out.facts["mask"])[minority].sum() >= minority.sum() >= 10


# In a batch, in a run.

STRAY = pf.Problem(
    pf.losses.negative_revenue, pf.populations.Contaminated(PRICES, 0.4, pf.populations.Outliers(20.0, 1.0))
)


@pytest.mark.parametrize("rule", ["repaired", "printed"])
def test_masked_rows_never_count(rule):
    estimator, mask = Filtered(Performative(3), rule=rule), jnp.arange(120) < 80
    with jax.enable_x64(True):
        for seed in range(3):
            out, _ = direct(estimator, STRAY, 1.0, mask, seed)
            spoilt, _ = direct(estimator, STRAY, 1.0, mask, seed, spoil=True)
            assert eqx.tree_equal(out, spoilt) and np.isfinite(out.direction)
            assert out.metrics["samples"] == 80 >= out.metrics["kept"] >= (40 if rule == "repaired" else 0)


@pytest.mark.parametrize("inner", [Minibatch(), Performative(3)], ids=["Minibatch", "Performative"])
def test_the_printed_rule_gives_no_direction(inner):
    """45% of outliers: nothing is kept, and there is nowhere to go, whatever is inside."""
    bad = pf.populations.Contaminated(PRICES, 0.45, pf.populations.Outliers(20.0, 1.0))
    problem = pf.Problem(pf.losses.negative_revenue, bad)
    with jax.enable_x64(True):
        memory = None
        for step in range(5):
            theta = 1.0 + 0.1 * step
            out, _ = direct(Filtered(inner, rule="printed"), problem, theta, 1000, step, memory)
            assert out.metrics["kept"] == 0 and out.direction == 0
            memory = out.memory


@pytest.mark.slow
def test_a_run_records_what_was_kept():
    n, rounds = 400, 3
    history = short_run(Filtered(Minibatch()), STRAY.population, rounds, n)
    samples, kept = history["samples"][0], history["kept"][0]
    np.testing.assert_array_equal(samples, n * 3 * np.arange(rounds + 1))
    share = np.diff(kept) / np.diff(samples)
    # 1200 samples a round, each clean with chance 0.6; none of the clean is lost, so the share is binomial.
    assert np.all(np.abs(share - 0.6) < 5 * np.sqrt(0.24 / (3 * n)))
    assert np.all(kept <= samples)
    clean = short_run(Filtered(Minibatch()), PRICES, rounds, n)
    assert np.all(clean["kept"] <= clean["samples"]) and clean["kept"][0, -1] >= 0.999 * clean["samples"][0, -1]


# Its tools.

MEDIAN, TOP = quickly_compiled(masked_median), quickly_compiled(top_direction)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**20), n=st.integers(1, 64), scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_the_median_is_the_lower_one(seed, n, scale):
    rng = np.random.default_rng(seed)
    rows = scale * rng.standard_normal((64, 2))
    mask = rng.permutation(64) < n
    rows[~mask] = np.nan
    found = np.asarray(MEDIAN(jnp.asarray(rows, jnp.float32), jnp.asarray(mask)))
    exact = np.sort(rows[mask], axis=0)[(n + 1) // 2 - 1]
    reach = np.ptp(rows[mask], axis=0)
    assert np.all(np.abs(found - exact) <= 2.0**-11 * reach + 1e-6 * np.abs(exact))


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_the_top_direction_is_that_of_the_eigenvalues(d):
    rng = np.random.default_rng(d)
    for _ in range(5):
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        values = np.sort(rng.uniform(0.0, 0.6, d))
        values[-1] = 1.0
        moments = (basis * values) @ basis.T
        found = np.asarray(TOP(jnp.asarray(moments, jnp.float32)), float)
        exact = np.linalg.eigh(moments)[1][:, -1]
        assert abs(np.linalg.norm(found) - 1) < 1e-5
        assert abs(found @ exact) > 1 - 1e-5
        if d == 1:
            continue
        # Two that are close: somewhere between their vectors, so along nearly as much.
        values[-2:] = 0.999, 1.0
        moments = (basis * values) @ basis.T
        found = np.asarray(TOP(jnp.asarray(moments, jnp.float32)), float)
        assert found @ moments @ found > 0.998
    assert np.all(np.asarray(TOP(jnp.zeros((d, d)))) == 0)


def test_coordinates_that_do_not_mix_are_no_trap():
    moments = np.zeros((4, 4))
    moments[0, 0], moments[1:, 1:] = 1.1, 1.0  # the widest coordinate is alone; the top eigenvalue, 3, is elsewhere
    found = np.asarray(TOP(jnp.asarray(moments, jnp.float32)), float)
    np.testing.assert_allclose(np.abs(found), [0, 3**-0.5, 3**-0.5, 3**-0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Filtered(Minibatch(), rule="paper"), r'rule must be "repaired" or "printed"; got \'paper\''),
        (lambda: Filtered(Minibatch(), sparse=0.0), "sparse must lie between 0 and 1; got 0"),
        (lambda: Filtered(Minibatch(), change=1.0), "change must lie between 0 and 1; got 1"),
        (lambda: Filtered(Minibatch(), sparse=np.nan), "sparse must be finite"),
        (lambda: Filtered(Minibatch(), margin=-1.0), "margin must not be negative"),
        (lambda: Filtered(Minibatch(), segments=0), "segments must be a whole number >= 1; got 0"),
        (lambda: Filtered(Minibatch(), passes=2.5), "passes must be a whole number >= 1; got 2.5"),
        (lambda: Filtered(AdaptiveSize(Performative(3), 1.0)), r"AdaptiveSize goes outside: AdaptiveSize\(Filtered\("),
    ],
)
def test_slips_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
