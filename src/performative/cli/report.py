"""`performative report PATH`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import Exit, Failure, Json, reporting


def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="A history (.nc), a folder of results (<paper>/<name>/manifest.json), or a folder of audit logs."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="The page's heading instead of the usual one.")] = None,
    as_json: Json = False,
) -> None:
    """One interactive HTML file of a run, of a folder of results, or of an audit; it works offline.

    A history is what `performative run --out` writes, results are what `performative reproduce` writes, and logs
    (deployments.csv and data.csv, or Parquet) are audited as `performative audit` does with its usual settings.
    """
    with reporting(as_json) as reporter:
        from performative.audit.schema import LogError
        from performative.report import write

        _check(path, out)
        logs = path.is_dir() and _holds_logs(path)
        kind = "run" if path.is_file() else "audit" if logs else "gallery"
        try:
            with reporter.errors.status("reading and drawing"):
                write(_audit(path) if logs else path, out, title)
        except LogError as error:
            raise Failure(str(error), Exit.BAD_INPUT, file=error.file, row=error.row, column=error.column) from error
        except ValueError as error:
            raise Failure(str(error), Exit.BAD_INPUT, file=str(path)) from error
        reporter.path("page", out)
        size = out.stat().st_size
        reporter.result({"status": "completed", "kind": kind, "path": str(path), "out": str(out), "bytes": size})


def _check(path: Path, out: Path) -> None:
    """Refuse, before anything is read, what cannot be read or written."""
    if not path.exists():
        raise Failure(f"{path}: there is no such file or folder.", Exit.BAD_INPUT)
    if path.suffix == ".json":
        raise Failure(
            f"{path}: a page is made from the logs, not from what was found; give the folder that was audited.",
            Exit.BAD_INPUT,
        )
    if path.is_file() and path.suffix != ".nc":
        raise Failure(f"{path}: give a history that ends in .nc, or a folder of results or of logs.", Exit.BAD_INPUT)
    if out.suffix not in (".html", ".htm"):
        raise Failure(f"--out {out}: the page is HTML; give a name that ends in .html.", Exit.BAD_INPUT)
    if out.is_dir() or not out.absolute().parent.is_dir():
        what = "this is a folder" if out.is_dir() else f"there is no folder {out.absolute().parent}"
        raise Failure(f"--out {out}: {what}.", Exit.BAD_INPUT)


def _holds_logs(folder: Path) -> bool:
    return any((folder / f"deployments.{kind}").is_file() for kind in ("csv", "parquet"))


def _audit(folder: Path) -> Any:
    from performative.audit.report import audit_logs

    return audit_logs(folder)
