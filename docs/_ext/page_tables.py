"""Tables of evidence, generated when the site is built: a page requests one with `<!-- generate: NAME -->`."""

import html
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from page_equations import in_a_table
from page_gallery import gallery
from page_migration import migration
from page_reference import cell, names, parts
from page_suite import hardest, leaderboard, suite, winners
from page_watch import watch_alarms, watch_load, watch_power

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "performative-results"
MARK = re.compile(r"^<!-- generate: (\w+)(?: (\S+))? -->$", re.MULTILINE)
CLAIM = re.compile(r"`claim:([\w-]+/[\w-]+)#([\w-]+)`")
# From "Differs" to the end of the paragraph, lists included.
_DIFFERS = re.compile(r"((?:[^\n.]*\. )?Differs from.*?)(?:\n\n|\Z)", re.DOTALL)
_SEE = re.compile(r"see `(\w+)`")


def generate(markdown: str) -> str:
    """Replace marks by their tables, and claims by links into the ledger."""
    markdown = MARK.sub(lambda mark: TABLES[mark[1]](*filter(None, [mark[2]])), markdown)
    return CLAIM.sub(lambda found: f"[`{found[1]}#{found[2]}`](#{anchor(found[1], found[2])})", markdown)


def anchor(name: str, claim: str) -> str:
    """The anchor of a claim on the page of the ledger."""
    return re.sub(r"[^a-z0-9]+", "-", f"{name}-{claim}".lower())


def theorems() -> str:
    """One table per paper: result, function, what it says; corrections are listed below it."""
    from performative.theory.index import PAPERS, THEOREMS

    corrected = sum(_differences(row.function) != "" for row in THEOREMS)
    blocks = [f"{len(THEOREMS)} results, {corrected} of them in a form that differs from the printed one."]
    for paper, title in PAPERS.items():
        lines, notes = ["| result | function | says | |", "| --- | --- | --- | --- |"], {}
        for row in (row for row in THEOREMS if row.paper == paper):
            printed = callable(row.function) and "printed" in inspect.signature(row.function).parameters
            if differs := _differences(row.function):
                notes.setdefault(differs, []).append(row.number)
            marks = ", ".join(["corrected"] * bool(differs) + ["`printed=True`"] * printed)
            lines.append(f"| {row.number} | `{_short(row.where)}` | {in_a_table(row.says, cell)} | {marks} |")
        blocks += [f"## {title}", "\n".join(lines)]
        for text, numbers in notes.items():
            head = f"<details><summary>{', '.join(numbers)}: what is corrected</summary>"
            blocks.append(f'{head}<pre class="prose">{html.escape(text)}</pre></details>')
    return "\n\n".join(blocks)


def ledger() -> str:
    """All claims, grouped by paper, with counts of verdicts."""
    from performative.papers import PAPERS
    from performative.papers.claims import KINDS
    from performative.papers.ledger import by_kind, read

    rows = read(RESULTS if RESULTS.is_dir() else None)
    counts = [
        block
        for kind, mine in by_kind(rows).items()
        for block in (f"### {KINDS[kind].capitalize()}", _counted(mine, PAPERS))
    ]
    papers = {title: [row for row in rows if row["paper"] == paper] for paper, title in PAPERS.items()}
    cards = [block for title, mine in papers.items() if mine for block in (f"## {title}", *map(_claim, mine))]
    return "\n\n".join(["## Counts", *counts, *cards])


def _counted(rows: list[dict[str, Any]], papers: dict[str, str]) -> str:
    """Count the claims of each paper by verdict, and their measurements."""
    from performative.papers.ledger import count, distinct

    verdicts = list(count(distinct(rows)))
    head = ["paper", "claims", *verdicts, "measurements"]
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    named = {title: [row for row in rows if row["paper"] == paper] for paper, title in papers.items()}
    for title, mine in {**named, "**all**": rows}.items():
        if mine:
            claims = distinct(mine)
            counted = count(claims)
            cells = [title, len(claims), *(counted.get(verdict, 0) for verdict in verdicts), len(mine)]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def verdicts() -> str:
    """Definitions of the ledger's verdicts."""
    from performative.papers.claims import OWN_VERDICTS, VERDICTS

    own = {word: told for word, told in OWN_VERDICTS.items() if word not in VERDICTS}
    papers, ours = ([f"- **{word}**: {told}." for word, told in words.items()] for words in (VERDICTS, own))
    return "\n".join([*papers, "", "For our own results and checks:", "", *ours])


def _claim(row: dict[str, Any]) -> str:
    """One claim, as an expandable card."""
    name, claim = row["key"].split("#")
    facts = {"How it is tested": row["how"], "Our number": row["number"], "Why": row["reason"]}
    told = "".join(f"<dt>{key}</dt><dd>{html.escape(str(value))}</dd>" for key, value in facts.items() if value)
    verdict, size = row["verdict"], " (quick run)" if row.get("quick") else ""
    return (
        f'({anchor(name, claim)})=\n\n<details class="claim" id="{anchor(name, claim)}"><summary>'
        f'<span class="verdict {verdict.replace(" ", "-")}">{verdict}{size}</span> {html.escape(row["claim"])} '
        f'<span class="place">{html.escape(str(row["place"]))}</span></summary>'
        f"<dl>{told}<dt>Run it</dt><dd><code>performative reproduce {name}</code></dd></dl></details>"
    )


def _differences(function: Any) -> str:
    """What its docstring says about the paper's form; a reference "see `other`" is followed."""
    text = inspect.getdoc(function) or ""
    if found := _DIFFERS.search(text):
        return found[1].strip()
    see = _SEE.search(text)
    other = getattr(sys.modules[function.__module__], see[1], None) if see else None
    return _differences(other) if other is not None and other is not function else ""


def _short(where: str) -> str:
    """Shorten performative.theory.jin2024.theorems:theorem_3_1 to pf.theory.theorem_3_1 if that is exported."""
    import performative

    name = where.replace(":", ".").removeprefix("performative.")
    package, *_, last = name.split(".")
    exported = hasattr(getattr(performative, package, None), last)
    return f"pf.{package}.{last}" if exported else f"performative.{name}"


TABLES = {
    function.__name__: function
    for function in (
        theorems, ledger, verdicts, gallery, names, parts, winners, leaderboard, suite, hardest,
        watch_alarms, watch_power, watch_load, migration,
    )
}  # fmt: skip
