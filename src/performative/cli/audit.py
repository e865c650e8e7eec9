"""`performative audit FOLDER`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from performative.cli.output import Json, Reporter, check_folder, failing, grid, reporting

if TYPE_CHECKING:
    from performative.audit.audit_report import AuditReport


class Drift(StrEnum):
    """What may have moved the data without the model."""

    SMOOTH = "smooth"
    WALK = "walk"
    LINEAR = "linear"
    NONE = "none"


# Clients that the terminal lists; all are in the page and in the JSON.
_MOST = 20
_MOST_DIRECTIONS = 10


def audit(
    folder: Annotated[Path, typer.Argument(help="Folder with deployments.csv and data.csv (or .parquet).")],
    groups: Annotated[str | None, typer.Option("--groups", help="Column of the protected group.")] = None,
    drift: Annotated[Drift, typer.Option("--drift", help="Drift to allow for that is not the model's.")] = Drift.SMOOTH,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page and the JSON file.")] = Path(
        "performative-audit"
    ),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the rows kept and of the bootstrap.")] = 0,
    as_json: Json = False,
) -> None:
    """Logs of past deployments: do the data react to the model, and where does retraining lead?

    Reads FOLDER/deployments.csv and FOLDER/data.csv (or Parquet), prints a summary, and writes a page and a JSON file.
    """
    with reporting(as_json) as reporter:
        from performative.audit.report import audit_logs
        from performative.audit.schema import LogError

        check_folder(out)
        with failing((LogError,)), reporter.errors.status("reading and testing"):
            report = audit_logs(folder, groups=groups, drift=drift.value, seed=seed)
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

    from performative.audit.words import WORDS
    from performative.findings import part
    from performative.report.telling import lines

    for line in lines(part(report.findings, "loud"), WORDS):
        reporter.show(line)
        reporter.show()
    reporter.show(report.verdict, style="bold")
    reporter.show()
    reporter.show(_p_values(report))
    shown, verdicts = report.largest(_MOST), report.client_verdicts
    reporter.show()
    for one in shown:
        reporter.show(Text.assemble((f"{one.name}: ", "bold"), verdicts[one.name]))
    if len(report.clients) > len(shown):
        reporter.show(f"... and {len(report.clients) - len(shown)} more clients: see the page.")
    for table in (_sensitivities(report), _directions(report)):
        if table is not None:
            reporter.show()
            reporter.show(table)
    _tell_outlook(reporter, report)
    reporter.show()
    reporter.show(Text.assemble(("Next: ", "bold"), f"{report.advice.title}. {' '.join(report.advice.reasons)}"))
    if report.advice.code:
        reporter.people.print(f"  {report.advice.code}", soft_wrap=True)
    if report.advice.otherwise:
        why, code = report.advice.otherwise
        reporter.show(why)
        reporter.people.print(f"  {code}", soft_wrap=True)
    for line in lines(report.advice.robust, WORDS):
        reporter.show(line)
    if report.groups is not None:
        _tell_groups(reporter, report)
    reporter.show()
    for note in report.notes:
        reporter.show(f"- {note}", style="dim")
    reporter.show()


def _p_values(report: "AuditReport") -> Any:
    from performative.audit import formats
    from performative.audit.drift import DRIFTS

    def cells(found: Any) -> list[str]:
        shown = [formats.chance(found[kind].p_value).removeprefix("p ").removeprefix("= ") for kind in DRIFTS]
        return [text if found[kind].identified else "-" for kind, text in zip(DRIFTS, shown, strict=True)]

    table = grid("client", "reacts", *(f"p, {kind}" for kind in DRIFTS))
    if report.pooled is not None:
        table.add_row(report.pooled.who, "", *cells(report.pooled.by_drift))
    for one in report.largest(_MOST):
        answer = {True: "yes", False: "not seen", None: "cannot tell"}[one.reacts]
        table.add_row(one.name, answer, *cells(one.by_drift))
    return table


def _sensitivities(report: "AuditReport") -> Any:
    from performative.audit import formats

    def size(found: Any) -> str:
        if found is None or not found.identified:
            return "-"
        limits = (formats.number(value) for value in (found.sensitivity_lower, found.sensitivity_upper))
        return f"{formats.number(found.sensitivity)} ({' to '.join(limits)})"

    table = grid("client", "sensitivity (least squares)", "(for any training)", "W1 slope")
    for one in report.largest(_MOST):
        # It holds drift too: only of a client that is seen to react.
        known = one.reacts and one.distances is not None and one.distances.pairs
        slope = formats.number(one.distances.sensitivity) if known and one.distances is not None else "-"
        table.add_row(one.name, size(one.least_squares), size(one.response), slope)
    return table


def _directions(report: "AuditReport") -> Any:
    from performative.audit import cells

    table = grid("client", "what moves", "per unit of theta", "by", "least squares", "for any training")
    for client, column, parameter, slope, _, narrow, wide in cells.direction_rows(report, _MOST_DIRECTIONS, 2):
        table.add_row(client, column, parameter.removeprefix("theta_"), slope, narrow, wide)
    return table if table.row_count else None


def _tell_outlook(reporter: Reporter, report: "AuditReport") -> None:
    from performative.audit import cells

    # Why there is none is said with what to do next.
    if report.prospect.outlook is None:
        return
    reporter.show()
    facts = grid("outlook", "")
    for name, value in cells.outlook_facts(report):
        facts.add_row(name, value)
    reporter.show(facts)
    reporter.show()
    points = grid("parameter", "now", "stable point", "optimum")
    for row in cells.outlook_rows(report):
        points.add_row(*row)
    reporter.show(points)
    for sentence in report.said("outlook")[1:]:  # the first one is in the verdict
        reporter.show()
        reporter.show(sentence)


def _tell_groups(reporter: Reporter, report: "AuditReport") -> None:
    from performative.audit import formats

    groups = report.groups
    assert groups is not None
    reporter.show()
    after = {rates.group: rates for rates in groups.after}
    burden = {one.group: one for one in groups.burden}
    table = grid("group", "accepted before", "after", "TPR before", "after", "TNR before", "after", "burden")
    for rates in groups.before:
        cells = []
        for name in ("acceptance", "tpr", "tnr"):
            for when in (rates, after.get(rates.group)):
                found = None if when is None else getattr(when, name)
                cells.append("not known" if found is None else formats.percent(found.value))
        cost = burden.get(rates.group)
        table.add_row(rates.group, *cells, "-" if cost is None else formats.number(cost.value))
    reporter.show(table)
    reporter.show(f"Before: {groups.before_is}. After: {groups.after_is}.")
    for line in report.said("people"):
        reporter.show(line)
