"""A file for `performative plan`: [problem], [plan], and [privacy] where people are to be protected."""

from pathlib import Path
from typing import Any

from performative._base.checks import nearest
from performative.config.build import Builder
from performative.config.document import parse, read_problem
from performative.config.errors import ConfigError
from performative.plan import Cost, plan
from performative.privacy.promise import Privacy
from performative.problem import Problem

# A file for `performative run` may have a [plan] too: its other tables are left alone.
_TABLES = ("title", "problem", "plan", "design", "privacy", "algorithm", "run", "federation", "audit")


def load_plan(path: str | Path, overrides: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The problem, and the arguments of `pf.plan`. `overrides` replace entries of [plan], but for None."""
    file = Path(path)
    try:
        document = parse(file)
        for name in document:
            if name not in _TABLES:
                raise ConfigError(f"unknown key {name!r}.{nearest(name, _TABLES)}")
        if not isinstance(document.get("problem"), dict):
            raise ConfigError("[problem] is missing.")
        table = document.get("plan", {})
        if not isinstance(table, dict):
            raise ConfigError("expected a table.", "plan")
        table = table | {name: value for name, value in overrides.items() if value is not None}
        builder = Builder(file.parent)
        problem = read_problem(builder, document["problem"])
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
