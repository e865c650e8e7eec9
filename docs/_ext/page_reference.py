"""The parts of the API reference that are generated from the package.

    <!-- generate: entries MODULE ... -->   at the end of a page: entries of the public names of performative.MODULE
                                            that no page lists explicitly. It also assigns the modules to this page.
    <!-- generate: names PAGE -->           a table of all names on a page
    <!-- generate: parts -->                a table of the parts that fit into each slot

A docstring may contain an `Example:`; it is shown below the entry as a block that runs, and the page needs no other.
"""

import dataclasses
import functools
import html
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[1] / "api"
_MARK = re.compile(r"^<!-- generate: entries ([\w. ]+) -->$", re.MULTILINE)
_ENTRY = re.compile(r"^\.\. (?:auto\w+|py:data):: performative\.(\S+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```\{eval-rst\}\n.*?^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"\n+Examples?:\n+(?P<code>(?:    .*(?:\n|\Z)|\n)+)")


def pages() -> list[Path]:
    """The pages of the reference, without the one that lists all names."""
    return sorted(path for path in PAGES.glob("*.md") if path.name != "index.md")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@functools.cache
def modules() -> dict[str, str]:
    """Public module -> the page that lists its names."""
    return {module: page.stem for page in pages() for mark in _MARK.findall(read(page)) for module in mark.split()}


def entries(markdown: str) -> list[str]:
    """The names that have an entry on a page, as paths below `performative`."""
    return _ENTRY.findall(markdown)


def complete(markdown: str) -> str:
    """A page with its mark replaced by entries, and with examples from docstrings below their entries."""
    markdown = _MARK.sub(lambda mark: "\n\n".join(map(entry, _not_shown(mark[1].split()))), markdown)
    return _BLOCK.sub(lambda block: block[0] + "".join(map(_example, entries(block[0]))), markdown)


def entry(path: str) -> str:
    """An autodoc directive; abstract classes are shown with their methods."""
    thing, members = resolve(path), "\n   :members:" * path.rpartition(".")[2].startswith("Abstract")
    kind = "autoclass" if inspect.isclass(thing) else "autofunction" if callable(thing) else "py:data"
    return f"```{{eval-rst}}\n.. {kind}:: performative.{path}{members}\n```"


def resolve(path: str) -> Any:
    """The thing itself."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"performative.{module}" if module else "performative"), name)


def split_example(docstring: str) -> tuple[str, str]:
    """A docstring without its example, and the code of the example (empty if it has none)."""
    found = _EXAMPLE.search(docstring)
    if not found:
        return docstring, ""
    rest = docstring[found.end() :]
    return docstring[: found.start()] + ("\n\n" + rest if rest else ""), inspect.cleandoc(found["code"])


def names(page: str) -> str:
    """The names on a page, each with the first line of its docstring."""
    text = complete(read(PAGES / f"{page}.md"))
    lines = ["| name | what it is |", "| --- | --- |"]
    lines += [f"| {_link(path, _shown_as(path))} | {cell(_first_line(path, text))} |" for path in entries(text)]
    return "\n".join(lines)


def parts() -> str:
    """The parts that fit into each slot of a problem and an algorithm, from the package; wrappers last."""
    from performative import Algorithm, Problem
    from performative.config import registry

    lines = ["| slot | what it specifies | parts |", "| --- | --- | --- |"]
    for slot in (field.name for record in (Problem, Algorithm) for field in dataclasses.fields(record)):
        module = registry.SLOTS.get(slot)
        if module is None:
            continue
        said = (inspect.getdoc(importlib.import_module(f"performative.{module}")) or "").split("\n")[0]
        found = _parts_of(slot, module)
        wrappers = [name for name, part in found.items() if "inner" in getattr(part, "__dataclass_fields__", ())]
        links = {name: _link(_path_of(module, name), name) for name in found}
        listed = ", ".join(links[name] for name in found if name not in wrappers)
        listed += f"; wrappers: {', '.join(links[name] for name in wrappers)}" if wrappers else ""
        lines.append(f"| {slot} | {cell(said)} | {listed} |")
    return "\n".join(lines)


def cell(text: str) -> str:
    """Escape text for a Markdown table: a bar would end the cell. Code in backticks is left as is."""
    pieces = text.split("`")
    for at in range(0, len(pieces), 2):
        escaped = html.escape(pieces[at], quote=False)
        pieces[at] = escaped.replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")
    return "`".join(pieces)


def _parts_of(slot: str, module: str) -> dict[str, Any]:
    """Name -> built-in part; a record created by a function (`Constant`) is listed as that function (`constant`)."""
    from performative.config import registry

    here = importlib.import_module(f"performative.{module}")
    base = getattr(here, f"Abstract{slot.capitalize()}", Any)
    found = {**registry.parts(module, (base,)), **registry.functions(module, "theta", "z")}
    ours = {name: part for name, part in found.items() if name in here.__all__}
    made = {name.replace("_", "") for name in ours if name.islower()}
    return {name: part for name, part in ours.items() if name.islower() or name.lower() not in made}


@functools.cache
def _by_hand() -> list[str]:
    return [path for page in pages() for path in entries(read(page))]


def _path_of(module: str, name: str) -> str:
    """The path under which a public name has its entry: a different one if a page lists the same object explicitly."""
    here = f"{module}.{name}"
    same = (path for path in _by_hand() if path.rpartition(".")[2] == name and resolve(path) is resolve(here))
    return next(same, here)


def _not_shown(of: list[str]) -> list[str]:
    """Public names of modules that no page lists explicitly; modules have pages, not entries."""
    public = ((module, name) for module in of for name in importlib.import_module(f"performative.{module}").__all__)
    paths = (_path_of(module, name) for module, name in public)
    return [path for path in paths if path not in _by_hand() and not inspect.ismodule(resolve(path))]


def _example(path: str) -> str:
    code = split_example(_docstring(path))[1]
    return f"\n\n```{{code-cell}} python\n{code}\n```" if code else ""


def _docstring(path: str) -> str:
    thing = resolve(path)
    return inspect.getdoc(thing) or "" if callable(thing) or inspect.ismodule(thing) else ""


def _shown_as(path: str) -> str:
    """The name; with its module if that is nested (`populations.shares.Linear`)."""
    module, _, name = path.rpartition(".")
    return path if "." in module and module in modules() else name


def _link(path: str, name: str) -> str:
    return f"{{py:obj}}`{name} <performative.{path}>`"


def _first_line(path: str, page: str) -> str:
    """The first sentence of a docstring. A constant has none: then the text below its entry on the page."""
    text = _docstring(path)
    if not text:
        block = next(found for found in _BLOCK.finditer(page) if path in entries(found[0]))
        text = page[block.end() :].lstrip("\n")
    sentence = re.match(r"(?s).*?(?:[.?!](?=\n|\Z)|(?=\n\n|\Z))", text)
    return " ".join(sentence[0].split()) if sentence else ""
