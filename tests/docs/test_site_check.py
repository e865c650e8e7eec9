"""Links and pictures: of the sources here, without building, and of a built site by `docs/_ext/site_check.py`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import keep_version  # noqa: E402  after the path
import site_check  # noqa: E402  after the path

LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?\)")
FENCE = re.compile(r"^ *(```+|:::+).*?^ *\1$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")])


def markdown(path: Path) -> str:
    """The text of a page, or that of a notebook's cells of text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return text


def anchors(text: str) -> set[str]:
    """Those of headings, as GitHub and MyST make them, and those that are written."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub(lambda block: block[0].strip("`"), text), flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))


def faults(path: Path) -> list[str]:
    """Links that lead nowhere. What is generated when the site is built (anchors of claims) is checked there."""
    found = []
    for link in LINK.findall(FENCE.sub("", markdown(path))):
        if re.match(r"[a-z]+:", link):
            if site_check._fault(link, path, {}):
                found.append(link)
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(markdown(target))):
            found.append(link)
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_of_the_sources_lead_somewhere(path):
    assert faults(path) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A head line\n[a](#a-head-line) [b](page.md) [c](https://a.org/x) `[d](no.md)` [e](no.md) "
                    "[f](#no) [g](https://nohost/x) [h](page.md#no)\n")  # fmt: skip
    assert faults(page) == ["no.md", "#no", "https://nohost/x", "page.md#no"]


def test_pictures_of_blocks_are_described():
    """A block that saves a picture, or makes one through `show`, says what is on it."""
    lost = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(
            r"^```\{code-cell\} python\n(.*?)^```$", path.read_text(), flags=re.MULTILINE | re.DOTALL
        ):
            draws = re.search(r"""\.(?:png|svg)["']""", block)
            if (
                draws
                and "savefig" in block + "savefig" * ("show(" in block)
                and not re.search(r"alt: \"[^\"]{30,}", block)
            ):
                lost.append(f"{path.name}: {draws[0]}")
    assert lost == []


SITE = {
    "index.html": '<h1 id="top">A</h1><a href="b/page.html#here">b</a><a href="#top">t</a><a href="https://flower.ai">f</a>'
    '<img src="x.svg" alt="A line."><a href="b/">b</a>',
    "b/page.html": '<form class="sidebar-search-container"></form><p id="here"><a href="../index.html">up</a></p>',
    "b/index.html": "<p>b</p>",
    "x.svg": "<svg/>",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_sound_site_passes(tmp_path):
    script = [sys.executable, ROOT / "docs" / "_ext" / "site_check.py", write(tmp_path, SITE)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert not done.returncode and "3 pages" in done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<a href="gone.html">x</a>', "gone.html: no such file"),
        ('<a href="b/page.html#gone">x</a>', "no such anchor"),
        ('<a href="http//typo">x</a>', "no such file"),
        ('<a href="https://typo">x</a>', "not a web address"),
        ('<img src="x.svg">', "has no description"),
        ('<script src="https://cdn.org/x.js"></script>', "loaded from another host"),
    ],
)
def test_a_fault_of_a_site_is_named(tmp_path, text, told):
    wrong = site_check.check(
        write(tmp_path, SITE | {"b/index.html": text.replace('"b/', '"').replace("x.svg", "../x.svg")})
    )
    assert len(wrong) == 1 and told in wrong[0] and wrong[0].startswith("b/index.html")


def test_versions_are_kept_side_by_side(tmp_path):
    site, kept = write(tmp_path / "site", SITE), tmp_path / "kept"
    for version in ("0.2.0", "0.10.0", "0.9.1", "0.9.1"):
        versions = keep_version.keep(site, kept, version)
    assert versions == ["0.10.0", "0.9.1", "0.2.0"]
    assert [one["version"] for one in json.loads((kept / "versions.json").read_text())] == versions
    assert site_check.check(kept) == []
    assert '<a class="sidebar-versions" href="../../index.html">' in (kept / "0.2.0/b/page.html").read_text()
    with pytest.raises(FileNotFoundError, match="make docs"):
        keep_version.keep(tmp_path / "nowhere", kept, "1.0")
