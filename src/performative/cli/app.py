"""Commands and their options. What takes long to import is imported by the command that needs it."""

from pathlib import Path
from typing import Annotated

import typer

from performative import plugins
from performative.cli.audit import audit
from performative.cli.data import data
from performative.cli.federation import federation
from performative.cli.output import EXIT_CODES, Exit, Failure, before, reporting
from performative.cli.planning import planning
from performative.cli.privacy import privacy
from performative.cli.report import report
from performative.cli.reproduce import reproduce

app = typer.Typer(
    name="performative",
    help="Federated learning when deploying the model changes the data.",
    epilog="\n\n".join(filter(None, (EXIT_CODES, plugins.summary()))),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

app.add_typer(privacy)
app.command(epilog=EXIT_CODES)(audit)
app.command(epilog=EXIT_CODES)(reproduce)
app.command(epilog=EXIT_CODES)(report)
app.add_typer(planning)
app.add_typer(federation)
app.add_typer(data)

# Of a benchmark's numbers, those that the table shows; --json prints all.
_BENCH_COLUMNS = {
    "ours_s": "ours (s)",
    "loop_s": "loop (s)",
    "reference_s": "reference (s)",
    "ratio": "ratio",
    "call_ratio": "call ratio",
    "bulk_ratio": "bulk ratio",
}
_JSON_HELP = "Print one JSON object on standard output and nothing else."
Json = Annotated[bool, typer.Option("--json", help=_JSON_HELP)]


def _say_json(value: bool) -> bool:
    before["json"] = value
    return value


def _say_version(value: bool) -> bool:
    if value:
        _print_version(before["json"])
        raise typer.Exit(Exit.FINE)
    return value


@app.callback(no_args_is_help=True)
def top(
    # --json is read first, so that --version knows of it in either order.
    as_json: Annotated[bool, typer.Option("--json", callback=_say_json, is_eager=True, help=_JSON_HELP)] = False,
    version: Annotated[bool, typer.Option("--version", callback=_say_version, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
) -> None:
    before["debug"] = debug


@app.command(epilog=EXIT_CODES)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and the page.")] = Path(
        "performative-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and seeds.")] = False,
    as_json: Json = False,
) -> None:
    """Ten made-up banks score applicants who answer to the score: solved and drawn in under a minute."""
    with reporting(as_json) as reporter:
        from performative.demo import run_demo, write_demo
        from performative.demo.words import terminal_tables

        if out.exists() and not out.is_dir():
            raise Failure(f"--out {out}: this is a file; give a folder.", Exit.BAD_INPUT)
        outcome = run_demo(quick=quick)
        paths = write_demo(outcome, out)
        for thing in terminal_tables(outcome):
            reporter.show(thing)
            reporter.show()
        for kind, path in paths.items():
            reporter.path(kind, path)
        reporter.result({"status": "completed", **outcome.numbers, "files": {k: str(p) for k, p in paths.items()}})


@app.command(epilog=EXIT_CODES)
def run(
    file: Annotated[Path, typer.Argument(help="TOML file with the tables problem, algorithm and run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the history to this NetCDF file.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Instead of run.rounds.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Instead of run.repeats.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of run.seed.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Instead of run.checkpoint: a folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint where there is one.")] = False,
    as_json: Json = False,
) -> None:
    """Run the experiment that a TOML file describes.

    A run that diverges still prints and writes its history, and ends with code 1.
    """
    with reporting(as_json) as reporter:
        from performative.cli import summary
        from performative.config import load_experiment

        overrides = {"rounds": rounds, "repeats": repeats, "seed": seed, "checkpoint": checkpoint}
        experiment = load_experiment(file, overrides)
        if out is not None:
            _check_out(out)
        if resume and experiment.options.get("checkpoint") is None:
            raise Failure(
                f"--resume: {file} names no folder to go on from; give run.checkpoint or --checkpoint.",
                Exit.BAD_INPUT,
            )
        history = experiment.run(resume=resume)
        result = {"file": str(file), "title": experiment.title, **summary.summarise(history), "out": None}
        if out is not None:  # before anything is printed: what was computed must not be lost to a broken terminal
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
                "try a smaller rate, or give the problem a domain.",
                Exit.FAILED,
                {name: value for name, value in result.items() if name != "status"} | {"status": "diverged"},
            )
        reporter.result(result)


@app.command(epilog=EXIT_CODES)
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks to run; none named: all but the long.")] = None,
    as_json: Json = False,
) -> None:
    """Time this library against hand-written programs for the same work, in one run."""
    with reporting(as_json) as reporter:
        from rich.table import Table

        from performative.bench import find_benchmarks, run_benchmarks, usual
        from performative.errors import nearest

        try:
            known = find_benchmarks()
        except FileNotFoundError as error:
            raise Failure(str(error), Exit.FAILED) from error
        for name in names or []:
            if name not in known:
                raise Failure(f"there is no benchmark {name!r}.{nearest(name, known)}", Exit.BAD_INPUT)
        rows = []
        for name in names or usual(known):
            with reporter.errors.status(f"benchmark {name}"):
                rows += run_benchmarks([name])
        columns = [name for name in _BENCH_COLUMNS if any(name in row for row in rows)]
        grid = Table(show_edge=False, pad_edge=False)
        for column in ("benchmark", *(_BENCH_COLUMNS[name] for name in columns)):
            grid.add_column(column, justify="left" if column == "benchmark" else "right")
        for row in rows:
            grid.add_row(row["benchmark"], *(_short(row.get(name)) for name in columns))
        reporter.show(grid)
        for note in dict.fromkeys(row["note"] for row in rows if row.get("note")):
            reporter.show(note)
        reporter.result({"status": "completed", "benchmarks": rows})


def main() -> None:
    """Entry point of the `performative` command."""
    app()


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def _check_out(out: Path) -> None:
    """Refuse, before anything runs, what could not be written after it."""
    if out.suffix != ".nc":
        raise Failure(f"--out {out}: the history is NetCDF; give a name that ends in .nc.", Exit.BAD_INPUT)
    if out.is_dir() or not out.absolute().parent.is_dir():
        what = "this is a folder" if out.is_dir() else f"there is no folder {out.absolute().parent}"
        raise Failure(f"--out {out}: {what}.", Exit.BAD_INPUT)


def _print_version(as_json: bool) -> None:
    import json
    import platform
    from importlib.metadata import version

    from performative import __version__

    if as_json:
        names = {name: version(name) for name in ("jax", "equinox")}
        typer.echo(json.dumps({"performative": __version__, "python": platform.python_version(), **names}))
    else:
        typer.echo(f"performative {__version__}")
