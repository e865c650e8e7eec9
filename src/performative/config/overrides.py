"""Override entries of a file from the command line: `--set algorithm.rate=0.2`."""

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from performative.config.errors import ConfigError, shown

_SET: ContextVar[tuple[str, ...]] = ContextVar("set", default=())


@contextmanager
def overriding(words: Sequence[str] | None) -> Iterator[None]:
    """Override these entries in files read inside the block: "key.of.a.table=value" each, with a TOML value."""
    token = _SET.set(tuple(words or ()))
    try:
        yield
    finally:
        _SET.reset(token)


def replaced(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the entries set by `overriding`."""
    for word in _SET.get():
        key, sign, text = word.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not sign or not all(names):
            raise ConfigError(f"--set {word}: write key=value, such as --set run.rounds=50.")
        table = document
        for name in names[:-1]:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"--set {word}: {name} is {shown(table)}, not a table.")
        table[names[-1]] = _value(text.strip())
    return document


def _value(text: str) -> Any:
    """A TOML value; anything else is text, so words need no quotes."""
    try:
        found = tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["x"] if list(found) == ["x"] else text
