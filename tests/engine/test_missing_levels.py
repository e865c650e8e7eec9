"""A level that a round has not made is missing, not 0."""

import numpy as np
import pytest

import performative as pf
from performative.cli.summary import summarize
from performative.plotting import is_total
from performative.report.quantities import groups, recorded

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.linspace(-1.0, 1.0, 3), 0.3, 1.0))
COUNTS = ("time", "uploads", "samples", "communications", "nonfinite_updates")


@pytest.fixture(scope="module")
def seldom():
    """Three clients of which each is there in one round of four: some rounds have nobody."""
    algorithm = pf.fedexp(0.1, participation=pf.participation.Available(0.25))
    return pf.run(PROBLEM, algorithm, 30, theta=2.0, repeats=3, record=pf.Record(risks=False))


def test_nothing_is_recorded_before_the_first_round(seldom):
    for name, values in seldom.records.items():
        if name in COUNTS:
            assert np.all(values[:, 0] == 0), name
        elif name.startswith("distance"):
            assert np.all(values[:, 0] > 0), name
        else:
            assert name in ("consensus", "server_step") and np.all(np.isnan(values[:, 0])), name


def test_a_round_with_nobody_has_no_levels(seldom):
    heard = np.diff(seldom["uploads"], axis=1) > 0
    assert 0.3 < heard.mean() < 0.9  # 1 - 0.75^3 = 0.58 of 90
    for name in ("consensus", "server_step"):
        np.testing.assert_array_equal(np.isfinite(seldom[name][:, 1:]), heard)
    assert np.all(np.isfinite(seldom["distance_to_stable"]))


def test_the_executor_that_finds_errors_agrees():
    algorithm = pf.p_fedavg(0.1, participation=pf.participation.Available(0.25))
    asked = {"rounds": 8, "theta": 2.0, "record": pf.Record(risks=False), "dtype": "float64"}
    one, other = (pf.run(PROBLEM, algorithm, executor=name, **asked) for name in ("gather", "loop"))
    np.testing.assert_allclose(one["consensus"], other["consensus"], atol=1e-12)
    assert np.isnan(one["consensus"]).sum() > 1


def test_what_reads_a_history_leaves_them_out(seldom, tmp_path):
    line = seldom.plot("consensus").get_lines()[0]
    assert line.get_xdata()[0] == 1 and np.all(np.isfinite(line.get_ydata()))
    data = seldom.to_xarray()
    assert bool(data["consensus"].isel(round=0).isnull().all())
    assert float(data["consensus"].mean()) == pytest.approx(np.nanmean(seldom["consensus"]))
    again = pf.History.load(seldom.save(tmp_path / "history.nc"))
    np.testing.assert_array_equal(again["server_step"], seldom["server_step"])
    found = recorded(seldom)
    assert "server_step" in groups(found)["Other quantities"] and "samples" in groups(found)["Running totals"]
    pf.report.write(seldom, tmp_path / "page.html")
    assert "consensus" in summarize(seldom)["final"]


def test_a_level_that_rises_is_no_running_total():
    rising = np.asarray([[np.nan, 1.0, 2.0, 3.0]])
    assert not is_total("server_step", rising)
    assert is_total("server_step", np.nan_to_num(rising))
