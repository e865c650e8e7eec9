"""`performative plan`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import Exit, Failure, Json, Set, reporting


def plan(
    file: Annotated[Path, typer.Argument(help="TOML file with [problem] and [plan], and [privacy] if needed.")],
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", help="Overrides plan.accuracy: target error, in units of theta.")
    ] = None,
    no_pilots: Annotated[bool, typer.Option("--no-pilots", help="Trust the linear model; run nothing.")] = False,
    seed: Annotated[int | None, typer.Option(help="Overrides plan.seed.")] = None,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Choose local steps, clients per round, batch and rate to reach an accuracy in the least time.

    [plan] contains accuracy and cost = { step, sample, communication, latency }, times in any unit.
    If the data drift: the step size and batch that track them most closely, and the best retraining.
    """
    with reporting(as_json, entries) as reporter:
        from performative.config.planning import load_plan
        from performative.plan import plan as choose

        overrides: dict[str, Any] = {"accuracy": accuracy, "seed": seed, "pilots": False if no_pilots else None}
        problem, options = load_plan(file, overrides)
        try:
            with reporter.errors.status("planning"):
                found = choose(problem, **options)
        except ValueError as error:
            raise Failure(f"{file}: {error}", Exit.BAD_INPUT) from error
        reporter.show(str(found))
        reporter.result({"status": "completed", "file": str(file), **found.to_dict()})
