"""Public keys that the SuperLink must know: those of clients on loopback, and those of members on other hosts."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from performative.live.loopback.certificates import make_key, openssh_file
from performative.live.loopback.commands import FederationError, flwr
from performative.live.loopback.site import CONNECTION, Site


def register_clients(site: Site, clients: int) -> None:
    """Register public keys that the SuperLink does not know yet, two at a time."""
    registry = site.registry()
    new = [client for client in range(clients) if registry[client]["node_id"] is None]
    if not new:
        return

    def one(client: int) -> int:
        public, name = site.key(client).with_suffix(".pub"), registry[client]["name"]
        try:
            return int(flwr(site, "supernode", "register", str(public), CONNECTION, "--name", name)["node-id"])
        except FederationError as refused:
            if "already in use" not in str(refused):
                raise
        # A kill between registering the key and saving its node id, which no command returns: create a new key.
        site.key(client).unlink()
        registry[client]["public_key"] = make_key(site.key(client))
        return int(flwr(site, "supernode", "register", str(public), CONNECTION, "--name", name)["node-id"])

    with ThreadPoolExecutor(max_workers=2) as pool:
        for client, node in zip(new, pool.map(one, new), strict=True):
            registry[client]["node_id"] = node
            site.write_registry(registry)


def register_members(site: Site) -> None:
    """Register members' keys again after the SuperLink's database was lost."""
    registry = site.registry()
    for client, entry in registry.items():
        if entry["node_id"] is None:
            registry[client] = entry | {"node_id": register_member(site, registry, client)}
            site.write_registry(registry)


def register_member(site: Site, registry: dict[int, dict[str, Any]], client: int) -> int | None:
    """A member's new node id; None if its key is registered and the id is unknown."""
    name = registry[client]["name"]
    with openssh_file(site.folder / f"{name}.pub", registry[client]["public_key"]) as public:
        try:
            return int(flwr(site, "supernode", "register", str(public), CONNECTION, "--name", name)["node-id"])
        except FederationError as refused:
            if "already in use" not in str(refused):
                raise
    # A kill between registering the key and saving its node id: it is the only node that nobody has.
    nodes = flwr(site, "supernode", "list", CONNECTION)["nodes"]
    found = {int(node["node-id"]) for node in nodes if node["status"] != "unregistered"}
    unknown = found - {entry["node_id"] for entry in registry.values()}
    return unknown.pop() if len(unknown) == 1 else None
