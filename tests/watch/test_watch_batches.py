"""Faulty, late, doubled and strange batches: named, counted, and never a reason to stop."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from batches_to_watch import batches, feed

import performative as pf
from performative.watch import Watch, tally
from performative.watch.monitor import share_at_joining
from performative.watch.words import WORDS

THETA = {"theta": {"x": 1.0}}
FAULTS = {
    "type": ({"x": ["high", "low"]}, THETA),
    "schema": ({"height": [1.0, 2.0]}, THETA),
    "model": ({"x": [1.0, 2.0]}, {}),
    "model is NaN": ({"x": [1.0, 2.0]}, {"theta": {"x": float("nan")}}),
    "model changes": ({"x": [1.0, 2.0], "theta_x": [1.0, 2.0]}, {}),
    "no usable rows": ({"x": [float("nan"), float("inf")]}, THETA),
    "empty": ({"x": []}, THETA),
    "unreadable": (object(), THETA),
    "clock": ({"x": [1.0, 2.0]}, {**THETA, "time": "yesterday"}),
    "clock goes back": ({"x": [1.0, 2.0]}, {**THETA, "time": -5, "deployment": "new"}),
    "too many clients": ({"x": np.ones(1001), "client": np.arange(1001)}, THETA),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_batch_is_named_and_changes_nothing(fault):
    watch = pf.watch(drift="none")
    for t in range(12):
        watch.update({"x": [1.0, 2.0, t]}, theta={"x": float(t % 3)}, time=t)
    before = watch.report()
    rows, told = FAULTS[fault]
    outcome = watch.update(rows, id="bad", **told)
    after = watch.report()
    assert outcome.status == "quarantined" and outcome.reason
    assert after.input["quarantined"] == {fault.split(" is")[0].split(" changes")[0].split(" goes")[0]: 1}
    assert after.input["recent"][-1]["batch"] == "bad"
    assert (after.looks, after.log_evidence, after.reactions) == (before.looks, before.log_evidence, before.reactions)
    assert watch.update({"x": [1.0, 3.0]}, theta={"x": 1.0}, time=99).status == "look"
    watch.update(rows, id="bad", **told)  # comes again
    assert sum(watch.report().input["quarantined"].values()) == 1


def test_a_batch_that_comes_again_changes_nothing():
    watch = pf.watch(drift="walk")
    told = list(batches(15))
    for columns, facts in told:
        assert watch.update(columns, **facts).status == "look"
    before = watch.report().to_dict()
    for columns, facts in told:
        assert watch.update(columns, **facts).status == "seen"
    after = watch.report().to_dict()
    assert after["input"]["seen_again"] == 15
    for report in (before, after):
        report.pop("input")
        report["findings"] = [one for one in report["findings"] if not one["code"].startswith("input")]
    assert after == before


def test_late_rows_count_once_for_losses_and_never_for_evidence():
    watch = pf.watch(drift="none")
    rng = np.random.default_rng(0)
    for t in range(12):
        rows = {"x": rng.normal(size=5), "row": [f"{t}-{i}" for i in range(5)], "loss": rng.uniform(size=5)}
        watch.update(rows, theta={"x": float(rng.normal())}, time=t, deployment=f"d{t}")
    before = watch.report()
    late = {"x": [1.0, 2.0], "row": ["3-0", "late"], "loss": [0.0, 0.0]}  # one of them is known
    assert watch.update(late, theta={"x": 0.0}, time=3, deployment="d3", id="late").status == "late"
    after = watch.report()
    assert (after.looks, after.log_evidence) == (before.looks, before.log_evidence)
    assert after.input["late_rows"] == 1 and after.input["rows_seen_again"] == 1
    assert after.loss["value"] < before.loss["value"]
    watch.update({**late, "loss": [0.0, 0.1]}, theta={"x": 0.0}, time=3, deployment="d3", id="again")
    assert watch.report().input["late_rows"] == 1


def test_a_file_may_hold_late_rows_and_new_ones():
    watch = pf.watch(drift="none")
    for t in range(3):
        watch.update({"x": [1.0, 2.0]}, theta={"x": float(t)}, time=t, deployment=f"d{t}")
    both = {"x": [1.0, 2.0, 3.0], "deployment": ["d1", "d3", "d3"], "theta_x": [1.0, 5.0, 5.0], "time": [1, 3, 3]}
    assert watch.update(both).status == "look"
    assert (watch.tally.looks, watch.tally.late_rows) == (4, 1)


def test_a_batch_that_changed_is_refused_unless_rows_have_ids():
    watch = pf.watch(drift="none")
    watch.update({"x": [1.0, 2.0]}, theta={"x": 1.0}, id="a")
    assert watch.update({"x": [1.0, 2.0, 3.0]}, theta={"x": 1.0}, id="a").status == "quarantined"
    named = pf.watch(drift="none")
    named.update({"x": [1.0, 2.0], "row": [1, 2]}, theta={"x": 1.0}, id="a")
    assert named.update({"x": [1.0, 2.0, 3.0], "row": [1, 2, 3]}, theta={"x": 1.0}, id="a").status == "late"
    assert named.tally.late_rows == 1


def test_rows_that_cannot_be_used_are_dropped_and_counted():
    watch = pf.watch(drift="none")
    rows = {"x": [1.0, float("nan"), 2.0, 3.0], "row": [1, 2, 3, 3], "client": ["a", "a", "a", "b"]}
    watch.update(rows, theta={"x": 0.0})
    assert dict(watch.tally.dropped) == {"an empty or infinite value": 1, "a row id that occurs twice": 1}
    assert watch.tally.rows == 2


@pytest.mark.parametrize("form", [pd.DataFrame, pa.table, dict])
def test_tables_of_every_kind_are_read(form):
    watch = pf.watch(drift="none")
    assert watch.update(form({"x": [1.0, 2.0], "theta_x": [0.5, 0.5], "time": ["2026-01-05"] * 2})).status == "look"


def test_memory_does_not_grow(tmp_path, monkeypatch):
    """What is older than the window is refused by its time, and counted; the state keeps its size."""
    monkeypatch.setattr(tally, "POINTS", 20)
    watch = pf.watch(drift="none", window=50)
    sizes = []
    for t in range(200):
        watch.update({"x": [1.0, 2.0, t % 7]}, theta={"x": float(t % 5)}, time=t, deployment=f"d{t}", id=f"b{t}")
        if t in (99, 199):
            watch.save(tmp_path / "state")
            sizes.append((tmp_path / "state").stat().st_size)
    assert len(watch.seen.batches) == len(watch.seen.deployments) == 50
    assert sizes[1] <= 1.1 * sizes[0]
    assert len(watch.history.points) <= 40
    old = watch.update({"x": [1.0, 2.0, 5]}, theta={"x": 0.0}, time=5, deployment="d5", id="b5")
    assert old.status == "too late" and watch.tally.too_late == 1


def test_many_clients_share_the_evidence():
    watch = pf.watch(drift="none")
    feed(watch, 60, effect=0.8, clients=3, rows=60)
    report = watch.report()
    assert report.reacts and set(report.by_client) == {"c0", "c1", "c2"}
    assert sum(watch.share(name) for name in watch.series) == pytest.approx(0.9)
    named = pf.watch(drift="none", clients=["c0", "c1", "c2", "c3"])
    feed(named, 12, clients=3)
    assert named.share("c0") == 0.25
    assert named.update({"income": [1.0], "client": ["z"]}, theta={"income": 0.0}).status == "quarantined"


def named_rows(names):
    rows = {"x": [1.0] * max(len(names), 1)}
    return rows | {"client": list(names)} if names else rows


@pytest.mark.parametrize("named", [None, ["a", "b", "c", "d", "all"]])
@pytest.mark.parametrize("looks", ["a", "ab ab c", "a b c d", "ab - c abd", "- - -", "ba d - - c a"])
def test_the_evidence_is_a_sum_with_constant_weights(looks, named, monkeypatch):
    """In fractions; "-" is a look whose rows name no client."""
    watch, weights = pf.watch(drift="none", clients=named), {}
    exact = [Fraction(k * k + 1, 7 * k + 3) for k in range(5)]
    monkeypatch.setattr(Watch, "client_evidence", lambda self, name: math.log(exact[list(self.series).index(name)]))
    for t, names in enumerate(looks.split()):
        rows = named_rows(names.strip("-"))
        assert watch.update(rows, theta={"x": float(t)}, time=t, id=f"b{t}").status == "look"
        first = {name for name, one in watch.series.items() if one.first["at"] == 1}
        now = {name: share_at_joining(k, first, named) for k, name in enumerate(watch.series)}
        assert weights.items() <= now.items() and sum(now.values()) <= 1
        weights = now
        assert {name: watch.share(name) for name in now} == {name: float(w) for name, w in now.items()}
        combined = 1 + sum(w * (e - 1) for w, e in zip(now.values(), exact, strict=False))
        assert math.exp(watch.log_evidence()) == pytest.approx(float(combined), rel=1e-12)


@pytest.mark.parametrize("first", [{"all"}, {"a"}, {"a", "b", "all"}])
def test_shares_of_however_many_clients_sum_to_at_most_one(first):
    shares = [share_at_joining(place, first, None) for place in range(1000)]
    assert sum(shares) <= 1 and all(share >= 0 for share in shares)
    assert float(shares[-1]) > 0 or first == {"all"}


def test_nobody_gains_by_choosing_who_joins_and_when_to_stop():
    """The evidence of each client doubles or vanishes at each of its looks, with equal chances. Whoever looks at it,
    chooses after every look whose rows come next, and stops at the best moment, expects exactly 1."""
    moves = [names for size in (1, 2) for names in itertools.combinations(("all", "a", "b"), size)]

    @cache
    def best(joined, evidence, first, left):
        shares = [share_at_joining(place, first, None) for place in range(len(joined))]
        now = 1 + sum(w * (e - 1) for w, e in zip(shares, evidence, strict=True))
        if not left:
            return now
        values = []
        for names in moves:
            known, total = [name for name in names if name in joined], Fraction(0)
            new = tuple(name for name in names if name not in joined)
            for coins in itertools.product((0, 2), repeat=len(known)):
                factor = dict(zip(known, coins, strict=True))
                later = tuple(e * factor.get(name, 1) for name, e in zip(joined, evidence, strict=True))
                after = best(joined + new, later + (1,) * len(new), first or frozenset(names), left - 1)
                total += after / 2 ** len(known)
            values.append(total)
        return max(now, *values)

    assert best((), (), frozenset(), 4) == 1


def test_clients_that_are_named_too_late_are_refused():
    """The rows before named none and had the whole capital: to share it now would raise evidence below 1."""
    watch = pf.watch(drift="any")
    feed(watch, 12, seed=3)
    before = watch.log_evidence()
    late = watch.update({"income": [1.0, 2.0], "client": ["a", "b"]}, theta={"income": 0.0}, time=99)
    assert late.status == "quarantined" and "named no client" in late.reason and "start a new state" in late.reason
    assert watch.tally.quarantined == {"clients named late": 1}
    assert watch.log_evidence() == before and watch.share("all") == 1.0
    assert watch.update({"income": [1.0, 2.0]}, theta={"income": 0.0}, time=99).status == "look"
    parts = {"x": [1.0, 2.0], "client": ["all", "b"], "deployment": ["d0", "d1"], "theta_x": [0.0, 1.0]}
    assert pf.watch(drift="none").update(parts).status == "quarantined"


def test_rows_without_a_client_may_follow_named_ones():
    watch = pf.watch(drift="none")
    watch.update({"x": [1.0, 2.0], "client": ["a", "b"]}, theta={"x": 0.0}, time=0)
    assert watch.update({"x": [1.0, 2.0]}, theta={"x": 1.0}, time=1).status == "look"
    assert [watch.share(name) for name in watch.series] == [0.45, 0.45, 0.05]


def test_a_client_may_be_absent():
    watch = pf.watch(drift="smooth")
    rng = np.random.default_rng(0)
    for t in range(30):
        names = ["a"] * 5 + (["b"] * 5 if t % 3 == 0 else [])
        watch.update({"x": rng.normal(size=len(names)), "client": names}, theta={"x": float(rng.normal())}, time=t)
    assert watch.series["a"].looks == 30 and watch.series["b"].looks == 10
    assert np.isfinite(watch.log_evidence())


def test_does_not_know_where_models_stand_still():
    watch = pf.watch(drift="none")
    rng = np.random.default_rng(0)
    for t in range(30):
        watch.update({"x": rng.normal(size=20)}, theta={"x": 1.0}, time=t)
    report = watch.report()
    codes = {one.code for one in report.findings}
    assert report.reacts is None and {"verdict.unknown", "advice.explore", "forecast.unknown"} <= codes


def test_findings_have_sentences_and_a_schema():
    watch = pf.watch(drift="none", gap_limit=0.0, loss_limit=0.0)
    feed(watch, 40, effect=0.8)
    watch.update(3)
    told = watch.report().to_dict()
    from jsonschema import validate

    validate(told["findings"], WORDS.schema())
    assert all(one["text"] for one in told["findings"])
    assert "react" in str(watch.report())


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"drift": "jump"}, "drift must be one of"),
        ({"alpha": 0.0}, "alpha must lie between"),
        ({"columns": "x"}, "columns must be a list"),
        ({"clients": ["a", "a"]}, "each once"),
        ({"loss_range": (1, 0)}, "in order"),
        ({"loss_range": 3}, "lowest, highest"),
        ({"window": 0}, "window"),
    ],
)
def test_settings_are_checked(wrong, match):
    with pytest.raises(ValueError, match=match):
        pf.watch(**wrong)


def test_chance_moves_count_from_the_first_batch_on_or_never():
    """A second kind of evidence that begins later would be a second try at the same alpha."""
    late = pf.watch(drift="none")
    for t, (columns, told) in enumerate(batches(20)):
        late.update(columns, **(told if t > 5 else {**told, "explored": None}))
    both, plain = pf.watch(drift="none"), pf.watch(drift="none")
    for columns, told in batches(20):
        both.update(columns, **told)
        plain.update(columns, **{**told, "explored": None})
    assert late.log_evidence() == plain.log_evidence() != both.log_evidence()


def test_a_group_that_joins_takes_nothing_from_the_others():
    watch = pf.watch(drift="none")
    for t in range(5):
        rows = {"x": np.ones(20), "group": ["a", "b"] * 10, "accepted": [1, 0] * 10}
        watch.update(rows, theta={"x": float(t)}, time=t)
    before = watch.report().gap
    watch.update({"x": [1.0], "group": ["c"], "accepted": [0]}, theta={"x": 9.0}, time=9)
    assert watch.people.groups["a"].interval(0.025)[1] == pytest.approx(
        before["low"] + watch.people.groups["b"].interval(0.05 / 6)[2]
    )
