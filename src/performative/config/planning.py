"""A file for `performative plan`: [problem], [plan], and [privacy] for differential privacy."""

from inspect import signature
from pathlib import Path
from typing import Any

from performative.config.build import Builder
from performative.config.document import read_all
from performative.config.errors import ConfigError
from performative.config.problems import parse_with
from performative.plan import Cost, plan
from performative.privacy.promise import Privacy
from performative.problem import Problem


def load_plan(path: str | Path, overrides: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The problem, and the arguments of `pf.plan`. `overrides` replace entries of [plan], except where None."""
    file = Path(path)
    try:
        document, table = parse_with(file, "plan", "privacy")
        table = table | {name: value for name, value in overrides.items() if value is not None}
        misspelled = not signature(plan).parameters.keys() >= table.keys()  # refused below, with the nearest name
        if "accuracy" not in table and not misspelled:
            raise ConfigError("needs accuracy = ..., the target error in units of theta; or pass --accuracy.", "plan")
        builder = Builder(file.parent)
        problem, _ = read_all(builder, document)
        cost = table.pop("cost", {})
        if not isinstance(cost, dict):
            raise ConfigError("expected a table such as { step = 1, communication = 20 }.", "plan.cost")
        options = builder.keywords(plan, table, "plan", leave_out=("problem", "cost", "privacy"))
        options["cost"] = builder.call(Cost, cost, "plan.cost", module="participation")
        if "privacy" in document:
            options["privacy"] = builder.call(Privacy, document["privacy"], "privacy")
        return problem, options
    except ConfigError as error:
        raise ConfigError(error.message, error.key, file) from error.__cause__
