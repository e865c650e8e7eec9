"""`performative scoreboard FILE.toml`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Json, Set, failing, grid, reporting


def scoreboard(
    file: Annotated[Path, typer.Argument(help="TOML file with the tables problem, algorithm and run.")],
    rounds: Annotated[int | None, typer.Option(help="Overrides run.rounds.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of runs of the algorithm.")] = 10,
    seed: Annotated[int | None, typer.Option(min=0, help="Overrides run.seed.")] = None,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Compare the algorithm of a file with the majority class, training once, and the stable and optimal points.

    For linear binary classifiers: accuracies and rates after people have responded.
    """
    with reporting(as_json, entries) as reporter:
        from rich import box

        from performative.config import load_experiment
        from performative.config.document import parse
        from performative.scoreboard import scoreboard as compare
        from performative.scoreboard.result import cells_of

        experiment = load_experiment(file, {"rounds": rounds, "repeats": repeats, "seed": seed})
        name = str(parse(file)["algorithm"]["recipe"])
        taken = {key: value for key, value in experiment.options.items() if key in ("theta", "seed")}
        with failing(file=str(file)), reporter.errors.status("comparing"):
            found = compare(
                experiment.problem, {name: experiment.algorithm}, experiment.options["rounds"], repeats=repeats, **taken
            )
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
