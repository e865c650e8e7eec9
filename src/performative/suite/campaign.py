"""Run many methods in many environments, in worker processes; skip what has already been measured."""

import dataclasses
import functools
import gc
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import jax

from performative._base.checks import nearest
from performative.suite.protocol import BASELINES, Effort, measure
from performative.suite.registry import ids, make
from performative.suite.store import Store, everything

# Programs here run for less time than an optimizing compilation takes, so compile as fast as possible.
_SHORT = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


@dataclasses.dataclass
class Outcome:
    """The outcome of a campaign.

    Attributes:
        measured: number of (method, environment) pairs measured; seconds: CPU time that they took
        left_out: environments whose data are not available, and why; broken: environments in which something failed
    """

    measured: int = 0
    seconds: float = 0.0
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    broken: dict[str, str] = dataclasses.field(default_factory=dict)


def chosen(methods: str, envs: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return environments with the methods to run in them, from comma-separated names."""
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
    workers: int = 0,
    say: Callable[[str], object] = print,
) -> Outcome:
    """Measure all missing results in `workers` worker processes; 0 uses the current process.

    A failure in one environment does not stop the others.
    """
    found = Outcome()
    if workers == 0:
        for env, methods in pairs:
            _add(found, env, functools.partial(_one_env, env, methods, effort, str(out)), say)
        return found
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _compile_quickly, (known_flags(),)) as pool:
        jobs = {pool.submit(_in_worker, env, methods, effort, str(out)): env for env, methods in pairs}
        for job in as_completed(jobs):
            _add(found, jobs[job], job.result, say)
    return found


@functools.cache
def known_flags() -> str:
    """Return the flags that shorten compilation and that this version of XLA knows; it aborts on unknown flags."""
    return " ".join(_SHORT if _starts(*_SHORT) else filter(_starts, _SHORT))


def _starts(*flags: str) -> bool:
    """Whether a separate process can compile with these flags."""
    program = "import jax; jax.numpy.zeros(1).block_until_ready()"
    env = os.environ | {"XLA_FLAGS": _with_flags(" ".join(flags)), "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=False).returncode == 0


def _with_flags(flags: str) -> str:
    return f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def _compile_quickly(flags: str) -> None:
    """Set compiler options in a worker, before its first program."""
    os.environ["XLA_FLAGS"] = _with_flags(flags)
    config: Any = jax.config
    config.update("jax_disable_most_optimizations", True)


def _add(found: Outcome, env: str, result: Callable[[], tuple[int, float, str]], say: Callable[[str], object]) -> None:
    try:
        measured, seconds, words = result()
    except FileNotFoundError as absent:
        found.left_out[env] = str(absent)
        say(f"{env}: skipped, its data are not available ({absent})")
    except Exception as fault:
        found.broken[env] = f"{type(fault).__name__}: {fault}"
        say(f"{env}: failed, {found.broken[env]}")
    else:
        found.measured, found.seconds = found.measured + measured, found.seconds + seconds
        if measured:
            say(f"{env}: {measured} measured in {seconds:.0f} s of CPU time{words}")


def _in_worker(env: str, methods: Sequence[str], effort: Effort, out: str) -> tuple[int, float, str]:
    """Run `_one_env`, then freeze the garbage collector: objects left by compiled programs would slow it down."""
    found = _one_env(env, methods, effort, out)
    gc.freeze()
    return found


def _one_env(env: str, methods: Sequence[str], effort: Effort, out: str) -> tuple[int, float, str]:
    """Run all methods in one environment, built once; return their number, seconds, and a note on the best one."""
    store = Store(out)
    missing = [method for method in methods if not store.has(env, method, effort)]
    if not missing:
        return 0, 0.0, ""
    began = time.process_time()
    world = make(env)
    means, used = {}, 0.0
    for method in missing:
        result = measure(world, method, effort)
        # The time to build the environment is counted with the first method.
        now = time.process_time() - began
        store.put(dataclasses.replace(result, seconds=now - used))
        used = now
        if result.scores and method not in BASELINES:
            means[method] = sum(result.scores) / len(result.scores)
    best = max(means, key=lambda method: means[method], default=None)
    words = "" if best is None else f"; best: {best}, score {means[best]:.3f}"
    return len(missing), used, words
