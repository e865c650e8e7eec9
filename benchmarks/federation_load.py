"""A live federation under load: many members, a large model, many rounds; memory, file handles and disk as it goes."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMBERS, NUMBERS, ROUNDS = 100, 13_000_000, 1000
# Of this machine's memory, what members may take.
_SHARE = 0.7
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
    """Three federations, one after another; `reached` says how many members this machine holds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        long = _run(place / "long", 3, ROUNDS)
        large = _run(place / "large", 3, 5, LARGE_APP.format(numbers=NUMBERS))
        each = long["members_bytes"] / 3
        reached = int(min(MEMBERS, _SHARE * _memory() / each))
        many = _run(place / "many", reached, 3)
    first, last = long["looks"][len(long["looks"]) // 2], long["looks"][-1]
    told = [
        f"{long['rounds']} rounds, half way and at the end: server {_mb(first['server'])} and {_mb(last['server'])} MB",
        f"members {_mb(first['members'])} and {_mb(last['members'])} MB",
        f"{first['handles']} and {last['handles']} handles",
        f"folder {_mb(first['disk'])} and {_mb(last['disk'])} MB",
        f"a model of {NUMBERS * 4 / 1e6:.0f} MB: {large['seconds']:.1f} s a round",
        f"{_mb(large['looks'][-1]['server'])} MB at the server",
        f"{reached} of {MEMBERS} members, {_mb(each)} MB each: {many['heard']} heard, {many['seconds']:.1f} s a round",
    ]
    ratio = last["server"] / first["server"]
    parts = {"members": reached, "long": long, "large": large, "many": many}
    ours = time.perf_counter() - began
    return {"benchmark": "federation_load", "ours_s": ours, "ratio": ratio, **parts, "note": "; ".join(told)}


def _run(app: Path, clients: int, rounds: int, text: str | None = None) -> dict[str, Any]:
    from performative.live import app as apps
    from performative.live.loopback.site import Site

    apps.write_app(app, clients)
    if text is not None:
        (app / "app.py").write_text(text)
    looks: list[dict[str, int]] = []
    told: list[dict[str, Any]] = []

    def look(one: dict[str, Any]) -> None:
        told.append(one)
        if one["round"] % max(1, rounds // 20) == 0:
            looks.append({"round": one["round"], **_use(Site.inside(app).folder)})

    try:
        apps.up(app, apps.load_app(app))
        apps.run(app, resume=False, rounds=rounds, tell=look)
        looks.append({"round": rounds, **_use(Site.inside(app).folder)})
    finally:
        apps.down(app)
    steady = [one["seconds"] for one in told[1:]] or [one["seconds"] for one in told]
    return {"rounds": told[-1]["round"], "heard": told[-1]["heard"], "seconds": sorted(steady)[len(steady) // 2],
            "members_bytes": looks[-1]["members"], "looks": looks}  # fmt: skip


def _use(site: Path) -> dict[str, int]:
    """Memory of the server's processes and of the members', open files of all, and the folder's size."""
    use = {"server": 0, "members": 0, "handles": 0}
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
    disk = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    return use | {"disk": disk}


def _field(path: Path, name: str) -> int:
    return next(1024 * int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name))


def _memory() -> int:
    return _field(Path("/proc/meminfo"), "MemTotal")


def _mb(count: float) -> int:
    return round(count / 1e6)


BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {"federation_load": federation_load}
