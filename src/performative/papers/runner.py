"""Run an experiment, judge its claims, and write data, figure and manifest."""

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.checks import check_counts
from performative.papers import dependence, store
from performative.papers.catalog import Experiment, find
from performative.papers.outcome import Numbers

RESULTS = Path("performative-results")
_SHORT_WAY = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
_LIBRARIES = ("performative", "jax", "jaxlib", "equinox", "numpy", "scipy", "xarray")


def reproduce(name: str, quick: bool = False, out: str | Path = RESULTS, fresh: bool = False) -> dict[str, Any]:
    """Run one experiment and return its manifest; a result with the same constants and code is reused.

    "Code" means the experiment's own and the library's; comments and docstrings do not count.

    Claims are judged again on each call from the stored numbers, and the figure is redrawn from the data if it would
    look different.

    Writes `out/<name>/data.nc`, `figure.png`, `figure.svg`, `figure.pdf` and, last, `manifest.json`. A quick run never
    overwrites a full one, unless `fresh`.
    """
    experiment = find(name)
    folder = Path(out) / name
    mark = _mark(experiment, quick)
    known = None if fresh else store.read_done(folder, experiment)
    if known is not None and known["hash"] in (mark, _mark(experiment, False)):
        return _tell_again(folder, experiment, known) | {"new": False}
    folder.mkdir(parents=True, exist_ok=True)  # before anything is computed
    began = time.perf_counter()
    constants = experiment.settings(quick)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*\[(run-diverged|rate-too-large)\]")  # figures show it
        outcome = experiment.function()(**constants)
    manifest = {
        "name": name,
        "paper": experiment.paper,
        "title": experiment.title,
        "place": experiment.place,
        "caption": experiment.caption,
        "note": experiment.noted(quick),
        "quick": quick,
        "status": "completed",
        "constants": constants,
        "seed": constants.get("seed"),
        "versions": _versions(),
        "device": _device(),
        "seconds": round(time.perf_counter() - began, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "hash": mark,
        "numbers": {key: _plain(value) for key, value in outcome.numbers.items()},
        "claims": _judge(experiment, outcome.numbers, quick),
    }
    return store.write(folder, experiment, outcome, manifest) | {"new": True}


def reproduce_all(
    names: Sequence[str], quick: bool = False, out: str | Path = RESULTS, fresh: bool = False, jobs: int = 1
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield each name with its manifest or error message, as experiments finish; run `jobs` of them in parallel.

    Compilation keeps one core busy, so one process per core is faster for the whole set. If one fails, the others
    continue. An interrupt stops those that are running; finished ones are kept. In a script, put this call with several
    jobs below `if __name__ == "__main__":`.
    """
    check_counts(jobs=jobs)
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names; got {names!r}. Use reproduce({names!r}) for one.")
    names = list(dict.fromkeys(names))
    if min(jobs, len(names)) <= 1:
        for name in names:
            yield name, _attempt(name, quick, out, fresh)
        return
    # Spawned, not forked: JAX is multithreaded.
    pool = ProcessPoolExecutor(
        min(jobs, len(names)), mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(quick,)
    )
    try:
        waiting = {pool.submit(_attempt, name, quick, out, fresh): name for name in names}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        workers = list((pool._processes or {}).values())  # `terminate_workers` comes with Python 3.14
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def _begin(quick: bool) -> None:
    """Set up a worker. The terminal sends an interrupt to all processes; the parent terminates the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if quick:  # mostly compilation time: set faster XLA flags before JAX computes anything
        os.environ["XLA_FLAGS"] = f"{_SHORT_WAY} {os.environ.get('XLA_FLAGS', '')}"


def _attempt(name: str, quick: bool, out: str | Path, fresh: bool) -> dict[str, Any] | str:
    """The manifest, or the first line of the error."""
    try:
        return reproduce(name, quick, out, fresh)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _judge(experiment: Experiment, numbers: Numbers, quick: bool) -> list[dict[str, Any]]:
    rows = [claim.judge(numbers, quick) for claim in experiment.claims]
    return [row | {"place": row["place"] or experiment.place} for row in rows]


def _tell_again(folder: Path, experiment: Experiment, known: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the file's current text; the numbers stay."""
    told = {"title": experiment.title, "place": experiment.place, "caption": experiment.caption}
    told |= {"note": experiment.noted(known["quick"])}
    claims = _judge(experiment, store.read_numbers(known), known["quick"])
    return store.refresh(folder, experiment, known | told | {"claims": claims}, known)


def _mark(experiment: Experiment, quick: bool) -> str:
    """A digest of everything the numbers depend on: constants, the experiment's code and the library's."""
    code = dependence.own_code(experiment.function().__module__)
    return store.digest([experiment.code, experiment.settings(quick), code, dependence.library()])


def _plain(number: Any) -> Any:
    values = [float(v) if np.isfinite(v) else str(v) for v in np.atleast_1d(number)]
    return values[0] if np.ndim(number) == 0 else values


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import version

    told = {"python": platform.python_version(), "code": dependence.library()}
    return told | {name: version(name) for name in _LIBRARIES}


def _device() -> str:
    import jax

    device = jax.devices()[0]
    return f"{device.platform}: {device.device_kind}, {len(jax.devices())}"
