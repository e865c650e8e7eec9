"""`performative federation`: the same parts on a network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.audit import Drift, show_audit
from performative.cli.membership import add_membership, set_address, show_server
from performative.cli.output import EXIT_CODES, Exit, Failure, Json, Reporter, check_folder, failing, reporting

federation = typer.Typer(
    name="federation",
    help="A real federation on Flower: TLS, registered keys, one process a client; here, on this machine's loopback.",
    no_args_is_help=True,
)
App = Annotated[Path, typer.Option("--app", help="The app folder, as `init` writes it.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of the members' tables, where federation.toml has a [data]; without it, the app folder."
    ),
]
Logs = Annotated[bool, typer.Option("--logs", help="Show the ends of all logs of this machine too.")]
_HERE = Path(".")


@federation.command(epilog=EXIT_CODES)
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to write; it must not exist, or be empty.")] = Path(
        "credit-federation"
    ),
    clients: Annotated[int, typer.Option(help="Banks of the example.")] = 3,
    as_json: Json = False,
) -> None:
    """Write a ready app folder: pyproject.toml for Flower, federation.toml, app.py and README.md."""
    with reporting(as_json) as reporter:
        from performative.live.app import write_app

        if clients < 1:
            raise Failure(f"--clients must be a whole number >= 1; got {clients}.", Exit.BAD_INPUT)
        with failing((FileExistsError,)):
            files = write_app(folder, clients)
        for path in files:
            reporter.path("wrote ", path)
        reporter.show(f"Next: performative federation up --app {folder}, then run, status, down.")
        reporter.result({"status": "completed", "folder": str(folder), "files": [str(path) for path in files]})


@federation.command(epilog=EXIT_CODES)
def up(
    app: App = _HERE,
    clients: Annotated[int | None, typer.Option(help="Must be as many as the problem has; a check.")] = None,
    data: Data = None,
    address: Annotated[
        str | None,
        typer.Option(help="Start the server alone, for members on other hosts, who find it at HOST:PORT."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="IPv4 address to listen on; without it, that of --address, or all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a SuperLink and a SuperNode for each client on loopback, with TLS and node authentication.

    With --address the server alone: members join from their own hosts. Called again, it starts whatever has died and
    leaves the rest alone.
    """
    with _using(as_json) as (reporter, apps):
        made = apps.load_app(app)
        if clients not in (None, made.clients):
            raise Failure(
                f"--clients {clients}: the problem in {app} has {made.clients} clients; each needs a node.",
                Exit.BAD_INPUT,
            )
        if listen is not None and address is None:
            raise Failure("--listen: give --address too, which says where members find the server.", Exit.BAD_INPUT)
        moved = address is not None and set_address(app, address, listen)
        with reporter.errors.status("starting"):
            running = apps.up(app, made, data)
        if "address" in running:
            show_server(reporter, running, moved)
            return
        reporter.show(f"{made.clients} clients are online; they found the server at 127.0.0.1:{running['port']}.")
        reporter.result({"status": "completed", **running})


@federation.command(epilog=EXIT_CODES)
def run(
    app: App = _HERE,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run was cut off.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Put the last run's records aside and start another.")] = False,
    rounds: Annotated[int | None, typer.Option(help="Instead of run.rounds.")] = None,
    logs: Logs = False,
    as_json: Json = False,
) -> None:
    """Run the rounds, wait for the end, and say how it ended. Ends with code 1 where the run failed or diverged."""
    with _using(as_json) as (reporter, apps), _showing(logs, reporter, lambda: apps.logs(app)):
        _follow(reporter, rounds, lambda **how: apps.run(app, resume=resume, new=new, **how))


@federation.command(epilog=EXIT_CODES)
def rehearse(
    app: App = _HERE,
    rounds: Annotated[int | None, typer.Option(help="Instead of run.rounds.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Run the same app in this process, without a network: for finding faults. Its records are not kept."""
    with _using(as_json) as (reporter, apps):
        _follow(reporter, rounds, lambda **how: apps.rehearse_app(app, data=data, **how))


@federation.command(epilog=EXIT_CODES)
def status(app: App = _HERE, logs: Logs = False, as_json: Json = False) -> None:
    """What runs, how far it is, who was heard, what was refused, and which model is deployed.

    Ends with code 1 where the last run failed or diverged.
    """
    with _using(as_json) as (reporter, apps), _showing(logs, reporter, lambda: apps.logs(app)):
        found = apps.status(app)
        for line in apps.status_lines(found):
            reporter.show(line)
        state = (found.get("run") or {}).get("state")
        if state in ("failed", "diverged"):
            why = found["run"].get("why") or f"the run {state}."
            raise Failure(f"the last run {state}: {why}", Exit.FAILED, {**found, "status": state})
        reporter.result({"status": "completed", **found})


@federation.command(epilog=EXIT_CODES)
def audit(
    app: App = _HERE,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page and the JSON file.")] = Path(
        "performative-audit"
    ),
    drift: Annotated[Drift, typer.Option("--drift", help="Drift to allow for that is not the model's.")] = Drift.SMOOTH,
    cost: Annotated[float | None, typer.Option(min=0.0, help="What a mistaken decision costs, in money.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Without a network: all logs are on this machine.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Do the members' data react to the model? Each sums its own logs, as [audit] in federation.toml says; rows stay.

    The verdict is that of all rows together. Prints a summary, and writes a page and a JSON file.
    """
    with _using(as_json) as (reporter, _):
        from performative.audit.report import audit_summaries
        from performative.live import app_audit

        check_folder(out)
        if data is not None and not here:
            raise Failure("--data goes with --here; otherwise members say it in `up` or `join`.", Exit.BAD_INPUT)
        with reporter.errors.status("members are summing their logs"):
            sums, told = app_audit.rehearse_audit(app, data) if here else app_audit.audit_app(app)
        lost = [f"{name} is left out: {why}" for name, why in told["missing"].items()]
        if not sums:
            raise Failure(f"no member's sums can be used: {lost[0]}", Exit.FAILED, {"missing": told["missing"]})
        report = audit_summaries(sums, drift=drift.value, cost=cost)
        for line in lost:
            reporter.show(line)
        told = {"heard": list(told["files"]), "missing": told["missing"]}
        show_audit(reporter, report, out, told)


@federation.command(epilog=EXIT_CODES)
def rollback(
    version: Annotated[int | None, typer.Argument(help="Version to return to; `status` lists them.")] = None,
    to: Annotated[int | None, typer.Option("--to", help="Or the round whose deployed model to return to.")] = None,
    app: App = _HERE,
    as_json: Json = False,
) -> None:
    """Make an earlier model the current one. The next round deploys it everywhere, under a new version."""
    with _using(as_json) as (reporter, apps):
        found, at = apps.roll_back(app, version, to)
        reporter.show(f"The model of version {found} is current again; round {at + 1} will deploy it everywhere.")
        reporter.result({"status": "completed", "version": found, "round": at})


@federation.command(epilog=EXIT_CODES)
def verify(
    app: App = _HERE,
    key: Annotated[str | None, typer.Option(help="The server's public key, as noted; else journal.pub.")] = None,
    head: Annotated[str | None, typer.Option(help="A hash noted earlier, which must still be in the log.")] = None,
    as_json: Json = False,
) -> None:
    """Check the signed log of rounds, deployments, refusals, approvals and rollbacks, line by line.

    Ends with code 1 where a line was changed, taken out, moved or cut off, and names the first.
    """
    with _using(as_json) as (reporter, apps):
        found = apps.verify(app, key, head)
        facts = {"lines": found.lines, "head": found.head, "line": found.line, "cut_short": found.cut_short}
        if not found.sound:
            where = f"line {found.line}: " if found.line is not None else ""
            raise Failure(f"the log is not as it was written: {where}{found.fault}.", Exit.FAILED, facts)
        reporter.show(f"{found.lines} lines are as they were written; the last has the hash {found.head}.")
        if found.cut_short:
            reporter.show("The last line was cut short by a crash; the next run takes it away, and logs that.")
        reporter.result({"status": "completed", **facts})


@federation.command(epilog=EXIT_CODES)
def down(app: App = _HERE, as_json: Json = False) -> None:
    """Stop all processes of the federation. Records, models, keys and memories stay."""
    with _using(as_json) as (reporter, apps):
        ended = apps.down(app)
        reporter.show(f"{len(ended)} processes were stopped." if ended else "Nothing was running.")
        reporter.result({"status": "completed", "stopped": ended})


@federation.command(epilog=EXIT_CODES)
def export(
    app: App = _HERE,
    compose: Annotated[bool, typer.Option("--compose", help="For Docker Compose.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="For Kubernetes.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="For systemd.")] = False,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("deploy"),
    server: Annotated[str, typer.Option(help="Where members find the server, host:port.")] = (
        "federation.example.org:9443"
    ),
    image: Annotated[str, typer.Option(help="Image of server and members.")] = "performative:latest",
    bin: Annotated[str, typer.Option(help="Folder of the installed commands, for systemd.")] = "/opt/performative/bin",
    keys: Annotated[Path | None, typer.Option(help="Folder of members' public keys, member-<i>.pub.")] = None,
    as_json: Json = False,
) -> None:
    """Write manifests for a server and its members on machines of their own: confined, with TLS, secrets as files."""
    with _using(as_json) as (reporter, apps):
        from performative.live import export as manifests

        wanted = [name for name in manifests.KINDS if {"compose": compose, "kubernetes": kubernetes}.get(name, systemd)]
        if len(wanted) != 1:
            raise Failure("give one of --compose, --kubernetes and --systemd.", Exit.BAD_INPUT)
        check_folder(out)
        clients = apps.load_app(app).clients
        with failing((FileExistsError,)):
            made = manifests.export(wanted[0], out, clients, server=server, image=image, bin=bin, keys=keys)
        for path in made:
            reporter.path("wrote ", path)
        if keys is None:
            reporter.show("operator/registry.json is still to be made: --keys names the members' public keys.")
        reporter.result({"status": "completed", "folder": str(out), "files": [str(path) for path in made]})


add_membership(federation)


@contextmanager
def _using(as_json: bool) -> Iterator[tuple[Reporter, Any]]:
    """The commands' body: what is wrong with an app or a site becomes one line and the right code."""
    with reporting(as_json) as reporter:
        from performative.live import app as apps
        from performative.live.loopback.commands import FederationError

        with failing((ValueError, FileNotFoundError), (FederationError, ModuleNotFoundError)):
            yield reporter, apps


@contextmanager
def _showing(wanted: bool, reporter: Reporter, logs: Callable[[], str]) -> Iterator[None]:
    """Logs at the end, where they were asked for; a failure's own line stays the last."""
    try:
        yield
    finally:
        if wanted:
            reporter.errors.print(logs(), markup=False, highlight=False)


def _follow(reporter: Reporter, rounds: int | None, run: Callable[..., dict[str, Any]]) -> None:
    """Run, with a line for each round, and say how it ended."""
    if rounds is not None and rounds < 1:
        raise Failure(f"--rounds must be a whole number >= 1; got {rounds}.", Exit.BAD_INPUT)

    def tell(told: dict[str, Any]) -> None:
        lost = [f"{told[name]} {name}" for name in ("rejected", "missing") if told.get(name)]
        tail = f" ({', '.join(lost)})" if lost else ""
        stopped = f"; {told['idle']}" if "idle" in told else ""
        spent = f", epsilon {told['epsilon']:.3g}" if "epsilon" in told else ""
        reporter.errors.print(
            f"round {told['round']}: {told['heard']} of {told['asked']} heard{tail}, {told['seconds']:.2f} s"
            f"{spent}{stopped}",
            markup=False,
            soft_wrap=True,
        )

    result = run(rounds=rounds, tell=tell)
    if result["status"] != "completed":
        raise Failure(result["why"], Exit.FAILED, {k: v for k, v in result.items() if k != "why"})
    for line in result.pop("lines"):
        reporter.show(line)
    reporter.result(result)
