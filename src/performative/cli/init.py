"""`performative init TABLE`."""

import dataclasses
import functools
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from performative.cli.assess import LABEL, PEOPLE, POSITIVE, STRATEGIC, listed
from performative.cli.output import Exit, Failure, Json, Reporter, at_terminal, check_out, failing, grid, reporting

T = TypeVar("T")
_COLUMN = "a column of the table"


def init(
    people: Annotated[str, typer.Argument(help=PEOPLE)],
    label: Annotated[str | None, typer.Option("--label", help=LABEL)] = None,
    positive: Annotated[str | None, typer.Option("--positive", help=POSITIVE)] = None,
    client: Annotated[str | None, typer.Option("--client", help="Client column, such as the bank.")] = None,
    strategic: Annotated[str, typer.Option("--strategic", help=STRATEGIC)] = "",
    strength: Annotated[float, typer.Option("--strength", min=0.0, help="How far people move.")] = 1.0,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("experiment.toml"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; accept the suggestions.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write a commented experiment file for your own table.

    Looks at the columns, asks what they are for (with a suggestion for each), and writes a TOML file that
    `performative run` and `certify` read. Options answer questions in advance; with --yes, or without a terminal,
    the suggestions are taken.
    """
    with reporting(as_json) as reporter:
        check_out(out, "an experiment is a TOML file", ".toml")
        if out.exists() and not force:
            raise Failure(f"--out {out}: this file exists; choose another name, or add --force.", Exit.BAD_INPUT)
        from performative.assess.reading import read_people
        from performative.config.start import describe_columns, write_experiment

        with failing((ValueError, OSError), file=people):
            frame, _ = read_people(people)
            frame = frame.rename(columns=str)
            if not len(frame):
                raise ValueError(f"{people}: there are no rows.")
            columns = describe_columns(frame)
        _show(reporter, columns, len(frame))
        for column in columns:
            if column.stray is not None:
                reporter.complain(
                    "warning", "bold yellow",
                    f"column {column.name!r} holds numbers, but also {column.stray!r}, so it is read as text; correct "
                    "or empty those cells.",
                )  # fmt: skip
        ask = not (yes or reporter.as_json) and at_terminal()
        roles = _choose(columns, label, client, listed(strategic), ask)
        roles = dataclasses.replace(roles, positive=_positive(frame[roles.label], positive, ask))
        where = people if "://" in people else os.path.relpath(people, out.absolute().parent)
        with failing((ValueError, OSError), file=people):
            population: Any = write_experiment(out, where, columns, roles, strength).population
        reporter.path("wrote ", out)
        clients = population.clients
        used = int(population.count.sum())  # rows without a label are left out
        reporter.show(f"{used:,} people, {clients} client{'s' * (clients > 1)}, label {roles.label!r}.")
        if roles.ignore:
            reporter.show(f"Not used: {', '.join(roles.ignore)} (see `ignore` in the file).")
        reporter.show(f"Next: performative run {shlex.quote(str(out))}")
        found = {"rows": len(frame), "clients": clients, "roles": dataclasses.asdict(roles)}
        reporter.result({"status": "completed", "file": str(out), **found})


def _choose(columns: list[Any], label: str | None, client: str | None, strategic: list[str], ask: bool) -> Any:
    """The roles of the columns: from the options, by asking, or as suggested."""
    from performative.config.start import guess_roles

    check = functools.partial(_check_role, columns)
    if label is not None:
        check("--label", label, None)
    elif ask:
        question = "Which column is the label (two classes)?"
        label = _prompt(question, guess_roles(columns).label, lambda text: check("--label", text.strip(), None))
    roles = guess_roles(columns, label, client)
    if roles.label is None:
        raise Failure("no column has exactly two classes; name the label column with --label.", Exit.BAD_INPUT)
    if client is not None:
        check("--client", client, roles.label)
    for name in strategic:
        check("--strategic", name, roles.label)
    if ask and client is None:
        question = "Which column names the client, such as the bank (none: one client)?"
        answer = _prompt(
            question,
            roles.client or "none",
            lambda text: "none" if text.strip() == "none" else check("--client", text.strip(), roles.label),
        )
        roles = guess_roles(columns, label, None if answer == "none" else answer)
        roles = dataclasses.replace(roles, client=None) if answer == "none" else roles
    if ask and not strategic:
        question = "Which columns can people change (comma-separated)?"
        strategic = _prompt(
            question,
            ",".join(roles.strategic),
            lambda text: [check("--strategic", name, roles.label) for name in listed(text)],
        )
    ignore = tuple(name for name in roles.ignore if name not in strategic)
    return dataclasses.replace(roles, strategic=tuple(strategic), ignore=ignore) if strategic else roles


def _check_role(columns: list[Any], option: str, name: str, label: str | None) -> str:
    """The name of a column, if it can have this role; the reason otherwise."""
    column = {column.name: column for column in columns}[
        _among(option, name, [column.name for column in columns], _COLUMN)
    ]
    told = ""
    if option == "--label":
        several = f"the label must have two classes, such as 0 and 1; this column has {column.distinct}"
        told = several if column.distinct != 2 else ""
    elif name == label:
        told = "this column is the label; choose another"
    elif option == "--client" and column.missing:
        told = f"{column.missing} of its entries are missing; fill them, or choose another"
    elif option == "--strategic" and column.kind == "constant":
        told = "this column is the same for everybody, so nobody can change it; choose another"
    elif option == "--strategic" and not column.numeric:
        told = "this column is not numeric, so it has no direction; choose another"
    if told:
        raise Failure(f"{option} {name}: {told}.", Exit.BAD_INPUT)
    return name


def _show(reporter: Reporter, columns: list[Any], rows: int) -> None:
    title = f"{rows:,} row{'s' * (rows != 1)}"
    table = grid("column", "looks like", "distinct", "missing", "example", title=title, title_justify="left")
    for words in (1, 4):
        table.columns[words].justify = "left"
    for column in columns:
        table.add_row(column.name, column.kind, f"{column.distinct:,}", f"{column.missing:,}", column.example)
    reporter.show(table)


def _word(value: Any) -> str:
    """A label as it stands in the file: 1 and 2 are read as 1.0 and 2.0 if a label is missing."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _positive(column: Any, given: str | None, ask: bool) -> Any:
    """The value of the label that is 1; None if the two are 0 and 1."""
    values = column.dropna().unique().tolist()
    if len(values) != 2:
        raise Failure(
            f"the label must have two classes, such as 0 and 1; {column.name!r} has {len(values)}.", Exit.BAD_INPUT
        )
    words = {_word(value): value for value in values}
    if given is not None:
        return words[_among("--positive", given, list(words), f"one of the two classes of {column.name!r}")]
    if all(value in (0, 1) for value in values):
        return None
    yes = next((word for word in words if word.strip().lower() in ("1", "1.0", "yes", "y", "true", "t")), None)
    if ask:
        question = "Which class is 1, the one people try to avoid?"
        return words[_ask(question, yes, list(words), f"one of the two classes of {column.name!r}")]
    if yes is None:
        raise Failure(
            f"the label has the classes {' and '.join(map(repr, values[:2]))}; specify which of them is 1: set "
            "--positive to the class that people try to avoid.",
            Exit.BAD_INPUT,
        )
    return words[yes]


def _ask(question: str, suggested: str | None, allowed: list[str], what: str) -> str:
    return _prompt(question, suggested, lambda text: _among("", text.strip(), allowed, what))


def _prompt(question: str, suggested: str | None, read: Callable[[str], T]) -> T:
    """Ask until the answer can be read."""

    def check(text: str) -> T:
        try:
            return read(text)
        except Failure as failure:
            raise typer.BadParameter(failure.message) from None

    return cast(T, typer.prompt(question, default=suggested, value_proc=check))


def _among(option: str, name: str, allowed: list[str], what: str) -> str:
    from performative._base.checks import nearest

    if name not in allowed:
        raise Failure(f"{option} {name!r} is not {what}.{nearest(name, allowed)}".strip(), Exit.BAD_INPUT)
    return name
