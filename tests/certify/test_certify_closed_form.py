"""Certificates of problems whose every number is known."""

import json

import findings_schema
import numpy as np
import pytest
from certify_problems import MEAN, SENSITIVITY, WEIGHTS, Bistable, Mistaken, Threshold, Tree, gaussian, two_wells

import performative as pf
from performative.certify import certify
from performative.certify.words import WORDS
from performative.populations import Gaussian, Sluggish


def words(c):
    """All that a user reads; it must be JSON too, with no infinities."""
    json.dumps(c.to_dict(), allow_nan=False)
    findings_schema.check(c.to_dict()["findings"], WORDS)
    assert str(c).startswith(c.verdict) and all(reason in str(c) for reason in c.reasons)
    return str(c)


def test_gaussian_has_every_number_in_closed_form():
    c = certify(gaussian(), error=0.5)
    m, e = WEIGHTS @ MEAN, WEIGHTS @ SENSITIVITY
    stable = m / (1 - e)
    optimal = WEIGHTS @ ((1 - SENSITIVITY) * MEAN) / (WEIGHTS @ (1 - SENSITIVITY) ** 2)

    def risk(theta):
        return WEIGHTS @ ((1 - SENSITIVITY) * theta - MEAN) ** 2 / 2 + 0.5

    assert (c.mu, c.L, c.threshold) == (1.0, 1.0, 1.0) and c.mu_exact and c.L_exact
    np.testing.assert_allclose(c.sensitivity, np.abs(SENSITIVITY))
    assert c.sensitivity_source == "analytic" and np.array_equal(c.lower, c.upper)
    # The theorem sees |eps_i|, retraining feels eps_i: 0.24 against 0.14.
    np.testing.assert_allclose(c.eps_bar, WEIGHTS @ np.abs(SENSITIVITY))
    np.testing.assert_allclose([c.contraction, c.multiplier], e)
    np.testing.assert_allclose([c.stable, c.optimal, c.static], [stable, optimal, m])
    np.testing.assert_allclose([c.stable_risk, c.optimal_risk], [risk(stable), risk(optimal)])
    np.testing.assert_allclose(c.relative_cost, risk(stable) / risk(optimal) - 1, rtol=1e-6)
    np.testing.assert_allclose([c.distance, c.static_gap], [abs(stable - optimal), abs(stable - m)])
    assert c.sufficient and c.proved and c.unique and c.attracting and c.settles
    assert c.detectable is False and certify(gaussian(), error=0.1).detectable is True
    assert "this is proved" in words(c)


@pytest.mark.parametrize(("eps", "settles"), [(1.2, False), (-3.0, True)])
def test_a_repelling_point_is_called_not_contracting(eps, settles):
    c = certify(gaussian(eps))
    np.testing.assert_allclose(c.stable, WEIGHTS @ MEAN / (1 - eps))
    np.testing.assert_allclose([c.multiplier, c.contraction, c.eps_bar], [eps, abs(eps), abs(eps)])
    assert c.sufficient is False and c.attracting is False and c.settles is settles and c.unique is None
    assert c.verdict.startswith("Not contracting") and f"by {eps:g}" in words(c)
    assert ("but small gradient steps settle there" in c.verdict) is settles


def test_no_stable_point_is_said_and_not_raised():
    c = certify(gaussian(1.0))
    assert c.stable is None and np.isnan(c.contraction) and c.attracting is None and c.sufficient is False
    assert np.isnan(c.distance) and c.detectable is None
    assert "no stable point was found" in c.verdict and "cancels the curvature" in words(c)


def test_the_condition_fails_and_yet_the_point_attracts():
    """eps = (2, -2): each client reacts strongly, their mean does not."""
    c = certify(gaussian(np.array([2.0, 2.0, -2.0])))
    np.testing.assert_allclose([c.eps_bar, c.contraction], [2.0, 0.0], atol=1e-12)
    assert c.sufficient is False and c.attracting and not c.proved
    assert "from nearby" in c.verdict and "sufficient, not necessary" in words(c)


def test_retraining_needs_smoothness_in_the_data_only():
    """|theta - z / 2|^2 / 2 with eps = 1.5: mu / L = 1 is missed, mu / L_data = 2 is not."""
    c = certify(pf.Problem(pf.losses.quadratic(-0.5), Gaussian(MEAN, 1.5, 1.0)))
    assert (c.L_theta, c.L_data, c.sufficient) == (1.0, 0.5, False)
    np.testing.assert_allclose(c.contraction, 0.75)
    assert c.contracts and c.proved and "only needs" in words(c)


@pytest.fixture(scope="module")
def basins():
    return certify(pf.Problem(pf.losses.squared, Bistable()), theta=0.1)


def test_two_basins(basins):
    c = basins
    assert c.stable > 1.9 and len(c.others) == 2 and c.unique is False and c.sufficient is False
    assert sorted(p.attracting for p in c.others) == [False, True]
    # The data move by up to 4 per unit of theta, at 0; pairs near the start, 0.1, see most of it.
    assert 3.5 < c.eps_bar < 4.0
    assert "the start decides" in c.verdict and "(repelling)" in words(c)


@pytest.mark.parametrize(
    ("start", "nearest", "reached"),
    [
        pytest.param(-1.0, -3.0, 3.0, marks=pytest.mark.slow),
        pytest.param(2.0, 3.0, 3.0, marks=pytest.mark.slow),
        (-2.5, -3.0, -3.0),
    ],
)
def test_of_several_points_the_nearest_that_attracts_as_stable_point_has_it(start, nearest, reached):
    """eps = 1.5 on [-3, 3]: -2 repels. Both name the end that is near; where retraining ends is said beside it."""
    problem = pf.Problem(pf.losses.squared, Gaussian([1.0], [1.5], 1.0), domain=pf.Box(-3.0, 3.0))
    c = certify(problem, theta=start)
    assert c.stable == pf.stable_point(problem, start=start) == nearest and c.reached == reached
    assert pf.repeated_risk_minimization(problem, start, 40)[-1] == pytest.approx(reached)
    assert "(of several, the attracting one nearest to the start)" in words(c) and "so the start decides" in c.verdict
    ends = "there" if nearest == reached else f"at {reached:g}"
    assert f"Exact retraining from the start ends {ends}." in words(c)


def test_on_the_edge_of_settling():
    """eps = -1: retraining swings for ever."""
    said = certify(pf.Problem(pf.losses.squared, Gaussian([1.0], [-1.0], 1.0)), theta=0.3)
    assert said.verdict.startswith("Borderline") and "to first order it neither shrinks nor grows" in str(said)
    assert said.attracting is None


@pytest.mark.slow
@pytest.mark.parametrize("gain", [1.5, 5.0])
def test_people_who_cross_a_threshold_are_not_judged_by_derivatives(gain):
    """Retraining multiplies errors by 0.352 gain, the derivative of every sample is 0."""
    c = certify(pf.Problem(pf.losses.squared, Threshold(gain)), samples=256)
    if c.stable is not None:  # a sum of steps need not have a root
        assert c.jumps and c.attracting is None and c.settles is None and "cross a threshold" in words(c)
    assert c.verdict.startswith("Not known") and not c.proved


@pytest.mark.slow
def test_an_optimal_point_that_derivatives_do_not_see_is_not_named():
    """The risk falls by crossing people's thresholds, which no sample's derivative knows of."""
    c = certify(pf.Problem(pf.losses.squared, Threshold(1.5)), samples=256)
    assert c.optimal is None and np.isnan(c.relative_cost)


@pytest.mark.slow
def test_a_lower_minimum_elsewhere_is_told():
    """Two wells; the stable point lies in the one that is less deep."""
    c = certify(pf.Problem(two_wells, Gaussian([1.0], [0.1], 1.0)), theta=0.9, samples=256)
    assert c.stable > 0.5 and c.attracting and c.deeper is not None and c.deeper < -0.5
    assert "only if training stays nearby" in c.verdict and "risk is lower at" in words(c)


def test_the_best_that_was_found_is_not_called_optimal(basins):
    known = certify(gaussian())
    assert known.optimal_known and "The optimal point is" in words(known)
    assert not basins.optimal_known and "The best point found is" in words(basins)


@pytest.mark.slow
def test_clients_without_weight_do_not_count():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 8, 2)), rng.integers(0, 2, (3, 8))
    x[2] *= 1000
    spoilt = pf.populations.Strategic(x, y, 0.1)
    alone = pf.populations.Strategic(x[:2], y[:2], 0.1)
    loss = pf.losses.logistic(0.5)
    with_it = certify(pf.Problem(loss, spoilt, [0.5, 0.5, 0.0]), samples=64)
    without = certify(pf.Problem(loss, alone, [0.5, 0.5]), samples=64)
    assert pytest.approx(without.L) == with_it.L and with_it.eps_max == pytest.approx(without.eps_max)


def test_prices_without_a_box_leave_nothing_to_retrain_to():
    c = certify(pf.cases.pricing_demands(clients=3, goods=2))
    np.testing.assert_allclose(c.stable, 2 * c.optimal)
    np.testing.assert_allclose(c.relative_cost, 1.0)
    assert c.mu == 0 and c.sufficient is False and np.isnan(c.contraction) and c.settles and c.static is None
    assert "not defined" in c.verdict and "no static model" in words(c)


def test_a_point_on_the_edge_of_the_domain():
    c = certify(gaussian(0.5, pf.Box(-1.0, 1.0)))
    assert (c.stable, c.contraction, c.on_edge, c.attracting) == (1.0, 0.0, True, True)
    assert "on the boundary of the domain" in words(c)
    assert not certify(gaussian(0.5, pf.Box(-9.0, 9.0))).on_edge


def test_worlds_with_a_memory_are_judged_together_with_the_model_or_once_settled():
    problem = pf.Problem(pf.losses.squared, Sluggish(Gaussian(MEAN, 0.5, 1.0), 0.3))
    c = certify(problem)
    assert c.stateful and c.eps_bar == 0.5 and "trails the deployed one" in words(c) and "0.85 of the error" in words(c)
    assert c.proved and "if the data settle" not in c.verdict
    waits = certify(problem, spells=None)
    assert "have settled under each model" in words(waits) and "if the data settle" in waits.verdict


@pytest.mark.slow
def test_a_model_may_be_a_tree():
    problem = pf.Problem(pf.losses.squared, Tree(np.array([0.2, 0.6])))
    c = certify(problem, theta={"a": 0.0, "b": 0.0}, samples=256)
    np.testing.assert_allclose([c.stable["a"], c.stable["b"]], [1 / 0.6, 2.0], rtol=1e-8)
    # Only theta["a"] moves the data; a chance direction would see less.
    np.testing.assert_allclose(c.sensitivity, [0.2, 0.6], rtol=1e-3)
    assert "a model of 2 numbers" in words(c)


@pytest.mark.slow
def test_many_parameters_leave_the_local_factor_out():
    mean = np.ones((1, 513))
    c = certify(pf.Problem(pf.losses.squared, Gaussian(mean, 0.5, 1.0)))
    assert np.isnan(c.contraction) and c.attracting is None and c.proved and "too many parameters" in words(c)
    strong = certify(pf.Problem(pf.losses.squared, Gaussian(mean, 1.5, 1.0)))
    assert "was not computed" in strong.verdict and strong.sufficient is False


def test_a_risk_that_falls_without_end_has_no_optimal_point():
    """-theta Z with Z = 1 + 2 theta: revenue grows for ever."""
    c = certify(pf.Problem(pf.losses.negative_revenue, pf.populations.Pricing(np.ones(2), -2.0, 1.0)))
    assert c.optimal is None and np.isnan(c.relative_cost) and "No minimizer" in words(c)


def test_a_model_that_was_learned_elsewhere_takes_the_place_of_the_static_one():
    c = certify(gaussian(), static=2.0, error=0.0)
    assert c.static == 2.0 and c.static_gap == abs(c.stable - 2.0) and c.detectable


def test_a_bar_counts_the_steps_where_it_is_asked_for(capsys):
    certify(gaussian(), progress=True)
    assert "certify" in (shown := capsys.readouterr().err) and "6/6 steps" in shown
    certify(gaussian())  # nobody watches a test
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("bad", "said"), [({"error": -1.0}, "error must"), ({"samples": 3}, "samples must")])
def test_bad_arguments_are_named(bad, said):
    with pytest.raises(ValueError, match=said):
        certify(gaussian(), **bad)


def test_points_that_the_population_has_wrong_are_told():
    c = certify(pf.Problem(pf.losses.squared, Mistaken(MEAN, np.full(3, 0.5), 1.0)))
    assert c.stable_disagrees and c.optimal_disagrees and not c.optimal_known
    said = {one.code: one.severity for one in c.findings}
    assert said["near.closed-form-disagrees"] == said["cost.closed-form-disagrees"] == "warning"
    assert words(c).count("[closed-form-disagrees]") == 2
    right = certify(gaussian())
    assert not right.stable_disagrees and not right.optimal_disagrees and not right.lower_elsewhere


def test_a_local_optimum_with_a_lower_risk_elsewhere_is_told(monkeypatch):
    from performative._base.messages import warn
    from performative.certify import points

    found = points.optimal_point

    def local(*args, **options):
        warn("lower-elsewhere", "optimal_point: the point is a local minimum.")
        return found(*args, **options)

    monkeypatch.setattr(points, "optimal_point", local)
    c = certify(gaussian())
    assert c.lower_elsewhere and "[lower-elsewhere]" in words(c)
