"""The documentation site, without building it: pages, links, evidence, blocks. `make docs` runs the blocks."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_hooks"))

from page_blocks import read_blocks  # noqa: E402
from page_evidence import EXPERIMENTS, link_claims, missing_evidence  # noqa: E402

# The reference has an author, and tests, of its own.
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.relative_to(DOCS).parts[0] not in ("_hooks", "api")
}
SETTINGS = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.BaseLoader)


def without_blocks(markdown: str) -> str:
    lines = markdown.split("\n")
    for block in reversed(read_blocks(markdown)):
        del lines[block.first : block.last + 1]
    return "\n".join(lines)


def prose(markdown: str) -> str:
    """A page without its blocks and without code inside of lines."""
    return re.sub(r"`[^`]*`", "", without_blocks(markdown))


def slug(title: str) -> str:
    """The anchor that Markdown's table of contents gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower())


@functools.cache
def anchors(page: str) -> set[str]:
    """Of the headings of a page; a comment in a block is none."""
    return {slug(title) for title in re.findall(r"^#+ (.*)$", without_blocks(PAGES[page]), flags=re.MULTILINE)}


def in_nav(items) -> list[str]:
    found = []
    for item in items:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        found += [value] if isinstance(value, str) else in_nav(value)
    return found


def test_every_page_is_in_the_navigation_and_the_other_way_round():
    listed = in_nav(SETTINGS["nav"])
    assert sorted(listed) == sorted({*PAGES, "stability.md", "api/"})
    assert len(PAGES) > 20


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page])):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        there = (Path(page).parent / file).as_posix() if file else page
        there = re.sub(r"[^/]+/\.\./", "", there)
        if there.startswith("api/"):
            assert (DOCS / there).exists(), f"{page} links to {target}"
            continue
        assert there in PAGES, f"{page} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page} links to {target}"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_parse_and_are_where_they_run(page):
    for block in read_blocks(PAGES[page]):
        if block.language != "python":
            continue
        ast.parse(block.code)
        assert block.indent == 0, f"{page}, line {block.first + 1}: an indented block does not run"
        assert block.runs, f"{page}, line {block.first + 1}: every Python block runs so far; say here why this does not"
        assert set(block.options) <= {"fold", "title", "alt"}
        assert max(len(line) for line in block.code.split("\n")) <= 100, "too wide for a page"


@pytest.mark.parametrize("page", PAGES)
def test_named_evidence_exists(page):
    assert missing_evidence(PAGES[page]) == []


def test_evidence_that_does_not_exist_is_found():
    assert missing_evidence("`tests/docs/test_site.py::test_links_resolve`") == []
    assert missing_evidence("`tests/docs/test_site.py::test_nothing`") == ["tests/docs/test_site.py::test_nothing"]
    assert missing_evidence("`tests/docs/test_nowhere.py`") == ["tests/docs/test_nowhere.py"]
    assert EXPERIMENTS.is_dir()
    assert missing_evidence("`claim:p_fedavg/fig1a#no-such-claim`") == ["claim:p_fedavg/fig1a#no-such-claim"]
    assert link_claims("`claim:a/b_c#d`", "claims.md") == "[`a/b_c#d`](claims.md#a-b-c-d)"


def test_every_erratum_has_evidence():
    text = PAGES["errata.md"]
    points = re.split(r"^\*\*", text.split("## P-FedAvg", 1)[1], flags=re.MULTILINE)[1:]
    assert len(points) >= 35
    for point in points:
        evidence = point.partition("\n\nEvidence:")[2]
        assert re.search(r"`tests/\S+::test_\w+`|`claim:\S+#\S+`", evidence), point[:80]


def test_numbers_are_not_typed():
    """Measured numbers come from blocks. Prose has versions and theorems; two pages say how they measured."""
    results = "Theorem|Lemma|Proposition|Corollary|Example|Appendix|Section"
    allowed = re.compile(rf"Python 3\.11|1\.41|(?:{results})s? [A-Z]?\.?\d")
    for page, text in PAGES.items():
        if page in ("performance.md", "errata.md", "stability.md"):  # measured, numbered, or about versions
            continue
        left = allowed.sub("", prose(text))
        assert re.findall(r"\b\d+\.\d+\b", left) == [], page


def test_nothing_is_fetched_from_elsewhere():
    assert SETTINGS["theme"]["font"] == "false"
    assert SETTINGS["use_directory_urls"] == "false", "pages must open from disk"
    for text in (*PAGES.values(), (DOCS / "assets" / "site.css").read_text()):
        assert not re.search(r"```\s*mermaid|@import|url\(['\"]?https?:|<(?:script|img|iframe)\b", text)
    assert not {"extra_javascript", "repo_url"} & set(SETTINGS)


def test_outputs_are_out_of_git():
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {"site/", ".cache/"} <= set(ignored)
