"""`performative run FILE.toml`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Exit, Failure, Json, Set, check_out, reporting


def run(
    file: Annotated[Path, typer.Argument(help="TOML file with the tables problem, algorithm and run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the history to this NetCDF file.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Overrides run.rounds.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Overrides run.repeats.")] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides run.seed.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Overrides run.checkpoint: a folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint if there is one.")] = False,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Run the experiment that a TOML file describes.

    A run that diverges still prints and writes its history, and exits with code 1.
    """
    with reporting(as_json, entries) as reporter:
        from performative.cli import summary
        from performative.config import load_experiment

        overrides = {"rounds": rounds, "repeats": repeats, "seed": seed, "checkpoint": checkpoint}
        experiment = load_experiment(file, overrides)
        if out is not None:
            check_out(out, "the history is NetCDF", ".nc")
        if resume and experiment.options.get("checkpoint") is None:
            raise Failure(
                f"--resume: {file} has no checkpoint folder; set run.checkpoint or pass --checkpoint.", Exit.BAD_INPUT
            )
        history = experiment.run(resume=resume)
        result = {"file": str(file), "title": experiment.title, **summary.summarize(history), "out": None}
        if out is not None:  # before printing: a broken terminal must not lose the results
            result["out"] = str(history.save(out))
        reporter.show(summary.table(result, experiment.title or file.name))
        reporter.show(summary.footer(result))
        for line in summary.privacy_lines(result["privacy"]) if "privacy" in result else []:
            reporter.show(line)
        if out is not None:
            reporter.path("file", out)
        if result["status"] == "failed":
            raise Failure(history.meta["failed"], Exit.FAILED, result)
        if result["status"] not in ("completed", "stopped"):
            first = min(int(r) for r in history.stopped_at if r >= 0)
            raise Failure(
                f"{result['diverged']} of {result['repeats']} repeats diverged, the first at round {first}; "
                "try a smaller learning rate, or give the problem a domain.",
                Exit.FAILED,
                {name: value for name, value in result.items() if name != "status"} | {"status": "diverged"},
            )
        reporter.result(result)
