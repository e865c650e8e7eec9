"""The table of theorems names what is there, and leaves out nothing that the papers number."""

import inspect

import pytest

from performative import theory
from performative.theory.index import PAPERS, THEOREMS, Numbered, collect, numbered

ASKED = {
    "jin2024": ("Proposition 2.8", "Proposition 2.9", "Theorem 3.1", "Theorem 3.2", "Theorem 3.3"),
    "jin2023": ("Theorem B.4", "Theorem C.5", "Theorem D.5", "Theorem D.8"),
    "zheng2024": (
        *(f"Lemma 5.{n}" for n in (6, 7, 8, 9)), *(f"Lemma C.{n}" for n in (1, 2, 3)), "Theorem 5.10", "Corollary 5.11",
    ),
    "li2024": (
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
    if row.paper != "joshi2023" and not row.number.startswith("Section"):
        module = inspect.getmodule(function)
        text = f"{inspect.getdoc(function)} {module.__doc__}"
        assert row.number.split()[-1] in text, f"{row.where} does not say that it is {row.number}"


def test_nothing_that_was_asked_for_is_missing():
    for paper, numbers in ASKED.items():
        there = {row.number for row in THEOREMS if row.paper == paper}
        assert set(numbers) <= there, set(numbers) - there
    assert len({(row.paper, row.number) for row in THEOREMS}) == len(THEOREMS)
    assert {row.paper for row in THEOREMS} == set(PAPERS)


def test_bounds_of_profl_offer_the_printed_form():
    for row in THEOREMS:
        # There is nothing to correct in the formulas of these two.
        if row.paper == "zheng2024" and row.number not in ("Lemma 5.6", "Lemma C.3"):
            assert "printed" in inspect.signature(row.function).parameters, row.number


NEW = """
from performative.theory.index import numbered

@numbered("jin2023", "Theorem B.10", "what the preprint has")
@numbered("jin2024", "Theorem 3.10", "what the paper has")
def both(): ...

@numbered("jin2024", "Theorem 3.9", "a record")
class Record:
    @numbered("jin2024", "Lemma A.1", "a method")
    def bound(self): ...

@other("jin2024", "Theorem 0.1", "of somebody else")
def unmarked(): ...

raise RuntimeError("collecting does not import")
"""


def test_what_is_marked_is_collected_in_the_order_of_the_papers(tmp_path, monkeypatch):
    """A new result is its function with a mark: no other place names it."""
    deep = tmp_path / "fresh_theory" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "fresh_theory" / "__init__.py").write_text("")
    (deep / "results.py").write_text(NEW)
    monkeypatch.syspath_prepend(tmp_path)
    where = "fresh_theory.deep.results:"
    assert collect("fresh_theory") == (
        Numbered("jin2024", "Theorem 3.9", f"{where}Record", "a record"),
        Numbered("jin2024", "Theorem 3.10", f"{where}both", "what the paper has"),
        Numbered("jin2024", "Lemma A.1", f"{where}Record.bound", "a method"),
        Numbered("jin2023", "Theorem B.10", f"{where}both", "what the preprint has"),
    )


def test_a_mark_leaves_its_function_alone_and_needs_a_known_paper():
    def function():
        """Anything."""

    assert numbered("jin2024", "Theorem 9.9", "nothing")(function) is function
    with pytest.raises(ValueError, match=r"no paper 'nobody2017' among jin2024, .*PAPERS"):
        numbered("nobody2017", "Theorem 1", "nothing")


def test_an_import_does_not_collect():
    """Collecting reads every file, so neither module holds the table: it is made when it is asked for, once."""
    assert "THEOREMS" not in {**vars(theory), **vars(theory.index)} and "THEOREMS" in theory.__all__
    assert theory.THEOREMS is theory.index.THEOREMS


def test_papers_are_found_by_their_old_numbers_too():
    row = THEOREMS[0]
    assert row.paper == "jin2024" and row.paper != "li2024" and {"jin2024": 1}[row.paper]
    for old, new in {"000": True, "002": False}.items():
        with pytest.warns(DeprecationWarning, match=f"{old!r} is now"):
            assert (row.paper == old) is new
        with pytest.warns(DeprecationWarning, match=f"{old!r} is now"):
            assert (row.paper != old) is not new
    with pytest.warns(DeprecationWarning, match="is now 'joshi2023'"):
        assert PAPERS["004"] == PAPERS["joshi2023"]
    with pytest.warns(DeprecationWarning, match="is now 'zheng2024'"):
        assert Numbered("001", "Lemma 1", "a:b", "nothing").paper == "zheng2024"
    with pytest.raises(KeyError):
        PAPERS["005"]


def test_a_paper_is_a_namespace():
    """Of what is marked in it, and all of that can be reached without the paper's name."""
    for row in THEOREMS:
        if row.where.startswith("performative.theory."):
            assert row.where.split(".")[2].split(":")[0] == row.paper
    for paper in PAPERS:
        namespace = getattr(theory, paper)
        assert all(getattr(theory, name) is getattr(namespace, name) for name in namespace.__all__)
