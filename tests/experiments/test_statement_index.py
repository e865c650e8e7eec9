"""The index of numbered statements, compared with the papers' own numbering."""

import re
from pathlib import Path

import pytest

from performative.papers import catalog, index

SHARED = Path(__file__).parents[3] / "shared" / "papers"
TEXTS = {"p_fedavg": "000", "p_fedavg_preprint": "003", "profl": "001", "pcsgd": "002"}
KIND = "Theorem|Lemma|Proposition|Corollary|Remark|Assumption|Definition|Example|Algorithm|Figure|Table"
# Where a line begins with a number that is not the paper's: a result that it cites, or one that our copy broke off.
CITED = {"pcsgd": {"Proposition 2.1"}}


@pytest.mark.parametrize("paper", TEXTS)
def test_the_papers_own_numbering(paper):
    """Every statement that begins a line of the text has an entry, and every entry stands in the text."""
    files = list(SHARED.glob(f"{TEXTS[paper]}_*.txt"))
    if not files:
        pytest.skip("the papers are not here")
    text = files[0].read_text()
    begun = re.findall(
        rf"^[\W_]*((?:{KIND})\s+(?:[A-Z]\.)?\d+(?:\.\d+)?)\s*(?:\.(?!\d)|[:(*]|$)", text, flags=re.MULTILINE
    )
    begun += re.findall(r"^[\W_]*(Algorithm \d+)", text, flags=re.MULTILINE)
    listed = {re.sub(r"(?<=\d)[a-z]$", "", number) for number in index.statements()[paper]}
    assert set(begun) - CITED.get(paper, set()) <= listed
    for number in listed:
        kind, count = (re.escape(word) for word in number.split())
        assert re.search(rf"{kind}s?\s+{count}(?!\.?\d)|{kind}s? [\d., and-]*\b{count}", text), number


def test_claims_are_about_statements_that_there_are():
    known = index.statements()
    for name in catalog.names():
        experiment = catalog.find(name)
        for claim in experiment.claims:
            numbered = {one for one in claim.about if not one.startswith(("Section ", "Appendix ", "Eq. "))}
            strange = numbered - set(known.get(experiment.paper, {}))
            assert not strange or experiment.paper == "ours", f"{name}#{claim.id}: {strange}"


def test_what_has_no_row_says_why():
    untested = [row for row in index.read() if row["verdict"] == "not tested"]
    assert not [f"{row['paper']} {row['number']}" for row in untested if not row["reason"]]


def test_limits_come_from_papers_or_from_arithmetic():
    checks = [
        (name, claim.id, check)
        for name in catalog.names()
        for claim in catalog.find(name).claims
        for check in (claim.printed, claim.corrected)
        if check is not None
    ]
    assert not [f"{name}#{row}" for name, row, check in checks if check.threshold_of_ours()]


def test_every_theorem_has_a_function_and_every_figure_a_row():
    """The README says so."""
    for row in index.read():
        kind = row["number"].split()[0]
        if kind == "Theorem" and row["paper"] != "p_fedavg_preprint":
            assert row["functions"], row
        if kind == "Figure":
            assert row["rows"], row
