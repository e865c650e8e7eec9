"""The table of theorems names what is there, and leaves out nothing that the papers number."""

import inspect

import pytest

from performative.theory.index import CLIPPED, P_FEDAVG, PROFL, THEOREMS

ASKED = {
    "000": ("Proposition 2.8", "Proposition 2.9", "Theorem 3.1", "Theorem 3.2", "Theorem 3.3"),
    "003": ("Theorem B.4", "Theorem C.5", "Theorem D.5", "Theorem D.8"),
    "001": (
        *(f"Lemma 5.{n}" for n in (6, 7, 8, 9)), *(f"Lemma C.{n}" for n in (1, 2, 3)), "Theorem 5.10", "Corollary 5.11",
    ),
    "002": (
        "Theorem 3.4", "Theorem 3.5", "Theorem 4.3", "Lemma 5.1", "Lemma 5.2", "Lemma A.2",
        "Corollary 3.6", "Corollary 3.7", "Corollary 3.8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", THEOREMS, ids=lambda row: f"{row.paper} {row.number}")
def test_every_row_leads_to_a_function_with_a_reference(row):
    function = row.function
    assert callable(function) and row.says
    assert inspect.getdoc(function), f"{row.where} has no docstring"
    # The number must stand in the docstring or at the head of the module.
    if row.paper != "004" and not row.number.startswith("Section"):
        module = inspect.getmodule(function)
        text = f"{inspect.getdoc(function)} {module.__doc__}"
        assert row.number.split()[-1] in text, f"{row.where} does not say that it is {row.number}"


def test_nothing_that_was_asked_for_is_missing():
    for paper, numbers in ASKED.items():
        there = {row.number for row in THEOREMS if row.paper == paper}
        assert set(numbers) <= there, set(numbers) - there
    assert len({(row.paper, row.number) for row in THEOREMS}) == len(THEOREMS)
    assert {row.paper for row in THEOREMS} == {"000", "001", "002", "003", "004"}
    assert all(row in THEOREMS for row in (*P_FEDAVG, *PROFL, *CLIPPED))


def test_bounds_of_paper_001_offer_the_printed_form():
    for row in PROFL:
        if row.number not in ("Lemma 5.6", "Lemma C.3"):  # nothing to correct in the formulas
            assert "printed" in inspect.signature(row.function).parameters, row.number
