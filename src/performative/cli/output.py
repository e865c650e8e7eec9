"""Output and exit codes of the commands."""

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from performative.findings import plain

EXIT_CODES = (
    "Exit codes: 0 success; 1 the run failed or diverged; 2 the command or its input is wrong; 130 interrupted."
)
JSON_HELP = "Print one JSON object on standard output and nothing else."
Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
_SET_HELP = "Override an entry of the file: --set algorithm.rate=0.2; may be repeated."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SET_HELP)]


class Exit(IntEnum):
    """Exit codes."""

    FINE = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERRUPTED = 130


class Failure(Exception):
    """A command ends with a message and a nonzero code. `result` is what --json prints in any case."""

    def __init__(self, message: str, code: Exit, result: dict[str, Any] | None = None, **details: str):
        super().__init__(message)
        self.message, self.code, self.result, self.details = message, code, result, details


class Reporter:
    """Tables and text for people, or one JSON object for programs.

    With --json standard output contains only that object; text for people goes to standard error.
    """

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self.errors = plain_console(stderr=True)
        self.people = self.errors if as_json else plain_console()

    def show(self, *things: Any, style: str | None = None) -> None:
        self.people.print(*things, style=style)

    def path(self, label: str, path: Any) -> None:
        """Print a path on its own line, never wrapped, so it can be copied."""
        self.people.print(f"{label:<5}{path}", soft_wrap=True)

    def result(self, values: dict[str, Any]) -> None:
        if self.as_json:
            print(json.dumps(plain(values), allow_nan=False), flush=True)

    def complain(self, word: str, style: str, message: str) -> None:
        from rich.text import Text

        self.errors.print(Text.assemble((f"{word}: ", style), message), soft_wrap=True)


def plain_console(stderr: bool = False) -> Any:
    """A console that prints untrusted text verbatim: brackets are not markup, and control characters, which a terminal
    would obey, are shown as symbols."""
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else show_controls(segment.text)
                yield Segment(text, segment.style, segment.control)

    return Plain(stderr=stderr, highlight=False, markup=False, emoji=False)


def at_terminal() -> bool:
    """Whether somebody can answer questions; standard input may also be closed."""
    return sys.stdin is not None and sys.stdin.isatty()


def show_controls(text: str) -> str:
    """Show control and bidirectional characters as visible symbols, except line ends and tabs."""
    return text.translate(_VISIBLE)


def grid(*columns: str, **options: Any) -> Any:
    """A table for people: names on the left, then numbers."""
    from rich.table import Table

    made = Table(show_edge=False, pad_edge=False, **options)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left", overflow="fold")
    return made


def show_checks(reporter: Reporter, found: Sequence[Any]) -> None:
    """The lines of a checkup; fails if one of them found something wrong."""
    for check in found:
        remedy = f". Remedy: {check.remedy}" if check.wrong else ""
        reporter.show(f"{'wrong' if check.wrong else 'fine '}  {check.name}: {check.found}{remedy}")
    facts = {"checks": [{"name": c.name, "found": c.found, "remedy": c.remedy} for c in found]}
    if count := sum(check.wrong for check in found):
        raise Failure(f"{count} of {len(found)} checks found something wrong.", Exit.FAILED, facts)
    reporter.result({"status": "completed", **facts})


# U+2400 shows the C0 controls; the rest (C1, bidirectional overrides) becomes the replacement character.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
_VISIBLE |= dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)

# Options given before the command's name; the top command sets both on every call.
before = {"json": False, "debug": False}


@contextmanager
def reporting(as_json: bool, entries: Sequence[str] | None = None) -> Iterator[Reporter]:
    """Run a command's body; any error becomes one message and an exit code. `entries`: the values of --set."""
    try:
        from performative.config.errors import ConfigError
        from performative.config.overrides import overriding
    except KeyboardInterrupt:  # they load JAX, which takes seconds
        typer.echo("error: interrupted.", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None

    reporter, debug = Reporter(as_json or before["json"]), before["debug"]
    try:
        with _warnings_as_lines(lambda text: reporter.complain("warning", "bold yellow", text)), overriding(entries):
            yield reporter
        return
    except Failure as failure:
        problem = failure
    except ConfigError as error:
        if debug and error.__cause__ is not None:
            raise
        problem = Failure(str(error), Exit.BAD_INPUT, file=error.file, key=error.key)
    except (KeyboardInterrupt, typer.Abort) as stop:
        if isinstance(stop, typer.Abort):  # at a question: Ctrl-C or the end of the input
            typer.echo(err=True)
        problem = Failure("interrupted.", Exit.INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for the remaining flush
        raise typer.Exit(0) from None
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.filename and error.strerror:  # a full disk, missing permissions
            error = OSError(f"{error.filename}: {error.strerror}")
        lines = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        problem = Failure(f"{text} (performative --debug shows where)", Exit.FAILED)
    reporter.complain("error", "bold red", problem.message)
    about = {"message": problem.message, **{k: v for k, v in problem.details.items() if v}}
    reporter.result({"status": "error", **(problem.result or {}), "error": about})
    raise typer.Exit(int(problem.code))


@contextmanager
def failing(
    bad: tuple[type[Exception], ...] = (ValueError,), failed: tuple[type[Exception], ...] = (), **details: str
) -> Iterator[None]:
    """Turn expected errors into one line and the right exit code: `bad` input, or work that `failed`."""
    from performative.config.errors import ConfigError

    try:
        yield
    except (Failure, ConfigError):  # these are more informative
        raise
    except (*failed, *bad) as error:
        details |= {name: getattr(error, name) for name in ("file", "row", "column") if hasattr(error, name)}
        code = Exit.FAILED if isinstance(error, failed) else Exit.BAD_INPUT
        raise Failure(str(error), code, None, **details) from error


def check_out(out: Path, what: str, *endings: str, option: str = "--out") -> None:
    """Reject an unwritable output file before anything runs."""
    if out.suffix not in endings:
        raise Failure(f"{option} {out}: {what}; pass a name that ends in {endings[0]}.", Exit.BAD_INPUT)
    if out.is_dir() or not out.absolute().parent.is_dir():
        wrong = "this is a folder" if out.is_dir() else f"there is no folder {out.absolute().parent}"
        raise Failure(f"{option} {out}: {wrong}.", Exit.BAD_INPUT)
    _check_writable(f"{option} {out}", out.absolute().parent)


def check_folder(out: Path) -> None:
    """The same for a folder of files."""
    if out.exists() and not out.is_dir():
        raise Failure(f"--out {out}: this is a file; pass a folder.", Exit.BAD_INPUT)
    _check_writable(
        f"--out {out}", next(place for place in (out.absolute(), *out.absolute().parents) if place.exists())
    )


def _check_writable(named: str, folder: Path) -> None:
    """Only creating a file shows whether the folder, its disk and its permissions allow it."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        told = f"{named}: cannot be written ({error.strerror}); choose another folder."
        raise Failure(told, Exit.BAD_INPUT) from error


def check_file_for_set(entries: Sequence[str] | None, source: object, what: str) -> None:
    """Reject --set where no TOML file is read: it would have no effect."""
    if entries:
        raise Failure(
            f"--set {entries[0]}: it overrides an entry of a TOML file, but {source} is {what}.", Exit.BAD_INPUT
        )


def reject_unused(reason: str, *names: str) -> None:
    """Reject options that were given, also with their default, but would have no effect. `names`: of parameters."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise Failure(f"{parameter.opts[0]} {reason}", Exit.BAD_INPUT)


@contextmanager
def _warnings_as_lines(complain: Callable[[str], None]) -> Iterator[None]:
    """Print each warning as one line, without the code line that issued it."""

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        complain(str(message))

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("default")
        warnings.showwarning = show
        yield
