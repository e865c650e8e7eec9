"""`python -m performative.live.worker`: a client's program, kept compiled between requests.

It listens on the socket named by PERFORMATIVE_WORKER, which only this user can reach, and serves one app folder; for
another one it restarts.
"""

import importlib.util
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from performative.live.dispatch import WORKER, receive_frame, send_frame
from performative.live.member import Member
from performative.live.telling import tell_failure
from performative.live.wire import decode, encode


class Worker:
    """Members by client number, folder and data folder, from one app's `federation()`."""

    def __init__(self) -> None:
        self.app: str | None = None
        self.federation: Any = None
        self.members: dict[tuple[int, str, str | None], Member] = {}

    def do(self, dispatch: bytes) -> bytes:
        """The answer to a request, or the error."""
        told, arrays = decode(dispatch)
        try:
            if self.federation is None:
                self.app, self.federation = told["app"], load_federation(Path(told["app"]))
            place = (told["client"], told["folder"], told["data"])
            if place not in self.members:
                self.members[place] = Member(self.federation, *place)
            reply = self.members[place].answer(arrays["request"].tobytes())
            return encode({"error": ""}, {"reply": np.frombuffer(reply, np.uint8)})
        except Exception as error:
            traceback.print_exc()
            return encode({"error": tell_failure(error)}, {})


def load_federation(file: Path) -> Any:
    """The result of `federation()` in an app's module."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("federation_app", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python module.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "federation", None)):
        raise ValueError(f"{file} must define federation(), which returns a pf.live.Federation.")
    return module.federation()


def listen(path: str) -> None:
    """Serve requests sequentially, forever."""
    Path(path).unlink(missing_ok=True)
    worker = Worker()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(8)
        while True:
            line, _ = listener.accept()
            with line:
                dispatch = receive_frame(line)
                if dispatch is None:
                    continue
                if worker.app not in (None, decode(dispatch)[0].get("app")):
                    # Modules of another app cannot be unloaded. The dispatch is not answered: the caller does the work.
                    os.execv(sys.executable, [sys.executable, "-m", "performative.live.worker"])
                try:
                    send_frame(line, worker.do(dispatch))
                except OSError:
                    traceback.print_exc()  # the requesting process has ended; the answer is on disk


def main() -> None:
    """Serve at the place that the environment names."""
    listen(os.environ[WORKER])


if __name__ == "__main__":
    main()
