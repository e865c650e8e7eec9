"""`performative design`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import Exit, Failure, Json, Set, check_file_for_set, reporting


def design(
    source: Annotated[Path, typer.Argument(help="TOML file with [problem] and [design], or a folder of logs.")],
    effect: Annotated[
        float | None, typer.Option("--effect", help="Reaction to detect, in column units per parameter unit.")
    ] = None,
    power: Annotated[float | None, typer.Option("--power", help="Probability of detecting it (default: 0.9).")] = None,
    width: Annotated[float | None, typer.Option("--width", help="Or the width of the slope's interval.")] = None,
    deployments: Annotated[int | None, typer.Option("--deployments", help="Maximum number (default: 20).")] = None,
    size: Annotated[float | None, typer.Option("--size", help="Largest step in a parameter.")] = None,
    column: Annotated[str | None, typer.Option("--column", help="Column that reacts (default: the noisiest).")] = None,
    each: Annotated[bool, typer.Option("--each", help="Each client's own slope, not one common to all.")] = False,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Choose what to deploy next: the least exploration that detects a reaction, or narrows its interval.

    Reports the step sizes, the clients, the number of deployments, and the cost in deployed loss.
    A folder of logs has the format that `performative audit` reads.
    """
    with reporting(as_json, entries) as reporter:
        from performative.audit.schema import LogError
        from performative.design import design as choose

        options: dict[str, Any] = {
            "effect": effect, "power": power, "width": width, "deployments": deployments, "size": size,
            "column": column, "each": each or None,
        }  # fmt: skip
        given = {name: value for name, value in options.items() if value is not None}
        people: Any = source
        if not source.is_dir():
            from performative.config.designing import load_design

            people, given = load_design(source, given)
        elif effect is None and width is None:
            raise Failure(f"{source}: set the target with --effect or --width.", Exit.BAD_INPUT)
        else:
            check_file_for_set(entries, source, "a folder of logs")
        try:
            with reporter.errors.status("designing"):
                found = choose(people, **given)
        except LogError as error:
            raise Failure(str(error), Exit.BAD_INPUT, file=error.file, row=error.row, column=error.column) from error
        except ValueError as error:
            raise Failure(f"{source}: {error}", Exit.BAD_INPUT) from error
        reporter.show(str(found))
        reporter.result({"status": "completed", "source": str(source), **found.to_dict()})
