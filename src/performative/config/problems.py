"""The [problem] of a file, whatever else it contains."""

from pathlib import Path
from typing import Any

from performative._base.checks import nearest
from performative.config.build import Builder
from performative.config.document import parse, read_all
from performative.config.errors import ConfigError
from performative.problem import Problem

# A file for `performative run` may also have a [plan] and a [design]; each reader ignores the others.
_TABLES = ("title", "problem", "data", "plan", "design", "privacy", "algorithm", "run", "federation", "audit")
_SHARED = ("title", "problem", "data")


def parse_with(file: Path, *own: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of a file, and the first of its tables [own], which may be missing; other known tables are ignored,
    and --set refuses them."""
    document = parse(file, tuple(name for name in _TABLES if name not in (*_SHARED, *own)))
    for name in document:
        if name not in _TABLES:
            raise ConfigError(f"unknown key {name!r}.{nearest(name, _TABLES)}")
    if not isinstance(document.get("problem"), dict):
        raise ConfigError("[problem] is missing.")
    if not isinstance(document.get("data", {}), dict):
        raise ConfigError("expected a table.", "data")
    table = document.get(own[0], {}) if own else {}
    if not isinstance(table, dict):
        raise ConfigError("expected a table.", own[0])
    return document, table


def load_problem(path: str | Path) -> Problem:
    """The problem that a TOML file describes."""
    file = Path(path)
    try:
        document, _ = parse_with(file)
        return read_all(Builder(file.parent), document)[0]
    except ConfigError as error:
        raise ConfigError(error.message, error.key, file) from error.__cause__
