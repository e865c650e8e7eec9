"""`performative scoreboard FILE.toml`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Json, Set, failing, grid, reporting


def scoreboard(
    file: Annotated[Path, typer.Argument(help="TOML file with the tables problem, algorithm and run.")],
    rounds: Annotated[int | None, typer.Option(help="Overrides run.rounds.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Overrides run.repeats (10 if the file has none).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Overrides run.seed.")] = None,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Compare the algorithm of a file with the majority class, training once, and the stable and optimal points.

    For linear binary classifiers: accuracies and rates after people have responded. Uses all of [run] except for
    its records and its checkpoint.
    """
    with reporting(as_json, entries) as reporter:
        from rich import box

        from performative.config import load_experiment
        from performative.config.document import NOT_RUN, parse
        from performative.scoreboard import scoreboard as compare
        from performative.scoreboard.result import cells_of

        overrides = {"rounds": rounds, "repeats": repeats, "seed": seed}
        experiment = load_experiment(file, overrides, unread=(*NOT_RUN, "run.record", "run.checkpoint"))
        name = str(parse(file)["algorithm"]["recipe"])
        taken = {key: value for key, value in experiment.options.items() if key not in ("record", "checkpoint")}
        with failing(file=str(file)), reporter.errors.status("comparing"):
            found = compare(experiment.problem, {name: experiment.algorithm}, **taken)
        head, *rows = cells_of(found)
        table = grid(*head, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for row in rows:
            table.add_row(*row)
        reporter.show(table)
        for sentence in found.sentences():
            reporter.show(sentence)
        lines = [{"model": line.name, "values": line.values, "errors": line.errors} for line in found.lines]
        told = {"gap": found.gap, "accuracy_gain": found.accuracy_gain, "detectable": found.detectable}
        reporter.result({"status": "completed", "file": str(file), "lines": lines, **told, "notes": list(found.notes)})
