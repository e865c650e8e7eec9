"""`run`: the outer loop in Python, chunks of rounds in one compiled program."""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative.algorithm import Algorithm
from performative.describe import describe
from performative.engine.audit import audit_clients, measure_risks
from performative.engine.chunk import Targets, Watch, run_chunk
from performative.engine.checkpoint import Checkpoint
from performative.engine.loop import loop_chunk
from performative.engine.progress import progress_bar
from performative.engine.round import Clock, Setup
from performative.engine.setup import check_fit, init_state, on_device, prepare, read_theta
from performative.history import RUNNING, History
from performative.problem import Problem
from performative.types import Theta

_RISK_POINTS = 20
_CHUNK_BYTES = 1 << 28


def run(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int,
    theta: Any = None,
    seed: int = 0,
    repeats: int = 1,
    *,
    record_theta: str = "all",
    every: int = 1,
    risk: bool | int = True,
    clock: Clock = Clock(),  # noqa: B008  # frozen
    dtype: str | None = None,
    executor: str | None = None,
    stable: Any = None,
    optimal: Any = None,
    limit: float = 1e8,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> History:
    """Run an algorithm on a problem, `repeats` times at once, and return what was recorded.

    rounds:           server rounds; theta: the start (None for zeros where the population settles the shape)
    seed, repeats:    repeat r of a seed is the same trajectory however many repeats there are
    record_theta:     "all" records the model at every record, "last" at the end only
    every:            rounds between records
    risk:             measure risks at this many points along the run (True for 20, False for none)
    clock:            what a local step and an exchange cost in simulated time
    dtype:            "float32" (default) or "float64"
    executor:         "dense", "gather" or "loop"; None picks one, `history.meta["executor"]` says which
    stable, optimal:  points to record distances to; closed forms are used where the population has them
    limit:            a repeat counts as diverged when |theta| exceeds limit * (1 + |start|)
    checkpoint:       folder to write state and history to every `checkpoint_every` rounds; `resume=True` goes on there
    progress:         show a bar; None shows one on a terminal
    """
    precision = _read_dtype(dtype)
    _check_counts(rounds=rounds, repeats=repeats, every=every)
    if record_theta not in ("all", "last"):
        raise ValueError(f'record_theta must be "all" or "last" (thin with every=n); got {record_theta!r}.')
    with jax.enable_x64(precision == jnp.float64):
        cache_compilations()
        setup = prepare(problem, algorithm, clock, precision)
        start = read_theta(setup.problem, theta, precision)
        check_fit(setup.problem, setup.algorithm, start)
        targets = find_targets(problem, start, stable, optimal, precision)
        watch = Watch(every, record_theta == "all", pick_executor(executor, algorithm))
        keys = repeat_keys(seed, repeats)
        driver = Driver(setup, targets, None, keys, start, watch, rounds, _points(risk), limit, algorithm.name)
        identity = {
            "problem": describe(problem), "algorithm": describe(algorithm), "start": describe(start), "seed": seed,
            "repeats": repeats, "every": every, "record_theta": record_theta, "risk": _points(risk),
            "dtype": str(jnp.dtype(precision)), "clock": describe(clock), "executor": watch.executor,
        }  # fmt: skip
        books = None if checkpoint is None else Checkpoint(checkpoint, identity, resume)
        if resume and checkpoint is None:
            raise ValueError("resume=True needs checkpoint=, the folder to go on with.")
        driver.drive(books, checkpoint_every, progress)
        return driver.history(slice(None), {"seed": seed, "config": describe(algorithm)})


class Driver:
    """The outer loop over chunks. State, keys and books lead with repeats, and before them settings in a sweep."""

    def __init__(
        self, setup: Setup, targets: Targets, axes: Any, keys: Any, start: Theta, watch: Watch, rounds: int,
        points: int, limit: float, label: str, settings: int | None = None,
    ):  # fmt: skip
        self.setup, self.targets, self.axes, self.keys = setup, targets, axes, keys
        self.watch, self.rounds, self.label, self.start = watch, rounds, label, start
        self.total = -(-rounds // watch.every)
        self.chunk = -(-self.total // points) if points else self.total
        self.points = points
        lead = (len(keys),) if settings is None else (settings, len(keys))
        self.lead = lead
        counting = not setup.algorithm.participation.everyone
        first = init_state(setup, start, counting) if axes is None else _init_settings(setup, axes, start, counting)
        wide = lead if axes is None else (len(keys),)
        self.state = jax.tree.map(lambda leaf: _spread(leaf, wide, axes is not None), first)
        scale = 1.0 + float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(start))))
        self.limit = jnp.asarray((limit * scale) ** 2, setup.weights.dtype)
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(start)) if watch.theta else 0
        fits = max(1, _CHUNK_BYTES // int((64 + size) * np.prod(lead)))
        self.chunk = min(self.chunk, fits)
        self.chunks: list[dict[str, np.ndarray]] = []
        self.seconds = 0.0

    def drive(self, books: Checkpoint | None, checkpoint_every: int | None, progress: bool | None) -> None:
        """Run to the end, or to where nothing is left to run."""
        began = time.perf_counter()
        done = 0
        if books is not None and (found := books.load(self.state)) is not None:
            self.state, self.chunks, notes = found
            done = notes["done"]
            self.seconds = notes["seconds"]
        if checkpoint_every is not None:
            _check_counts(checkpoint_every=checkpoint_every)
            self.chunk = max(1, min(self.chunk, checkpoint_every // self.watch.every))
        capacity = 1 << (self.chunk - 1).bit_length()
        ids, share = audit_clients(np.asarray(self.setup.problem.client_weights)) if self.axes is None else audit_clients(_shared_weights(self.setup))
        step = loop_chunk if self.watch.executor == "loop" else run_chunk
        before = self.seconds
        with progress_bar(self.label, self.rounds, progress) as update:
            while done < self.total:
                count = min(self.chunk, self.total - done)
                frozen = (self.setup, self.targets, self.axes, self.keys)
                self.state, rows = step(
                    frozen, self.state, self.watch, capacity, jnp.asarray(count), jnp.asarray(self.rounds), jnp.copy(self.limit)
                )
                axis = len(self.lead)
                cut = (slice(None),) * axis + (slice(count),)
                chunk = _flatten({name: jax.tree.map(lambda leaf: np.asarray(leaf)[cut], value) for name, value in rows.items()})
                done += count
                if self.points:
                    dtype = self.setup.weights.dtype
                    risks = measure_risks(self.setup, self.axes, self.state, jnp.asarray(ids), jnp.asarray(share, dtype))
                    chunk |= {name: np.asarray(value) for name, value in risks.items()}
                    chunk["risk_round"] = np.asarray(min(done * self.watch.every, self.rounds))
                self.chunks.append(chunk)
                self.seconds = before + time.perf_counter() - began
                if books is not None:
                    books.save(self.state, self.chunks, {"done": done, "seconds": self.seconds})
                update(min(done * self.watch.every, self.rounds), self._note(chunk))
                if not np.any(chunk["sound"].take(-1, axis=axis)):
                    break  # every repeat has left the numbers

    def _note(self, chunk: dict[str, np.ndarray]) -> str:
        for name in ("distance_to_stable", "performative_risk"):
            if name in chunk:
                last = chunk[name][..., -1] if name.startswith("distance") else chunk[name]
                return f"{name.replace('_', ' ')} {np.nanmean(last):.4g}"
        return ""

    def history(self, setting: Any, meta: dict[str, Any]) -> History:
        """The recorded books of one setting (or of the whole run), the start first."""
        axis = len(self.lead) - 1  # repeats come first once a setting is picked
        repeats = len(self.keys)
        pick = (lambda a: a) if axis == 0 else (lambda a: a[setting])
        names = [n for n in self.chunks[0] if n not in ("risk_round", "decoupled_risk", "performative_risk")]
        joined = {n: np.concatenate([pick(c[n]) for c in self.chunks], axis=1) for n in names}
        sound = joined.pop("sound")
        count = sound.shape[1]
        rounds = np.minimum(np.arange(count + 1) * self.watch.every, self.rounds)
        paths = jax.tree_util.tree_leaves_with_path(self.start)
        leaves = []
        final = jax.tree.leaves(jax.tree.map(lambda leaf: np.asarray(pick(leaf)), self.state.theta))
        for number, (_, leaf) in enumerate(paths):
            first = np.broadcast_to(np.asarray(leaf), (repeats, 1, *leaf.shape))
            rest = joined.pop(f"theta/{number}") if self.watch.theta else final[number][:, None]
            leaves.append(np.concatenate([first, rest], axis=1) if self.watch.theta else rest)
        theta = jax.tree.unflatten(jax.tree.structure(self.start), leaves)
        records = {}
        for name, values in joined.items():
            if name.startswith("distance_to_"):
                target = jax.tree.map(pick if self.axes is not None else (lambda a: a), getattr(self.targets, name[12:]))
                gap = sum(np.sum(np.square(np.asarray(s) - np.asarray(t))) for s, t in zip(jax.tree.leaves(self.start), jax.tree.leaves(target), strict=True))
                records[name] = np.concatenate([np.full((repeats, 1), np.sqrt(gap), values.dtype), values], axis=1)
            else:
                total = name in RUNNING or name not in ("consensus",)
                values = np.cumsum(values.astype(np.float64), axis=1) if total else values
                records[name] = np.concatenate([np.zeros((repeats, 1), values.dtype), values], axis=1)
        records["communications"] = np.broadcast_to(2 * rounds, (repeats, count + 1)).copy()
        bad = ~sound
        stopped = np.where(bad.any(axis=1), rounds[1:][np.argmax(bad, axis=1)], -1)
        risks = {n: np.stack([pick(c[n]) for c in self.chunks], axis=1) for n in ("decoupled_risk", "performative_risk") if n in self.chunks[0]}
        points = np.asarray([int(c["risk_round"]) for c in self.chunks]) if risks else np.zeros(0, int)
        weights = np.asarray(self.setup.weights)
        counts = self.state.participation
        realised = np.asarray(pick(counts)) / rounds[-1] if counts is not None else None
        return History(
            theta, rounds, records, points, risks, weights, realised, stopped,
            {
                "algorithm": self.label, "executor": self.watch.executor, "dtype": str(self.setup.weights.dtype),
                "seconds": round(self.seconds, 4), "device": jax.devices()[0].device_kind, **versions(), **meta,
            },
        )  # fmt: skip


def _flatten(rows: dict[str, Any]) -> dict[str, np.ndarray]:
    """Rows with theta's leaves numbered, so that a chunk is a flat set of arrays."""
    theta = rows.pop("theta", None)
    return rows | {f"theta/{i}": leaf for i, leaf in enumerate(jax.tree.leaves(theta))}


def _spread(leaf: Any, lead: Sequence[int], settings: bool) -> Any:
    if settings:
        return jnp.repeat(leaf[:, None], lead[0], axis=1)
    return jnp.broadcast_to(leaf, (*lead, *leaf.shape)).copy()


def _init_settings(setup: Setup, axes: Any, start: Theta, counting: bool) -> Any:
    raise NotImplementedError


def _shared_weights(setup: Setup) -> np.ndarray:
    weights = np.asarray(setup.weights)
    return weights if weights.ndim == 1 else weights.mean(axis=0)


def repeat_keys(seed: int, repeats: int) -> Any:
    """One key a repeat; repeat r of a seed does not depend on how many there are."""
    if not isinstance(seed, int):
        raise ValueError(f"seed must be a whole number; got {seed!r}.")
    base = jax.random.key(seed)
    return jax.vmap(lambda r: jax.random.fold_in(base, r))(jnp.arange(repeats))


def pick_executor(executor: str | None, algorithm: Algorithm) -> str:
    """`dense` where everyone takes part, `gather` where only some do."""
    if executor is None:
        return "dense" if algorithm.participation.everyone else "gather"
    if executor not in ("dense", "gather", "loop"):
        raise ValueError(f'executor must be "dense", "gather", "loop" or None; got {executor!r}.')
    return executor


def find_targets(problem: Problem, start: Theta, stable: Any, optimal: Any, dtype: Any) -> Targets:
    """Points to measure distances to: given ones, else closed forms where the population has them."""
    weights = problem.client_weights
    known = problem.domain is None
    if stable is None and known:
        stable = problem.population.stable_point(problem.loss, weights)
    if optimal is None and known:
        optimal = problem.population.optimal_point(problem.loss, weights)
    for name, point in (("stable", stable), ("optimal", optimal)):
        if point is not None and [np.shape(p) for p in jax.tree.leaves(point)] != [s.shape for s in jax.tree.leaves(start)]:
            raise ValueError(f"{name}= must have the shape of theta.")
    return on_device(Targets(stable, optimal), dtype)


def cache_compilations() -> None:
    """Keep compiled programs between processes, unless the user has set a place or switched it off."""
    if jax.config.jax_compilation_cache_dir is not None or os.environ.get("PERFORMATIVE_CACHE") == "off":
        return
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    jax.config.update("jax_compilation_cache_dir", os.environ.get("PERFORMATIVE_CACHE", str(home / "performative" / "xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def versions() -> dict[str, str]:
    import equinox

    import performative

    return {
        "performative": performative.__version__, "jax": jax.__version__, "equinox": equinox.__version__,
        "python": platform.python_version(),
    }  # fmt: skip


def _read_dtype(dtype: str | None) -> Any:
    if dtype is None:
        return jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    if str(dtype) not in ("float32", "float64"):
        raise ValueError(f'dtype must be "float32" or "float64"; got {dtype!r}.')
    return jnp.dtype(str(dtype)).type


def _points(risk: bool | int) -> int:
    if isinstance(risk, bool):
        return _RISK_POINTS if risk else 0
    if not (isinstance(risk, int) and risk >= 0):
        raise ValueError(f"risk must be True, False or a whole number of points; got {risk!r}.")
    return risk


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")
