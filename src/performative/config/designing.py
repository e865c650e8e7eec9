"""A file for `performative design`: [problem] and [design]."""

from pathlib import Path
from typing import Any

from performative.config.build import Builder
from performative.config.document import read_all
from performative.config.errors import ConfigError
from performative.config.problems import parse_with
from performative.design import design
from performative.problem import Problem


def load_design(path: str | Path, overrides: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The problem, and the arguments of `pf.design`. `overrides` replace entries of [design]."""
    file = Path(path)
    try:
        document, table = parse_with(file, "design")
        # Only one target: an effect on the command line replaces a width in the file, and vice versa.
        if overrides.keys() & {"effect", "width"}:
            table = {name: value for name, value in table.items() if name not in ("effect", "width")}
        table = table | overrides
        builder = Builder(file.parent)
        options = builder.keywords(design, table, "design", leave_out=("source",))
        if not table.keys() & {"effect", "width"}:
            raise ConfigError("needs effect = ... or width = ...; or pass --effect or --width.", "design")
        return read_all(builder, document)[0], options
    except ConfigError as error:
        raise ConfigError(error.message, error.key, file) from error.__cause__
