"""`performative federation audit`: ask an app folder's members for sums of their logs, over Flower or in process."""

import time
import tomllib
from pathlib import Path
from typing import Any

from performative.audit.summaries import Summaries
from performative.audit.travel import read_summaries
from performative.live.app import load_app, server_folder
from performative.live.auditing import ask_for_sums, last_audit
from performative.live.loopback import processes
from performative.live.loopback.commands import FederationError
from performative.live.loopback.interrupts import interrupts_held
from performative.live.loopback.site import Site
from performative.live.rehearsal import in_process
from performative.live.server_store import is_held

_LOOK, _ASK = 0.2, 5.0


def audit_app(app: Path) -> tuple[list[Summaries], dict[str, Any]]:
    """Ask the members of the running federation; returns their sums and the result of `ask_for_sums`."""
    site, folder = Site.inside(app), server_folder(app)
    _check(app)
    if "superlink" not in processes.running(site):
        raise FederationError(f"nothing is running in {app}; start it with: performative federation up --app {app}")
    if is_held(folder):
        raise FederationError(f"{folder}: a run is in progress; wait for it to end, then audit.")
    before = (last_audit(folder) or {}).get("run")
    config = {"state": str(folder), "registry": str(site.folder / "registry.json"), "task": "audit"}
    with interrupts_held():
        number = processes.submit(site, app, config)
    try:
        return _read(_wait(site, number, folder, before))
    except KeyboardInterrupt:
        with interrupts_held():
            processes.stop_run(site, number)
        raise


def _check(app: Path) -> None:
    """Reject an app without an [audit], or one that predates audits."""
    if load_app(app).audit is None:
        raise ValueError(f"{app}: federation.toml has no [audit], which locates the members' logs.")
    config = tomllib.loads((app / "pyproject.toml").read_text()).get("tool", {}).get("flwr", {}).get("app", {})
    if "task" not in config.get("config", {}):
        raise ValueError(f'{app / "pyproject.toml"}: add task = "" under [tool.flwr.app.config].')


def _wait(site: Site, number: int, folder: Path, before: str | None) -> dict[str, Any]:
    asked = time.monotonic()
    while True:
        told = last_audit(folder)
        if told is not None and told["run"] != before:
            return told
        if time.monotonic() - asked > _ASK:
            asked = time.monotonic()
            flower = processes.run_status(site, number)
            if flower.over and (last_audit(folder) or {}).get("run") == before:
                raise FederationError(f"the audit {flower.state}: {flower.detail or 'Flower gives no reason'}")
        time.sleep(_LOOK)


def rehearse_audit(app: Path, data: Path | None = None) -> tuple[list[Summaries], dict[str, Any]]:
    """The same without a network: every member's logs are on this machine. Its records are not kept."""
    made = load_app(app)
    with in_process(made, None, data) as (transport, place):
        return _read(ask_for_sums(made, transport, place / "server"))


def _read(told: dict[str, Any]) -> tuple[list[Summaries], dict[str, Any]]:
    return [read_summaries(file) for file in told["files"].values()], told
