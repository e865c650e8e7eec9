"""Many methods in many environments, in worker processes; what is measured already is left alone."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from performative._base.checks import nearest
from performative.suite.protocol import Effort, measure
from performative.suite.registry import ids, make
from performative.suite.store import Store, everything


def chosen(methods: str, envs: str) -> list[tuple[str, tuple[str, ...]]]:
    """Environments with the methods to run in them, from names with commas between."""
    return [(env, _read(methods, everything(), "method")) for env in _read(envs, ids(), "environment")]


def _read(names: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    for name in found:
        if name not in known:
            raise ValueError(f"suite: there is no {what} {name!r}.{nearest(name, known)}")
    return found or tuple(known)


def campaign(
    pairs: Sequence[tuple[str, tuple[str, ...]]],
    effort: Effort,
    out: str | Path,
    workers: int = 1,
    say: Callable[[str], object] = print,
) -> int:
    """Measure all that is not there yet; how many were."""
    if workers == 1:
        return sum(_one_env(env, methods, effort, str(out), say) for env, methods in pairs)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(_one_env, env, methods, effort, str(out)): env for env, methods in pairs}
        done = 0
        for job in as_completed(jobs):
            done += job.result()
            say(f"{jobs[job]}: {job.result()} measured")
        return done


def _one_env(
    env: str, methods: Sequence[str], effort: Effort, out: str, say: Callable[[str], object] | None = None
) -> int:
    """All methods in one environment, in a process that makes it once."""
    store = Store(out)
    missing = [method for method in methods if not store.has(env, method, effort.seeds)]
    if not missing:
        return 0
    try:
        world = make(env)
    except FileNotFoundError as absent:
        if say is not None:
            say(f"{env}: left out, its data are not here ({absent})")
        return 0
    for method in missing:
        result = measure(world, method, effort)
        store.put(result)
        if say is not None:
            mean = sum(result.scores) / len(result.scores) if result.scores else float("nan")
            say(f"{env} {method}: " + (f"score {mean:.3f}" if result.why is None else f"does not apply: {result.why}"))
    return len(missing)
