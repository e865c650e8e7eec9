"""Help as a manual page has it: what a command does, its options, examples, exit codes."""

import inspect
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from performative.cli.output import EXIT_CODES

# One or more command lines for each command; `performative COMMAND --help` shows them.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("demo", "demo --json"),
    "init": ("init people.csv", "init people.csv --label default --client bank --yes --out bank.toml"),
    "assess": (
        "assess people.csv --label default --client bank --strategic utilization,debt",
        "assess people.parquet --label default --group sex --page answer.html",
    ),
    "stress": ("stress model.joblib people.csv --label default --strategic utilization --trust",),
    "certify": ("certify examples/credit.toml", "certify people.csv --label default --strength 0.5"),
    "run": (
        "run examples/credit.toml --out credit.nc",
        "run examples/credit.toml --set algorithm.local_steps=1 --repeats 16",
        "run examples/credit.toml --checkpoint kept --resume",
    ),
    "scoreboard": ("scoreboard examples/credit.toml --repeats 4",),
    "audit": ("audit logs/ --out answer", "audit bank.duckdb --map audit.toml", "audit bank.duckdb --explain"),
    "watch": ("watch batches/ --state watch.json", "watch bank.duckdb --map audit.toml --state watch.json"),
    "plan": ("plan examples/plan.toml --accuracy 0.1",),
    "design": ("design examples/design.toml", "design logs/ --effect 0.3 --power 0.9"),
    "reproduce": ("reproduce --list", "reproduce profl/fig2a --quick", "reproduce --ledger"),
    "report": ("report credit.nc --out credit.html",),
    "bench": ("bench", "bench audit_rows --json"),
    "privacy spent": (
        "privacy spent examples/private_credit.toml",
        "privacy spent --noise 1.1 --steps 1000 --delta 1e-5 --sampling poisson --batch 256 --rows 60000",
    ),
    "privacy calibrate": (
        "privacy calibrate --epsilon 2 --delta 1e-5 --steps 1000 --sampling poisson --batch 256 --rows 60000",
    ),
    "privacy attack": ("privacy attack examples/private_credit.toml --rounds 5 --repeats 1000",),
    "federation init": ("federation init banks --clients 3",),
    "federation up": ("federation up", "federation up --address bank.example.org:9092"),
    "federation run": ("federation run --rounds 20", "federation run --resume"),
    "federation rehearse": ("federation rehearse --rounds 5",),
    "federation status": ("federation status", "federation status --json"),
    "federation audit": ("federation audit", "federation audit --here --data tables/"),
    "federation rollback": ("federation rollback 12", "federation rollback --to 40"),
    "federation verify": ("federation verify",),
    "federation down": ("federation down",),
    "federation export": ("federation export --compose --server bank.example.org:9092 --out deploy",),
    "federation invite": ("federation invite north", "federation invite south --days 3 --out south.invitation"),
    "federation join": ("federation join north.invitation --data tables/",),
    "federation approve": ("federation approve north.request",),
    "federation expel": ("federation expel north",),
    "federation leave": ("federation leave --app north",),
    "federation rotate": ("federation rotate",),
    "federation doctor": ("federation doctor", "federation doctor --app north"),
    "suite list": ("suite list",),
    "suite run": ("suite run --quick", "suite run --methods p_fedavg,falling --envs credit-real-v1 --seeds 10"),
    "suite show": ("suite show --shipped", "suite show --page leaderboard.html"),
    "suite pack": ("suite pack results.json",),
    "suite submit": ("suite submit mine.json",),
    "data list": ("data list",),
    "data get": ("data get adult",),
    "data path": ("data path adult",),
    "schema": ("schema > performative.schema.json", "schema --out performative.schema.json"),
    "doctor": ("doctor", "doctor --folder results"),
}


# What lists of commands say, in a line that is never cut off.
SHORT: dict[str, str] = {
    "demo": "Ten synthetic banks, solved and explained",
    "init": "Write an experiment file for your own table",
    "assess": "What if people respond to a model of your data",
    "stress": "Stress-test a fitted classifier",
    "certify": "Will retraining settle, where, at what cost",
    "run": "Run the experiment of a TOML file",
    "scoreboard": "Compare an algorithm with baselines",
    "audit": "Test from logs whether data react to models",
    "watch": "Monitor a deployment with anytime-valid tests",
    "plan": "Choose steps, clients, batch and rate",
    "design": "Choose what to deploy to learn the reaction",
    "reproduce": "Figures of the papers, with a verdict",
    "report": "Write an interactive page of a run or audit",
    "bench": "Time this library against hand-written code",
    "schema": "JSON Schema of experiment files, for editors",
    "doctor": "Check this installation",
    "privacy": "Epsilon of a run, noise for an epsilon, attacks",
    "federation": "A real federation on Flower",
    "suite": "The benchmark and its leaderboard",
    "data": "Data sets: list, get, find",
    "privacy spent": "Epsilon of a run",
    "privacy calibrate": "The least noise for an epsilon",
    "privacy attack": "A lower bound on epsilon, by attack",
    "suite list": "Environments and methods",
    "suite run": "Tune and run methods in environments",
    "suite show": "The leaderboard, and what wins where",
    "suite pack": "Write all results into one file",
    "suite submit": "Check and add a result from elsewhere",
    "data list": "Data sets, sizes, licenses, folders",
    "data get": "Download a data set and check it",
    "data path": "Print the folder of a data set",
    "federation init": "Write an app folder",
    "federation up": "Start the server, and members on loopback",
    "federation run": "Run rounds and wait for the end",
    "federation rehearse": "Run the same app without a network",
    "federation status": "Processes, progress, rejections, the model",
    "federation audit": "Audit the members' logs; rows stay there",
    "federation rollback": "Return to an earlier model",
    "federation verify": "Check the signed log",
    "federation down": "Stop all processes",
    "federation export": "Write manifests for other machines",
    "federation invite": "Write an invitation for a member",
    "federation join": "Join from this host",
    "federation approve": "Register an invited member",
    "federation expel": "Remove a member immediately",
    "federation leave": "Stop this member, destroy its key",
    "federation rotate": "Renew certificates",
    "federation doctor": "Check a server or a member",
}


class _Command(TyperCommand):
    """A command whose help is plain text. Typer escapes "[required]" for Rich, also where Rich is off."""

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class _Group(TyperGroup):
    """The same for a group of commands."""

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace("\\[", "[")


def add_help(app: typer.Typer, path: str = "") -> None:
    """Give every command its examples, and plain text in which brackets are brackets, such as [problem]."""
    app.rich_markup_mode = None
    app.info.cls = _Group
    for group in app.registered_groups:
        if group.typer_instance is not None:
            name = str(group.typer_instance.info.name)
            group.typer_instance.info.short_help = SHORT[name]
            add_help(group.typer_instance, f"{name} ")
    for command in app.registered_commands:
        if command.callback is not None:
            name = path + (command.name or command.callback.__name__.replace("_", "-"))
            command.cls = _Command
            command.short_help = SHORT.get(name)
            command.help = command.help or inspect.getdoc(command.callback)
            command.epilog = _epilog(EXAMPLES.get(name, ()))


def _epilog(lines: tuple[str, ...]) -> str:
    """Examples, one a line (\\b keeps click from joining them), and the exit codes."""
    shown = "\n".join(["\b", "Examples:", *(f"  performative {line}" for line in lines)])
    return f"{shown}\n\n{EXIT_CODES}" if lines else EXIT_CODES
