"""`performative scoreboard FILE.toml`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Json, Set, failing, reporting


def scoreboard(
    file: Annotated[Path, typer.Argument(help="TOML file with the tables problem, algorithm and run.")],
    rounds: Annotated[int | None, typer.Option(help="Instead of run.rounds.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of the algorithm.")] = 10,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of run.seed.")] = None,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """The algorithm of a file beside the majority class, training once, and the stable and optimal points.

    For linear classifiers of 0 and 1: accuracies and rates once people have responded.

    Example: performative scoreboard examples/credit.toml --repeats 4
    """
    with reporting(as_json, entries) as reporter:
        from performative.config import load_experiment
        from performative.config.document import parse
        from performative.scoreboard import scoreboard as compare

        experiment = load_experiment(file, {"rounds": rounds, "repeats": repeats, "seed": seed})
        name = str(parse(file)["algorithm"]["recipe"])
        taken = {key: value for key, value in experiment.options.items() if key in ("theta", "seed")}
        with failing(file=str(file)), reporter.errors.status("comparing"):
            found = compare(
                experiment.problem, {name: experiment.algorithm}, experiment.options["rounds"], repeats=repeats, **taken
            )
        reporter.show(str(found))
        lines = [{"model": line.name, "values": line.values, "errors": line.errors} for line in found.lines]
        told = {"gap": found.gap, "accuracy_gain": found.accuracy_gain, "detectable": found.detectable}
        reporter.result({"status": "completed", "file": str(file), "lines": lines, **told, "notes": list(found.notes)})
