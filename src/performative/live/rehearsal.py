"""The whole federation in one process, to find errors before there is a network."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from performative.history import History
from performative.live.coordinator import serve
from performative.live.federation import Federation
from performative.live.member import Member
from performative.live.secure.roster import provision
from performative.live.transport import InProcess


def rehearse(
    federation: Federation,
    folder: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    **options: Any,
) -> History:
    """Run a federation with every client as a thread of this process: same requests, same answers, no network.

    Args:
        folder: keeps the server's records in `server` and each client's memory in `clients/<i>`; None discards them
        data: folder of the members' tables, if there is a [data]; None for the app folder
        options: as for `serve`
    """
    with in_process(federation, folder, data) as (transport, place):
        return serve(federation, transport, place / "server", **options)


@contextlib.contextmanager
def in_process(
    federation: Federation, folder: str | os.PathLike[str] | None = None, data: str | os.PathLike[str] | None = None
) -> Iterator[tuple[InProcess, Path]]:
    """Every client as a thread of this process, and the folder of their records; None for a temporary folder."""
    with contextlib.ExitStack() as passing:
        place = Path(passing.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder)
        folders = {i: place / "clients" / str(i) for i in range(federation.clients)}
        if federation.secure_settings is not None:
            provision(folders)
        members = {i: Member(federation, i, folder, data) for i, folder in folders.items()}
        transport = InProcess({i: member.answer for i, member in members.items()})
        passing.callback(transport.close)
        yield transport, place
