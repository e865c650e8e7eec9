"""Claims and the verdicts that follow from numbers."""

import math

import pydantic
import pytest

from performative.papers.claims import CORRECTED, FAILED, REPRODUCED, UNTESTED, Check, Claim

NUMBERS = {"a": 2.0, "b": (2.1, 0.05), "c": 3.0, "lost": math.nan}


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ({"number": "a", "below": 2.1}, True),
        ({"number": "a", "below": "b"}, True),
        ({"number": "b", "below": "a"}, False),
        ({"number": "b", "above": "a"}, True),
        ({"number": "a", "between": [2, 3]}, True),
        ({"number": "a", "between": ["b", "c"]}, False),
        ({"number": "a", "near": 2.2, "within": 0.1}, False),
        ({"number": "a", "near": 2.2, "within": 0.3}, True),
        ({"number": "b", "near": 2.0, "errors": 3}, True),
        ({"number": "b", "near": "a", "errors": 1}, False),
        ({"number": "lost", "below": 1.0}, False),
        ({"number": "lost", "above": 1.0}, False),
        ({"number": "lost", "near": 1.0, "within": 9.0}, False),
    ],
)
def test_checks(rule, holds):
    assert Check(**rule).holds(NUMBERS) is holds


@pytest.mark.parametrize(
    "rule",
    [
        {"number": "a"},
        {"number": "a", "below": 1, "above": 2},
        {"number": "a", "near": 1},
        {"number": "a", "near": 1, "within": 1, "errors": 1},
        {"number": "a", "below": 1, "within": 1},
        {"number": "a", "belov": 1},
    ],
)
def test_a_check_has_one_rule(rule):
    with pytest.raises(pydantic.ValidationError):
        Check(**rule)


def claim(**more):
    fields = {
        "id": "some-claim", "claim": "It is so.", "how": "We looked.", "expected": "reproduced",
        "printed": Check(number="a", below=1.0),
    }  # fmt: skip
    return Claim(**fields | more)


def test_verdicts_follow_from_numbers():
    right = {"corrected": Check(number="a", above=1.0), "correction": "the sign"}
    wrong = {"corrected": Check(number="a", above=5.0), "correction": "the sign"}
    assert claim(printed=Check(number="a", above=1.0)).judge(NUMBERS, False)["verdict"] == REPRODUCED
    row = claim(**right).judge(NUMBERS, False)
    assert (row["verdict"], row["reason"]) == (CORRECTED, "the sign")
    assert row["number"] == "as printed: a = 2, asked for below 1; corrected: a = 2, asked for above 1"
    row = claim(**wrong, reason="because").judge(NUMBERS, False)
    assert (row["verdict"], row["reason"], row["corrected_holds"]) == (FAILED, "because", False)
    # What is expected decides nothing.
    assert claim(expected=REPRODUCED).judge(NUMBERS, False)["verdict"] == FAILED


def test_what_needs_the_full_size_is_not_judged_by_a_quick_run():
    assert claim(quick=False).judge(NUMBERS, True)["verdict"] == UNTESTED
    assert claim(quick=False).judge(NUMBERS, False)["verdict"] == FAILED


def test_a_claim_that_fails_says_why():
    with pytest.raises(pydantic.ValidationError, match="say in `reason`"):
        claim(expected=FAILED)
    with pytest.raises(pydantic.ValidationError, match="belong together"):
        claim(correction="the sign")


def test_a_number_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="gives no number 'd'; it gives"):
        Check(number="d", below=1.0).holds(NUMBERS)


def test_a_number_is_told_apart_from_its_limit():
    told = Check(number="x", below=1.0).tell({"x": 0.999996})
    assert told == "x = 0.999996, asked for below 1"
    assert Check(number="x", below=1.000001).tell({"x": 1.0}) == "x = 1, asked for below 1.000001"
    assert Check(number="x", below="y").tell({"x": 1.23456, "y": (1.234567, 0.1)}) == (
        "x = 1.23456, asked for below y = 1.23457 ± 0.1"
    )
    assert Check(number="x", near=2.0, within=0.1).tell({"x": 2.0}) == "x = 2, asked for 2 within 0.1"
