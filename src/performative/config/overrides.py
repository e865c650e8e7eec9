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


def replaced(document: dict[str, Any], unread: Sequence[str] = ()) -> dict[str, Any]:
    """The document with the entries set by `overriding`. `unread`: tables of no effect here, which must not be set."""
    for word in _SET.get():
        key, sign, text = word.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not sign or not all(names):
            raise ConfigError(f"--set {word}: write key=value, such as --set run.rounds=50.")
        for table in unread:
            if ".".join([*names, ""]).startswith(f"{table}."):
                raise ConfigError(f"--set {word}: this command does not use [{table}]; drop --set {key.strip()}.")
        here = document
        for name in names[:-1]:
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                raise ConfigError(f"--set {word}: {name} is {shown(here)}, not a table.")
        here[names[-1]] = _value(text.strip())
    return document


def _value(text: str) -> Any:
    """A TOML value; anything else is text, so words need no quotes."""
    try:
        found = tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["x"] if list(found) == ["x"] else text
