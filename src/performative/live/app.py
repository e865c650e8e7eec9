"""Operations on an app folder: write it, and start, run, inspect and stop its federation."""

import collections
import sys
import time
import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from performative.live.archives import archive, finish_archive
from performative.live.coordinator import rollback
from performative.live.federation import Federation
from performative.live.limits import largest_message
from performative.live.loopback import processes
from performative.live.loopback.commands import FederationError, tail
from performative.live.loopback.interrupts import interrupts_held
from performative.live.loopback.site import Site
from performative.live.membership.host import member_lines, member_status
from performative.live.membership.rotation import end_rotation, finish_rotation, reissue
from performative.live.membership.server import changed_for, members
from performative.live.membership.validity import certificate_warnings
from performative.live.rehearsal import rehearse
from performative.live.secure.roster import provision
from performative.live.server_store import (
    is_held,
    model_versions,
    read_events,
    read_rounds_from,
    read_status,
    rounds_size,
    version_in,
)
from performative.live.sources.tables import TableSource
from performative.live.telling import LOG
from performative.live.transport import VACANT
from performative.live.verification import Verification, verify_journal
from performative.live.worker import load_federation

Tell = Callable[[dict[str, Any]], None]
_FILES = ("pyproject.toml", "federation.toml", "app.py", "README.md")
# Seconds between reads of the server's records, and between queries to Flower, each of which takes a second of
# processor time.
_LOOK, _ASK = 0.2, 10.0
# This many such queries in a row may go unanswered.
_UNANSWERED = 6
# Seconds past a round's end after which a client's process is killed; seconds that a start may take.
_GRACE, _START = 2.0, 90.0
# Events of a client whose answer was not used, in words.
_UNHEARD = {"failed": "failed", "rejected": "was rejected", "silent": "was silent"}


def write_app(folder: Path, clients: int) -> list[Path]:
    """Write the credit example as an app folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} already exists and is not an empty folder; give another name.")
    folder.mkdir(parents=True, exist_ok=True)
    template = files("performative.live") / "template"
    for name in _FILES:
        text = (template / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("BANKS", str(clients)), encoding="utf-8")
    return [folder / name for name in _FILES]


def load_app(folder: Path) -> Federation:
    """The result of `federation()` in an app folder."""
    file = folder / "app.py"
    if not file.is_file():
        raise FileNotFoundError(
            f"{folder} is not an app folder: it has no app.py; create one with `performative federation init`."
        )
    return load_federation(file)


def server_folder(app: Path) -> Path:
    """The folder of the server's records."""
    return Site.inside(app).folder / "server"


def up(app: Path, federation: Federation, data: Path | None = None) -> dict[str, Any]:
    """Start what is not running yet. `data`: the folder of the members' tables, None for the app folder."""
    if data is not None:
        _check_data(federation, data)
    site, largest = Site.inside(app), largest_message(federation)
    _stop_where_limit_changed(site, server_folder(app), largest)
    if site.address is not None and not site.joined:  # members run on their own hosts
        finish_rotation(app)
        reissued = reissue(app)
        processes.start_server(site, largest, _START)
        end_rotation(app)
        told = {"clients": federation.clients, "address": site.address, "processes": processes.running(site)}
        return told | ({"reissued": reissued} if reissued else {})
    if federation.secure_settings is not None:
        site.prepare(federation.clients)
        provision({client: site.state(client) for client in range(federation.clients)})
    processes.start(
        site,
        federation.clients,
        worker=[sys.executable, "-m", "performative.live.worker"],
        warm=["performative", "performative.live.flower"],
        deadline=float(federation.timeout) + _GRACE,
        data=app if data is None else data,
        largest=largest,
        timeout=_START + 5.0 * federation.clients,
    )
    return {"clients": federation.clients, "port": site.port(), "processes": processes.running(site)}


def _stop_where_limit_changed(site: Site, folder: Path, largest: int) -> None:
    """Running processes have the limit that they were started with; a changed model may need another one."""
    if processes.largest_of(site) in (None, largest):
        return
    if is_held(folder):
        raise FederationError(
            f"a run is in progress whose messages have at most {processes.largest_of(site)} bytes, but the app now "
            f"needs {largest}; stop the run, or wait for it to end, then run `federation up` again."
        )
    processes.stop(site)


def _check_data(federation: Federation, data: Path) -> None:
    """Reject a folder of tables that does not exist, or that would not be used."""
    if not isinstance(federation.source, TableSource) and federation.audit is None:
        raise ValueError("--data: the app has no [data] and no [audit] in federation.toml, so no folder is used.")
    if not data.is_dir():
        raise ValueError(f"--data: {data} is not a folder; pass the folder with the members' tables.")


def down(app: Path) -> list[str]:
    """Stop everything; returns what was running."""
    site = Site.inside(app)
    found = sorted(processes.running(site)) if site.folder.exists() else []
    processes.stop(site)
    return found


def run(app: Path, *, resume: bool, rounds: int | None, tell: Tell, new: bool = False) -> dict[str, Any]:
    """Run the rounds on the running federation, and wait for the end."""
    site, folder = Site.inside(app), server_folder(app)
    if resume and new:
        raise ValueError("--resume continues the last run and --new starts another; pass only one.")
    if "superlink" not in processes.running(site):
        raise FederationError(f"nothing is running in {app}; start it with: performative federation up --app {app}")
    if changed := changed_for(app):
        raise ValueError(
            f"{', '.join(changed)} agreed to a different app than the one now in {app}, and would reject it; "
            "send each a new invitation, written by `performative federation invite NAME`."
        )
    finish_archive(folder)
    if (folder / "state.json").exists() and not resume:
        if not new:
            raise ValueError(
                f"{folder} already contains a run; --resume continues it, --new archives it and starts another."
            )
        if is_held(folder):
            raise FederationError("a run is in progress; start another once it has ended.")
        archive(folder, max(model_versions(folder), default=-1) + 1)
    config = {
        "state": str(folder),
        "registry": str(site.folder / "registry.json"),
        "resume": resume,
        "rounds": rounds or 0,
    }
    began, number, rounds_before = time.time(), None, rounds_size(folder)
    try:
        with interrupts_held():
            number = processes.submit(site, app, config)
        told = _wait_for_end(site, number, folder, began, rounds_before, tell)
    except KeyboardInterrupt:
        if number is not None:
            with interrupts_held():
                processes.stop_run(site, number)
        raise
    return _result(folder, told) | {"flower_run": number}


def _wait_for_end(site: Site, number: int, folder: Path, began: float, at: int, tell: Tell) -> dict[str, Any]:
    """Follow the server's records to the end, the rounds from byte `at` on. Raises if the server dies, or never
    writes."""
    seen, asked, held, unanswered = 0.0, time.monotonic(), False, 0
    while True:
        told = read_status(folder)
        fresh, at = read_rounds_from(folder, at)
        for one in fresh:
            tell(_with_cause(folder, one))
        if told is not None and told["time"] >= began - 1 and told["time"] > seen:
            # A server that writes is alive, so there is no need to ask Flower.
            seen, asked = told["time"], time.monotonic()
            if told["state"] != "running":
                return told
        held = held or is_held(folder)
        gone = held and not is_held(folder)
        if gone and (read_status(folder) or {}).get("state") == "running":
            raise FederationError("the server died; continue the run with `performative federation run --resume`.")
        if time.monotonic() - asked > _ASK:
            asked = time.monotonic()
            if "superlink" not in processes.running(site):
                raise FederationError("the SuperLink is gone; `federation up` starts it again, then `run --resume`.")
            try:
                flower, unanswered = processes.run_status(site, number), 0
            except FederationError:  # a SuperLink under load may answer too late; the records still show progress
                unanswered += 1
                if unanswered == _UNANSWERED:
                    raise
                continue
            if flower.over and (read_status(folder) or {}).get("time", 0.0) <= max(seen, began - 1):
                raise FederationError(f"the run {flower.state}: {flower.detail or 'Flower gives no reason'}")
        time.sleep(_LOOK)


def _with_cause(folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    """The facts of a round, and why the first client without a usable answer had none; vacant numbers come last."""
    if not (told.get("missing") or told.get("rejected")):
        return told
    events = [event for event in read_events(folder) if event["round"] == told["round"] - 1 and "client" in event]
    unheard = [event for event in events if event["what"] in _UNHEARD]
    if not unheard:
        return told
    first = min(unheard, key=lambda event: event.get("reason") == VACANT)
    what = f"client {first['client']} {_UNHEARD[first['what']]}"
    return told | {"trouble": f"{what}: {first.get('reason', '')}".rstrip(": ")}


def _result(folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    """How a run ended, from its own records."""
    facts = {"round": told["round"], "run": told["run"], "folder": str(folder)}
    if told["state"] != "completed":
        why = told.get("why") or f"the model diverged at round {told['round']}; use a smaller rate, or give a domain."
        return {"status": told["state"], "why": why, **facts}
    counts = count_events(folder)
    lines = [f"{_done(told['round'])}; the model is version {told['version']}, in {folder / 'models'}."]
    lines += _troubles(folder) + told["notes"]
    return {"status": "completed", "lines": lines, "events": counts, **facts}


def _troubles(folder: Path) -> list[str]:
    """What went wrong, one line per kind and client: how often, and the first reason."""
    seen: dict[tuple[str, Any], list[str]] = collections.defaultdict(list)
    for event in read_events(folder):
        seen[event["what"], event.get("client")].append(str(event.get("reason", "")))
    return [
        f"{what}{'' if client is None else f', client {client}'}: {_times(len(reasons))}"
        f"{f'; the first: {reasons[0]}' if reasons[0] else ''}"
        for (what, client), reasons in seen.items()
    ]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _done(rounds: int) -> str:
    return "1 round is done" if rounds == 1 else f"{rounds} rounds are done"


def logs(app: Path) -> str:
    """The ends of all logs on this machine: the server's, each node's, and each client's own log."""
    site = Site.inside(app)
    places = [site.log("superlink"), *sorted((site.folder / "logs").glob("client-*.log"))]
    places += sorted((site.folder / "clients").glob(f"*/{LOG}"))
    return "\n\n".join(tail(place) for place in places)


def rehearse_app(app: Path, *, rounds: int | None, tell: Tell, data: Path | None = None) -> dict[str, Any]:
    """Run the same app without a network."""
    made = load_app(app)
    if data is not None:
        _check_data(made, data)
    with warnings.catch_warnings():
        # The command reports them when it ends.
        warnings.filterwarnings("ignore", message=r".*\[(nothing-was-learned|run-diverged)\]")
        history = rehearse(made, data=data, rounds=rounds, on_round=tell)
    if history.status == "failed":
        return {"status": "failed", "why": history.meta["failed"], "round": int(history.rounds[-1])}
    if history.status != "completed":
        first = int(history.stopped_at.max())
        return {
            "status": "diverged",
            "why": f"the model diverged at round {first}; try a smaller learning rate.",
            "round": first,
        }
    done = int(history.rounds[-1])
    lines = [f"{_done(done)}, in this process only.", *history.meta.get("notes", [])]
    return {"status": "completed", "lines": lines, "round": done}


def roll_back(app: Path, version: int | None, to: int | None) -> tuple[int, int]:
    """Restore the model of a version, or the one deployed in a round; returns the version and the round that redeploys
    it."""
    folder = server_folder(app)
    if not (folder / "state.json").exists():
        raise FederationError(f"there is no run in {folder} yet.")
    if (version is None) == (to is None):
        raise ValueError("rollback: pass the version to restore, or --to with the round that deployed it.")
    found = version_in(folder, to) if version is None and to is not None else version
    assert found is not None
    return found, rollback(load_app(app), folder, found)


def verify(app: Path, key: str | None, head: str | None) -> Verification:
    """Check that the signed log is unaltered."""
    folder = server_folder(app)
    finish_archive(folder)
    if not folder.exists():
        raise FederationError(f"there is no run in {folder} yet.")
    return verify_journal(folder, key, head)


def count_events(folder: Path) -> dict[str, dict[str, int]]:
    """The number of events of each kind by client (or "server")."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for event in read_events(folder):
        counts[event["what"]][str(event.get("client", "server"))] += 1
    return {what: dict(by) for what, by in counts.items()}


def status(app: Path) -> dict[str, Any]:
    """Processes, the run, what went wrong, and the models."""
    site, folder = Site.inside(app), server_folder(app)
    if site.joined:
        return {"member": member_status(app)}
    if not (app / "app.py").is_file():
        load_app(app)
    here = processes.running(site) if site.folder.exists() else {}
    versions = model_versions(folder)
    return {
        "processes": here,
        "nodes": processes.node_status(site) if "superlink" in here else {},
        "run": read_status(folder),
        "at_work": is_held(folder),
        "events": count_events(folder),
        "last_events": read_events(folder)[-5:],
        "versions": versions,
        "address": site.address,
        "members": members(app) if site.address else [],
        "certificates": certificate_warnings(site) if site.address else [],
    }


def status_lines(found: dict[str, Any]) -> list[str]:
    """The status as lines of text."""
    if "member" in found:
        return member_lines(found["member"])
    nodes = [client for client, state in found["nodes"].items() if state == "online"]
    up = f"up: {len(nodes)} of {len(found['nodes'])} clients are online"
    if "superlink" not in found["processes"]:
        up = "has nodes but no server; `federation up` starts it again" if found["processes"] else "down"
    run = found["run"]
    if run is None:
        lines = [f"federation {up}", "no run yet"]
    elif run["state"] in ("failed", "diverged"):  # the cause comes first
        lines = [_failed_line(run), f"federation {up}"]
    else:
        state = run["state"] if run["state"] != "running" or found["at_work"] else "interrupted (see run --resume)"
        model = f", model version {run['version']}" if "version" in run else ""
        at = f"{state}, round {run['round']} of {run['rounds']}{model}"
        lines = [f"federation {up}", f"run {run['run'][:8]}: {at}"]
    for what, by in found["events"].items():
        lines.append(f"{what}: " + ", ".join(f"{n} x client {c}" if c != "server" else f"{n} x" for c, n in by.items()))
    for event in found["last_events"]:
        who = f", client {event['client']}" if "client" in event else ""
        lines.append(f"  round {event['round'] + 1}{who}: {event['what']}: {_reason(event)}".rstrip(": "))
    if found["versions"]:
        lines.append(f"models: versions {found['versions'][0]} to {found['versions'][-1]}")
    for one in found["members"]:
        state = found["nodes"].get(one["client"], one["state"])
        lines.append(f"client {one['client']}: {one['member']}, {state}")
    return lines + found["certificates"]


def _reason(event: dict[str, Any]) -> str:
    return str(event.get("reason", f"to version {event['version']}" if event["what"] == "rollback" else ""))


def _failed_line(run: dict[str, Any]) -> str:
    where = f" (run {run['run'][:8]}, round {run['round']} of {run['rounds']})" if run["run"] else ""
    return f"the last run {run['state']}: {run.get('why') or 'no reason was recorded.'}{where}"
