"""Sweeps and comparisons."""

import numpy as np
import pytest

import performative as pf
from performative.moments.free import value_of

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0))
ALGORITHM = pf.p_fedavg(rate=pf.schedules.harmonic(5.0, 50.0), local_steps=2, participation=pf.SchemeOne(2))


def test_a_sweep_is_its_runs_in_as_few_programs_as_shapes():
    over = {"rate.scale": [1.0, 5.0], "population.sensitivity": [0.2, 0.5], "participation.k": [2, 3]}
    sweep = pf.sweep(PROBLEM, ALGORITHM, over, rounds=12, theta=0.0, repeats=2, record=pf.Record(risks=3))
    assert len(sweep.settings) == 8
    assert sweep.programs == 2  # K sets a shape, the rest are numbers
    place = sweep.settings.index({"rate.scale": 5.0, "population.sensitivity": 0.2, "participation.k": 3})
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.2, 1.0))
    algorithm = pf.p_fedavg(rate=pf.schedules.harmonic(5.0, 50.0), local_steps=2, participation=pf.SchemeOne(3))
    alone = pf.run(problem, algorithm, rounds=12, theta=0.0, repeats=2, record=pf.Record(risks=3))
    together = sweep.histories[place]
    np.testing.assert_allclose(alone.theta, together.theta, rtol=1e-6)
    for name in (*alone.records, *alone.risks):
        np.testing.assert_allclose(alone[name], together[name], rtol=1e-5, atol=1e-7)
    cube = sweep.to_xarray()["distance_to_stable"]
    assert cube.dims == ("rate.scale", "population.sensitivity", "participation.k", "repeat", "round")
    np.testing.assert_array_equal(
        cube.sel({"rate.scale": 5.0, "population.sensitivity": 0.2, "participation.k": 3}),
        together["distance_to_stable"],
    )


def test_best_skips_what_diverged():
    sweep = pf.sweep(PROBLEM, pf.p_fedavg(rate=0.1), {"rate": [0.001, 0.5, 5.0]}, rounds=60, theta=0.0, repeats=4)
    assert sweep.histories[2].status == "diverged"
    assert sweep.scores()[2] == np.inf
    setting, history = sweep.best("distance_to_stable")
    assert setting == {"rate": 0.5}
    assert history.status == "completed"
    setting, _ = sweep.best(lambda h: np.abs(h.final - 4.0))
    assert setting["rate"] != 5.0


def test_settings_share_their_luck():
    sweep = pf.sweep(
        PROBLEM, pf.p_fedavg(rate=0.1), {"rate": [0.1, 0.1]}, rounds=5, theta=0.0, record=pf.Record(risks=False)
    )
    np.testing.assert_array_equal(sweep.histories[0].theta, sweep.histories[1].theta)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"rte": [1.0]}, "no 'rte' to vary. Did you mean 'rate'"),
        ({"participation.kk": [1]}, "does not lead to an argument of SchemeOne"),
        ({"participation.k": [0]}, r"SchemeOne\(k=0\)"),
        ({"rate.scale": []}, "at least one value"),
        ({"population.sensitivity": [np.ones(3)]}, "one row per client"),
    ],
)
def test_slips_are_named(over, message):
    with pytest.raises(ValueError, match=message):
        pf.sweep(PROBLEM, ALGORITHM, over, rounds=2, theta=0.0)


def test_numbers_of_a_part_in_a_part_are_found():
    family = pf.families.Location(1.0)
    learner = pf.pofl(0.1, window=2, batch=pf.Fixed(4), estimator=pf.estimators.Performative(2, family))
    sweep = pf.sweep(PROBLEM, learner, {"estimator.family.scale": [1.0, 2.0]}, rounds=2, theta=0.0)
    assert [one.meta["setting"] for one in sweep.histories] == sweep.settings
    assert value_of(learner, "estimator.family.scale") == 1.0


def test_compare_pairs_by_seed():
    slow, fast = (
        pf.run(PROBLEM, pf.p_fedavg(rate=rate), rounds=40, theta=0.0, repeats=50, record=pf.Record(risks=False))
        for rate in (0.01, 0.1)
    )
    noisy = pf.run(PROBLEM, pf.p_fedavg(rate=0.0101), rounds=40, theta=0.0, repeats=50, record=pf.Record(risks=False))
    result = pf.compare({"slow": slow, "fast": fast, "noisy": noisy})
    pairs = {(d.first, d.second): d for d in result.differences}
    assert pairs["slow", "fast"].verdict == "fast is smaller"
    gap = slow["distance_to_stable"][:, -1] - fast["distance_to_stable"][:, -1]
    assert pairs["slow", "fast"].mean == pytest.approx(gap.mean(), rel=1e-6)
    # Common random numbers: the paired interval is far narrower than the spread of either run.
    close = pairs["slow", "noisy"]
    assert close.high - close.low < 0.05 * slow["distance_to_stable"][:, -1].std()
    assert len(result.to_frame()) == 3
    assert "fast" in str(result)
    assert len(pf.compare({"a": slow, "b": fast, "c": noisy}, baseline="a").differences) == 2
    other = pf.run(
        PROBLEM, pf.p_fedavg(rate=0.1), rounds=40, theta=0.0, seed=1, repeats=50, record=pf.Record(risks=False)
    )
    with pytest.raises(ValueError, match="seed and repeats must agree"):
        pf.compare({"slow": slow, "other": other})


def testholm_is_the_textbook_correction():
    from performative.compare import holm

    np.testing.assert_allclose(holm(np.asarray([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])


def test_each_setting_is_judged_by_its_own_weights():
    over = {"weights": [np.asarray([0.7, 0.1, 0.1, 0.1]), np.asarray([0.1, 0.1, 0.1, 0.7])]}
    sweep = pf.sweep(PROBLEM, pf.p_fedavg(rate=0.1), over, rounds=4, theta=0.0, record=pf.Record(risks=2))
    for weights, together in zip(over["weights"], sweep.histories, strict=True):
        alone = pf.run(
            pf.Problem(PROBLEM.loss, PROBLEM.population, weights),
            pf.p_fedavg(rate=0.1),
            rounds=4,
            theta=0.0,
            record=pf.Record(risks=2),
        )
        np.testing.assert_allclose(together["performative_risk"], alone["performative_risk"], rtol=1e-5)
        np.testing.assert_allclose(together.weights, weights, rtol=1e-6)


@pytest.mark.slow
def test_what_a_constructor_works_out_is_worked_out_again():
    algorithm = pf.p_fedavg(rate=0.1, participation=pf.LocalWork(pf.Full(), [1, 1, 1, 1]))
    over = {"participation.steps": [np.asarray([1, 1, 1, 1]), np.asarray([5, 5, 5, 5])]}
    sweep = pf.sweep(PROBLEM, algorithm, over, rounds=2, theta=0.0)
    alone = pf.run(PROBLEM, pf.p_fedavg(rate=0.1, local_steps=5), rounds=2, theta=0.0)
    np.testing.assert_allclose(sweep.histories[1].theta, alone.theta, rtol=1e-5)
    with pytest.raises(ValueError, match="does not lead to an argument of LocalWork"):
        pf.sweep(PROBLEM, algorithm, {"participation.longest": [3]}, rounds=2, theta=0.0)


def test_compare_refuses_what_diverged():
    options = {"rounds": 60, "theta": 0.0, "repeats": 4, "record": pf.Record(risks=False)}
    with pytest.warns(UserWarning, match="run-diverged"):
        settled, lost = (pf.run(PROBLEM, pf.p_fedavg(rate=rate), **options) for rate in (0.1, 50.0))
    assert lost.status == "diverged"
    fate = rf"\(diverged in 4 of 4 repeats, at rounds? {lost.stopped_at.min()}.*\)"
    with pytest.raises(ValueError, match=fate):
        pf.compare({"settled": settled, "lost": lost})


def ended(rounds, stopped_at=(-1, -1), **meta):
    """A history made by hand that ends at this round."""
    values, none = np.array([[2.0, 1.0], [2.0, 1.5]]), np.zeros(0, int)
    return pf.History(
        theta=values, rounds=np.array([0, rounds]), records={"distance_to_stable": values}, risk_rounds=none, risks={},
        weights=np.ones(1), participation=None, stopped_at=np.asarray(stopped_at), meta={"seed": 0, **meta},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (ended(7, (-1, 7)), r"'lost' at round 7 \(diverged in 1 of 2 repeats, at round 7\)\. Exclude"),
        (ended(9, (3, 7)), r"'lost' at round 9 \(diverged in 2 of 2 repeats, at rounds 3 to 7\)"),
        (ended(9, stopped_by="Threshold"), r"'lost' at round 9 \(stopped\)"),
        (ended(9), r"'settled' at round 10, 'lost' at round 9\. "),
    ],
)
def test_compare_says_why_a_run_ended_elsewhere(other, told):
    with pytest.raises(ValueError, match=rf"end at the same round; got .*{told}"):
        pf.compare({"settled": ended(10), "lost": other})


def test_compare_says_which_run_is_not_finite():
    lost = ended(10, (4, -1))
    lost.records["distance_to_stable"] = np.full((2, 2), np.inf)
    with pytest.raises(ValueError, match=r"'lost' must be finite.*\(diverged in 1 of 2 repeats, at round 4\); exclude"):
        pf.compare({"settled": ended(10), "lost": lost})


def test_compare_needs_repeats():
    one = pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=2, theta=0.0, record=pf.Record(risks=False))
    with pytest.raises(ValueError, match=r"repeats >= 2 .*; got 1\."):
        pf.compare({"a": one, "b": one})


@pytest.mark.slow
def test_settings_that_are_no_grid():
    other = pf.fedavg(rate=0.1, local_steps=2)
    settings = [{"participation.k": 3}, {"algorithm": other}, {"participation.k": 3, "rounds": 4, "rate.scale": 1.0}]
    sweep = pf.sweep(
        PROBLEM, ALGORITHM, settings, rounds=8, theta=0.0, repeats=2, record=pf.Record(optimal=3.0, risks=False)
    )
    assert sweep.settings == settings and sweep.programs == 3
    assert [len(history.rounds) for history in sweep.histories] == [9, 9, 5]
    alone = pf.run(PROBLEM, other, rounds=8, theta=0.0, repeats=2, record=pf.Record(optimal=3.0, risks=False))
    np.testing.assert_allclose(alone["distance_to_optimal"], sweep.histories[1]["distance_to_optimal"], rtol=1e-6)
    assert sweep.histories[1].meta["algorithm"] == "fedavg"
    assert list(sweep.to_xarray()["rounds"].values) == ["", "", "4"]
    with pytest.raises(ValueError, match=r"or list settings, such as"):
        pf.sweep(PROBLEM, ALGORITHM, [{}], rounds=2, theta=0.0)
    with pytest.raises(ValueError, match=r"'algorithm' must list Algorithms; got 0.1"):
        pf.sweep(PROBLEM, ALGORITHM, [{"algorithm": 0.1}], rounds=2, theta=0.0)
