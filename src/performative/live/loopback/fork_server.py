"""The fork server: warm client processes, and the keeper that forks a supervisor for each client.

Flower starts a fresh `flwr-clientapp` for every message, which spends seconds of processor time on imports. Here one
process imports them once and forks; the forked process does exactly what the console script does. A shim of the same
name comes first on the node's PATH: it sends its arguments, environment and standard files through a unix socket and
exits with the child's exit code. If nobody listens it becomes the real command: slower, same result.

    start() -> keeper (imports, one fork per client) -> supervisor of client i -> SuperNode, worker, client processes

Forking is safe because only the main thread is running: JAX is imported but has no backend yet, and BLAS is told to
make no threads (a worker, forked too, is told to make them again). This is checked; a keeper that finds threads forks
none and lets Flower start its own processes.
"""

import contextlib
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
from performative.live.loopback.supervisor import FORKED, WORK, Supervisor

_PAUSE = 1.0  # seconds between attempts to reach a server
# Imported by the commands only when they run.
LATER = ("flwr.supernode.main", "flwr.cli.install", "flwr.clientapp")


def deregister(site: Site, client: int) -> None:
    """Deregister a SuperNode that was killed; otherwise the node stays away for up to a minute.

    A member on its own host waits until the server can be reached: otherwise it would count as rejected.
    """
    from performative.live.flower import deregister_node, is_unreachable

    if (node := site.registry()[client]["node_id"]) is None:
        return
    while True:
        try:
            return deregister_node(site.address or site.here, site.authority, site.key(client), node)
        except Exception as wrong:  # already offline, or the SuperLink does not answer: the SuperNode will find out
            print(f"client {client} could not be deregistered: {wrong}", flush=True)
            if not (site.joined and is_unreachable(wrong)):
                return
        time.sleep(_PAUSE)


def warm_up(modules: Sequence[str], worker: Sequence[str]) -> dict[str, Callable[[], object]]:
    """Import what client processes need; the console scripts' own functions, and that of a worker's module."""
    commands: dict[str, Callable[[], object]] = {}
    for name in FORKED:
        (script,) = entry_points(group="console_scripts", name=name)
        commands[name] = script.load()
    for module in (*LATER, *modules):
        importlib.import_module(module)
    if list(worker[:2]) == [sys.executable, "-m"]:
        serve = importlib.import_module(worker[2]).main

        def work() -> object:
            let_blas_use_threads()
            return serve()

        commands[WORK] = work
    return commands


def let_blas_use_threads() -> None:
    """As many as BLAS would have made by itself, had it not been told to make none before the fork."""
    with contextlib.suppress(ModuleNotFoundError):  # without it one thread does the work, with the same result
        from threadpoolctl import threadpool_limits

        told = os.environ.get("OPENBLAS_NUM_THREADS", "")
        threadpool_limits(int(told) if told.isdigit() else len(os.sched_getaffinity(0)), "blas")


def main(folder: str, text: str) -> None:
    """The keeper: import, wait for the signal, fork one supervisor per client."""
    site, settings = Site(folder), json.loads(text)
    commands = warm_up(settings["warm"], settings["worker"]) if settings["forks"] else {}
    threads = len(os.listdir("/proc/self/task"))
    if commands and threads > 1:
        print(f"no forks: {threads} threads run after importing {settings['warm']}; it would be unsafe", flush=True)
        os.execv(sys.executable, [*sys.orig_argv[:-1], json.dumps(settings | {"forks": False})])
    if settings["blas_threads"] is None:  # set for the imports above only
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
    if commands:
        write_shims(site, FORKED)
    gc.collect()
    gc.freeze()  # imports are never garbage; collecting them would copy their pages in every fork
    if sys.stdin.readline() != "go\n":
        sys.exit("the signal to start never came")
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
