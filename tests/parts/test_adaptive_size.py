"""Batches no larger than they need to be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimator_calls import PRICES, RATE, direct, short_run

import performative as pf
from performative.estimators import AdaptiveSize, Filtered, Minibatch, Performative
from performative.estimators.adaptive_size import sample_size

PART_EXAMPLES = {
    "pf.estimators.AdaptiveSize": "inner=pf.estimators.Performative(window=7), tolerance=1.0, least=2",
}

CLEAN = pf.Problem(pf.losses.negative_revenue, PRICES)


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


def filled(estimator):
    """The memory of an estimator whose window is full."""
    memory = None
    for step in range(5):
        memory = direct(estimator, CLEAN, 1.5 + 0.1 * np.cos(7.0 * step), 200, step, memory)[0].memory
    return memory


@pytest.mark.slow
def test_the_next_size_is_clamped():
    with jax.enable_x64(True):
        inside = filled(AdaptiveSize(Performative(3), 1.0))[1]
        sizes, short = {}, {}
        memory = jnp.asarray(200, jnp.int32), inside
        for tolerance in (1e-9, 100.0, 200.0, 1e9):
            estimator = AdaptiveSize(Performative(3), tolerance, least=7)
            out, _ = direct(estimator, CLEAN, 1.6, 200, 9, memory)
            facts = {name: float(value) for name, value in out.facts.items()}
            assert facts["ready"]
            want = exact_size(tolerance, 0.05, 0.0, 3, RATE, facts)
            sizes[tolerance], short[tolerance] = int(out.memory[0]), int(out.metrics["infeasible"])
            assert sizes[tolerance] == np.ceil(np.clip(want, 7, 200))
        assert sizes[1e-9] == 200 and sizes[1e9] == 7
        assert 7 < sizes[200.0] < sizes[100.0] < 200
        assert not any(short.values())  # a line has no curvature: enough samples would always do
        # Curvature eats all of the tolerance: no size is enough, all are used, and it is counted.
        bent = AdaptiveSize(Performative(3), 1.0, curvature=1e6)
        out, _ = direct(bent, CLEAN, 1.6, 200, 9, (jnp.asarray(30, jnp.int32), inside))
        assert out.memory[0] == 200 and out.metrics["infeasible"] == 1 and out.metrics["samples"] == 30
        # A batch smaller than `least` is used whole.
        few, _ = direct(AdaptiveSize(Performative(3), 1e9), CLEAN, 1.6, 6, 9, memory)
        assert few.memory[0] == 6 and few.metrics["samples"] == 6


@pytest.mark.parametrize(
    "inner",
    [Performative(3), pytest.param(Filtered(Performative(3)), marks=pytest.mark.slow)],
    ids=["plain", "filtered"],
)
def test_rows_past_the_size_change_nothing(inner):
    estimator = AdaptiveSize(inner, 1.0)
    with jax.enable_x64(True):
        memory = jnp.asarray(30, jnp.int32), filled(estimator)[1]
        past = jnp.arange(200) < 30
        whole, _ = direct(estimator, CLEAN, 1.6, 200, 9, memory)
        spoilt, _ = direct(estimator, CLEAN, 1.6, past, 9, memory, spoil=True)
        assert eqx.tree_equal(whole, spoilt) and whole.metrics["samples"] == 30
        # The batch's own mask is kept as well.
        odd = (jnp.arange(200) % 2 == 1) | (jnp.arange(200) >= 30)
        half, _ = direct(estimator, CLEAN, 1.6, odd, 9, memory)
        assert half.metrics["samples"] == 15


@pytest.mark.slow
def test_a_run_counts_what_it_used():
    rounds, n, window = 12, 300, 3

    def run(tolerance, curvature=0.0):
        estimator = AdaptiveSize(Performative(window), tolerance, curvature=curvature, least=12)
        return short_run(estimator, PRICES, rounds, n)

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
        (lambda: AdaptiveSize(Minibatch(), 1.0), "inner must contain a Performative with a window"),
        (lambda: AdaptiveSize(Performative(None, term="pathwise"), 1.0), "inner must contain a Performative with a w"),
        (lambda: AdaptiveSize(Filtered(Minibatch()), 1.0), "inner must contain a Performative with a window"),
        (lambda: AdaptiveSize(Performative(3), 0.0), "tolerance must be above 0; got 0"),
        (lambda: AdaptiveSize(Performative(3), np.inf), "tolerance must be finite"),
        (lambda: AdaptiveSize(Performative(3), 1.0, confidence=1.0), "confidence must lie between 0 and 1; got 1"),
        (lambda: AdaptiveSize(Performative(3), 1.0, least=0), "least must be a whole number >= 1; got 0"),
        (lambda: pf.profl(0.1, window=3, tolerance=-1.0), "tolerance must be above 0"),
    ],
)
def test_slips_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
