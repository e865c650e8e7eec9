"""`performative assess`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import Json, Reporter, check_out, failing, reporting


class Who(StrEnum):
    """Whose data respond."""

    EVERYONE = "everyone"
    POSITIVE = "positive"


class Scale(StrEnum):
    """How columns are scaled."""

    AUTO = "auto"
    STANDARD = "standard"
    ROBUST = "robust"


PEOPLE = "Table with one row per person: .csv, .parquet, or a database (FILE.duckdb#TABLE, a URL)."
LABEL = "Label column; yes, true and 1 count as 1."
POSITIVE = "Label value that counts as 1, the class people try to avoid."
STRATEGIC = "Columns people can change, comma-separated; by default, all numeric ones except flags."


def assess(
    people: Annotated[str, typer.Argument(help=PEOPLE)],
    label: Annotated[str, typer.Option("--label", help=LABEL)],
    positive: Annotated[str | None, typer.Option("--positive", help=POSITIVE)] = None,
    client: Annotated[str | None, typer.Option("--client", help="Client column, such as the bank.")] = None,
    strategic: Annotated[str, typer.Option("--strategic", help=STRATEGIC)] = "",
    strength: Annotated[float, typer.Option("--strength", min=0.0, help="Response strength; a range is shown.")] = 1.0,
    group: Annotated[str | None, typer.Option("--group", help="Group column, for rates by group.")] = None,
    who: Annotated[Who, typer.Option("--who", help="Who responds: everyone, or only class 1.")] = Who.EVERYONE,
    share: Annotated[float | None, typer.Option("--share", help="Share of people rejected (that of label 1).")] = None,
    ignore: Annotated[str, typer.Option("--ignore", help="Columns to ignore, comma-separated.")] = "",
    scale: Annotated[Scale, typer.Option("--scale", help="auto clips columns with extreme values.")] = Scale.AUTO,
    rows: Annotated[int, typer.Option("--rows", min=10, help="Maximum number of rows, drawn at random.")] = 5000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of that draw.")] = 0,
    page: Annotated[Path | None, typer.Option("--page", help="Write an HTML file.")] = None,
    as_json: Json = False,
) -> None:
    """If people respond to my model: would my data change, would retraining settle, what would ignoring it cost?

    Answers for your own table, over a range of strengths, with the columns that drive the effect and the groups that
    are hurt. One table cannot show whether people do respond; `performative audit` tests that from logs.
    """
    with reporting(as_json) as reporter:
        if page is not None:
            check_out(page, "the page is an HTML file", ".html", option="--page")
        from performative.assess import assess as ask

        with failing((ValueError, OSError), file=people), reporter.errors.status("assessing"):
            found = ask(
                people, label=label, positive=positive, client=client, strategic=listed(strategic) or None,
                strength=strength, group=group, who=who.value, share=share, ignore=listed(ignore), scale=scale.value,
                rows=rows, seed=seed, progress=False,
            )  # fmt: skip
        _tell(reporter, found)
        files = {}
        if page is not None:
            files["page"] = str(found.page(page))
            reporter.path("page", page)
        reporter.result({"status": "completed", "file": people, **found.to_dict(), "files": files})


def listed(names: str) -> list[str]:
    """Split comma-separated names."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _tell(reporter: Reporter, found: Any) -> None:
    from rich import table
    from rich.text import Text

    from performative.assess.tables import features_table, groups_table, lead, strengths_table

    reporter.show(lead(found))
    asked = table.Table(show_edge=False, pad_edge=False, show_lines=True)
    for column, widest in (("question", 17), ("answer", 17), ("because", 76)):
        asked.add_column(column, max_width=widest)
    for question, short, why in found.answers:
        asked.add_row(question, Text(short, style="bold"), why)
    for thing in (asked, strengths_table(found), features_table(found), groups_table(found)):
        if thing is not None:
            reporter.show()
            reporter.show(thing.terminal() if hasattr(thing, "terminal") else thing)
            for note in getattr(thing, "notes", ()):
                reporter.show(Text(note, style="dim"))
    reporter.show()
    for note in found.notes:
        reporter.show(Text(f"- {note}", style="dim"))
