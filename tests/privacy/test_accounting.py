"""The accountant against the errata, the library's own events, exact Gaussians and another accountant."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import privacy_loss_distribution as library

from performative.privacy import accounting, loss_distribution
from performative.privacy.accounting import (
    Everyone,
    PoissonSampling,
    Release,
    Spending,
    WithoutReplacement,
    calibrate_noise,
    epsilon,
    epsilon_bounds,
    epsilons,
    event,
    most_steps,
    spending,
)

DELTA = 1e-5


# --- the errata's rows


def test_poisson_row_of_the_errata():
    release = Release(math.sqrt(1e5 * math.log(1e5)) / 1e4, 10**5, PoissonSampling(1e-5))
    assert release.noise_multiplier == pytest.approx(0.107, abs=5e-4)
    assert epsilon(release, DELTA) == pytest.approx(259, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "needed", "rel"), [(PoissonSampling(1e-5), 0.536, 0.01), (WithoutReplacement(1, 10**5), 1.079, 0.02)]
)
def test_noise_for_a_tenth(sampling, needed, rel):
    assert calibrate_noise(0.1, DELTA, 10**5, sampling) == pytest.approx(needed, rel=rel)


def test_client_cohorts_are_not_poisson():
    assert epsilon(Release(1.0, 1000, PoissonSampling(0.01)), DELTA) == pytest.approx(1.83, rel=0.01)
    low, high = epsilon_bounds(Release(1.0, 1000, WithoutReplacement(100, 10**4)), DELTA)
    assert low == pytest.approx(13.4, rel=0.01)
    assert high == pytest.approx(14.8, rel=0.01)


@pytest.mark.parametrize(
    ("claimed", "delta", "steps", "rows", "low", "high"),
    [
        (0.1, 1e-5, 10**5, 10**5, 1241, 1242),
        (0.1, 1e-5, 10**6, 10**5, 198, 206),
        (1.0, 1e-5, 10**6, 10**3, 2.65, 3.27),
        (0.1, 1e-5, 10**5, 10**3, 0.194, 0.208),
    ],
)
def test_both_ends_of_the_uniform_rows(claimed, delta, steps, rows, low, high):
    multiplier = math.sqrt(steps * math.log(1 / delta)) / (rows * claimed)
    found = epsilon_bounds(Release(multiplier, steps, WithoutReplacement(1, rows)), delta)
    assert found == pytest.approx((low, high), rel=0.005)


# --- against the library's own route, and against other accountants


@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(1.0, 0.01, 1000), (0.6, 0.001, 300), (3.0, 0.3, 50)])
def test_poisson_equals_the_librarys_accountant(multiplier, rate, steps):
    """Its own grid has every multiple; ours leaves most of them out."""
    release = Release(multiplier, steps, PoissonSampling(rate))
    ours = spending(release, DELTA)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=3 * ours.grid)
    accountant.compose(event(multiplier, release.sampling), steps)
    assert ours.method == "pld"
    assert ours.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=0.005)


@pytest.mark.parametrize("most", [13, 20, 30])
def test_truncated_poisson_equals_the_librarys_event(most):
    sampling = PoissonSampling(0.1, rows=100, most=most)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=1e-3)
    accountant.compose(event(2.0, sampling), 100)
    assert epsilon(Release(2.0, 100, sampling), DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=0.005)


def test_truncation_costs_and_none_is_free():
    plain, cut, whole = (
        epsilon(Release(2.0, 100, PoissonSampling(0.1, *limits)), DELTA) for limits in ((), (100, 12), (100, 100))
    )
    assert cut > 1.1 * plain
    assert whole == plain


@pytest.mark.parametrize(("n", "rows", "multiplier", "steps"), [(1, 100, 1.0, 100), (20, 100, 4.0, 50)])
def test_without_replacement_lies_below_the_librarys_event(n, rows, multiplier, steps):
    """The library's event is valid but looser: it lets the two records lie four clips apart."""
    relation = NeighboringRelation.REPLACE_ONE
    event = library.from_truncated_subsampled_gaussian_mechanism(
        rows, 1.0, n, multiplier, value_discretization_interval=1e-3, neighboring_relation=relation
    )
    low, high = epsilon_bounds(Release(multiplier, steps, WithoutReplacement(n, rows)), DELTA)
    assert low < high <= event.self_compose(steps).get_epsilon_for_delta(DELTA)


@pytest.mark.parametrize(("n", "rows"), [(1, 4), (2, 5)])
def test_without_replacement_dominates_real_neighbors(n, rows):
    """One release on a line, integrated: delta of any two neighbors is at most the accountant's."""
    z, eps = 1.5, 0.8
    x = np.linspace(-20.0, 20.0, 20_001)
    rng = np.random.default_rng(0)
    corners = [np.array([1.0] + [-1.0] * (rows - 1)), np.array([1.0] + [0.0] * (rows - 1))]
    tables = corners + [rng.uniform(-1, 1, rows) for _ in range(6)]
    worst = 0.0
    for table in tables:
        for other in (-1.0, 0.0, 1.0):
            neighbor = np.concatenate([[other], table[1:]])
            p, q = density(x, table, n, z), density(x, neighbor, n, z)
            for a, b in ((p, q), (q, p)):
                worst = max(worst, float(np.sum(np.maximum(a - math.exp(eps) * b, 0.0)) * (x[1] - x[0])))
    # epsilon at that delta must not be below eps, and the corner case is the worst: it is met.
    assert epsilon(Release(z, 1, WithoutReplacement(n, rows)), worst) == pytest.approx(eps, rel=2e-3)
    assert epsilon(Release(z, 1, WithoutReplacement(n, rows)), worst) >= eps * (1 - 1e-4)


def density(x, table, n, z):
    """Of the noisy sum of n rows, drawn uniformly without replacement."""
    sums = [sum(rows) for rows in itertools.combinations(table, n)]
    return np.mean([np.exp(-((x - s) ** 2) / (2 * z**2)) / (z * math.sqrt(2 * math.pi)) for s in sums], axis=0)


@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(1.0, 0.01, 1000), (0.8, 0.005, 500)])
def test_another_accountant_agrees(multiplier, rate, steps):
    prv = pytest.importorskip("prv_accountant")
    law = prv.PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=multiplier)
    other = prv.PRVAccountant(law, max_self_compositions=steps, eps_error=0.03, delta_error=DELTA / 1000)
    low, _, high = other.compute_epsilon(delta=DELTA, num_self_compositions=steps)
    assert low <= epsilon(Release(multiplier, steps, PoissonSampling(rate)), DELTA) <= high


@pytest.mark.parametrize("steps", [1, 1000, 10**5])
def test_everyone_is_a_gaussian_at_half_the_multiplier(steps):
    found = spending(Release(50.0, steps, Everyone()), DELTA)
    assert found == Spending(found.epsilon, DELTA, "exact", None, "replace_one", "")
    accountant = dp_accounting.pld.PLDAccountant(
        NeighboringRelation.REPLACE_ONE, value_discretization_interval=found.epsilon / 1e4
    )
    accountant.compose(dp_event.GaussianDpEvent(50.0), steps)  # this one halves by itself
    assert found.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


def test_taking_all_is_no_sampling():
    all_of_them = epsilon(Release(5.0, 10, WithoutReplacement(100, 100)), DELTA)
    assert all_of_them == epsilon(Release(5.0, 10, Everyone()), DELTA)
    assert epsilon(Release(5.0, 10, PoissonSampling(1.0)), DELTA) == epsilon(Release(10.0, 10, Everyone()), DELTA)
    nearly = epsilon(Release(5.0, 10, PoissonSampling(1 - 1e-9)), DELTA)
    assert nearly == pytest.approx(epsilon(Release(5.0, 10, PoissonSampling(1.0)), DELTA), rel=1e-3)


# --- grid, tails and what happens where a distribution is out of reach


@pytest.mark.parametrize(
    "release",
    [
        Release(1.0, 1000, PoissonSampling(0.01)),
        Release(2.0, 10**4, WithoutReplacement(1, 1000)),
        pytest.param(Release(0.3, 100, PoissonSampling(0.05)), marks=pytest.mark.slow),
        pytest.param(Release(30.0, 10**5, PoissonSampling(0.01)), marks=pytest.mark.slow),
    ],
)
def test_a_third_of_the_grid_agrees(release):
    found = spending(release, DELTA)
    assert found.grid <= found.epsilon / 1e4
    finer = accounting._spending(
        release.noise_multiplier, release.steps, release.sampling, DELTA, loss_distribution.round_down(found.grid / 3)
    )
    assert finer.grid < found.grid / 2.9
    assert found.epsilon * (1 - 0.005) <= finer.epsilon <= found.epsilon * (1 + 1e-6)


def test_a_delta_that_the_fft_hides_goes_to_renyi():
    release = Release(1.0, 1000, PoissonSampling(0.01))
    found = spending(release, 1e-13)
    assert found.method == "rdp"
    assert "too small" in found.note
    assert found.epsilon > spending(release, 1e-10).epsilon
    assert spending(Release(1.0, 1000, WithoutReplacement(10, 1000)), 1e-13).method == "rdp"
    cut = spending(Release(10.0, 10, PoissonSampling(0.1, 100, 12)), 1e-13)
    assert cut.epsilon == epsilon(Release(10.0, 10, Everyone()), 1e-13)
    assert "sampling is not counted" in cut.note


def test_distribution_and_renyi_agree_on_the_side():
    """Renyi bounds are looser, never tighter."""
    for sampling in (PoissonSampling(0.01), WithoutReplacement(10, 1000)):
        release = Release(1.5, 500, sampling)
        renyi = accounting._by_renyi(1.5, 500, sampling, DELTA, "")
        assert epsilon(release, DELTA) < renyi.epsilon < 3 * epsilon(release, DELTA)


def test_a_grid_that_does_not_fit_says_so(monkeypatch):
    release = Release(1.01, 997, PoissonSampling(0.0101))
    fine = epsilon(release, DELTA)
    accounting._spending.cache_clear()
    monkeypatch.setattr(loss_distribution, "_POINTS", 5e3)
    found = spending(release, DELTA)
    accounting._spending.cache_clear()
    assert "finest that fits" in found.note
    assert found.epsilon >= fine


# --- shape


@pytest.mark.slow
def test_more_steps_less_noise_and_more_sampling_cost_more():
    def spent(multiplier=1.0, rate=0.01, steps=500):
        return epsilon(Release(multiplier, steps, PoissonSampling(rate)), DELTA)

    for values in (
        [spent(steps=t) for t in (1, 100, 500, 501, 5000)],
        [spent(multiplier=z) for z in (2.0, 1.0, 0.99, 0.1)],
        [spent(rate=q) for q in (1e-3, 0.01, 0.0101, 0.9)],
        [epsilon(Release(1.0, 500, WithoutReplacement(n, 1000)), DELTA) for n in (10, 11, 500, 1000)],
        [epsilon(Release(1.0, 500, PoissonSampling(0.01)), d) for d in (1e-3, 1e-5, 1e-7)],
    ):
        assert all(a < b for a, b in itertools.pairwise(values)), values


def test_many_counts_equal_one_by_one():
    release = Release(1.1, 1, PoissonSampling(0.02))
    counts = [0, 1, 60, 200]
    together = epsilons(release, counts, DELTA)
    accounting._spending.cache_clear()
    loss_distribution._one_release.cache_clear()
    assert together == [spending(Release(1.1, count, PoissonSampling(0.02)), DELTA) for count in counts]


def test_one_release_is_built_once_a_grid():
    accounting._spending.cache_clear()
    loss_distribution._one_release.cache_clear()
    epsilons(Release(1.3, 1, PoissonSampling(0.02)), range(1000, 1010), DELTA)
    assert loss_distribution._one_release.cache_info().misses <= 6


def test_nothing_released_and_no_noise():
    assert spending(Release(1.0, 0, PoissonSampling(0.1)), DELTA).epsilon == 0.0
    assert spending(Release(0.0, 0, Everyone()), DELTA).epsilon == 0.0
    for sampling in (Everyone(), PoissonSampling(0.1), WithoutReplacement(1, 10), PoissonSampling(0.1, 10, 2)):
        assert spending(Release(0.0, 1, sampling), DELTA).epsilon == math.inf
        assert most_steps(Release(0.0, 1, sampling), 1.0, DELTA) == 0
    assert spending(Release(1e3, 1, PoissonSampling(1e-6)), DELTA).epsilon == 0.0


def test_neighbors_are_named():
    named = [s.neighbors for s in (Everyone(), PoissonSampling(0.1), WithoutReplacement(1, 10))]
    assert named == ["replace_one", "add_or_remove_one", "replace_one"]
    assert spending(Release(1.0, 1, WithoutReplacement(1, 10)), DELTA).neighbors == "replace_one"


# --- calibration


@pytest.mark.parametrize("target", [0.7, pytest.param(30.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("sampling", "steps", "delta"),
    [
        (PoissonSampling(0.01), 1000, 1e-5),
        (WithoutReplacement(20, 1000), 100, 1e-6),
        pytest.param(PoissonSampling(0.05, 200, 20), 100, 1e-4, marks=pytest.mark.slow),
        (Everyone(), 300, 1e-5),
        (PoissonSampling(0.1), 50, 1e-13),
    ],
)
def test_calibrated_noise_is_enough_and_two_per_cent_less_is_not(target, sampling, steps, delta):
    noise = calibrate_noise(target, delta, steps, sampling)
    assert epsilon(Release(noise, steps, sampling), delta) <= target
    assert epsilon(Release(0.98 * noise, steps, sampling), delta) > target


def test_no_steps_need_no_noise():
    assert calibrate_noise(1.0, DELTA, 0, PoissonSampling(0.1)) == 0.0


@pytest.mark.parametrize(
    ("multiplier", "sampling", "budget"),
    [
        (1.0, PoissonSampling(0.01), 1.0),
        (60.0, Everyone(), 2.0),
        pytest.param(2.0, WithoutReplacement(5, 1000), 3.0, marks=pytest.mark.slow),
    ],
)
def test_one_step_more_is_too_many(multiplier, sampling, budget):
    most = most_steps(Release(multiplier, 1, sampling), budget, DELTA)
    assert most > 1
    assert epsilon(Release(multiplier, most, sampling), DELTA) <= budget
    assert epsilon(Release(multiplier, most + 1, sampling), DELTA) > budget


def test_no_step_fits():
    assert most_steps(Release(0.1, 1, Everyone()), 1.0, DELTA) == 0


# --- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PoissonSampling(0.0), r"rate must lie in \(0, 1\]; got 0.0"),
        (lambda: PoissonSampling(1.5), "rate must lie in"),
        (lambda: PoissonSampling(math.nan), "rate must lie in"),
        (lambda: PoissonSampling(0.1, most=5), "most needs rows"),
        (lambda: PoissonSampling(0.1, 10, 0), "most must be a whole number"),
        (lambda: WithoutReplacement(11, 10), "1 <= n <= rows; got n=11, rows=10"),
        (lambda: WithoutReplacement(0, 10), "1 <= n <= rows"),
        (lambda: WithoutReplacement(2.5, 10), "whole numbers"),
        (lambda: Release(-1.0, 1, Everyone()), "noise_multiplier must be finite and >= 0"),
        (lambda: Release(math.nan, 1, Everyone()), "noise_multiplier"),
        (lambda: Release(1.0, -1, Everyone()), "steps must be a whole number >= 0"),
        (lambda: Release(1.0, 2.5, Everyone()), "steps must be a whole number"),
        (lambda: epsilon(Release(1.0, 1, Everyone()), 0.0), "delta must lie between 0 and 1"),
        (lambda: epsilon(Release(1.0, 1, Everyone()), 1.0), "delta must lie"),
        (lambda: calibrate_noise(0.0, DELTA, 1, Everyone()), "epsilon must be positive"),
        (lambda: calibrate_noise(math.inf, DELTA, 1, Everyone()), "epsilon must be positive and finite"),
        (lambda: calibrate_noise(1.0, 2.0, 1, Everyone()), "delta must lie"),
        (lambda: calibrate_noise(1.0, DELTA, 1.5, Everyone()), "steps must be a whole number"),
        (lambda: most_steps(Release(1.0, 1, Everyone()), -1.0, DELTA), "epsilon must be positive"),
    ],
)
def test_bad_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("noise", [1e-300, 1e-30, 1e-4])
@pytest.mark.parametrize("sampling", [Everyone(), WithoutReplacement(2, 50), PoissonSampling(0.1)], ids=str)
def test_noise_that_protects_nobody_is_infinite(noise, sampling):
    found = accounting.spending(Release(noise, 10, sampling), 1e-5)
    assert found.epsilon == math.inf and "gives no protection" in found.note
