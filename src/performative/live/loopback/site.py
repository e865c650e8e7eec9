"""The folder of a federation on this machine.

    .federation/
      .gitignore            everything in here stays out of git
      certificates/         ca.pem, server.pem, server.key
      keys/                 client-<i>.key, client-<i>.pub
      registry.json         client -> public key, name, node id
      superlink.json        port of the SuperLink; where members reach it and where it listens, if not on loopback
      member.json           on a member's own host: the contents of its invitation
      superlink.db          Flower's own state
      flwr-home/            FLWR_HOME of the command line and the SuperLink; nodes/<i> that of each node
      clients/<i>/          what client i keeps on its disk
      processes/            <name>.json: pid and start time of running processes
      shims/                commands that come first on a node's PATH
      logs/                 superlink.log, client-<i>.log

Flower bundles an app folder by its root `.gitignore`, so `hide` writes the site's name there: keys and databases never
travel with the app.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.live.loopback.certificates import (
    AUTHORITY,
    finish_issue,
    make_certificates,
    make_key,
    private_folder,
)

FOLDER = ".federation"
CONNECTION = "loopback"
# What a SuperNode logs once the server accepts it; the file on a member's host that records a rejection.
LET_IN, REFUSED = b"SuperNode ID: ", "refused.json"
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"

# A unix socket's path is limited to 107 bytes; its file name here takes up to 30.
LONGEST_FOLDER = 75


def read_json(path: Path, remedy: str = "restore it from a backup") -> dict[str, Any]:
    """The contents of one of the site's JSON files; {} if it does not exist."""
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as unreadable:  # not JSON, or not even text
        raise ValueError(f"{path} is damaged: {unreadable}; {remedy}.") from unreadable
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it must contain a JSON object; {remedy}.")
    return found


def names_for(address: str, listen: str) -> list[str]:
    """The names that a certificate must include for members who use `address`, a host:port."""
    return [name for name in (address.rpartition(":")[0], listen) if name not in (LOOPBACK, EVERYWHERE)]


class Site:
    """A federation's folder. `Site.inside(app)` is the one that belongs to an app folder."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder).absolute()
        self.certificates, self.database = self.folder / "certificates", self.folder / "superlink.db"
        self.home, self.shims = self.folder / "flwr-home", self.folder / "shims"
        self.authority = self.certificates / AUTHORITY

    @classmethod
    def inside(cls, app: str | os.PathLike[str]) -> "Site":
        """The site of an app folder."""
        return cls(Path(app) / FOLDER)

    def node_home(self, client: int) -> Path:
        """A node's own FLWR_HOME: nodes that unpack the same app at the same time would interfere."""
        return self.home / "nodes" / str(client)

    def key(self, client: int) -> Path:
        return self.folder / "keys" / f"client-{client}.key"

    def state(self, client: int) -> Path:
        """What client i keeps on its own disk: `Context.node_config["state"]`."""
        return self.folder / "clients" / str(client)

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def process(self, name: str) -> Path:
        return self.folder / "processes" / f"{name}.json"

    @property
    def sockets(self) -> Path:
        """Folder for unix sockets, whose paths must be short: in the site, or in a private temporary folder."""
        if len(os.fsencode(self.folder)) <= LONGEST_FOLDER:
            return self.folder / "sockets"
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"performative-{os.getuid()}-{name}"

    def prepare(self, clients: int = 0, certify: bool = True) -> bool:
        """Create what is missing: folders, certificates (unless `certify` is False), a key per client; True if the
        certificates are new."""
        if any(character in str(self.folder) for character in "\"'\\\n"):
            raise ValueError(f"the federation's path must not contain quotes or backslashes; got {self.folder}.")
        private_folder(self.folder)
        for folder in ("logs", "processes", "clients", "shims", "flwr-home"):
            private_folder(self.folder / folder)
        sockets = self.sockets
        if sockets.is_symlink() or (sockets.exists() and sockets.stat().st_uid != os.getuid()):
            raise PermissionError(f"{sockets} belongs to another user; remove it or set TMPDIR to another folder.")
        private_folder(sockets)
        write_whole(self.folder / ".gitignore", b"*\n")
        if (self.folder.parent / "pyproject.toml").exists():
            self.hide(self.folder.parent)
        renewed = certify and self._certify()
        registry = self.registry()
        for client in range(clients):
            private_folder(self.state(client))
            private_folder(self.node_home(client))
            public = make_key(self.key(client))
            if registry.get(client, {}).get("public_key") != public:
                registry[client] = {"public_key": public, "name": f"client-{client}", "node_id": None}
        self.write_registry(registry)
        return renewed

    def _certify(self) -> bool:
        """Create missing certificates; True if the old ones became invalid.

        Members on their own hosts trust the existing authority: it is never replaced here. `federation up` issues a
        lost certificate of such a server again.
        """
        if self.joined:
            return False
        finish_issue(self.certificates)
        return self.address is None and make_certificates(self.certificates)

    @property
    def joined(self) -> bool:
        """Whether this is a member's own host, and not the server's."""
        return (self.folder / "member.json").exists()

    def hide(self, app: Path) -> None:
        """Keep the site out of the app's bundle (and out of git) with a line in the app's root `.gitignore`."""
        if app.absolute() not in self.folder.parents:
            return
        line = f"/{self.folder.relative_to(app.absolute()).as_posix()}/"
        path = app / ".gitignore"
        text = path.read_text() if path.exists() else ""
        if line not in text.splitlines():
            separator = "" if not text or text.endswith("\n") else "\n"
            write_whole(path, f"{text}{separator}{line}\n".encode())

    def registry(self) -> dict[int, dict[str, Any]]:
        """Client -> public key, name and node id (None until it is registered)."""
        return {int(client): entry for client, entry in read_json(self.folder / "registry.json").items()}

    def write_registry(self, registry: dict[int, dict[str, Any]]) -> None:
        ordered = {str(client): registry[client] for client in sorted(registry)}
        write_whole(self.folder / "registry.json", json.dumps(ordered, indent=1).encode())

    def _superlink(self) -> dict[str, Any]:
        return read_json(self.folder / "superlink.json")

    def port(self) -> int | None:
        """The SuperLink's port; None if it never ran."""
        return self._superlink().get("port")

    @property
    def address(self) -> str | None:
        """Where members on other hosts reach the SuperLink, host:port; None if it listens only on loopback."""
        return self._superlink().get("address")

    @property
    def listen(self) -> str:
        """The address that the SuperLink listens on."""
        return str(self._superlink().get("listen", LOOPBACK))

    @property
    def here(self) -> str:
        """Where processes on this machine reach the SuperLink."""
        return f"{LOOPBACK if self.listen == EVERYWHERE else self.listen}:{self.port()}"

    @property
    def names(self) -> list[str]:
        """The names that the server's certificate must include besides loopback."""
        return [] if self.address is None else names_for(self.address, self.listen)

    def connect(self, port: int, address: str | None = None, listen: str = LOOPBACK) -> None:
        """Remember where the SuperLink is, also for the `flwr` command (connection "loopback")."""
        elsewhere = {} if address is None else {"address": address, "listen": listen}
        private_folder(self.folder)
        write_whole(self.folder / "superlink.json", json.dumps({"port": port, **elsewhere}).encode())
        text = (
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.here}"\nroot-certificates = "{self.authority}"\n'
        )
        private_folder(self.home)
        write_whole(self.home / "config.toml", text.encode())
