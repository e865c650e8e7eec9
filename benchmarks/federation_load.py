"""A live federation under load: many members, a large model, many rounds; memory, file handles and disk over time."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMBERS, NUMBERS, ROUNDS = 100, 13_000_000, 1000
# The fraction of the free memory that members may use.
_SHARE = 0.8
# Seconds that a round waits: in the first one each member compiles, and all of them share this machine's cores.
_PATIENCE = 1200
LARGE_APP = '''"""Three members that agree on a vector of {numbers} numbers."""

import jax.numpy as jnp

import performative as pf
from performative.live import Federation
from performative.live.flower import client_app, server_app


def federation():
    mean = jnp.broadcast_to(jnp.arange(3.0, dtype=jnp.float32)[:, None], (3, {numbers}))
    people = pf.populations.Gaussian(mean, 0.5, 0.1)
    method = pf.p_fedavg(0.5, batch=pf.Fixed(1), deploy="round")
    return Federation(pf.Problem(pf.losses.squared, people), method, rounds=5, dtype="float32", timeout=300)


client = client_app(federation, __file__)
server = server_app(federation)
'''


def federation_load() -> dict[str, Any]:
    """All three, one after another."""
    began = time.perf_counter()
    parts = [run() for run in (federation_rounds, federation_model, federation_members)]
    made = {name: value for part in parts for name, value in part.items() if name not in ("ours_s", "note")}
    note = "; ".join(part["note"] for part in parts)
    return made | {"benchmark": "federation_load", "ours_s": time.perf_counter() - began, "note": note}


def federation_rounds() -> dict[str, Any]:
    """Three members, many rounds: what grows. `ratio` is the server's memory at the end over that halfway."""
    long, seconds = _run_aside(3, ROUNDS)
    first, last = long["looks"][len(long["looks"]) // 2], long["looks"][-2]  # the last is of the end, with the history
    grown = {name: size - first["places"].get(name, 0) for name, size in last["places"].items()}
    rounds = last["round"] - first["round"]
    each = {name: size / rounds for name, size in sorted(grown.items(), key=lambda one: -one[1]) if size}
    told = [
        f"{long['rounds']} rounds of {long['seconds']:.2f} s; halfway and at the end: server {_mb(first['server'])} "
        f"and {_mb(last['server'])} MB",
        f"members {_mb(first['members'])} and {_mb(last['members'])} MB",
        f"{first['handles']} and {last['handles']} handles",
        f"disk {(last['disk'] - first['disk']) / rounds:.0f} bytes a round: "
        + ", ".join(f"{name} {size:.0f}" for name, size in list(each.items())[:8]),
    ]
    ratio = last["server"] / first["server"]
    return {"benchmark": "federation_rounds", "ours_s": seconds, "ratio": ratio, "long": long, "note": "; ".join(told)}


def federation_model() -> dict[str, Any]:
    """A large model: seconds a round, and the server's memory."""
    large, seconds = _run_aside(3, 5, LARGE_APP.format(numbers=NUMBERS))
    most = max(look["server"] for look in large["looks"])
    told = (
        f"a model of {NUMBERS * 4 / 1e6:.0f} MB: {large['seconds']:.1f} s a round, at most {_mb(most)} MB at the server"
    )
    return {"benchmark": "federation_model", "ours_s": seconds, "large": large, "note": told}


def federation_members() -> dict[str, Any]:
    """As many members as fit into memory, judging by what three of them use."""
    three, before = _run_aside(3, 2)
    each = three["members_bytes"] / 3
    reached = int(min(MEMBERS, _SHARE * _memory() / each))
    many, seconds = _run_aside(reached, 3)
    told = (
        f"{reached} of {MEMBERS} members, {_mb(many['members_bytes'] / reached)} MB each ({_mb(each)} if there are "
        f"three): {many['heard']} heard, {many['seconds']:.1f} s a round, {_mb(many['looks'][-1]['server'])} MB at the "
        "server"
    )
    return {
        "benchmark": "federation_members",
        "ours_s": before + seconds,
        "members": reached,
        "many": many,
        "note": told,
    }


def _run_aside(clients: int, rounds: int, text: str | None = None) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = _run(Path(folder) / "app", clients, rounds, text)
    return found, time.perf_counter() - began


def _run(app: Path, clients: int, rounds: int, text: str | None = None) -> dict[str, Any]:
    from performative.live import app as apps
    from performative.live.loopback.site import Site

    apps.write_app(app, clients)
    settings = (app / "federation.toml").read_text()
    (app / "federation.toml").write_text(settings.replace("timeout = 60 ", f"timeout = {_PATIENCE} "))
    if text is not None:
        (app / "app.py").write_text(text)
    looks: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []

    def look(one: dict[str, Any]) -> None:
        told.append(one)
        if one["round"] % max(1, rounds // 20) == 0:
            looks.append({"round": one["round"], **_use(Site.inside(app).folder)})

    try:
        apps.up(app, apps.load_app(app))
        ended = apps.run(app, resume=False, rounds=rounds, tell=look)
        looks.append({"round": rounds, **_use(Site.inside(app).folder)})
    finally:
        apps.down(app)
    if not told:
        raise ValueError(f"{clients} members: {ended.get('why', ended['status'])}")
    steady = [one["seconds"] for one in told[1:]] or [one["seconds"] for one in told]
    return {"rounds": told[-1]["round"], "heard": told[-1]["heard"], "seconds": sorted(steady)[len(steady) // 2],
            "members_bytes": looks[-1]["members"], "looks": looks}  # fmt: skip


def _use(site: Path) -> dict[str, Any]:
    """Memory of the server's processes and of the members', open files of all, and the folder's size."""
    use: dict[str, Any] = {"server": 0, "members": 0, "handles": 0}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            place = Path("/proc") / pid
            if str(site).encode() not in (place / "environ").read_bytes():
                continue
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ")
            mine = "server" if b"superlink" in words or b"serverapp" in words else "members"
            use[mine] += _field(place / "smaps_rollup", "Pss")
            use["handles"] += len(os.listdir(place / "fd"))
        except OSError:  # it has ended
            continue
    places: Counter[str] = Counter()
    for path in site.rglob("*"):
        try:
            parts = path.relative_to(site).parts
            places["/".join(parts[:2])] += path.stat().st_size if path.is_file() else 0
        except OSError:  # it was a passing file
            continue
    return use | {"disk": places.total(), "places": dict(places)}


def _field(path: Path, name: str) -> int:
    return next(1024 * int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name))


def _memory() -> int:
    return _field(Path("/proc/meminfo"), "MemAvailable")


def _mb(count: float) -> int:
    return round(count / 1e6)


BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "federation_load": federation_load,
    "federation_rounds": federation_rounds,
    "federation_model": federation_model,
    "federation_members": federation_members,
}
