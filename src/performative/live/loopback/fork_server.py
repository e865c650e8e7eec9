"""The fork server: warm client processes, and the keeper that forks a supervisor for each client.

Flower starts a fresh `flwr-clientapp` for every message, which spends seconds of processor time on imports. Here one
process imports them once and forks; what is forked does exactly what the console script does. A shim of the same name
comes first on the node's PATH: it sends its arguments, environment and standard files through a unix socket and ends
with the child's exit code. Where nobody listens it becomes the real command: slower, same result.

    start() -> keeper (imports, then one fork a client) -> supervisor of client i -> SuperNode, worker, client processes

Forking is safe because nothing runs beside the main thread: JAX is imported but has no backend yet, and BLAS is told to
make no threads. This is checked; a keeper that finds threads forks none and lets Flower start its own processes.
"""

import gc
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from performative.live.loopback.shims import write_shims
from performative.live.loopback.site import Site
from performative.live.loopback.supervisor import FORKED, Supervisor

_PAUSE = 1.0  # seconds between two tries to reach a server
# Imported by the commands only once they run.
LATER = ("flwr.supernode.main", "flwr.cli.install", "flwr.clientapp")


def deregister(site: Site, client: int) -> None:
    """Say deregister for a SuperNode that was killed; without it the node stays away for up to a minute.

    A member on a host of its own waits until the server can be reached: let in nowhere, it would count as refused.
    """
    from performative.live.flower import deregister_node, is_unreachable

    if (node := site.registry()[client]["node_id"]) is None:
        return
    while True:
        try:
            return deregister_node(site.address or site.here, site.authority, site.key(client), node)
        except Exception as wrong:  # it was offline already, or the SuperLink does not answer: the SuperNode will see
            print(f"no deregister for client {client}: {wrong}", flush=True)
            if not (site.joined and is_unreachable(wrong)):
                return
        time.sleep(_PAUSE)


def warm_up(modules: Sequence[str]) -> dict[str, Callable[[], object]]:
    """Import what client processes need; the console scripts' own functions."""
    commands = {}
    for name in FORKED:
        (script,) = entry_points(group="console_scripts", name=name)
        commands[name] = script.load()
    for module in (*LATER, *modules):
        importlib.import_module(module)
    return commands


def main(folder: str, text: str) -> None:
    """The keeper: import, wait for the word, fork one supervisor a client."""
    site, settings = Site(folder), json.loads(text)
    commands = warm_up(settings["warm"]) if settings["forks"] else {}
    threads = len(os.listdir("/proc/self/task"))
    if commands and threads > 1:
        print(f"no forks: {threads} threads run after importing {settings['warm']}; it would be unsafe", flush=True)
        os.execv(sys.executable, [*sys.orig_argv[:-1], json.dumps(settings | {"forks": False})])
    if settings["blas_threads"] is None:  # set for the imports above only
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
    if commands:
        write_shims(site, FORKED)
    gc.collect()
    gc.freeze()  # what is imported is garbage nowhere; collecting it would copy its pages in every fork
    if sys.stdin.readline() != "go\n":
        sys.exit("nobody gave the word to go")
    for client in settings["clients"]:
        if os.fork() == 0:
            try:
                Supervisor(site, client, settings, commands, deregister).run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
