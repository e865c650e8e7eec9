"""The numbers on the page: what they hold, and that the tables show all of them."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import page_watch  # noqa: E402

MEASURED = json.loads((ROOT / "benchmarks" / "watching.json").read_text())


@pytest.mark.parametrize(
    "row", MEASURED["false_alarms"], ids=lambda row: f"{row['law']}-{row['explore']}-{row['skewed']}"
)
def test_no_kind_of_stream_has_more_false_alarms_than_allowed(row):
    assert row["watch"] <= 0.05 and row.get("any", 0.0) <= 0.05 and row["looks"] == 500
    assert row["streams"] == 10_000


def test_exploration_pays():
    shown = {(row["explore"], row["allowed"]): row["shown"] for row in MEASURED["power"]}
    for law in ("none", "linear", "walk", "smooth"):
        assert shown[2.0, law] > 0.9 and shown[2.0, law] > shown[0.0, law]


def test_a_hundred_thousand_looks_do_not_grow():
    load = MEASURED["load"]
    assert load["looks"] == 100_000
    for sizes in (load["state_bytes"], load["resident_bytes"]):
        assert sizes[-1] < 1.05 * sizes[1]


def test_the_page_has_a_line_for_each():
    assert page_watch.watch_alarms().count("\n| ") == len(MEASURED["false_alarms"]) + 2
    assert page_watch.watch_power().count("\n| ") == 9
    assert "100,000 looks" in page_watch.watch_load()
