"""`performative certify`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.assess import LABEL, POSITIVE, STRATEGIC, Scale, Who, listed
from performative.cli.output import Exit, Failure, Json, Set, failing, reporting


def certify(
    source: Annotated[str, typer.Argument(help="TOML file with [problem], or a table of people as assess reads it.")],
    label: Annotated[str | None, typer.Option("--label", help=f"Of a table: {LABEL}")] = None,
    positive: Annotated[str | None, typer.Option("--positive", help=POSITIVE)] = None,
    client: Annotated[str | None, typer.Option("--client", help="Column that says whose row it is (a bank).")] = None,
    strategic: Annotated[str, typer.Option("--strategic", help=STRATEGIC)] = "",
    strength: Annotated[float, typer.Option("--strength", min=0.0, help="How far people go.")] = 1.0,
    who: Annotated[Who, typer.Option("--who", help="Who responds: everyone, or those of class 1.")] = Who.EVERYONE,
    ignore: Annotated[str, typer.Option("--ignore", help="Columns to leave out, with commas between.")] = "",
    scale: Annotated[Scale, typer.Option("--scale", help="auto cuts columns that a few people stretch.")] = Scale.AUTO,
    rows: Annotated[int, typer.Option("--rows", min=10, help="Most rows to use, drawn at random.")] = 5000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of draws.")] = 0,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Will retraining settle, where, and what does it cost? What theorems promise, and what was measured.

    Example: performative certify examples/credit.toml
    """
    with reporting(as_json, entries) as reporter:
        from performative.certify import certify as judge

        notes: tuple[str, ...] = ()
        if Path(source).suffix == ".toml":
            from performative.config.problems import load_problem

            if label is not None:
                raise Failure("--label is for a table of people; the file says it in [problem].", Exit.BAD_INPUT)
            problem = load_problem(source)
        elif label is None:
            raise Failure(f"{source}: say which column is the label, --label NAME.", Exit.BAD_INPUT)
        else:
            import dataclasses

            import numpy as np

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
