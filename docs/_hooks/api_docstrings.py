"""Docstrings as Markdown, and arguments of classes, for the API reference (an extension of griffe).

Docstrings here are written to be read in a terminal: `name: what it is` on lines of their own, lists without an empty
line before them. In Markdown these would run together. Parts get their constructors from their fields, which reading
the source does not show.
"""

import contextlib
import dataclasses
import importlib
import inspect
import re
import sys
from typing import Any

import griffe
from page_reference import modules, split_example

_ENTRY = re.compile(r"^(?P<names>[\w*]+(?:, [\w*]+)*):\s+(?P<text>\S.*)$")
_COLUMNS = re.compile(r"^(?P<names>\w+(?: \w+)*) {2,}(?P<text>\S.*)$")
_ITEM = re.compile(r"^- ")


class ReadableDocstrings(griffe.Extension):
    """Once a package is read, every docstring in it becomes Markdown."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for name in modules():  # others (commands, Flower) are not imported for their docstrings
            importlib.import_module(f"{pkg.path}.{name}")
        _visit(pkg)


def _visit(thing: Any) -> None:
    for member in thing.members.values():
        if member.is_alias:
            continue
        if member.is_class:
            _add_constructor(member)
        if member.docstring is not None:
            text, _ = split_example(member.docstring.value)  # which the page shows as a block that runs
            member.docstring.value = as_markdown(text, _names(member))
        if member.is_module or member.is_class:
            _visit(member)


def _runtime(member: Any) -> Any:
    """The object itself; None where its module is not one of those that were imported."""
    names, module = [], member
    while not module.is_module:
        names.insert(0, module.name)
        module = module.parent
    found: Any = sys.modules.get(module.path)
    for name in names:
        found = getattr(found, name, None)
    return found


def _names(member: Any) -> set[str]:
    """What a docstring may explain line by line: arguments, fields and members."""
    found = _runtime(member)
    names = set(dir(found)) if inspect.isclass(found) else set()
    if dataclasses.is_dataclass(found):
        names |= {field.name for field in dataclasses.fields(found)}
    with contextlib.suppress(TypeError, ValueError):
        names |= set(inspect.signature(found).parameters)
    return names


def _add_constructor(member: Any) -> None:
    """What a record of fields is called with."""
    found = _runtime(member)
    if "__init__" in member.members or not dataclasses.is_dataclass(found):
        return
    try:
        given = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return
    own = griffe.Parameters(griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword))
    for one in given:
        default = None if one.default is inspect.Parameter.empty else _shown(one.default)
        own.add(griffe.Parameter(one.name, kind=griffe.ParameterKind(one.kind.description), default=default))
    member.set_member("__init__", griffe.Function("__init__", parameters=own, lineno=member.lineno))


def _shown(default: Any) -> str:
    text = repr(default)
    return "..." if "object at 0x" in text or "<factory>" in text or len(text) > 40 else text


def as_markdown(text: str, names: set[str]) -> str:
    """The docstring with its lists as lists. Indented blocks, which are equations and code, stay as they are."""
    written: list[str] = []
    in_list = after_blank = False
    columns = sum(bool(_COLUMNS.match(line)) for line in text.split("\n")) >= 3
    for line in text.split("\n"):
        found = _ENTRY.match(line)
        if found and not all("*" in name or name in names for name in found["names"].split(", ")):
            found = None
        if not found and columns:
            found = _COLUMNS.match(line)
        if found:
            line = f"- {', '.join(f'`{name}`' for name in found['names'].split(', '))}: {found['text']}"
        if found or _ITEM.match(line):
            if not in_list and written and written[-1]:
                written.append("")
            in_list = True
        elif in_list and line.startswith(" ") and not after_blank:
            line = "  " + line.strip()  # the rest of an item
        elif in_list and line:
            if not after_blank:
                written.append("")
            in_list = False
        elif not line:
            in_list = False
        after_blank = not line
        written.append(line)
    return "\n".join(written)
