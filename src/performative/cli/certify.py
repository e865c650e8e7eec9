"""`performative certify`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.assess import LABEL, POSITIVE, STRATEGIC, Scale, Who, listed
from performative.cli.output import Exit, Failure, Json, Set, check_file_for_set, failing, reject_unused, reporting


def certify(
    source: Annotated[str, typer.Argument(help="TOML file with [problem], or a table of people as for assess.")],
    label: Annotated[str | None, typer.Option("--label", help=f"For a table: {LABEL[0].lower()}{LABEL[1:]}")] = None,
    positive: Annotated[str | None, typer.Option("--positive", help=POSITIVE)] = None,
    client: Annotated[str | None, typer.Option("--client", help="Client column, such as the bank.")] = None,
    strategic: Annotated[str, typer.Option("--strategic", help=STRATEGIC)] = "",
    strength: Annotated[float, typer.Option("--strength", min=0.0, help="Response strength.")] = 1.0,
    who: Annotated[Who, typer.Option("--who", help="Who responds: everyone, or only class 1.")] = Who.EVERYONE,
    ignore: Annotated[str, typer.Option("--ignore", help="Columns to ignore, comma-separated.")] = "",
    scale: Annotated[Scale, typer.Option("--scale", help="auto clips columns with extreme values.")] = Scale.AUTO,
    rows: Annotated[int, typer.Option("--rows", min=10, help="Maximum number of rows, drawn at random.")] = 5000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draws.")] = 0,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Will retraining settle, where, and at what cost? Compares what theorems guarantee with what was measured."""
    with reporting(as_json, entries) as reporter:
        from performative.certify import certify as judge

        notes: tuple[str, ...] = ()
        if Path(source).suffix == ".toml":
            from performative.config.problems import load_problem

            told = "is for a table of people; the file sets it in [problem]: change it there, or with --set."
            roles = ("label", "positive", "client", "strategic", "strength", "who", "ignore", "scale", "rows")
            reject_unused(told, *roles)
            problem = load_problem(source)
        elif label is None:
            raise Failure(f"{source}: specify the label column with --label NAME.", Exit.BAD_INPUT)
        else:
            import dataclasses

            import numpy as np

            check_file_for_set(entries, source, "a table")
            from performative.assess.assessing import stronger
            from performative.assess.problems import problem_of_people

            with failing((ValueError, OSError), file=source):
                problem, made, _ = problem_of_people(
                    source, label=label, positive=positive, client=client, strategic=listed(strategic) or None,
                    strength=strength, ignore=listed(ignore), scale=scale.value, rows=rows, seed=seed,
                )  # fmt: skip
            people = stronger(problem.population, np.asarray(strength, np.float64), who.value)
            problem, notes = dataclasses.replace(problem, population=people), made.notes
        with failing(file=source), reporter.errors.status("certifying"):
            found = judge(problem, seed=seed, progress=False)
        reporter.show(str(found))
        for note in notes:
            reporter.show(f"- {note}", style="dim")
        reporter.result({"status": "completed", "file": source, **found.to_dict(), "notes": list(notes)})
