"""The commands. Slow imports happen inside the command that needs them."""

from importlib import import_module
from typing import Annotated

import typer

from performative._base import plugins
from performative.cli.manual import add_help
from performative.cli.output import EXIT_CODES, JSON_HELP, Exit, before

# A command is a file with a function of the same name, or a Typer for a group of commands. In the order of --help.
COMMANDS = (
    "demo",
    "init",
    "assess",
    "stress",
    "certify",
    "run",
    "scoreboard",
    "audit",
    "watch",
    "plan",
    "design",
    "reproduce",
    "report",
    "bench",
    "privacy",
    "federation",
    "suite",
    "data",
    "schema",
    "doctor",
)

app = typer.Typer(
    name="performative",
    help="Federated learning when deploying the model changes the data.",
    epilog="\n\n".join(filter(None, (EXIT_CODES, plugins.summary()))),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    pretty_exceptions_enable=False,
)

for name in COMMANDS:
    command = getattr(import_module(f"performative.cli.{name}"), name)
    if isinstance(command, typer.Typer):
        app.add_typer(command)
    else:
        app.command()(command)
add_help(app)


def _say_json(value: bool) -> bool:
    before["json"] = value
    return value


def _say_version(value: bool) -> bool:
    if not value:
        return value
    import json
    import platform
    from importlib.metadata import version

    from performative._version import __version__

    names = {name: version(name) for name in ("jax", "equinox")}
    told = {"performative": __version__, "python": platform.python_version(), **names}
    typer.echo(json.dumps(told) if before["json"] else f"performative {__version__}")
    raise typer.Exit(Exit.FINE)


@app.callback(no_args_is_help=True)
def top(
    # --json is read first, so --version sees it in either order.
    as_json: Annotated[bool, typer.Option("--json", callback=_say_json, is_eager=True, help=JSON_HELP)] = False,
    version: Annotated[bool, typer.Option("--version", callback=_say_version, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
) -> None:
    before["debug"] = debug


def main() -> None:
    """Entry point of the `performative` command."""
    app()
