"""Findings: facts as data, told by one set of sentences, as their schema has them."""

import numpy as np
import pytest
from findings_schema import wrong

from performative.audit.causes.words import WORDS as CAUSES
from performative.audit.words import WORDS as AUDIT
from performative.certify.words import WORDS as CERTIFY
from performative.cli.demonstration.words import SHORT
from performative.cli.demonstration.words import WORDS as DEMO
from performative.findings import Finding, Words, part

WORDS = Words(
    {"size.large": "{what} is {factor:times} as large.", "size.same": lambda what: f"{what} is the same."},
    times=lambda factor: f"{factor:g} times",
)
LARGE = Finding("size.large", "caution", {"what": "It", "factor": np.float64(2.5)})
SAME = Finding("size.same", "info", {"what": "That"})


def test_a_sentence_is_made_of_the_facts_alone():
    assert WORDS.say(LARGE) == "It is 2.5 times as large."
    assert WORDS.tell([LARGE, SAME]) == "It is 2.5 times as large. That is the same."
    with pytest.raises(KeyError, match="factor"):
        WORDS.say(Finding("size.large", "info", {"what": "It"}))


def test_parts_are_found_by_group_and_by_facts():
    assert part([LARGE, SAME], "size") == [LARGE, SAME]
    assert part([LARGE, SAME], "size", what="That") == [SAME]
    assert part([LARGE, SAME], "siz") == []


def test_the_schema_knows_codes_severities_and_facts():
    told = WORDS.to_json([LARGE, SAME])
    assert told[0]["data"] == {"what": "It", "factor": 2.5} and not wrong(told, WORDS.schema())
    spoilt = {
        "code": {**told[0], "code": "size.tiny"},
        "severity": {**told[0], "severity": "grave"},
        "data": {**told[0], "data": {"what": "It"}},
        "more": {**told[0], "mood": "bad"},
        "text": {name: value for name, value in told[1].items() if name != "text"},
    }
    for fault, one in spoilt.items():
        assert wrong([one], WORDS.schema()), fault


def test_numbers_that_are_not_finite_become_null():
    assert WORDS.to_json([Finding("size.large", "info", {"what": "It", "factor": np.inf})])[0]["data"]["factor"] is None


@pytest.mark.parametrize("words", [AUDIT, CAUSES, CERTIFY, DEMO])
def test_every_code_has_a_group_and_a_name(words):
    assert all(code.count(".") == 1 and code == code.lower() for code in words.sentences)


def test_each_answer_of_the_demo_has_a_short_form():
    assert set(SHORT.sentences) == set(DEMO.sentences)
