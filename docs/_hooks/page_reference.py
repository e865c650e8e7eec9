"""The API reference, as far as it collects itself from the package.

    <!-- generate: entries MODULE ... -->   at the end of a page: entries of the public names of performative.MODULE
                                            that no page shows by hand. It says also whose page this is.

A docstring may end with an example, for which the page needs none:

    Example:

        print(pf.participation.Full())

On the page it stands below the entry, as a block that runs.
"""

import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[1] / "api"
_MARK = re.compile(r"^<!-- generate: entries ([\w. ]+) -->$", re.MULTILINE)
_ENTRY = re.compile(r"^::: performative\.(\S+)$(?:\n +\S.*)*", re.MULTILINE)
_EXAMPLE = re.compile(r"\n+Example:\n\n(?P<code>(?:    .*(?:\n|\Z)|\n)+)\Z")


def pages() -> list[Path]:
    """The pages of the reference, without the one that lists all names."""
    return sorted(path for path in PAGES.glob("*.md") if path.name != "index.md")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@functools.cache
def modules() -> dict[str, str]:
    """Public module -> the page that its names stand on."""
    return {module: page.stem for page in pages() for mark in _MARK.findall(read(page)) for module in mark.split()}


def entries(markdown: str) -> list[str]:
    """What has an entry on a page, as paths below `performative`."""
    return [found[1] for found in _ENTRY.finditer(markdown)]


def complete(markdown: str) -> str:
    """A page with entries in the place of its marks, and examples from docstrings below their entries."""
    markdown = _MARK.sub(lambda mark: "\n\n".join(map(_entry, _not_shown(mark[1].split()))), markdown)
    return _ENTRY.sub(lambda entry: entry[0] + _block(entry[1]), markdown)


def resolve(path: str) -> Any:
    """The thing itself."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"performative.{module}" if module else "performative"), name)


def path_of(module: str, name: str) -> str:
    """The path under which a public name has its entry: another one where a page shows the same thing by hand."""
    here = f"{module}.{name}"
    thing = resolve(here)
    same = (path for path in _by_hand() if path.rpartition(".")[2] == name and resolve(path) is thing)
    return next(same, here)


def shown_as(path: str) -> str:
    """The name; with its module where that is one within another (`populations.shares.Linear`)."""
    module, _, name = path.rpartition(".")
    return path if "." in module and module in modules() else name


def first_line(path: str, page: str) -> str:
    """What a docstring begins with. A constant has none: then what the page says below its entry."""
    text = _docstring(path)
    if not text:
        entry = next(found for found in _ENTRY.finditer(page) if found[1] == path)
        text = page[entry.end() :].lstrip("\n")
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if line else []
        if not line or line.endswith((".", "?", "!")):
            break
    return re.sub(r" +", " ", " ".join(lines))


def split_example(docstring: str) -> tuple[str, str]:
    """A docstring without its example, and the code of the example; empty where it has none."""
    found = _EXAMPLE.search(docstring)
    return (docstring[: found.start()], inspect.cleandoc(found["code"])) if found else (docstring, "")


def forget() -> None:
    """A new build looks again."""
    for known in (modules, _by_hand):
        known.cache_clear()


@functools.cache
def _by_hand() -> list[str]:
    return [path for page in pages() for path in entries(read(page))]


def _not_shown(of: list[str]) -> list[str]:
    """Public names of modules that no page shows by hand; what is a module has pages, not entries."""
    public = ((module, name) for module in of for name in importlib.import_module(f"performative.{module}").__all__)
    paths = (path_of(module, name) for module, name in public)
    return [path for path in paths if path not in _by_hand() and not inspect.ismodule(resolve(path))]


def _entry(path: str) -> str:
    """As those that are written by hand: arguments beside the class, and what is abstract with its methods."""
    thing, options = resolve(path), []
    if not (inspect.isclass(thing) and path.rpartition(".")[2].startswith("Abstract")):
        options.append("members: false")
    if inspect.isclass(thing):
        options.append("merge_init_into_class: true")
    return "\n".join([f"::: performative.{path}", "    options:", *(f"      {option}" for option in options)])


def _block(path: str) -> str:
    code = split_example(_docstring(path))[1]
    return f"\n\n```python\n{code}\n```" if code else ""


def _docstring(path: str) -> str:
    thing = resolve(path)
    return inspect.getdoc(thing) or "" if callable(thing) or inspect.ismodule(thing) else ""
