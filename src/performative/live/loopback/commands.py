"""How this package calls Flower's commands: their environment and their output."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from performative.live.loopback.process_table import CHILDREN, MARK
from performative.live.loopback.site import Site

# Console scripts are next to the current interpreter (a link in an environment, hence not resolved).
COMMANDS = Path(sys.executable).parent

# How often SuperExec polls its node for work (Flower's default: 1 s). An idle node costs 5% of a core at 0.1 s.
TASK_POLL = 0.2

_COLORS = re.compile(r"\x1b\[[0-9;]*m")  # Flower's log has them, terminal or not


class FederationError(RuntimeError):
    """The federation did not do what was requested; the message ends with the reason."""


def environment(site: Site, home: Path | None = None) -> dict[str, str]:
    """The environment of Flower's commands: this site's home, no telemetry, no update check, no proxy."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLWR_")
        and name != MARK
        and name.lower() not in ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
    }
    return kept | {
        "PATH": os.pathsep.join([str(COMMANDS), kept.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home or site.home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(TASK_POLL),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def command(name: str) -> str:
    """A console script of the current environment."""
    path = COMMANDS / name
    if not path.exists():
        raise FederationError(f"{path} is missing; install Flower with: pip install 'performative[flower]'.")
    return str(path)


def guarded(name: str) -> list[str]:
    """The same behind our gate: see `performative.live.loopback.upstream`."""
    command(name)
    return [sys.executable, "-m", "performative.live.loopback.upstream", name]


def tail(path: Path, lines: int = 25) -> str:
    """The last lines of a log, for an error message."""
    if not path.exists():
        return f"({path} was not written)"
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 20_000))
        text = _COLORS.sub("", file.read().decode(errors="replace"))
    return f"the end of {path}:\n" + "\n".join(text.splitlines()[-lines:])


def flwr(site: Site, *arguments: str, seconds: float = 60.0) -> dict[str, Any]:
    """One `flwr` command with JSON output. It takes about two seconds, nearly all of them imports."""
    try:
        ended = subprocess.run(
            [command("flwr"), *arguments, "--format", "json"],
            env=environment(site),
            cwd=site.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            start_new_session=True,  # we handle Ctrl-C: an interrupted command may have done its work
        )
    except subprocess.TimeoutExpired as late:
        raise FederationError(f"`flwr {arguments[0]}` gave no answer within {seconds:g} s.") from late
    text = ended.stdout[max(ended.stdout.find("{"), 0) :]
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        answer = {}
    if ended.returncode or not answer.get("success"):
        said = answer.get("error-message") or (ended.stdout + ended.stderr).strip()
        raise FederationError(f"`flwr {' '.join(arguments[:2])}` failed: {said}")
    return answer


class _Outliving(subprocess.Popen[bytes]):
    """A process that is meant to outlive this one; Python would warn of that at exit."""

    def __del__(self, *_: Any) -> None:
        pass


def spawn(
    arguments: Sequence[str],
    site: Site,
    log: str,
    stdin: int = subprocess.DEVNULL,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in its own session that outlives this one; its output goes to its log."""
    with open(site.log(log), "ab") as file:
        child = _Outliving(
            list(arguments),
            cwd=site.folder,
            env=environment(site) | {MARK: str(site.folder)} | dict(variables or {}),
            stdin=stdin,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    CHILDREN.append(child)
    return child
