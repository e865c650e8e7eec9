"""`performative reproduce NAME...`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import Exit, Failure, Json, Reporter, failing, reporting

_COLORS = {
    "reproduced": "green",
    "reproduced with corrections": "cyan",
    "refuted": "red",
    "undecided": "yellow",
    "holds": "green",
    "fails": "red",
    "not tested": "dim",
}


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, such as p_fedavg/fig1a.")] = None,
    paper: Annotated[str | None, typer.Option("--paper", help="All experiments of one paper.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and seeds: minutes instead of hours.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for data, figures and manifests.")] = Path(
        "performative-results"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat finished experiments.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Parallel experiments; by default, one per core.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    ledger: Annotated[bool, typer.Option("--ledger", help="Print every claim with its verdict and exit.")] = False,
    index: Annotated[
        bool, typer.Option("--index", help="Print every numbered statement of the papers with its verdict and exit.")
    ] = False,
    save: Annotated[Path | None, typer.Option("--save", help="With --ledger: write it to this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Reproduce figures of the papers: run, plot, and compare each claim with the measurements.

    Experiments already done with the same constants and code are skipped, so an interrupted set resumes where it was.
    """
    with reporting(as_json) as reporter:
        if save is not None and not ledger:
            raise Failure("--save FILE requires --ledger.", Exit.BAD_INPUT)
        if ledger or index:
            if names or listing or (ledger and index):
                option = "--ledger" if ledger else "--index"
                raise Failure(f"{option} prints all, or those of --paper NAME; it takes nothing else.", Exit.BAD_INPUT)
            (_tell_ledger if ledger else _tell_index)(reporter, paper, out, save)
            return
        chosen = _choose(names or [], paper, everything or (listing and not names))
        if listing:
            _tell_list(reporter, chosen)
            return
        _run_all(reporter, chosen, quick, out, fresh, jobs)


def _choose(given: list[str], paper: str | None, everything: bool) -> list[str]:
    from performative.papers import catalog

    if sum((bool(given), paper is not None, everything and paper is None)) != 1:
        raise Failure("pass names of experiments, --paper NAME or --all; --list shows them.", Exit.BAD_INPUT)
    with failing():
        for name in given:
            catalog.find(name)
        return list(dict.fromkeys(given)) or catalog.names(paper)


def _run_all(reporter: Reporter, chosen: list[str], quick: bool, out: Path, fresh: bool, jobs: int | None) -> None:
    import jax
    from rich.text import Text

    from performative.data.download import DownloadError
    from performative.data.places import NotHereError
    from performative.papers import reproduce, reproduce_all

    manifests: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"--out {out}: cannot create the folder ({error.strerror}).", Exit.BAD_INPUT) from error
    if len(chosen) == 1:  # in this process, so --debug shows where it fails
        with failing((DownloadError, NotHereError)), reporter.errors.status(chosen[0]):
            outcomes: Any = [(chosen[0], reproduce(chosen[0], quick, out, fresh))]
    else:
        # One process per core; only one with a GPU, which they would have to share.
        cores = (os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
        outcomes = reproduce_all(chosen, quick, out, fresh, jobs or cores)
    with reporter.errors.status(f"0 of {len(chosen)} done") as status:
        for done, (name, manifest) in enumerate(outcomes, 1):
            status.update(f"{done} of {len(chosen)} done")
            if isinstance(manifest, str):
                failed[name] = manifest
                reporter.show(Text.assemble((f"{name}: ", "bold"), ("failed: ", "bold red"), manifest))
                continue
            manifests.append(manifest)
            when = f"{manifest['seconds']:.0f} s" if manifest["new"] else f"done before, {manifest['finished']}"
            size = "quick" if manifest["quick"] else "full"
            reporter.show(
                Text.assemble((name, "bold"), f"  {manifest['title']}, {manifest['place']}  ({size}, {when})")
            )
            for row in manifest["claims"]:
                reporter.show(Text.assemble("  ", (row["verdict"], _COLORS[row["verdict"]]), f": {row['claim']}"))
                _tell_numbers(reporter, row)
            reporter.path("in", out / name)
            reporter.show()
    result = {"status": "failed" if failed else "completed", "experiments": manifests, "failed": failed}
    if failed:
        raise Failure(f"{len(failed)} of {len(chosen)} failed: {', '.join(failed)}.", Exit.FAILED, result)
    reporter.result(result)


def _tell_numbers(reporter: Reporter, row: dict[str, Any]) -> None:
    for line in filter(None, (row["number"], row["reason"])):
        reporter.show(f"    {line}", style="dim")


def _tell_list(reporter: Reporter, chosen: list[str]) -> None:
    from rich.table import Column, Table

    from performative.papers import catalog

    found = [catalog.find(name) for name in chosen]
    names = Column("experiment", overflow="fold", no_wrap=True)  # kept whole, to be copied and searched
    others = (Column(name, overflow="fold") for name in ("place", "what", "claims"))
    table = Table(names, *others, show_edge=False, pad_edge=False)
    for one in found:
        table.add_row(one.name, one.place, one.title, str(len(one.claims)))
    reporter.show(table)
    reporter.result(
        {"status": "completed", "experiments": [one.model_dump(mode="json") | {"paper": one.paper} for one in found]}
    )


def _tell_ledger(reporter: Reporter, paper: str | None, out: Path, save: Path | None) -> None:
    from rich.text import Text

    from performative.papers import ledger as claims
    from performative.papers.claims import KINDS

    _check_paper(paper)
    rows = [row for row in claims.read(out) if paper in (None, row["paper"])]
    for row in rows:
        verdict = row["verdict"] + (" (quick)" if row["quick"] else "")
        reporter.show(Text.assemble((row["key"], "bold"), "  ", (verdict, _COLORS[row["verdict"]])))
        reporter.show(f"  {row['claim']}")
        _tell_numbers(reporter, row)
    reporter.show()
    counted = {}
    for kind, mine in claims.by_kind(rows).items():
        each = claims.distinct(mine)
        counted[kind] = claims.count(each)
        told = ", ".join(f"{number} {verdict}" for verdict, number in counted[kind].items())
        reporter.show(f"{KINDS[kind]}: {len(each)} in {len(mine)} measurements: {told}")
    if save is not None:
        claims.write(rows, save)
        reporter.path("file", save)
    reporter.result({"status": "completed", "count": counted, "claims": rows})


def _tell_index(reporter: Reporter, paper: str | None, out: Path, save: Path | None) -> None:
    from rich.text import Text

    from performative.papers import index

    _check_paper(paper)
    rows = [row for row in index.read(out) if paper in (None, row["paper"])]
    for row in rows:
        verdict = f"{row['verdict']}: {row['reason']}" if row["reason"] else row["verdict"]
        where = f"{row['paper']} {row['number']}"
        reporter.show(Text.assemble((where, "bold"), f", {row['section']}  ", (verdict, _COLORS[row["verdict"]])))
        for line in (row["says"], *row["functions"], *row["rows"]):
            reporter.show(Text(f"  {line}", style="" if line == row["says"] else "dim"))
    reporter.result({"status": "completed", "statements": rows})


def _check_paper(paper: str | None) -> None:
    from performative.papers import catalog

    if paper is not None and paper not in catalog.papers():
        raise Failure(f"there is no paper {paper!r}; there are {', '.join(catalog.papers())}.", Exit.BAD_INPUT)
