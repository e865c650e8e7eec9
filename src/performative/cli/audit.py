"""`performative audit SOURCE`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from performative.cli.output import Exit, Failure, Json, Reporter, at_terminal, check_folder, reject_unused, reporting

if TYPE_CHECKING:
    from performative.audit.audit_report import AuditReport


class Drift(StrEnum):
    """The kind of drift that the model did not cause."""

    SMOOTH = "smooth"
    WALK = "walk"
    LINEAR = "linear"
    NONE = "none"


_SOURCE = "Folder, Parquet data set, .duckdb or .sqlite file, or database URL; with --merge, files of moments."
_CAUSE = "Estimate the effect of decisions on outcomes with a causal design; reads a sample of rows, not only sums."
_EXPLAIN = "Inspect the columns and draft an audit.toml, with questions on a terminal."


def audit(
    source: Annotated[list[str], typer.Argument(help=_SOURCE)],
    mapping: Annotated[Path | None, typer.Option("--map", help="audit.toml: the role of each column.")] = None,
    groups: Annotated[str | None, typer.Option("--groups", help="Protected group column.")] = None,
    drift: Annotated[Drift, typer.Option("--drift", help="Drift that the model does not cause.")] = Drift.SMOOTH,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page and the JSON file.")] = Path(
        "performative-audit"
    ),
    cost: Annotated[float | None, typer.Option(min=0.0, help="Monetary cost of a wrong decision.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the row sample and the bootstrap.")] = 0,
    trust: Annotated[bool, typer.Option("--trust", help="Unpickle models, which runs code in their files.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help=_EXPLAIN)] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --explain: write the draft without asking.")] = False,
    moments: Annotated[Path | None, typer.Option("--moments", help="Write sums, but no rows, to this file.")] = None,
    least: Annotated[int, typer.Option("--least", min=1, help="With --moments: drop smaller cells.")] = 1,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="With --moments: noise for this epsilon.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="With --epsilon: its failure probability.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="With --moments: name of the only client.")] = None,
    cause: Annotated[bool, typer.Option("--cause", help=_CAUSE)] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Audit several files of moments together.")] = False,
    as_json: Json = False,
) -> None:
    """Test from logs of past deployments whether the data react to the model, and where retraining leads.

    Rows stay in their database engine, which returns only sums. Prints a summary, and writes a page and a JSON file.
    """
    with reporting(as_json) as reporter:
        from performative.audit.schema import LogError

        try:
            if len(source) > 1 and not merge:
                raise Failure(f"one source at a time; got {len(source)}. --merge takes several.", Exit.BAD_INPUT)
            _check_used(explain, moments is not None, merge)
            if explain:
                _explain(reporter, source[0], mapping, yes or as_json or not at_terminal())
                return
            if moments is not None:
                _moments(reporter, source[0], moments, mapping, groups, trust, least, epsilon, delta, client)
                return
            check_folder(out)
            with reporter.errors.status("reading and testing"):
                from performative.audit.report import audit_logs, audit_summaries

                how: dict[str, Any] = {"drift": drift.value, "seed": seed, "cost": cost}
                report = (
                    audit_summaries(source, **how)
                    if merge
                    else audit_logs(source[0], map=mapping, groups=groups, trust=trust, cause=cause, **how)
                )
        except LogError as error:
            raise Failure(str(error), Exit.BAD_INPUT, file=error.file, row=error.row, column=error.column) from error
        show_audit(reporter, report, out)


def _check_used(explain: bool, moments: bool, merge: bool) -> None:
    """Reject options that the requested mode ignores."""
    if not explain:
        reject_unused("requires --explain.", "yes")
    if not moments:
        reject_unused("requires --moments FILE.", "least", "epsilon", "delta", "client")
    modes = [name for name, asked in (("--explain", explain), ("--moments", moments), ("--merge", merge)) if asked]
    if len(modes) > 1:
        raise Failure(f"{' and '.join(modes)} do different things; keep one of them.", Exit.BAD_INPUT)
    tests = ("drift", "out", "cost", "seed", "cause")
    if explain:
        told = "has no effect with --explain, which only drafts an audit.toml; drop one of the two."
        reject_unused(told, *tests, "groups", "trust")
    if moments:
        told = "has no effect with --moments, which writes sums and tests nothing; pass it when you --merge them."
        reject_unused(told, *(name for name in tests if name != "cause"))
        reject_unused("reads rows, which --moments does not keep; drop one of the two.", "cause")
    if merge:
        told = "reads rows, but --merge has only sums; set it when the sums are written (--moments)."
        reject_unused(told, "mapping", "groups", "trust")
        reject_unused("reads rows, but --merge has only sums; drop one of the two.", "cause")


def show_audit(reporter: Reporter, report: "AuditReport", out: Path, more: dict[str, Any] | None = None) -> None:
    """Print and save the results of an audit."""
    _tell(reporter, report)
    paths = write_audit(report, out)
    for kind, path in paths.items():
        reporter.path(kind, path)
    files = {kind: str(path) for kind, path in paths.items()}
    reporter.result({"status": "completed", **report.to_dict(), **(more or {}), "files": files})


def _explain(reporter: Reporter, source: str, mapping: Path | None, quiet: bool) -> None:
    """Draft audit.toml; on a terminal, prompt for each role with the guess as the default."""
    from performative._base.files import write_whole
    from performative.audit.draft import draft, guess, look
    from performative.audit.source import open_for_look

    found = open_for_look(source)
    columns = look(found)
    roles = guess(columns)
    names = [one.name for one in columns]
    if not quiet:
        for one in columns:
            reporter.show(f"{one.name}: {one.told}")
        for role in ("deployment", "time", "client", "label", "score", "accepted", "propensity", "group"):
            came = typer.prompt(f"{role} (- for none)", default=roles.get(role, "-"), err=True)
            if came == "-":
                roles.pop(role, None)
            elif came in names:
                roles[role] = came
            else:
                from performative._base.checks import nearest

                raise Failure(f"{role}: there is no column {came!r}.{nearest(came, names)}", Exit.BAD_INPUT)
    text = draft(columns, roles, found.named_table, found.listed is not None)
    path = mapping or (found.folder or Path()) / "audit.toml"
    if path.exists():
        raise Failure(f"{path} already exists; use --map FILE to write elsewhere.", Exit.BAD_INPUT)
    write_whole(path, text.encode())
    reporter.show(text)
    reporter.path("map", path)
    reporter.result({"status": "completed", "roles": roles, "file": str(path), "text": text})


def _moments(
    reporter: Reporter, source: str, file: Path, mapping: Path | None, groups: str | None, trust: bool, least: int,
    epsilon: float | None, delta: float | None, client: str | None,
) -> None:  # fmt: skip
    """Write sums, but no rows."""
    from performative.audit.leaving import summarize
    from performative.audit.travel import write_summaries

    if (epsilon is None) != (delta is None):
        raise Failure("--epsilon and --delta go together: pass both, or neither.", Exit.BAD_INPUT)
    if epsilon is not None and epsilon <= 0:
        raise Failure(f"--epsilon must be above 0; got {epsilon:g}.", Exit.BAD_INPUT)
    if delta is not None and not 0 < delta < 1:
        raise Failure(f"--delta must lie between 0 and 1; got {delta:g}.", Exit.BAD_INPUT)
    with reporter.errors.status("summing"):
        seen = summarize(
            source, map=mapping, groups=groups, trust=trust, least=least, epsilon=epsilon, delta=delta, client=client
        )
        write_summaries(seen, file)
    cells, rows = seen.suppressed
    told = {
        "clients": list(seen.clients), "deployments": len(seen.deployments.names), "rows": seen.rows,
        "suppressed_cells": cells, "suppressed_rows": rows, "noise": seen.noise, "promise": seen.promise,
    }  # fmt: skip
    reporter.show(
        f"{len(seen.clients)} clients, {len(seen.deployments.names)} deployments, {seen.rows:,} rows as sums."
    )
    reporter.show(f"Dropped: {cells} cells with fewer than {least} rows, {rows} rows.")
    if seen.promise is not None:
        reporter.show(f"The noise guarantees epsilon = {epsilon:g}, delta = {delta:g} for each row.")
    reporter.path("sums", file)
    reporter.result({"status": "completed", **told, "file": str(file)})


def write_audit(report: "AuditReport", out: Path) -> dict[str, Path]:
    """audit.html and audit.json in a folder."""
    from performative.audit.page import page
    from performative.report import write_files

    content = json.dumps(report.to_dict(), allow_nan=False, indent=1).encode()
    return write_files(out, {"page": ("audit.html", page(report)), "json": ("audit.json", content)})


def _tell(reporter: Reporter, report: "AuditReport") -> None:
    from rich.text import Text

    from performative.audit.sections import sections

    for section in sections(report, short=True):
        for line in (shown := list(section.terminal())):
            # A string is a line to copy and is never wrapped.
            reporter.people.print(line, soft_wrap=isinstance(line, str))
        if shown:
            reporter.show()
    for note in report.notes:
        reporter.show(Text(f"- {note}", style="dim"))
    reporter.show()
