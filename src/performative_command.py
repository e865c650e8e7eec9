"""The console command `performative`: an interrupt ends it with one line and code 130, during imports too."""

import contextlib
import os
import sys


def main() -> None:
    try:
        from performative.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("error: interrupted.", file=sys.stderr)
    except SystemExit as stop:
        if stop.code != 130:
            raise
    leave()


def leave() -> None:
    """End an interrupted process. The compiled loop cannot be stopped and may still run: JAX's clean-up at exit would
    free the memory that it uses, and crash."""
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):  # a closed pipe or stream
            stream.flush()
    os._exit(130)
