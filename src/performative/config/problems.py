"""The [problem] of a file, whatever else stands in it."""

from pathlib import Path

from performative.config.build import Builder
from performative.config.document import parse, read_problem
from performative.config.errors import ConfigError
from performative.problem import Problem


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
