"""The whole federation in one process, for finding faults before there is a network."""

import os
import tempfile
from pathlib import Path
from typing import Any

from performative.history import History
from performative.live.coordinator import serve
from performative.live.federation import Federation
from performative.live.member import Member
from performative.live.secure.roster import provision
from performative.live.transport import InProcess


def rehearse(federation: Federation, folder: str | os.PathLike[str] | None = None, **options: Any) -> History:
    """Run a federation with every client a thread of this process: same requests, same answers, no network.

    Args:
        folder: keeps the server's records in `server` and each client's memory in `clients/<i>`; None forgets them
        options: as for `serve`
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as passing:
            return rehearse(federation, passing, **options)
    place = Path(folder)
    folders = {i: place / "clients" / str(i) for i in range(federation.clients)}
    if federation.secure_settings is not None:
        provision(folders)
    members = {i: Member(federation, i, folder) for i, folder in folders.items()}
    transport = InProcess({i: member.answer for i, member in members.items()})
    try:
        return serve(federation, transport, place / "server", **options)
    finally:
        transport.close()
