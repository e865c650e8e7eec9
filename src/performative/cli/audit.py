"""`performative audit FOLDER`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from performative.cli.output import Exit, Failure, Json, Reporter, reporting

if TYPE_CHECKING:
    from performative.audit.audit_report import AuditReport


class Drift(StrEnum):
    """What may have moved the data without the model."""

    SMOOTH = "smooth"
    WALK = "walk"
    LINEAR = "linear"
    NONE = "none"


def audit(
    folder: Annotated[Path, typer.Argument(help="Folder with deployments.csv and data.csv (or .parquet).")],
    groups: Annotated[str | None, typer.Option("--groups", help="Column of the protected group.")] = None,
    drift: Annotated[Drift, typer.Option("--drift", help="Drift to allow for that is not the model's.")] = Drift.SMOOTH,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page and the JSON file.")] = Path(
        "performative-audit"
    ),
    cost: Annotated[float | None, typer.Option(min=0.0, help="What a mistaken decision costs, in money.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the rows kept and of the bootstrap.")] = 0,
    as_json: Json = False,
) -> None:
    """Logs of past deployments: do the data react to the model, and where does retraining lead?

    Reads FOLDER/deployments.csv and FOLDER/data.csv (or Parquet), prints a summary, and writes a page and a JSON file.
    """
    with reporting(as_json) as reporter:
        from performative.audit.report import audit_logs
        from performative.audit.schema import LogError

        if out.exists() and not out.is_dir():
            raise Failure(f"--out {out}: this is a file; give a folder.", Exit.BAD_INPUT)
        try:
            with reporter.errors.status("reading and testing"):
                report = audit_logs(folder, groups=groups, drift=drift.value, seed=seed, cost=cost)
        except LogError as error:
            raise Failure(str(error), Exit.BAD_INPUT, file=error.file, row=error.row, column=error.column) from error
        _tell(reporter, report)
        paths = write_audit(report, out)
        for kind, path in paths.items():
            reporter.path(kind, path)
        reporter.result({"status": "completed", **report.to_dict(), "files": {k: str(p) for k, p in paths.items()}})


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
            # A string is a line to copy, never wrapped.
            reporter.people.print(line, soft_wrap=isinstance(line, str))
        if shown:
            reporter.show()
    for note in report.notes:
        reporter.show(Text(f"- {note}", style="dim"))
    reporter.show()
