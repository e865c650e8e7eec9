"""`performative federation`: the same parts over a network."""

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
    help="A real federation on Flower: TLS, registered keys, one process per client, on loopback or on several hosts.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)
App = Annotated[Path, typer.Option("--app", help="The app folder, as `init` writes it.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of the members' tables if federation.toml has a [data]; by default, the app folder."
    ),
]
Logs = Annotated[bool, typer.Option("--logs", help="Also show the ends of all logs on this machine.")]
_HERE = Path(".")


@federation.command(epilog=EXIT_CODES)
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")] = Path(
        "credit-federation"
    ),
    clients: Annotated[int, typer.Option(help="Number of banks in the example.")] = 3,
    as_json: Json = False,
) -> None:
    """Write a ready-to-run app folder: pyproject.toml for Flower, federation.toml, app.py and README.md."""
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
    clients: Annotated[int | None, typer.Option(help="Check that the problem has this many clients.")] = None,
    data: Data = None,
    address: Annotated[
        str | None,
        typer.Option(help="Start only the server, for members on other hosts, who reach it at HOST:PORT."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="IPv4 address to listen on; by default that of --address, or all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a SuperLink and a SuperNode for each client on loopback, with TLS and node authentication.

    With --address, start only the server: members join from their own hosts. Run it again to restart whatever has
    died; the rest keeps running.
    """
    with _using(as_json) as (reporter, apps):
        made = apps.load_app(app)
        if clients not in (None, made.clients):
            raise Failure(
                f"--clients {clients}: the problem in {app} has {made.clients} clients; each needs a node.",
                Exit.BAD_INPUT,
            )
        if listen is not None and address is None:
            raise Failure("--listen: also pass --address, where members reach the server.", Exit.BAD_INPUT)
        moved = address is not None and set_address(app, address, listen)
        with reporter.errors.status("starting"):
            running = apps.up(app, made, data)
        if "address" in running:
            show_server(reporter, running, moved)
            return
        reporter.show(f"{made.clients} clients are online; the server is at 127.0.0.1:{running['port']}.")
        reporter.result({"status": "completed", **running})


@federation.command(epilog=EXIT_CODES)
def run(
    app: App = _HERE,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the last run where it was interrupted.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Archive the last run's records and start a new run.")] = False,
    rounds: Annotated[int | None, typer.Option(help="Overrides run.rounds.")] = None,
    logs: Logs = False,
    as_json: Json = False,
) -> None:
    """Run the rounds, wait for the end, and report how it ended. Exits with code 1 if the run failed or diverged."""
    with _using(as_json) as (reporter, apps), _showing(logs, reporter, lambda: apps.logs(app)):
        _follow(reporter, rounds, lambda **how: apps.run(app, resume=resume, new=new, **how))


@federation.command(epilog=EXIT_CODES)
def rehearse(
    app: App = _HERE,
    rounds: Annotated[int | None, typer.Option(help="Overrides run.rounds.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Run the same app in this process, without a network, for debugging. Its records are not kept."""
    with _using(as_json) as (reporter, apps):
        _follow(reporter, rounds, lambda **how: apps.rehearse_app(app, data=data, **how))


@federation.command(epilog=EXIT_CODES)
def status(app: App = _HERE, logs: Logs = False, as_json: Json = False) -> None:
    """Show what is running, its progress, who responded, what was rejected, and which model is deployed.

    Exits with code 1 if the last run failed or diverged.
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
    drift: Annotated[Drift, typer.Option("--drift", help="Drift that the model does not cause.")] = Drift.SMOOTH,
    cost: Annotated[float | None, typer.Option(min=0.0, help="Monetary cost of a wrong decision.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Without a network: all logs are on this machine.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Do the members' data react to the model? Each sums its own logs, as set by [audit] in federation.toml; rows stay.

    The verdict is the same as for all rows pooled. Prints a summary, and writes a page and a JSON file.
    """
    with _using(as_json) as (reporter, _):
        from performative.audit.report import audit_summaries
        from performative.live import app_audit

        check_folder(out)
        if data is not None and not here:
            raise Failure("--data requires --here; otherwise members set it in `up` or `join`.", Exit.BAD_INPUT)
        with reporter.errors.status("members are summing their logs"):
            sums, told = app_audit.rehearse_audit(app, data) if here else app_audit.audit_app(app)
        lost = [f"{name} is excluded: {why}" for name, why in told["missing"].items()]
        if not sums:
            raise Failure(f"no member's sums are usable: {lost[0]}", Exit.FAILED, {"missing": told["missing"]})
        report = audit_summaries(sums, drift=drift.value, cost=cost)
        for line in lost:
            reporter.show(line)
        told = {"heard": list(told["files"]), "missing": told["missing"]}
        show_audit(reporter, report, out, told)


@federation.command(epilog=EXIT_CODES)
def rollback(
    version: Annotated[int | None, typer.Argument(help="Version to restore; `status` lists them.")] = None,
    to: Annotated[int | None, typer.Option("--to", help="Or the round whose deployed model to restore.")] = None,
    app: App = _HERE,
    as_json: Json = False,
) -> None:
    """Make an earlier model the current one. The next round deploys it everywhere, as a new version."""
    with _using(as_json) as (reporter, apps):
        found, at = apps.roll_back(app, version, to)
        reporter.show(f"The model of version {found} is current again; round {at + 1} will deploy it everywhere.")
        reporter.result({"status": "completed", "version": found, "round": at})


@federation.command(epilog=EXIT_CODES)
def verify(
    app: App = _HERE,
    key: Annotated[str | None, typer.Option(help="The server's public key; by default journal.pub.")] = None,
    head: Annotated[str | None, typer.Option(help="A hash recorded earlier, which must still be in the log.")] = None,
    as_json: Json = False,
) -> None:
    """Check the signed log of rounds, deployments, rejections, approvals and rollbacks, line by line.

    Archived logs that it continues are checked with it. Exits with code 1 if a line was changed, removed, moved or
    truncated, and names the first.
    """
    with _using(as_json) as (reporter, apps):
        found = apps.verify(app, key, head)
        facts = {"lines": found.lines, "head": found.head, "line": found.line, "cut_short": found.cut_short}
        facts |= {"archives": dict(found.archives)}
        if not found.sound:
            where = f"line {found.line}: " if found.line is not None else ""
            raise Failure(f"the log was altered: {where}{found.fault}.", Exit.FAILED, facts)
        reporter.show(f"{found.lines} lines are unaltered; the last has the hash {found.head}.")
        for name, lines in found.archives.items():
            reporter.show(f"It continues the log in {name}, whose {lines} lines are unaltered too.")
        if found.cut_short:
            reporter.show("The last line was truncated by a crash; the next run removes it and logs that.")
        reporter.result({"status": "completed", **facts})


@federation.command(epilog=EXIT_CODES)
def down(app: App = _HERE, as_json: Json = False) -> None:
    """Stop all processes of the federation. Records, models, keys and client memories are kept."""
    with _using(as_json) as (reporter, apps):
        ended = apps.down(app)
        count = "1 process was" if len(ended) == 1 else f"{len(ended)} processes were"
        reporter.show(f"{count} stopped." if ended else "Nothing was running.")
        reporter.result({"status": "completed", "stopped": ended})


@federation.command(epilog=EXIT_CODES)
def export(
    app: App = _HERE,
    compose: Annotated[bool, typer.Option("--compose", help="For Docker Compose.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="For Kubernetes.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="For systemd.")] = False,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("deploy"),
    server: Annotated[str, typer.Option(help="Where members reach the server, host:port.")] = (
        "federation.example.org:9443"
    ),
    image: Annotated[str, typer.Option(help="Container image of server and members.")] = "performative:latest",
    bin: Annotated[str, typer.Option(help="Folder of the installed commands, for systemd.")] = "/opt/performative/bin",
    keys: Annotated[Path | None, typer.Option(help="Folder of members' public keys, member-<i>.pub.")] = None,
    as_json: Json = False,
) -> None:
    """Write manifests for a server and members on separate machines: sandboxed, with TLS, and secrets as files."""
    with _using(as_json) as (reporter, apps):
        from performative.live import export as manifests
        from performative.live.flower import build_app

        wanted = [name for name in manifests.KINDS if {"compose": compose, "kubernetes": kubernetes}.get(name, systemd)]
        if len(wanted) != 1:
            raise Failure("pass one of --compose, --kubernetes and --systemd.", Exit.BAD_INPUT)
        check_folder(out)
        loaded = apps.load_app(app)
        largest = apps.largest_message(loaded)
        with failing((FileExistsError,)):
            made = manifests.export(
                wanted[0], out, loaded.clients, server=server, image=image, bin=bin, keys=keys, largest=largest,
                app=build_app(app),
            )  # fmt: skip
        for path in made:
            reporter.path("wrote ", path)
        if keys is None:
            reporter.show("operator/registry.json is not written yet: pass the members' public keys with --keys.")
        reporter.result({"status": "completed", "folder": str(out), "files": [str(path) for path in made]})


add_membership(federation)


@contextmanager
def _using(as_json: bool) -> Iterator[tuple[Reporter, Any]]:
    """Wrap a command's body: errors of an app or a site become one line and the right exit code."""
    with reporting(as_json) as reporter:
        from performative.live import app as apps
        from performative.live.loopback.commands import FederationError

        with failing((ValueError, FileNotFoundError), (FederationError, ModuleNotFoundError)):
            yield reporter, apps


@contextmanager
def _showing(wanted: bool, reporter: Reporter, logs: Callable[[], str]) -> Iterator[None]:
    """Print the logs at the end if requested; a failure's own line stays last."""
    try:
        yield
    finally:
        if wanted:
            reporter.errors.print(logs(), markup=False, highlight=False, soft_wrap=True)


def _follow(reporter: Reporter, rounds: int | None, run: Callable[..., dict[str, Any]]) -> None:
    """Run, print a line for each round, and report how it ended."""
    if rounds is not None and rounds < 1:
        raise Failure(f"--rounds must be a whole number >= 1; got {rounds}.", Exit.BAD_INPUT)

    def tell(told: dict[str, Any]) -> None:
        lost = [f"{told[name]} {name}" for name in ("rejected", "missing") if told.get(name)]
        tail = f" ({', '.join(lost)})" if lost else ""
        cause = told.get("idle") or told.get("trouble")
        stopped = f"; {cause}" if cause else ""
        spent = f", epsilon {told['epsilon']:.3g}" if "epsilon" in told else ""
        reporter.errors.print(
            f"round {told['round']}: {told['heard']} of {told['asked']} responded{tail}, {told['seconds']:.2f} s"
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
