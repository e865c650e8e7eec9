"""Claims and the verdicts that follow from numbers."""

import math

import pydantic
import pytest

from performative.papers.catalog import read
from performative.papers.checks import Check
from performative.papers.claims import CORRECTED, FAILS, HOLDS, REFUTED, REPRODUCED, UNDECIDED, UNTESTED, Claim

NUMBERS = {"a": 2.0, "b": (2.12, 0.05), "c": 3.0, "lost": math.nan, "once": (2.5, math.inf)}


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
        ({"number": "b", "near": 2.1, "within": 0.15, "errors": 2}, True),
        ({"number": "b", "near": 2.0, "within": 0.05, "errors": 2}, None),
        ({"number": "b", "near": 2.1, "within": 0.05, "errors": 2}, None),
        ({"number": "b", "near": 1.9, "within": 0.05, "errors": 2}, False),
        # Within two standard errors nobody knows.
        ({"number": "b", "below": 2.13}, None),
        ({"number": "b", "above": 2.2}, None),
        ({"number": "b", "between": [2.1, 3]}, None),
        ({"number": "b", "near": 2.0, "within": 0.1}, None),
        ({"number": "b", "near": 2.0, "within": 0.3}, True),
        # One run has an error that is not known.
        ({"number": "once", "below": 9}, None),
        ({"number": "once", "near": 9, "errors": 4}, None),
        ({"number": "lost", "below": 1.0}, False),
        ({"number": "lost", "above": 1.0}, False),
        ({"number": "lost", "near": 1.0, "within": 9.0}, False),
    ],
)
def test_checks(rule, holds):
    assert Check(**rule).decide(NUMBERS) is holds


@pytest.mark.parametrize(
    "rule",
    [
        {"number": "a"},
        {"number": "a", "below": 1, "above": 2},
        {"number": "a", "near": 1},
        {"number": "a", "below": 2, "bound": True},
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
    assert row["number"] == "as printed: a = 2, required: below 1; corrected: a = 2, required: above 1"
    row = claim(**wrong, reason="because").judge(NUMBERS, False)
    assert (row["verdict"], row["reason"]) == (REFUTED, "because")
    # What is expected decides nothing.
    assert claim(expected=REPRODUCED).judge(NUMBERS, False)["verdict"] == REFUTED


def test_what_needs_the_full_size_is_not_judged_by_a_quick_run():
    assert claim(quick=False).judge(NUMBERS, True)["verdict"] == UNTESTED
    assert claim(quick=False).judge(NUMBERS, False)["verdict"] == REFUTED


def test_a_claim_that_fails_says_why():
    with pytest.raises(pydantic.ValidationError, match="say in `reason`"):
        claim(expected=REFUTED)
    with pytest.raises(pydantic.ValidationError, match="say in `correction`"):
        claim(corrected=Check(number="a", above=1.0))
    with pytest.raises(pydantic.ValidationError, match="`untested`"):
        claim(printed=None)


def test_a_mended_instance_is_a_correction():
    told = claim(printed=Check(number="a", above=1.0), correction="the sign").judge(NUMBERS, False)
    assert (told["verdict"], told["reason"]) == (CORRECTED, "the sign")


def test_what_cannot_be_decided_is_undecided():
    noise = claim(printed=Check(number="b", below=2.13)).judge(NUMBERS, False)
    assert (noise["verdict"], noise["reason"]) == (UNDECIDED, "the difference is within 2 standard errors")
    above = Check(number="a", above=1.0)
    other = claim(printed=above, undecided="the data are others").judge(NUMBERS, False)
    assert (other["verdict"], other["reason"]) == (UNDECIDED, "the data are others; here it holds")
    mended = claim(corrected=Check(number="b", below=2.13), correction="the sign").judge(NUMBERS, False)
    assert mended["verdict"] == UNDECIDED
    none = claim(printed=None, untested="no data").judge({}, False)
    assert (none["verdict"], none["reason"]) == (UNTESTED, "no data")


def test_results_of_our_own_hold_or_fail():
    assert claim(kind="own", expected=HOLDS).judge(NUMBERS, False)["verdict"] == FAILS
    assert (
        claim(kind="check", expected=HOLDS, printed=Check(number="a", above=1.0)).judge(NUMBERS, False)["verdict"]
        == HOLDS
    )


def test_a_bound_is_told_by_how_loose_it_is():
    check = Check(number="x", below=1, bound=True)
    assert check.tell({"x": 0.001}) == "x = 0.001: loose by a factor of 1e+03"
    assert check.tell({"x": 2.0}) == "x = 2: the bound is exceeded"
    assert check.decide({"x": 2.0}) is False


def test_thresholds_of_ours_are_known():
    assert Check(number="a", below=0.9).threshold_of_ours()
    assert Check(number="a", near="c", within=0.1).threshold_of_ours()
    printed = {"near": 5.56, "within": 0.005, "limit": "printed"}
    for fine in ({"below": 1}, {"below": "c"}, printed, {"near": "c", "errors": 4}):
        assert not Check(number="a", **fine).threshold_of_ours()


def test_a_number_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="returns no number 'd'; it returns"):
        Check(number="d", below=1.0).decide(NUMBERS)


def test_a_number_is_told_apart_from_its_limit():
    told = Check(number="x", below=1.0).tell({"x": 0.999996})
    assert told == "x = 0.999996, required: below 1"
    assert Check(number="x", below=1.000001).tell({"x": 1.0}) == "x = 1, required: below 1.000001"
    assert Check(number="x", below="y").tell({"x": 1.23456, "y": (1.234567, 0.1)}) == (
        "x = 1.23456, required: below y = 1.23457 ± 0.1"
    )
    assert Check(number="x", near=2.0, within=0.1).tell({"x": 2.0}) == "x = 2, required: 2 within 0.1"


def test_notes_tell_the_constants_of_their_file(tmp_path):
    file = tmp_path / "walk.toml"
    told = 'title = "t"\nplace = "p"\ncode = "c.d"\nnote = "{runs} runs"\n[constants]\nruns = 80\n[quick]\nruns = 4\n'
    row = '[[claims]]\nid = "a"\nclaim = "b"\nuntested = "no data"\nexpected = "not tested"\n'
    file.write_text(told + row)
    experiment = read(file, "profl/walk")
    assert experiment.noted(False) == "80 runs" and experiment.noted(True) == "4 runs"
    file.write_text(told.replace("{runs}", "{repeats}") + row)
    with pytest.raises(ValueError, match=r"repeats.* is not a constant"):
        read(file, "profl/walk")
