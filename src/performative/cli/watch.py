"""`performative watch FOLDER`."""

import contextlib
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from performative.cli.output import Exit, Failure, Json, failing, reject_unused, reporting

if TYPE_CHECKING:
    from performative.watch.source import AbstractBatches


class Law(StrEnum):
    """The kind of drift that the models did not cause."""

    SMOOTH = "smooth"
    WALK = "walk"
    LINEAR = "linear"
    NONE = "none"
    ANY = "any"


_PLACE = "Folder of CSV or Parquet files, one batch each; one file; a .duckdb or .sqlite file, or a database URL."


def watch(
    place: Annotated[str, typer.Argument(help=_PLACE)],
    state: Annotated[Path, typer.Option("--state", help="State file; if it exists, the watch resumes from it.")],
    once: Annotated[bool, typer.Option("--once", help="Read what is there, report, and exit.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.05, help="Seconds between checks of the folder.")] = 5.0,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Serve a page that refreshes itself.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to serve on; by default, this machine only.")
    ] = "127.0.0.1",
    webhook: Annotated[str | None, typer.Option("--webhook", help="URL notified once of each alarm.")] = None,
    drift: Annotated[Law, typer.Option("--drift", help="Drift not due to the models.")] = Law.SMOOTH,
    mapping: Annotated[Path | None, typer.Option("--map", help="audit.toml of a table: column roles.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Unpickle models, which runs code in their files.")] = False,
    alpha: Annotated[float, typer.Option("--alpha", help="False alarm probability over all looks.")] = 0.05,
    columns: Annotated[str, typer.Option("--columns", help="Columns that may react, comma-separated.")] = "",
    loss_limit: Annotated[float | None, typer.Option("--loss-limit", help="Alarm above this mean loss.")] = None,
    gap_limit: Annotated[float | None, typer.Option("--gap-limit", help="Alarm above this gap in acceptance.")] = None,
    as_json: Json = False,
) -> None:
    """Monitor a running deployment: do the data react to the models? Valid however often you look.

    Reads batches in FOLDER (or FOLDER/data) as they appear: features, and theta_<name> of the deployed model in columns
    or in FOLDER/deployments.csv. In a table, each deployment is a batch, read once a later one has rows; audit.toml
    gives the role of each column, as for `performative audit`. Invalid batches are quarantined and never stop the
    watch.
    """
    with reporting(as_json) as reporter:
        from performative.watch.following import Follower
        from performative.watch.monitor import Outcome
        from performative.watch.starting import watch as begin
        from performative.watch.webhook import Webhook

        if state.is_dir() or not state.absolute().parent.is_dir():
            raise Failure(f"--state {state}: pass a file in an existing folder.", Exit.BAD_INPUT)
        if once and port is not None:
            raise Failure("--once exits after reading; a page (--port) needs a continuous watch.", Exit.BAD_INPUT)
        if once:
            reject_unused(
                "has no effect with --once, which reads what is there and exits; drop one of the two.", "every"
            )
        if port is None:
            reject_unused("is the address of a page; it requires --port.", "host")
        asked: dict[str, Any] = {"drift": drift.value, "alpha": alpha, "loss_limit": loss_limit, "gap_limit": gap_limit}
        if columns:
            asked["columns"] = [name.strip() for name in columns.split(",")]
        with failing():
            batches = _open(place, mapping, trust)
            hook = None if webhook is None else Webhook(webhook)
            follower = Follower(begin(state, **asked), batches, state, hook)

        def told(id: str, outcome: Outcome) -> None:
            if outcome.status == "quarantined":
                reporter.complain("quarantined", "yellow", f"{id}: {outcome.reason}")
            for alarm in outcome.alarms:
                reporter.complain("alarm", "bold red", f"{alarm['kind']} at look {alarm['look']} ({id})")

        if once:
            with failing():
                follower.pass_over(once=True, told=told)
        elif port is not None:
            from performative.watch.serving import serve

            reporter.path("page", f"http://{host}:{port}/")
            with failing():
                serve(follower, host, port, every, f"Watching {batches.name}")
        else:
            with contextlib.suppress(KeyboardInterrupt):
                follower.follow(every, threading.Event(), told)
            follower.save()
        report = follower.watch.report()
        reporter.show(str(report))
        reporter.path("file", state)
        reporter.result({"status": "completed", **report.to_dict(), "state": str(state)})


def _open(place: str, mapping: Path | None, trust: bool) -> "AbstractBatches":
    """The files of a folder, or a table for a database or mapped columns."""
    from performative.audit.source import DATABASES
    from performative.watch.source import FileBatches

    path = Path(place)
    if mapping is not None or "://" in place or path.suffix in DATABASES:
        from performative.watch.tables import TableBatches

        return TableBatches(place, mapping, trust)
    if not path.exists():
        raise Failure(f"{place}: there is no such folder or file.", Exit.BAD_INPUT)
    return FileBatches(path)
