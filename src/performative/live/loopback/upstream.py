"""What is changed in Flower's own processes, each with its reason; `guard` is called before one of its commands runs.

| change | reason |
| --- | --- |
| `Gate` before the SuperLink's and the SuperNode's HTTP service | Flower's Control and Runtime APIs ask nobody who they are, and share a port with the Fleet API, which does |
| a SuperNode takes its app from a file of its own (`pin_app`) | Flower runs whatever app the server sends; its own check (`--trusted-entities`) needs signatures that only Flower's platform gives |

    python -m performative.live.loopback.upstream flower-superlink ARGUMENTS...
"""  # noqa: E501  # a table

import contextlib
import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from performative.live.loopback.gate import Gate

# The file of the app that a member agreed to run.
PINNED = "PERFORMATIVE_PINNED_APP"
FLEET = "/v1/fleet/"


def guard(name: str) -> None:
    """Change what the command named will do."""
    # A proxy's headers would be believed to say where a request comes from.
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    if name == "flower-superlink":
        import flwr.superlink.main as superlink

        _put_gate_before(superlink, FLEET)
    if name == "flower-supernode":
        import flwr.supernode.main as supernode

        _put_gate_before(supernode, None)
        if pinned := os.environ.get(PINNED):
            pin_app(Path(pinned))


def _put_gate_before(module: Any, passes: str | None) -> None:
    """Let a module's `create_app` make a service behind a gate."""
    create: Callable[..., Any] = module.create_app

    def create_app(*arguments: Any, **options: Any) -> Gate:
        return Gate(create(*arguments, **options), passes)

    module.create_app = create_app


def pin_app(file: Path) -> None:
    """Let this SuperNode run the app in the file and no other. What the server says of an app is not used.

    A request for another app is answered with an error, before any of that app's bytes are fetched.
    """
    from flwr.app import Error
    from flwr.common.config import get_fab_config, get_metadata_from_config
    from flwr.common.constant import ErrorCode
    from flwr.supercore.fab import Fab
    from flwr.supernode import start_client_internal

    node: Any = start_client_internal  # what is changed in it is not for others' use
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    fab_id, version = get_metadata_from_config(get_fab_config(content))
    connect, pull = node.http_request_response, node._pull_and_store_message

    @contextlib.contextmanager
    def connect_pinned(*arguments: Any, **options: Any) -> Iterator[Any]:
        with connect(*arguments, **options) as (number, receive, send, get_run, _, *rest):

            def run_of(run_id: int) -> Any:
                return dataclasses.replace(get_run(run_id), fab_id=fab_id, fab_version=version, primary_task_type="")

            def app_of(fab_hash: str, run_id: int) -> Fab:
                ours = fab_hash == digest
                return Fab(fab_hash, content if ours else b"", {"valid_license": "pinned"})

            yield (number, receive, send, run_of, app_of, *rest)

    def pull_pinned(**options: Any) -> Any:
        return pull(**options | {"trusted_entities": {"pinned": digest}})

    def is_pinned(fab: Fab, trusted: dict[str, str]) -> bool:
        return hashlib.sha256(fab.content).hexdigest() == trusted["pinned"] == fab.hash_str

    node.http_request_response, node._pull_and_store_message = connect_pinned, pull_pinned
    node._verify_fab = is_pinned
    node.FAB_VERIFICATION_ERROR = Error(
        ErrorCode.INVALID_FAB,
        f"this member agreed to run the app {digest[:12]}, and the server sends another; `performative federation "
        "invite` writes a file with the new one for it.",
    )


def main(name: str, arguments: list[str]) -> object:
    """Run one of Flower's commands, changed."""
    (script,) = entry_points(group="console_scripts", name=name)
    run = script.load()
    guard(name)
    sys.argv = [name, *arguments]
    return run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
