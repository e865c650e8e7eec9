"""What commands print, and how they end."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.findings import plain

EXIT_CODES = (
    "Exit codes: 0 all is well; 1 the run failed or diverged; 2 the command or its input is wrong; 130 interrupted."
)
JSON_HELP = "Print one JSON object on standard output and nothing else."
Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
_SET_HELP = "Replace an entry of the file: --set algorithm.rate=0.2; again for another."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SET_HELP)]


class Exit(IntEnum):
    """Exit codes."""

    FINE = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERRUPTED = 130


class Failure(Exception):
    """A command ends with a message and a code other than 0. `result` is what --json prints all the same."""

    def __init__(self, message: str, code: Exit, result: dict[str, Any] | None = None, **details: str):
        super().__init__(message)
        self.message, self.code, self.result, self.details = message, code, result, details


class Reporter:
    """Tables and words for people, or one JSON object for programs.

    With --json standard output holds that object alone; all that is for people goes to standard error.
    """

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self.errors = plain_console(stderr=True)
        self.people = self.errors if as_json else plain_console()

    def show(self, *things: Any, style: str | None = None) -> None:
        self.people.print(*things, style=style)

    def path(self, label: str, path: Any) -> None:
        """A path on a line of its own, never wrapped, so that it can be copied."""
        self.people.print(f"{label:<5}{path}", soft_wrap=True)

    def result(self, values: dict[str, Any]) -> None:
        if self.as_json:
            print(json.dumps(plain(values), allow_nan=False), flush=True)

    def complain(self, word: str, style: str, message: str) -> None:
        from rich.text import Text

        self.errors.print(Text.assemble((f"{word}: ", style), message), soft_wrap=True)


def plain_console(stderr: bool = False) -> Any:
    """A console that shows foreign text as it is: brackets are no markup, and control characters (a terminal would
    obey them) are shown as their symbols."""
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else show_controls(segment.text)
                yield Segment(text, segment.style, segment.control)

    return Plain(stderr=stderr, highlight=False, markup=False, emoji=False)


def show_controls(text: str) -> str:
    """Control and direction-changing characters as visible symbols, line ends and tabs apart."""
    return text.translate(_VISIBLE)


def grid(*columns: str, **options: Any) -> Any:
    """A table for people: names first, numbers behind."""
    from rich.table import Table

    made = Table(show_edge=False, pad_edge=False, **options)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left")
    return made


# U+2400 shows the C0 controls; the rest (C1, bidirectional overrides) becomes the replacement character.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
_VISIBLE |= dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)

# What was said before the command's name; the top command sets both anew each time.
before = {"json": False, "debug": False}


@contextmanager
def reporting(as_json: bool, entries: Sequence[str] | None = None) -> Iterator[Reporter]:
    """Run a command's body; whatever goes wrong becomes one message and an exit code. `entries`: what --set says."""
    from performative.config.errors import ConfigError
    from performative.config.overrides import overriding

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
    except KeyboardInterrupt:
        problem = Failure("interrupted.", Exit.INTERRUPTED)
    except BrokenPipeError:  # whoever read, as `head` does, has enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for what is left to be flushed
        raise typer.Exit(0) from None
    except Exception as error:
        if debug:
            raise
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
    """What may go wrong, as one line and the right code: `bad` input, or work that `failed`."""
    from performative.config.errors import ConfigError

    try:
        yield
    except (Failure, ConfigError):  # they say more
        raise
    except (*failed, *bad) as error:
        details |= {name: getattr(error, name) for name in ("file", "row", "column") if hasattr(error, name)}
        code = Exit.FAILED if isinstance(error, failed) else Exit.BAD_INPUT
        raise Failure(str(error), code, None, **details) from error


def check_out(out: Path, what: str, *endings: str) -> None:
    """Refuse, before anything runs, a file that could not be written after it."""
    if out.suffix not in endings:
        raise Failure(f"--out {out}: {what}; give a name that ends in {endings[0]}.", Exit.BAD_INPUT)
    if out.is_dir() or not out.absolute().parent.is_dir():
        wrong = "this is a folder" if out.is_dir() else f"there is no folder {out.absolute().parent}"
        raise Failure(f"--out {out}: {wrong}.", Exit.BAD_INPUT)


def check_folder(out: Path) -> None:
    """The same for a folder of files."""
    if out.exists() and not out.is_dir():
        raise Failure(f"--out {out}: this is a file; give a folder.", Exit.BAD_INPUT)


@contextmanager
def _warnings_as_lines(complain: Callable[[str], None]) -> Iterator[None]:
    """Warnings as one line each, without the line of code that raised them."""

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        complain(str(message))

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("default")
        warnings.showwarning = show
        yield
