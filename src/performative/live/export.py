"""Manifests for separate machines: a server, its gate, and one member each, for Compose, Kubernetes or systemd.

The templates in `manifests/` are complete files with a few @PLACEHOLDERS@; nothing else is filled in, so what you
review is what runs.
"""

import json
import re
from importlib.resources import files
from pathlib import Path

from performative.live.limits import UNKNOWN

KINDS = ("compose", "kubernetes", "systemd")
SERVER = "federation.example.org:9443"
IMAGE = "performative:latest"
BIN = "/opt/performative/bin"
# The first port of members' own processes; under systemd several may share a machine.
_RUNTIME = 9094
_APP = "app.fab"
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:@-]{0,254}")
# Paths of files, by kind of deployment.
_PLACES = {
    "compose": {"SECRETS": "/run/secrets", "CONFIG": "/config", "APP": "/app", "STATE": "/state"},
    "kubernetes": {"SECRETS": "/secrets", "CONFIG": "/config", "APP": "/app", "STATE": "/state"},
    "systemd": {
        "SECRETS": "/run/credentials/performative-gate.service",
        "CONFIG": "/etc/performative",
        "APP": "/etc/performative/app",
        "STATE": "/var/lib/performative-server",
    },
}


def export(
    kind: str,
    out: Path,
    clients: int,
    *,
    server: str = SERVER,
    image: str = IMAGE,
    bin: str = BIN,
    keys: Path | None = None,
    largest: int = UNKNOWN,
    app: bytes | None = None,
) -> list[Path]:
    """Write the manifests of a federation; returns the files.

    Args:
        kind: "compose", "kubernetes" or "systemd"
        server: host and port at which members reach the gate
        image: container image of server and members, as built by the Dockerfile
        bin: folder of the environment's commands, for systemd
        keys: folder of the members' public keys, member-<i>.pub; registry.json is made of them
        largest: bytes that a message may have; more is refused unread, on both sides
        app: the app as `flower.build_app` makes it, written to app.fab: the only one that members run
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    host, port = _address(server)
    if not _IMAGE.fullmatch(image):
        raise ValueError(f"--image must be a name such as registry.example/performative:1.0; got {image!r}.")
    if not re.fullmatch(r"/[\w./-]+", bin):
        raise ValueError(f"--bin must be an absolute path without spaces; got {bin!r}.")
    words = {"HOST": host, "PORT": str(port), "IMAGE": image, "BIN": bin, "LARGEST": str(largest)}
    words |= _PLACES[kind]
    words["SUPERLINK"] = "superlink" if kind == "compose" else "127.0.0.1"
    words["CONFINED"] = _template("confined.conf").strip()
    made = _server_files(kind, words)
    for client in range(clients):
        name, file = _member(kind, client)
        mine = words | {"CLIENT": str(client), "FILE": file, "RUNTIME": str(_RUNTIME + client)}
        made[file] = _fill(_template(name), mine)
    if keys is not None:
        made["operator/registry.json"] = _registry(keys, clients)
    binary = {} if app is None else {_APP: app}
    there = [name for name in (*made, *binary) if (out / name).exists()]
    if there:
        raise FileExistsError(f"{out / there[0]} already exists; pass another folder with --out, or remove it.")
    for name, text in made.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    for name, content in binary.items():
        (out / name).write_bytes(content)
    return [out / name for name in (*made, *binary)]


def _server_files(kind: str, words: dict[str, str]) -> dict[str, str]:
    """Name in the folder -> text of the files for the server's operator."""
    operator = words
    names = {"gate.conf": "gate.conf"}
    if kind == "systemd":
        names |= {name: name for name in ("performative-server.service", "performative-gate.service")}
        # A unit's credentials are private to it; the operator reads the certificate at its original place.
        operator = words | {"SECRETS": "/etc/performative/secrets"}
    else:
        names |= {"Dockerfile": "Dockerfile", f"{kind}-server.yaml": f"{kind}-server.yaml"}
    made = {file: _fill(_template(name), words) for file, name in names.items()}
    return made | {"operator/operator.sh": _fill(_template("operator.sh"), operator)}


def _member(kind: str, client: int) -> tuple[str, str]:
    """The template of a member, and the name of its file."""
    if kind == "systemd":
        return "performative-member.service", f"performative-member-{client}.service"
    return f"{kind}-member.yaml", f"{kind}-member-{client}.yaml"


def _template(name: str) -> str:
    return (files("performative.live") / "manifests" / name).read_text(encoding="utf-8")


def _fill(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    left = re.search(r"@[A-Z]+@", text)
    if left:
        raise ValueError(f"no value for {left[0]}.")
    return text


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdigit() or not 1024 <= int(port) <= 65535:
        raise ValueError(f"--server must be host:port with an unprivileged port, 1024 or above; got {server!r}.")
    return host, int(port)


def _registry(keys: Path, clients: int) -> str:
    """Clients by number with their public keys as PEM, the format in which Flower passes them to the server."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    registry = {}
    for client in range(clients):
        path = keys / f"member-{client}.pub"
        if not path.is_file():
            raise FileNotFoundError(f"--keys: there is no {path}; each member sends its public key, member-<i>.pub.")
        try:
            public = serialization.load_ssh_public_key(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"--keys: {path} is not an OpenSSH public key: {error}") from error
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise ValueError(f"--keys: {path} must be an elliptic-curve key: ssh-keygen -t ecdsa -b 384.")
        pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        registry[str(client)] = {"public_key": pem.decode(), "name": f"member-{client}"}
    if len({entry["public_key"] for entry in registry.values()}) < clients:
        raise ValueError(f"--keys: two members in {keys} have the same key; each needs its own.")
    return json.dumps(registry, indent=1) + "\n"
