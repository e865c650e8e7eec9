"""The documentation without building it: blocks, evidence, numbers. `make docs` runs blocks and checks links."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXPERIMENTS = ROOT / "src" / "performative" / "papers"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
TEXTS = {page: text for page, text in PAGES.items() if not page.startswith("api/")}
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)
HEAD = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def prose(markdown: str) -> str:
    """A page without its blocks and without code and formulas inside of lines."""
    return re.sub(r"`[^`]*`|\$[^$]*\$", "", FENCE.sub("", HEAD.sub("", markdown)))


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_is_a_cell_that_runs(page):
    blocks = list(FENCE.finditer(PAGES[page]))
    for block in blocks:
        assert not block["info"].startswith(("python", "{code-cell} ipython")), f"{page}: ```{{code-cell}} python runs"
    cells = [block for block in blocks if block["info"].startswith("{code-cell}")]
    assert not any(block["indent"] for block in cells), "a cell inside of a list does not run"
    if cells:
        head = HEAD.match(PAGES[page])
        assert head and "file_format: mystnb" in head[0], f"{page} has cells, so it begins as the other pages that do"
    if page in TEXTS:
        lines = [line for block in cells for line in block["code"].split("\n") if not line.startswith(":")]
        assert max(map(len, lines), default=0) <= 100, "too wide for a page"


def missing_evidence(markdown: str) -> list[str]:
    """Of `tests/file.py::name` and `claim:paper/name#id`, what a page names and there is not."""
    tests = re.findall(r"tests/[\w/]+\.py(?:::\w+)*", markdown)
    claims = re.findall(r"`claim:([\w-]+/[\w-]+)#([\w-]+)`", markdown)
    lost = [f"claim:{name}#{claim}" for name, claim in claims if claim not in claims_of(name)]
    return [where for where in tests if not is_test(where)] + lost


def is_test(where: str) -> bool:
    file, *names = where.split("::")
    return (ROOT / file).exists() and set(names[-1:]) <= defined_in(ROOT / file)


@functools.cache
def defined_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@functools.cache
def claims_of(experiment: str) -> set[str]:
    path = EXPERIMENTS / f"{experiment}.toml"
    told = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {claim["id"] for claim in told.get("claims", ())}


@pytest.mark.parametrize("page", PAGES)
def test_named_evidence_exists(page):
    assert missing_evidence(PAGES[page]) == []


def test_evidence_that_does_not_exist_is_found():
    here = "tests/docs/test_site.py"
    assert missing_evidence(f"`{here}::test_named_evidence_exists` `{here}`") == []
    lost = [f"{here}::test_nothing", "tests/docs/test_nowhere.py", "claim:p_fedavg/fig1a#no-such-claim"]
    assert missing_evidence(" ".join(f"`{one}`" for one in lost)) == lost


def test_every_erratum_has_evidence():
    points = re.split(r"^\*\*", PAGES["errata.md"].split("## P-FedAvg", 1)[1], flags=re.MULTILINE)[1:]
    assert len(points) >= 35
    for point in points:
        evidence = point.partition("\n\n{.evidence}\nEvidence:")[2]
        assert re.search(r"`tests/\S+::test_\w+`|`claim:\S+#\S+`", evidence), point[:80]


def test_numbers_are_not_typed():
    """Measured numbers come from blocks. Prose has versions and theorems; two pages say how they measured."""
    results = "Theorem|Lemma|Proposition|Corollary|Example|Appendix|Section"
    allowed = re.compile(rf"Python 3\.11|1\.41|(?:{results})s? [A-Z]?\.?\d")
    for page, text in TEXTS.items():
        # measured, numbered, or about versions
        if page in ("performance.md", "errata.md", "stability.md", "migration.md"):
            continue
        left = allowed.sub("", prose(text))
        assert re.findall(r"\b\d+\.\d+\b", left) == [], page


def test_outputs_are_out_of_git():
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {"site/", ".cache/"} <= set(ignored)
