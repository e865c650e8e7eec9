"""`performative report PATH`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Exit, Failure, Json, check_out, failing, reporting


def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="A history (.nc), a folder of results (<paper>/<name>/manifest.json), or a folder of audit logs."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page, instead of the default.")] = None,
    as_json: Json = False,
) -> None:
    """Write one interactive, offline HTML file for a run, a folder of results, or an audit.

    A history is what `performative run --out` writes, results are what `performative reproduce` writes, and logs
    (deployments.csv and data.csv, or Parquet) are audited as by `performative audit` with its default settings.
    """
    with reporting(as_json) as reporter:
        from performative.audit.report import audit_logs
        from performative.report import write

        _check(path)
        check_out(out, "the page is HTML", ".html", ".htm")
        logs = any((path / f"deployments.{kind}").is_file() for kind in ("csv", "parquet"))
        kind = "run" if path.is_file() else "audit" if logs else "gallery"
        with failing(file=str(path)), reporter.errors.status("reading and drawing"):
            write(audit_logs(path) if logs else path, out, title)
        reporter.path("page", out)
        size = out.stat().st_size
        reporter.result({"status": "completed", "kind": kind, "path": str(path), "out": str(out), "bytes": size})


def _check(path: Path) -> None:
    """Reject input that cannot be turned into a page."""
    if not path.exists():
        raise Failure(f"{path}: there is no such file or folder.", Exit.BAD_INPUT)
    if path.suffix == ".json":
        raise Failure(
            f"{path}: a page is built from the logs, not from the results; pass the folder that was audited.",
            Exit.BAD_INPUT,
        )
    if path.is_file() and path.suffix != ".nc":
        raise Failure(f"{path}: pass a history (.nc), or a folder of results or logs.", Exit.BAD_INPUT)
