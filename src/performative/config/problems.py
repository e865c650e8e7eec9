"""The [problem] of a file, whatever else it contains."""

from pathlib import Path
from typing import Any

from performative._base.checks import nearest
from performative.config.build import Builder
from performative.config.document import parse, read_problem
from performative.config.errors import ConfigError
from performative.problem import Problem

# A file for `performative run` may also have a [plan] and a [design]; each reader ignores the others.
_TABLES = ("title", "problem", "plan", "design", "privacy", "algorithm", "run", "federation", "audit")


def parse_with(file: Path, own: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of a file, and its table [own], which may be missing; other known tables are ignored."""
    document = parse(file)
    for name in document:
        if name not in _TABLES:
            raise ConfigError(f"unknown key {name!r}.{nearest(name, _TABLES)}")
    if not isinstance(document.get("problem"), dict):
        raise ConfigError("[problem] is missing.")
    table = document.get(own, {})
    if not isinstance(table, dict):
        raise ConfigError("expected a table.", own)
    return document, table


def load_problem(path: str | Path) -> Problem:
    """The problem that a TOML file describes."""
    file = Path(path)
    try:
        document = parse(file)
        if not isinstance(document.get("problem"), dict):
            raise ConfigError("[problem] is missing.")
        return read_problem(Builder(file.parent), document["problem"])
    except ConfigError as error:
        raise ConfigError(error.message, error.key, file) from error.__cause__
