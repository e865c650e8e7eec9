"""Tables that are made when the site is built: a page asks for one by `<!-- generate: NAME [OF WHAT] -->`."""

import dataclasses
import functools
import html
import importlib
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import page_reference
from page_evidence import anchor

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "performative-results"
# From "Differs" to the end of the paragraph, lists included.
_DIFFERS = re.compile(r"((?:[^\n.]*\. )?Differs from.*?)(?:\n\n|\Z)", re.DOTALL)
_SEE = re.compile(r"see `(\w+)`")


def theorems() -> str:
    """A table a paper: result, function, what it says, and what is corrected below."""
    from performative.theory.index import PAPERS, THEOREMS

    parts = []
    for paper, title in PAPERS.items():
        rows = [row for row in THEOREMS if row.paper == paper]
        lines = ["| result | function | says | |", "| --- | --- | --- | --- |"]
        notes: dict[str, list[str]] = {}
        for row in rows:
            name = row.where.replace(":", ".").removeprefix("performative.")
            printed = "printed" in inspect.signature(row.function).parameters if callable(row.function) else False
            differs = _differences(row.function)
            marks = ["corrected"] * bool(differs) + ["`printed=True`"] * printed
            lines.append(f"| {row.number} | `{_short(name)}` | {_cell(row.says)} | {', '.join(marks)} |")
            if differs:
                notes.setdefault(differs, []).append(row.number)
        parts += [f"## {title}", "", *lines, ""]
        parts += [_fold(f"{', '.join(numbers)}: what is corrected", text) for text, numbers in notes.items()]
    corrected = sum(_differences(row.function) != "" for row in THEOREMS)
    head = f"{len(THEOREMS)} results, {corrected} of them in a form that differs from the printed one."
    return "\n\n".join([head, "\n".join(parts)])


def ledger() -> str:
    """All claims, grouped by paper, with counts of verdicts."""
    from performative.papers import PAPERS
    from performative.papers.ledger import count, read

    rows = read(RESULTS if RESULTS.is_dir() else None)
    if not rows:
        return "There are no rows yet. `performative reproduce --all` makes them."
    papers = {paper: [row for row in rows if row["paper"] == paper] for paper in PAPERS}
    verdicts = list(count(rows))
    lines = [f"| paper | claims | {' | '.join(verdicts)} |", "| --- | ---: |" + " ---: |" * len(verdicts)]
    for paper, mine in {**{PAPERS[p]: r for p, r in papers.items() if r}, "**all**": rows}.items():
        counted = count(mine)
        lines.append(f"| {paper} | {len(mine)} | {' | '.join(str(counted.get(v, 0)) for v in verdicts)} |")
    parts = ["\n".join(lines)]
    for paper, mine in papers.items():
        if mine:
            parts.append(f"## {PAPERS[paper]}")
            parts += [_claim(row) for row in mine]
    return "\n\n".join(parts)


def _claim(row: dict[str, Any]) -> str:
    """One claim, as a card that opens."""
    name, claim = row["key"].split("#")
    facts = {"How it is tested": row["how"], "Our number": row["number"], "Why": row["reason"]}
    told = "".join(f"<dt>{key}</dt><dd>{html.escape(str(value))}</dd>" for key, value in facts.items() if value)
    size = " (quick run)" if row.get("quick") else ""
    verdict = row["verdict"]
    return (
        f'<details class="claim" id="{anchor(name, claim)}"><summary>'
        f'<span class="verdict {verdict.replace(" ", "-")}">{verdict}{size}</span> {html.escape(row["claim"])} '
        f'<span class="place">{html.escape(str(row["place"]))}</span></summary>'
        f"<dl>{told}<dt>Run it</dt><dd><code>performative reproduce {name}</code></dd></dl></details>"
    )


def gallery() -> str:
    """Figures of the results folder, with their verdicts."""
    shown = _manifests()
    if not shown:
        return (
            '!!! note "No figures on this machine yet"\n\n    The site shows what lies in `performative-results/`. '
            "Make all figures in small and build again:\n\n    ```bash\n    performative reproduce --all --quick\n"
            "    make docs\n    ```\n"
        )
    from performative.papers import PAPERS
    from performative.papers.catalog import find

    parts, paper = [], None
    for folder, manifest in shown:
        if manifest["paper"] != paper:
            paper = manifest["paper"]
            parts.append(f"## {PAPERS.get(paper, paper)}")
        name, size = manifest["name"], "quick run" if manifest["quick"] else "full run"
        parts.append(f"### {manifest['title']}")
        figure = next((f for f in (folder / "figure.svg", folder / "figure.png") if f.exists()), None)
        if figure is not None:
            uri = f"assets/gallery/{name.replace('/', '-')}{figure.suffix}"
            parts.append(f"![{html.escape(manifest['title'])}]({uri}){{ .on-paper }}")
        parts.append(f"{manifest['place']}; `performative reproduce {name}` ({size}, {manifest['seconds']:.0f} s).")
        known = {claim.id for claim in find(name).claims}  # a result may be older than the list of claims
        links = {row["id"]: f" `claim:{name}#{row['id']}`" if row["id"] in known else "" for row in manifest["claims"]}
        told = Counter(row["verdict"] for row in manifest["claims"])
        counts = ", ".join(f"{many} {verdict}" for verdict, many in told.items())
        rows = "\n".join(f"    - {row['verdict']}: {row['claim']}{links[row['id']]}" for row in manifest["claims"])
        parts.append(f'??? note "Claims: {counts}"\n\n{rows}')
    return "\n\n".join(parts)


def gallery_files() -> dict[str, Path]:
    """Figures as files of the site, by their address."""
    files = {}
    for folder, manifest in _manifests():
        figure = next((f for f in (folder / "figure.svg", folder / "figure.png") if f.exists()), None)
        if figure is not None:
            files[f"assets/gallery/{manifest['name'].replace('/', '-')}{figure.suffix}"] = figure
    return files


@functools.cache
def _manifests() -> list[tuple[Path, dict[str, Any]]]:
    """What was completed, in the order of the papers; looked up once a build, for runs may go on meanwhile."""
    if not RESULTS.is_dir():
        return []
    from performative.papers.catalog import names

    found = []
    for name in names():
        file = RESULTS / name / "manifest.json"
        manifest = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if manifest.get("status") == "completed":
            found.append((file.parent, manifest))
    return found


def forget() -> None:
    """A new build looks again."""
    _manifests.cache_clear()


def changelog() -> str:
    """CHANGELOG.md without its title."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n", 1)[1].strip()


def names(page: str) -> str:
    """What is on a page of the API reference, each name with the line that its docstring begins with."""
    text = page_reference.complete(page_reference.read(page_reference.PAGES / f"{page}.md"))
    lines = ["| name | what it is |", "| --- | --- |"]
    for path in page_reference.entries(text):
        said = _cell(page_reference.first_line(path, text))
        lines.append(f"| [`{page_reference.shown_as(path)}`][performative.{path}] | {said} |")
    return "\n".join(lines)


def parts() -> str:
    """What can stand in each slot of a problem and an algorithm, as the package has it; wrappers last."""
    from performative import Algorithm, Problem
    from performative.config import registry

    lines = ["| slot | what it says | parts |", "| --- | --- | --- |"]
    for slot in (field.name for record in (Problem, Algorithm) for field in dataclasses.fields(record)):
        module = registry.SLOTS.get(slot)
        if module is None:
            continue
        said = (inspect.getdoc(importlib.import_module(f"performative.{module}")) or "").split("\n")[0]
        found = _parts_of(slot, module)
        wrappers = [name for name, part in found.items() if "inner" in getattr(part, "__dataclass_fields__", ())]
        links = {name: f"[`{name}`][performative.{page_reference.path_of(module, name)}]" for name in found}
        cell = ", ".join(links[name] for name in found if name not in wrappers)
        cell += f"; around another: {', '.join(links[name] for name in wrappers)}" if wrappers else ""
        lines.append(f"| {slot} | {_cell(said)} | {cell} |")
    return "\n".join(lines)


def _parts_of(slot: str, module: str) -> dict[str, Any]:
    """Name -> part, of our own; a record that a function makes (`Constant`) goes by its function (`constant`)."""
    from performative.config import registry

    here = importlib.import_module(f"performative.{module}")
    base = getattr(here, f"Abstract{slot.capitalize()}", Any)
    found = {**registry.parts(module, (base,)), **registry.functions(module, "theta", "z")}
    ours = {name: part for name, part in found.items() if name in here.__all__}
    made = {name.replace("_", "") for name in ours if name.islower()}
    return {name: part for name, part in ours.items() if name.islower() or name.lower() not in made}


def _differences(function: Any) -> str:
    """What its docstring says of the paper's form; one that says "see `other`" is followed there."""
    text = inspect.getdoc(function) or ""
    if found := _DIFFERS.search(text):
        return found[1].strip()
    if see := _SEE.search(text):
        other = getattr(sys.modules[function.__module__], see[1], None)
        return _differences(other) if other is not None and other is not function else ""
    return ""


def _short(name: str) -> str:
    """theory.jin2024.theorems.theorem_3_1 is reached as pf.theory.theorem_3_1 where it is exported."""
    import performative

    package, *_, last = name.split(".")
    exported = hasattr(getattr(performative, package, None), last)
    return f"pf.{package}.{last}" if exported else f"performative.{name}"


def _cell(text: str) -> str:
    """Text for a table of Markdown: a bar would end the cell. What stands in backticks is shown as it is."""
    pieces = text.split("`")
    for at in range(0, len(pieces), 2):
        escaped = html.escape(pieces[at], quote=False)
        pieces[at] = escaped.replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")
    return "`".join(pieces)


def _fold(title: str, text: str) -> str:
    head, body = html.escape(title), html.escape(text)
    return f'<details class="note"><summary>{head}</summary><pre class="prose">{body}</pre></details>\n'


TABLES: dict[str, Callable[..., str]] = {
    "theorems": theorems, "ledger": ledger, "gallery": gallery, "changelog": changelog, "names": names, "parts": parts,
}  # fmt: skip
