"""Sequences for running means hold the truth at all looks at once."""

import numpy as np
import pytest

import performative as pf
from performative.watch.sequences import Bounded, Moments


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_bounded_means_are_covered_at_every_look(rate):
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(150):
        one, missed, seen, total = Bounded(), False, 0, 0.0
        for t in range(60):
            now = min(1.0, rate * (1 + 0.5 * np.sin(t)))  # a mean that moves
            one.add((rng.uniform(size=20) < now).astype(float))
            seen, total = seen + 20, total + 20 * now
            _, low, high = one.interval(0.05)
            missed |= not (low <= total / seen <= high)
        outside += missed
    assert outside <= 8 and high - low < 0.25


def test_ends_are_in_the_range_and_units():
    one, scaled = Bounded(), Bounded(-10.0, 30.0)
    values = np.random.default_rng(0).uniform(size=100)
    one.add(values)
    scaled.add(-10 + 40 * values)
    np.testing.assert_allclose(np.array(one.interval(0.05)) * 40 - 10, scaled.interval(0.05))
    assert Bounded().interval(0.05)[1:] == (0.0, 1.0)


def test_asymptotic_means_are_covered_from_some_rows_on():
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(150):
        one, missed = Moments(), False
        for _ in range(40):
            one.add(rng.exponential(size=50))
            _, low, high = one.interval(0.05)
            missed |= not (low <= 1.0 <= high)
        outside += missed
    assert outside <= 10
    assert Moments().interval(0.05)[1:] == (-np.inf, np.inf)


def watch_losses(**settings):
    watch = pf.watch(drift="none", **settings)
    rng = np.random.default_rng(0)
    for t in range(40):
        group = np.where(np.arange(100) % 2, "a", "b")
        accepted = (rng.uniform(size=100) < np.where(group == "a", 0.7, 0.3)).astype(int)
        rows = {"x": rng.normal(size=100), "group": group, "accepted": accepted, "label": rng.integers(0, 2, 100)}
        watch.update(rows, theta={"x": float(rng.normal())}, time=t)
    return watch


def test_losses_and_gaps_are_told_and_alarm_once():
    watch = watch_losses(gap_limit=0.2, loss_limit=0.3)
    report = watch.report()
    assert report.loss["kind"] == "bounded" and report.loss["low"] < 0.5 < report.loss["high"]
    assert report.gap["most"] == "a" and report.gap["low"] < 0.4 < report.gap["high"]
    assert sorted(one["id"] for one in report.alarms) == ["gap", "loss"]
    assert {"alarm.gap", "alarm.loss", "people.gap"} <= {one.code for one in report.findings}


def test_a_loss_of_unknown_range_is_asymptotic_and_says_so():
    watch = pf.watch(drift="none")
    for t in range(5):
        watch.update({"x": [1.0, 2.0, 4.0], "loss": [1.0, 9.0, 3.0]}, theta={"x": float(t)}, time=t)
    assert watch.report().loss["kind"] == "asymptotic"
    told = pf.watch(drift="none", loss_range=(0, 5))
    told.update({"x": [1.0, 2.0, 4.0], "loss": [1.0, 9.0, 3.0]}, theta={"x": 0.0})
    report = told.report()
    assert report.loss["kind"] == "bounded" and report.input["losses_outside"] == 1
