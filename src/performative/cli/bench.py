"""`performative bench`."""

from typing import Annotated

import typer

from performative.cli.output import Exit, Failure, Json, failing, grid, reporting

# The numbers of a benchmark that the table shows; --json prints all.
_COLUMNS = {
    "ours_s": "ours (s)",
    "loop_s": "loop (s)",
    "reference_s": "reference (s)",
    "ratio": "ratio",
    "call_ratio": "call ratio",
    "bulk_ratio": "bulk ratio",
    "default_ratio": "default ratio",
}


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks to run; by default all short ones.")] = None,
    as_json: Json = False,
) -> None:
    """Time this library against hand-written programs for the same task, in one run."""
    with reporting(as_json) as reporter:
        from performative._base.checks import nearest
        from performative.cli.benchmarks import LONG, find_benchmarks

        with failing((), (FileNotFoundError,)):
            known = find_benchmarks()
        for name in names or []:
            if name not in known:
                raise Failure(f"there is no benchmark {name!r}.{nearest(name, known)}", Exit.BAD_INPUT)
        rows = []
        for name in names or [name for name in known if name not in LONG]:
            with reporter.errors.status(f"benchmark {name}"):
                rows.append(known[name]())
        columns = [name for name in _COLUMNS if any(name in row for row in rows)]
        table = grid("benchmark", *(_COLUMNS[name] for name in columns))
        for row in rows:
            numbers = (row.get(name) for name in columns)
            table.add_row(row["benchmark"], *("" if number is None else f"{number:.3g}" for number in numbers))
        reporter.show(table)
        for note in dict.fromkeys(row["note"] for row in rows if row.get("note")):
            reporter.show(note)
        reporter.result({"status": "completed", "benchmarks": rows})
