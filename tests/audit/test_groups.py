"""Rates by protected group, the burden and who bears it, censored outcomes: against counts made by hand."""

import json

import numpy as np
import pytest

import performative as pf
from performative.audit.burden import least_cost, social_burden
from performative.audit.groups import compare_groups, groups_of_problem
from performative.audit.improvement import improvement
from performative.audit.rates import count_people, detect_censoring, group_rates, wilson


def table(rejected, accepted, unknown=(0, 0, 0)):
    """Counts of (not qualified, qualified, no label) for each decision."""
    return np.array([rejected, accepted, unknown])


# Rates.


def test_wilson():
    """Wilson's interval solves |p - q| = z sqrt(q (1 - q) / n) for q."""
    rate = wilson(8, 10)
    for q in (rate.low, rate.high):
        assert abs(0.8 - q) == pytest.approx(1.959964 * np.sqrt(q * (1 - q) / 10), rel=1e-6)
    assert (rate.hits, rate.trials, rate.value) == (8, 10, 0.8)
    assert wilson(0, 5).low == 0.0 and wilson(5, 5).high == 1.0
    assert wilson(0, 0).to_dict() == {"hits": 0, "trials": 0, "value": None, "low": None, "high": None}
    with pytest.raises(ValueError, match="hits must lie in"):
        wilson(3, 2)


def test_wilson_covers():
    """At p = 0.3, n = 40 the exact coverage is known: summed over all outcomes, it is near 95%."""
    import scipy.stats

    inside = [k for k in range(41) if wilson(k, 40).low <= 0.3 <= wilson(k, 40).high]
    assert 0.94 < scipy.stats.binom.pmf(inside, 40, 0.3).sum() < 0.97


def test_rates_of_one_group():
    # Rejected: 3 not qualified, 1 qualified. Accepted: 2 not qualified, 6 qualified. Nobody knows about 5 decisions.
    rates = group_rates("a", table((3, 1, 0), (2, 6, 0), (4, 1, 0)))
    assert rates.count == 17
    assert (rates.acceptance.hits, rates.acceptance.trials) == (8, 12)
    assert rates.tpr is not None and (rates.tpr.hits, rates.tpr.trials) == (6, 7)
    assert rates.tnr is not None and (rates.tnr.hits, rates.tnr.trials) == (3, 5)
    assert (rates.precision.hits, rates.precision.trials) == (6, 8)
    assert rates.tpr_bounds == (6 / 7, 6 / 7) and rates.tnr_bounds == (3 / 5, 3 / 5)


def test_bounds_hold_for_every_way_to_fill_in_labels():
    r0, r1, r_, a0, a1, a_ = 1, 2, 4, 2, 3, 2
    rates = group_rates("a", table((r0, r1, r_), (a0, a1, a_)))
    tpr = [(a1 + u) / (a1 + u + r1 + v) for u in range(a_ + 1) for v in range(r_ + 1)]
    tnr = [(r0 + v) / (r0 + v + a0 + u) for u in range(a_ + 1) for v in range(r_ + 1)]
    assert rates.tpr_bounds == (min(tpr), max(tpr))
    assert rates.tnr_bounds == (min(tnr), max(tnr))


def test_people_are_counted():
    accepted = np.array([1, 0, 1, np.nan, 1, 0.0])
    qualified = np.array([1, 1, 0, 0, np.nan, np.nan])
    names, counts = count_people(accepted, qualified, np.array(["b", "b", "a", "a", "b", "a"]))
    assert names == ("a", "b")
    np.testing.assert_array_equal(counts[0], [[0, 0, 1], [1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(counts[1], [[0, 1, 0], [0, 1, 1], [0, 0, 0]])
    with pytest.raises(ValueError, match="accepted must contain 0, 1 or NaN; got 2"):
        count_people(np.array([2.0]), np.array([0.0]), np.array(["a"]))


@pytest.mark.parametrize(
    ("rejected", "accepted", "censored"),
    [
        ((0, 0, 30), (20, 20, 0), True),
        ((0, 0, 3), (2, 2, 0), True),
        ((5, 5, 90), (40, 40, 20), True),
        ((10, 10, 20), (10, 10, 20), False),
        ((10, 10, 21), (10, 10, 19), False),
        ((10, 10, 0), (10, 10, 20), False),
        ((0, 0, 30), (0, 0, 30), False),
        ((0, 0, 0), (20, 20, 5), False),
    ],
)
def test_censoring_is_seen(rejected, accepted, censored):
    assert detect_censoring(table(rejected, accepted)).censored is censored


# The burden.


def test_least_cost_is_the_least():
    """Against a search over all moves of the two movable features on a fine grid."""
    x, weights = np.array([[0.0, 0.0, 5.0]]), np.array([1.0, -2.0, 3.0])
    scale, strength = np.array([2.0, 0.5, 1.0]), 0.7
    movable = np.array([True, True, False])
    grid = np.linspace(-4, 4, 801)
    u, v = np.meshgrid(grid, grid)
    reaches = 15.0 + 2.0 * u - 2.0 * 0.5 * v >= 17.013
    square = (u**2 + v**2)[reaches].min()
    for cost, best in (("quadratic", square / (2 * strength)), ("distance", np.sqrt(square) / strength)):
        options = {"movable": movable, "scale": scale, "strength": strength, "cost": cost}
        ours = least_cost(x, weights, 0.0, 17.013, "above", **options)
        assert ours.shape == (1,) and ours[0] == pytest.approx(best, rel=0.02) and ours[0] <= best
    below = least_cost(-x, weights, 0.0, -17.013, "below", movable=movable, scale=scale, strength=strength)
    assert below[0] == pytest.approx(
        least_cost(x, weights, 0.0, 17.013, movable=movable, scale=scale, strength=strength)[0]
    )


def test_costs_at_the_edges():
    x = np.array([[1.0], [0.5], [0.5]])
    np.testing.assert_array_equal(
        least_cost(x, np.array([1.0]), 0.0, 1.0, strength=np.array([0.0, 0.0, 1.0])), [0.0, np.inf, 0.125]
    )
    np.testing.assert_array_equal(least_cost(x, np.array([0.0]), 0.0, 1.0), [np.inf] * 3)
    with pytest.raises(ValueError, match="strength must not be negative"):
        least_cost(x, np.array([1.0]), 0.0, 1.0, strength=-1.0)
    with pytest.raises(ValueError, match="cost must be one of"):
        least_cost(x, np.array([1.0]), 0.0, 1.0, cost="cubic")


def test_burden_by_hand():
    cost = np.array([0.0, 2.0, 4.0, 10.0, 1.0, 7.0])
    qualified = np.array([1, 1, 1, 0, 1, np.nan])
    a, b = social_burden(cost, qualified, np.array(["a", "a", "a", "a", "b", "b"]))
    assert (a.group, a.people, a.value, a.already, a.unreachable) == ("a", 3, 2.0, 1, 0)
    assert a.high - a.value == pytest.approx(1.959964 * 2.0 / np.sqrt(3))
    assert (b.group, b.people, b.value) == ("b", 1, 1.0)
    assert np.isnan(b.low) and b.to_dict()["low"] is None


def test_the_same_people_before_and_after():
    # One feature, model theta = 2, accepted where 2x >= 2. Everybody gains 0.5 in x by reacting.
    before = np.array([[0.4], [0.6], [1.2], [0.7], [0.1], [2.0]])
    label = np.array([1, 1, 1, 0, 0, 0.0])
    groups = np.array(["p", "q", "q", "p", "p", "q"])
    report = compare_groups(before, before + 0.5, label, groups, np.array([2.0]), threshold=2.0, strength=0.5)
    p, q = report.before
    assert (p.acceptance.hits, p.acceptance.trials, q.acceptance.hits, q.acceptance.trials) == (0, 3, 2, 3)
    assert (p.tpr.value, q.tpr.value, p.tnr.value, q.tnr.value) == (0.0, 0.5, 1.0, 0.0)
    p, q = report.after
    assert (p.acceptance.hits, q.acceptance.hits) == (1, 3)
    assert (p.tpr.value, q.tpr.value, p.tnr.value, q.tnr.value) == (0.0, 1.0, 0.5, 0.0)
    # Least cost: (1 - x)^2 / (2 * 0.5) for the qualified: p 0.36; q 0.16 and 0.
    assert [b.value for b in report.burden] == pytest.approx([0.36, 0.08])
    assert report.gap == pytest.approx(0.28) and report.bears == "p"
    assert [b.paid for b in report.burden] == pytest.approx([0.25, 0.25])
    assert "gaming" in report.assumption and not report.warnings
    json.dumps(report.to_dict(), allow_nan=False)


def test_bad_people_are_refused():
    x = np.zeros((3, 2))
    with pytest.raises(ValueError, match="theta has shape"):
        compare_groups(x, x, np.zeros(3), np.array(list("abc")), np.zeros(3))
    with pytest.raises(ValueError, match="label must be 0, 1 or NaN"):
        compare_groups(x, x, np.full(3, 2.0), np.array(list("abc")), np.zeros(2))


# A Problem.


def test_groups_of_a_strategic_problem():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 30, 3)), rng.integers(0, 2, (2, 30))
    groups = rng.choice(["m", "w"], (2, 30))
    strength, count, theta = np.array([0.0, 0.8]), np.array([30, 20]), np.array([0.5, -1.0, 0.25])
    population = pf.populations.Strategic(x, y, strength, features=(0, 1), count=count)
    problem = pf.Problem(loss=pf.losses.logistic(0.1), population=population)
    report = groups_of_problem(problem, theta, groups, threshold=0.1)
    people = [(i, j) for i in range(2) for j in range(count[i])]
    for g, name in enumerate(["m", "w"]):
        good = {"before": [0, 0], "after": [0, 0]}
        paid, owed = [], []
        for i, j in people:
            if groups[i, j] != name or y[i, j] != 0:
                continue
            moved = x[i, j] - strength[i] * theta * np.array([1.0, 1.0, 0.0])
            good["before"][0] += theta @ x[i, j] <= 0.1
            good["after"][0] += theta @ moved <= 0.1
            good["before"][1] += 1
            good["after"][1] += 1
            gap = max(0.0, theta @ x[i, j] - 0.1)
            owed.append(0.0 if gap == 0 else np.inf if strength[i] == 0 else gap**2 / (2 * 0.8 * 1.25))
            paid.append(strength[i] * 1.25 / 2)
        for when in ("before", "after"):
            rate = getattr(report, when)[g].tpr
            assert [rate.hits, rate.trials] == good[when]
        assert report.burden[g].people == len(owed)
        assert report.burden[g].unreachable == sum(np.isinf(owed)) > 0
        assert report.burden[g].paid == pytest.approx(np.mean(paid))
        assert report.burden[g].value == np.inf
    assert report.to_dict()["burden"][0]["value"] is None
    alone = groups_of_problem(pf.Problem(pf.losses.logistic(0.1), _client(population, 1)), theta, groups[1:, :20])
    assert all(np.isfinite(b.value) for b in alone.burden)


@pytest.mark.parametrize("response", ["linear", "evade"])
def test_reactions_are_those_of_the_population(response):
    """Strength by label, against the equations of `Strategic` written out for each person."""
    rng = np.random.default_rng(1)
    x, y, theta = rng.standard_normal((2, 25, 2)), rng.integers(0, 2, (2, 25)), np.array([1.0, -0.5])
    strength = np.array([[0.2, 0.9], [0.5, 0.1]])
    population = pf.populations.Strategic(x, y, strength, response=response)
    problem = pf.Problem(loss=pf.losses.logistic(0.1), population=population)
    report = groups_of_problem(problem, theta, np.full((2, 25), "all"))
    own = strength[np.arange(2)[:, None], y][..., None]
    move = own * theta if response == "linear" else own * y[..., None] * theta / np.linalg.norm(theta)
    assert report.before[0].acceptance.hits == np.sum(x @ theta <= 0)
    assert report.after[0].acceptance.hits == np.sum((x - move) @ theta <= 0) > report.before[0].acceptance.hits
    paid = np.sum(move**2, axis=2) / (2 * own[..., 0])
    assert report.burden[0].paid == pytest.approx(paid[y == 0].mean())
    owed = np.maximum(0, x @ theta) ** 2 / (2 * own[..., 0] * (theta @ theta))
    assert report.burden[0].value == pytest.approx(owed[y == 0].mean())


def _client(population, i):
    n = int(population.count[i])
    return pf.populations.Strategic(
        population.x[i : i + 1, :n], population.y[i : i + 1, :n], population.strength[i], features=population.features
    )


def test_problems_that_have_no_groups():
    gaussian = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, 0.5, 1.0))
    with pytest.raises(ValueError, match="needs a Strategic population; got Gaussian"):
        groups_of_problem(gaussian, 0.0, [["a"]])
    problem = pf.Problem(
        pf.losses.logistic(0.1), pf.populations.Strategic(np.zeros((1, 4, 1)), np.zeros((1, 4), int), 1.0)
    )
    with pytest.raises(ValueError, match="client 0 has 4 people; got 3 names"):
        groups_of_problem(problem, np.zeros(1), [["a", "b", "a"]])
    with pytest.raises(ValueError, match="one row of names per client, 1 in all; got 2"):
        groups_of_problem(problem, np.zeros(1), [["a"] * 4] * 2)


# Improvement against gaming.


def world(rng, n, shift, gain, k=2):
    """Qualified with chance 0.4 + 0.1 (x - shift (1 - gain)).1: gain = 1 is improvement, 0 is gaming."""
    x = rng.uniform(-1, 1, (n, k))
    chance = 0.4 + 0.1 * x.sum(axis=1)
    return x + shift, (rng.random(n) < chance + 0.1 * k * shift * gain).astype(float)


@pytest.mark.parametrize(
    ("gain", "shift", "verdict"),
    [(1.0, 0.5, "improvement"), (0.0, 0.5, "gaming"), (0.5, 0.5, "both"), (0.5, 0.0, "no move")],
)
def test_improvement_and_gaming(gain, shift, verdict):
    rng = np.random.default_rng(3)
    found = improvement("g", *world(rng, 20_000, 0.0, gain), *world(rng, 20_000, shift, gain))
    assert found is not None and found.verdict == verdict
    assert found.shortfall[0] == pytest.approx(found.expected[0] - found.observed[0])
    json.dumps(found.to_dict(), allow_nan=False)


def test_intervals_of_improvement_cover():
    """400 small worlds, half improvement: each 95% interval covers in at least 95% - 3 standard errors of them."""
    rng, hits = np.random.default_rng(4), np.zeros(3)
    for _ in range(400):
        found = improvement("g", *world(rng, 300, 0.0, 0.5), *world(rng, 300, 0.5, 0.5))
        truth = (0.1, 0.05, 0.05)
        for j, (value, (_, low, high)) in enumerate(
            zip(truth, (found.expected, found.observed, found.shortfall), strict=True)
        ):
            hits[j] += low <= value <= high
    assert np.all(hits / 400 > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400))
    assert improvement("g", np.zeros((4, 2)), np.zeros(4), np.zeros((9, 2)), np.zeros(9)) is None
