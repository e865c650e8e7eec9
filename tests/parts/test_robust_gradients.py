"""Gradients that leave outliers out, and batches no larger than they need to be."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import performative as pf
from performative.engine.setup import on_device
from performative.estimators import AdaptiveSize, Filtered, Minibatch, Performative
from performative.estimators.adaptive_size import sample_size
from performative.estimators.filtered import masked_median, top_direction
from performative.populations.base import collect
from performative.testing.uses import slice_client
from performative.types import Broadcast, Local

ROWS = 64  # one compilation serves batches of every size up to this
REPAIRED, PRINTED = (on_device(Filtered(Minibatch(), rule=rule), jnp.float32) for rule in ("repaired", "printed"))
KEEP = eqx.filter_jit(lambda part, gradients, start: part.keep(gradients, start))


def keep(part, gradients, rows=None):
    """Which of the gradients stay; padded to `rows` where given."""
    n, d = gradients.shape
    padded = np.full((rows or n, d), np.nan)
    padded[:n] = gradients
    start = np.arange(len(padded)) < n
    inside = jnp.where(start[:, None], jnp.asarray(padded, jnp.float32), 0)
    kept = np.asarray(KEEP(part, inside, jnp.asarray(start)))
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
    n=st.integers(2, ROWS),
    d=st.sampled_from([1, 3]),
    fraction=st.floats(0.0, 0.49),
    away=st.sampled_from([-1e6, -5.0, 5.5, 8.0, 20.0, 1e6]),
)
def test_never_fewer_than_half(seed, n, d, fraction, away):
    gradients, order, _ = contaminated(seed, n, d, fraction, away)
    assert 2 * keep(REPAIRED, gradients[order], ROWS).sum() >= n


@pytest.mark.parametrize("n", [2, 3, 4, 5, 50])
def test_odd_batches_keep_half(n):
    rng = np.random.default_rng(n)
    halves = np.where(np.arange(n) % 2 == 0, -10.0, 10.0)[:, None] + 1e-3 * rng.standard_normal((n, 1))
    equal = np.full((n, 1), 7.0)
    one_far = rng.standard_normal((n, 1))
    one_far[0] = 1e6
    heavy = rng.standard_cauchy((n, 1))
    for gradients in (halves, one_far, heavy):
        assert 2 * keep(REPAIRED, gradients, ROWS).sum() >= n
    # No score is above 0: there is nothing to leave out.
    assert keep(REPAIRED, equal, ROWS).all() and keep(PRINTED, equal, ROWS).all()
    if n > 2:
        assert not keep(REPAIRED, one_far, ROWS)[0]


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
    n, d = 400, 40
    gradients = np.zeros((n, d))
    gradients[: n // 2, 0] = np.where(rng.uniform(size=n // 2) < 0.5, 1.0, -1.0)
    gradients[n // 2 :, 1:] = 0.01 * rng.standard_normal((n // 2, d - 1))
    stray = np.arange(n) >= n - 40
    gradients[stray, 1:] = 2.0
    moments = gradients.T @ gradients
    assert np.all(moments[0, 1:] == 0) and np.argmax(np.diagonal(moments)) == 0
    np.testing.assert_array_equal(keep(REPAIRED, gradients), ~stray)


# By group.


def labelled(share, theta):
    """Two classes whose gradients differ far more than people of one class do."""
    population = pf.populations.Classes([[8.0, 8.0], [-8.0, -8.0]], 0.0, 1.0, share)
    return pf.Problem(pf.losses.logistic(0.0), population), np.asarray(theta)


def direct(estimator, problem, theta, samples, seed=0, mask=None, memory=None, spoil=False, **local):
    """One call of the estimator on a batch of client 0, and the batch, in float64."""
    on, estimator = on_device(problem, jnp.float64), on_device(estimator, jnp.float64)
    mine, theta, zero = slice_client(on.population, 0), jnp.asarray(theta), jnp.zeros((), jnp.int32)
    world = mine.init(theta, on.loss)
    batch = collect(mine, mine.draw(jax.random.key(seed), (samples,), theta), mask, world, theta)
    if spoil:
        gone = ~np.asarray(mask)
        batch = dataclasses.replace(
            batch, z=jax.tree.map(lambda v: jnp.where(gone.reshape(-1, *(1,) * (v.ndim - 1)), jnp.nan, v), batch.z)
        )
    memory = estimator.init(theta, mine, on.loss) if memory is None else memory
    here = dict(
        loss=on.loss, population=mine, world=world, deployed=theta, clock=zero, rate=jnp.asarray(0.1),
        broadcast=Broadcast(theta, theta, {}, zero, 1),
    )  # fmt: skip
    return estimator.estimate(None, theta, batch, Local(**(here | local)), memory), batch


class Noted(pf.estimators.AbstractEstimator):
    """Tells which rows it was handed."""

    def estimate(self, noise, theta, batch, local, memory):
        return pf.types.Estimate(theta, memory, {}, {"mask": batch.mask})


def test_a_minority_is_not_taken_for_outliers():
    problem, theta = labelled([0.95, 0.05], [0.5, 0.5])
    with jax.enable_x64(True):
        for seed in range(4):
            out, batch = direct(Filtered(Noted()), problem, theta, 600, seed)
            kept, minority = np.asarray(out.facts["mask"]), np.asarray(batch.group) == 1
            assert 15 <= minority.sum() <= 50
            assert 2 * kept[minority].sum() >= minority.sum()
            assert kept[~minority].mean() > 0.99
            # Held against the majority all of them would go: the test can tell.
            blind = dataclasses.replace(batch, group=None)
            gradients = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))(jnp.asarray(theta), blind.z)
            assert not np.any(keep(REPAIRED, np.asarray(gradients))[minority])


def test_groups_of_a_table_are_told_apart():
    rng = np.random.default_rng(0)
    y = (np.arange(200) < 10).astype(int)[None]
    x = (rng.standard_normal((1, 200, 2)) + np.where(y == 1, -8.0, 8.0)[..., None]).astype(float)
    problem = pf.Problem(pf.losses.logistic(0.0), pf.populations.Strategic(x, y, 0.1))
    with jax.enable_x64(True):
        out, batch = direct(Filtered(Noted()), problem, [0.5, 0.5], 600)
    minority = np.asarray(batch.group) == 1
    assert 2 * np.asarray(out.facts["mask"])[minority].sum() >= minority.sum() >= 15


# In a batch, in a run.

PRICES = pf.populations.Pricing(np.asarray([6.0, 7.0, 6.5]), np.asarray([1.0, 2.0, 1.5]), 1.0)
STRAY = pf.Problem(
    pf.losses.negative_revenue, pf.populations.Contaminated(PRICES, 0.4, pf.populations.Outliers(20.0, 1.0))
)


@pytest.mark.parametrize("rule", ["repaired", "printed"])
def test_masked_rows_never_count(rule):
    with jax.enable_x64(True):
        mask = np.arange(120) < 80
        estimator = Filtered(Performative(3), rule=rule)
        out, _ = direct(estimator, STRAY, 1.0, 120, mask=jnp.asarray(mask))
        spoilt, _ = direct(estimator, STRAY, 1.0, 120, mask=jnp.asarray(mask), spoil=True)
        assert eqx.tree_equal(out, spoilt)
        told, _ = direct(Filtered(Noted(), rule=rule), STRAY, 1.0, 120, mask=jnp.asarray(mask))
        assert not np.any(np.asarray(told.facts["mask"])[80:])
        assert out.metrics["samples"] == 80 and out.metrics["kept"] == np.sum(told.facts["mask"])


def filtered_run(estimator, population, rounds=3, n=400, **parts):
    problem = pf.Problem(pf.losses.negative_revenue, population)
    algorithm = pf.p_fedavg(0.05, batch=pf.Fixed(n), estimator=estimator, **parts)
    return pf.run(problem, algorithm, rounds, theta=1.0, risk=False)


def test_a_run_records_what_was_kept():
    n, rounds = 400, 3
    history = filtered_run(Filtered(Minibatch()), STRAY.population, rounds, n)
    samples, kept = history["samples"][0], history["kept"][0]
    np.testing.assert_array_equal(samples, n * 3 * np.arange(rounds + 1))
    share = np.diff(kept) / np.diff(samples)
    # 1200 samples a round, each clean with chance 0.6; none of the clean is lost, so the share is binomial.
    assert np.all(np.abs(share - 0.6) < 5 * np.sqrt(0.24 / (3 * n)))
    assert np.all(kept <= samples)
    clean = filtered_run(Filtered(Minibatch()), PRICES, rounds, n)
    assert np.all(clean["kept"] <= clean["samples"]) and clean["kept"][0, -1] >= 0.999 * clean["samples"][0, -1]


@pytest.mark.parametrize("inner", [Minibatch(), Performative(3)], ids=["Minibatch", "Performative"])
def test_the_printed_rule_stands_still_at_forty_percent(inner):
    """Every batch is 45 % outliers: nothing is kept, and the model does not move."""
    bad = pf.populations.Contaminated(PRICES, 0.45, pf.populations.Outliers(20.0, 1.0))
    history = filtered_run(Filtered(inner, rule="printed"), bad, 2, 2000)
    assert history["kept"][0, -1] == 0
    np.testing.assert_array_equal(history.theta, 1.0)
    assert filtered_run(Filtered(inner), bad, 2, 2000)["kept"][0, -1] > 0


# Its tools.


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**20), n=st.integers(1, ROWS), scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_the_median_is_the_lower_one(seed, n, scale):
    rng = np.random.default_rng(seed)
    rows = scale * rng.standard_normal((ROWS, 2))
    mask = rng.permutation(ROWS) < n
    rows[~mask] = np.nan
    found = np.asarray(MEDIAN(jnp.asarray(rows, jnp.float32), jnp.asarray(mask)))
    exact = np.sort(rows[mask], axis=0)[(n + 1) // 2 - 1]
    reach = np.ptp(rows[mask], axis=0)
    assert np.all(np.abs(found - exact) <= 2.0**-11 * reach + 1e-6 * np.abs(exact))


MEDIAN = jax.jit(masked_median)


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_the_top_direction_is_that_of_the_eigenvalues(d):
    rng = np.random.default_rng(d)
    for _ in range(5):
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        values = np.sort(rng.uniform(0.0, 0.6, d))
        values[-1] = 1.0
        moments = (basis * values) @ basis.T
        found = np.asarray(top_direction(jnp.asarray(moments, jnp.float32)), float)
        exact = np.linalg.eigh(moments)[1][:, -1]
        assert abs(np.linalg.norm(found) - 1) < 1e-5
        assert abs(found @ exact) > 1 - 1e-5
        # Two that are close: somewhere between their vectors, so along nearly as much.
        values[-2:] = 0.999, 1.0
        moments = (basis * values) @ basis.T
        found = np.asarray(top_direction(jnp.asarray(moments, jnp.float32)), float)
        assert found @ moments @ found > 0.998
    assert np.all(np.asarray(top_direction(jnp.zeros((d, d)))) == 0)


def test_coordinates_that_do_not_mix_are_no_trap():
    moments = np.zeros((4, 4))
    moments[0, 0], moments[1:, 1:] = 1.1, 1.0  # the widest coordinate is alone; the top eigenvalue, 3, is elsewhere
    found = np.asarray(top_direction(jnp.asarray(moments, jnp.float32)), float)
    np.testing.assert_allclose(np.abs(found), [0, 3**-0.5, 3**-0.5, 3**-0.5], atol=1e-6)


# How many samples.


def exact_size(tolerance, confidence, curvature, H, rate, facts):
    """The corrected form of Section 5.3, in plain numbers."""
    l, s2, F, G, reach = (facts[name] for name in ("loss", "spread", "jacobian", "gradient", "reach"))
    above = 2 * l**2 * s2 * np.log(2 / confidence) * (2 * H / reach**2 + F**2)
    below = 2 * tolerance - curvature**2 * rate**4 * G**4 * H**6 * l**2 / reach**2
    return above / below if below > 0 else np.inf


def test_the_size_is_the_corrected_formula():
    rng = np.random.default_rng(0)
    met = {True: 0, False: 0}
    with jax.enable_x64(True):
        for _ in range(200):
            names = ("loss", "spread", "jacobian", "gradient", "reach")
            facts = dict(zip(names, np.exp(rng.uniform(-2, 2, 5)), strict=True))
            tolerance, curvature, rate = np.exp(rng.uniform(-3, 3, 3))
            confidence, H = rng.uniform(0.01, 0.5), int(rng.integers(1, 6))
            found = sample_size(
                *map(jnp.asarray, (tolerance, confidence, curvature)), H, jnp.asarray(rate),
                {name: jnp.asarray(value) for name, value in facts.items()},
            )  # fmt: skip
            want = exact_size(tolerance, confidence, curvature, H, rate, facts)
            met[bool(np.isfinite(want))] += 1
            np.testing.assert_allclose(found, want, rtol=1e-12)
    assert min(met.values()) > 20  # both kinds were met


def filled(estimator, problem, theta):
    """The memory of an estimator whose window is full, of models around theta."""
    with jax.enable_x64(True):
        memory = None
        for step in range(5):
            out, _ = direct(estimator, problem, theta + 0.1 * np.cos(7.0 * step), 200, step, memory=memory)
            memory = out.memory
        return memory


CLEAN = pf.Problem(pf.losses.negative_revenue, PRICES)


def test_the_next_size_is_clamped():
    with jax.enable_x64(True):
        inside = filled(AdaptiveSize(Performative(3), 1.0), CLEAN, 1.5)[1]
        sizes, short = {}, {}
        for tolerance in (1e-9, 0.05, 1.0, 1e9):
            estimator = AdaptiveSize(Performative(3), tolerance, least=7)
            memory = jnp.asarray(200, jnp.int32), inside
            out, _ = direct(estimator, CLEAN, 1.6, 200, 9, memory=memory)
            facts = {name: float(value) for name, value in out.facts.items()}
            assert facts["ready"]
            want = exact_size(tolerance, 0.05, 0.0, 3, 0.1, facts)
            sizes[tolerance], short[tolerance] = int(out.memory[0]), int(out.metrics["infeasible"])
            assert sizes[tolerance] == np.ceil(np.clip(want, 7, 200))
        assert sizes[1e-9] == 200 and sizes[1e9] == 7
        assert len({*sizes.values()}) >= 3  # one of them lies between the bounds
        assert not any(short.values())  # a line has no curvature: enough samples would always do
        # Curvature eats all of the tolerance: no size is enough, all are used, and it is counted.
        bent = AdaptiveSize(Performative(3), 1.0, curvature=1e6)
        out, _ = direct(bent, CLEAN, 1.6, 200, 9, memory=(jnp.asarray(30, jnp.int32), inside))
        assert out.memory[0] == 200 and out.metrics["infeasible"] == 1 and out.metrics["samples"] == 30
        # A batch smaller than `least` is used whole.
        few, _ = direct(AdaptiveSize(Performative(3), 1e9), CLEAN, 1.6, 6, 9, memory=memory)
        assert few.memory[0] == 6 and few.metrics["samples"] == 6


@pytest.mark.parametrize("inner", [Performative(3), Filtered(Performative(3))], ids=["plain", "filtered"])
def test_rows_past_the_size_change_nothing(inner):
    estimator = AdaptiveSize(inner, 1.0)
    with jax.enable_x64(True):
        memory = jnp.asarray(30, jnp.int32), filled(estimator, CLEAN, 1.5)[1]
        past = jnp.arange(200) < 30
        whole, _ = direct(estimator, CLEAN, 1.6, 200, 9, memory=memory)
        spoilt, _ = direct(estimator, CLEAN, 1.6, 200, 9, memory=memory, mask=past, spoil=True)
        assert eqx.tree_equal(whole, spoilt) and whole.metrics["samples"] == 30
        # The batch's own mask is kept as well.
        odd = (jnp.arange(200) % 2 == 1) | (jnp.arange(200) >= 30)
        half, _ = direct(estimator, CLEAN, 1.6, 200, 9, memory=memory, mask=odd)
        assert half.metrics["samples"] == 15


def test_a_run_counts_what_it_used():
    rounds, n, window = 12, 300, 3

    def run(tolerance, curvature=0.0):
        estimator = AdaptiveSize(Performative(window), tolerance, curvature=curvature, least=12)
        return filtered_run(estimator, PRICES, rounds, n)

    loose, tight, hopeless = run(1e9), run(1e-9), run(1.0, curvature=1e6)
    everything = np.full(rounds, 3 * n)
    # The window is full after `window` steps and in use one later; the size is for the step after that.
    warm = window + 2
    np.testing.assert_array_equal(np.diff(loose["samples"][0]), [*everything[:warm], *([3 * 12] * (rounds - warm))])
    for history in (tight, hopeless):
        np.testing.assert_array_equal(np.diff(history["samples"][0]), everything)
    assert loose["infeasible"][0, -1] == tight["infeasible"][0, -1] == 0
    np.testing.assert_array_equal(np.diff(hopeless["infeasible"][0]), [0] * (warm - 1) + [3] * (rounds - warm + 1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Filtered("mean"), r"Filtered: inner must be an estimator; got 'mean'"),
        (lambda: Filtered(Minibatch(), rule="paper"), r'rule must be "repaired" or "printed"; got \'paper\''),
        (lambda: Filtered(Minibatch(), sparse=0.0), "sparse must lie between 0 and 1; got 0"),
        (lambda: Filtered(Minibatch(), change=1.0), "change must lie between 0 and 1; got 1"),
        (lambda: Filtered(Minibatch(), sparse=np.nan), "sparse must be finite"),
        (lambda: Filtered(Minibatch(), margin=-1.0), "margin must not be negative"),
        (lambda: Filtered(Minibatch(), segments=0), "segments must be a whole number >= 1; got 0"),
        (lambda: Filtered(Minibatch(), passes=2.5), "passes must be a whole number >= 1; got 2.5"),
        (lambda: AdaptiveSize(Minibatch(), 1.0), "inner must hold a Performative with a window"),
        (lambda: AdaptiveSize(Performative(None, term="pathwise"), 1.0), "inner must hold a Performative with a win"),
        (lambda: AdaptiveSize(Filtered(Minibatch()), 1.0), "inner must hold a Performative with a window"),
        (lambda: AdaptiveSize("size", 1.0), "AdaptiveSize: inner must be an estimator; got 'size'"),
        (lambda: AdaptiveSize(Performative(3), 0.0), "tolerance must be positive; got 0"),
        (lambda: AdaptiveSize(Performative(3), np.inf), "tolerance must be finite"),
        (lambda: AdaptiveSize(Performative(3), 1.0, confidence=1.0), "confidence must lie between 0 and 1; got 1"),
        (lambda: AdaptiveSize(Performative(3), 1.0, least=0), "least must be a whole number >= 1; got 0"),
        (lambda: pf.profl(0.1, window=3, tolerance=-1.0), "tolerance must be positive"),
    ],
)
def test_slips_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
