"""`performative suite`: environments, the leaderboard, and results from elsewhere."""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import EXIT_CODES, Exit, Failure, Json, check_out, reporting

suite = typer.Typer(
    name="suite",
    help="The benchmark: environments, methods and the leaderboard.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)
Out = Annotated[Path, typer.Option("--out", help="Folder of results.")]
_HERE = Path("performative-results/suite")


@suite.command("list", epilog=EXIT_CODES)
def list_all(as_json: Json = False) -> None:
    """List environments and methods."""
    with reporting(as_json) as reporter:
        from performative.suite.methods import METHODS
        from performative.suite.registry import ids

        reporter.show("\n".join(["environments:", *(f"  {id}" for id in ids()), "methods:"]))
        reporter.show("\n".join(f"  {method.name:<12} {method.words}" for method in METHODS.values()))
        reporter.result({"status": "completed", "environments": list(ids()), "methods": list(METHODS)})


@suite.command("run", epilog=EXIT_CODES)
def run_all(
    methods: Annotated[str, typer.Option(help="Comma-separated names; all by default.")] = "",
    envs: Annotated[str, typer.Option(help="Comma-separated ids; all by default.")] = "",
    seeds: Annotated[int, typer.Option(min=2, help="Number of reported runs.")] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Tune over three learning rates, with 4 seeds.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes; one per core by default.")] = None,
    out: Out = _HERE,
    as_json: Json = False,
) -> None:
    """Tune and run methods in environments; an interrupted campaign resumes where it was."""
    with reporting(as_json) as reporter:
        from performative.suite.campaign import campaign, chosen
        from performative.suite.protocol import Effort

        try:
            pairs = chosen(methods, envs)
        except ValueError as error:
            raise Failure(str(error), Exit.BAD_INPUT) from error
        effort = Effort(4, quick=True) if quick else Effort(seeds)
        found = campaign(pairs, effort, out, workers or os.cpu_count() or 1, reporter.show)
        reporter.show(f"{found.measured} measured in {found.seconds / 60:.1f} minutes of CPU time.")
        if found.broken:
            raise Failure("; ".join(f"{env}: {why}" for env, why in found.broken.items()), Exit.FAILED)
        reporter.result({"status": "completed", "folder": str(out), **dataclasses.asdict(found)})


@suite.command("show", epilog=EXIT_CODES)
def show(
    out: Out = _HERE,
    shipped: Annotated[bool, typer.Option("--shipped", help="Show the results shipped with this package.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write an interactive page, one HTML file that works offline.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the leaderboard of the results, and summarize which method wins where."""
    with reporting(as_json) as reporter:
        from performative._base.files import write_whole
        from performative.suite import published
        from performative.suite.page import leaderboard_page
        from performative.suite.ranking import rank
        from performative.suite.store import Store
        from performative.suite.verdicts import verdicts

        if page is not None:
            check_out(page, "the page is HTML", ".html", ".htm", option="--page")
        try:
            found = published.shipped() if shipped else published.collect(Store(out).results())
            board, told = rank(found.results), verdicts(found.results)
        except ValueError as error:
            raise Failure(f"{out}: {error}", Exit.BAD_INPUT) from error
        reporter.show(str(board))
        reporter.show("\n".join(f"{one.family}: {one.words}" for one in told))
        if page is not None:
            write_whole(page, leaderboard_page(found))
            reporter.path("page", page)
        words = {one.family: one.words for one in told}
        reporter.result({"status": "completed", **dataclasses.asdict(board), "words": words})


@suite.command("pack", epilog=EXIT_CODES)
def pack(
    file: Annotated[Path, typer.Argument(help="The JSON file to write.")], out: Out = _HERE, as_json: Json = False
) -> None:
    """Write all results of a folder into one file, as shipped with the package."""
    with reporting(as_json) as reporter:
        from performative.suite import published
        from performative.suite.store import Store

        try:
            found = published.collect(Store(out).results())
        except ValueError as error:
            raise Failure(f"{out}: {error}", Exit.BAD_INPUT) from error
        published.pack(found, file)
        reporter.path("results", file)
        reporter.result({"status": "completed", "file": str(file), "results": len(found.results)})


@suite.command("submit", epilog=EXIT_CODES)
def submit(
    file: Annotated[Path, typer.Argument(help="A result written by `suite run`, or produced elsewhere.")],
    out: Out = _HERE,
    as_json: Json = False,
) -> None:
    """Check a result from elsewhere (versions, seeds, budget, scores) and add it to the others."""
    with reporting(as_json) as reporter:
        from performative.suite.store import Store, check_result, read_result

        try:
            result = read_result(file)
        except ValueError as error:
            raise Failure(str(error), Exit.BAD_INPUT) from error
        if faults := check_result(result):
            raise Failure(f"{file}: {' '.join(faults)}", Exit.BAD_INPUT)
        Store(out).put(result)
        reporter.show(f"{result.method} in {result.env}: accepted.")
        reporter.result({"status": "completed", "env": result.env, "method": result.method})
