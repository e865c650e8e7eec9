"""Many settings at once: one compilation for all settings that differ only in numbers."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from performative._base.arguments import spelt
from performative._base.checks import check_counts
from performative._base.describe import describe
from performative._base.messages import tell
from performative._engine.assemble import write_history
from performative._engine.cautions import caution_before, judge
from performative._engine.checkpoint import Checkpoint, RunFolder
from performative._engine.chunk import RecordConfig, RunInputs
from performative._engine.clock import Clock
from performative._engine.drive import drive
from performative._engine.executors import AbstractExecutor, pick_executor
from performative._engine.keys import NUMERICS
from performative._engine.layout import choose_compute
from performative._engine.options import Options, read_options, repeat_keys
from performative._engine.prepare import check_fit, check_length, check_owners, on_device, place_start, read_theta
from performative._engine.programs import cache_compilations
from performative._engine.ready import about, find_points, with_distances, with_known_loss
from performative._engine.run import review
from performative._engine.setup import Setup, prepare
from performative.algorithm import Algorithm
from performative.game import Game
from performative.history import History
from performative.problem import Problem
from performative.record import RISK_POINTS, Record
from performative.sweep.names import read_settings, set_by_name, values_of
from performative.sweep.result import Sweep
from performative.types import Theta


@spelt
def sweep(
    problem: Problem | Game,
    algorithm: Algorithm,
    over: Mapping[Any, Sequence[Any]] | Sequence[Mapping[str, Any]],
    rounds: int,
    theta: Theta = None,
    seed: int = 0,
    repeats: int = 1,
    *,
    record: Record | None = None,
    callbacks: Sequence[Any] = (),
    clock: Clock | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    dtype: str | None = None,
    executor: str | AbstractExecutor | None = None,
    clients_at_once: int | None = None,
    **old: Any,
) -> Sweep:
    """Run every combination of the values in `over`, with the same seeds for all (common random numbers).

    `over` maps a dotted name to values: "rate", "rate.scale", "participation.k", "local_steps" on the algorithm,
    "population.sensitivity", "weights", "domain" on the problem; "algorithm" or "problem" for the whole, "rounds" for
    the number of rounds. A tuple of names varies them together: ("rate", "local_steps"): [(0.1, 1), (0.02, 5)].
    A list of {name: value} contains settings that do not form a grid. Settings that differ only in numbers run as one
    compiled program; a value that sets a shape (K, E, n) or selects code gets its own program. The rest is as in `run`,
    except for `record`: by default, no risks are measured. Callbacks see each program separately. With `checkpoint`, a
    killed sweep resumes where it was, in each of its programs.
    """
    check_counts(rounds=rounds, repeats=repeats)
    settings = read_settings(over)
    lengths = [setting.get("rounds", rounds) for setting in settings]
    for length in lengths:
        check_counts(rounds=length)
    options = read_options(
        "sweep", Record(risks=False), record, callbacks, clock, dtype, executor, clients_at_once, old, checkpoint
    )
    if isinstance(problem, Game):
        problem, algorithm, theta = problem.as_run(algorithm, theta)
    check_owners(problem, algorithm)
    chosen = pick_executor(executor, algorithm)
    if chosen.name == "sharded" or not chosen.compiled:
        name = chosen.name or type(chosen).__name__
        raise ValueError(f'sweep runs settings in one batch; use pf.run(..., executor="{name}") on one of them.')
    with jax.enable_x64(options.precision == jnp.float64):
        return _sweep(problem, algorithm, settings, lengths, theta, seed, repeats, options)


def _sweep(
    problem: Problem, algorithm: Algorithm, settings: list[dict[str, Any]], lengths: list[int], theta: Theta, seed: int,
    repeats: int, options: Options,
) -> Sweep:  # fmt: skip
    """Prepare every setting, run those that share a program together, and write one history each."""
    cache_compilations()
    record, precision = options.record, options.precision
    problem = with_known_loss(problem)
    start = read_theta(problem, theta, precision)
    ready, whole = [], []
    found: dict[Any, Any] = {}  # settings that share a problem share its points
    for setting, length in zip(settings, lengths, strict=True):
        here, how = problem, algorithm
        for name, value in setting.items():
            if name != "rounds":
                here, how = set_by_name(here, how, name, value)
        place_start(on_device(here, precision), start, given=True)
        how.sharing.check(start)
        case = id(here), type(how.sharing)
        if case not in found:
            found[case] = find_points(here, start, record, how)
        check_length(length, how)
        ready.append(with_distances(prepare(here, how, options.clock, record), found[case]))
        whole.append((here, how))
    histories: dict[int, History] = {}
    groups = _same_program(ready, lengths)
    for number, group in enumerate(groups):
        first = on_device(ready[group[0]], precision)
        check_fit(first.problem, start)
        here, how = whole[group[0]]
        length = lengths[group[0]]
        how.estimator.check(here, start, how.batch)
        caution_before(here, how)
        copies = repeats * len(group)
        compute, _ = choose_compute(first, start, copies, options.clients_at_once, half=options.half)
        # Before stacking: the tree of axes that vary must have the same layout.
        laid_out = [dataclasses.replace(ready[i], compute=compute) for i in group]
        fixed = _stack(laid_out, repeat_keys(seed, repeats), precision)
        watch = RecordConfig(record.every, record.theta == "all", pick_executor(options.executor, how))
        told = about(how, seed, first, 0.0, compute) | {"label": f"{how.name} x {len(group)}"}
        with contextlib.ExitStack() as stack:
            store, every = None, None
            if (kept := options.checkpoint) is not None:
                identity = _identity([whole[i] for i in group], start, seed, repeats, watch, options)
                folder = RunFolder(Path(kept.folder) / f"program-{number:03d}", identity, kept.resume)
                store, every = stack.enter_context(folder.held()), kept.every or max(1, length // RISK_POINTS)
            driven = drive(
                fixed, start, watch, length,
                points=record.points, limit=record.limit, calls=options.calls, about=told, folder=store,
                checkpoint_every=every, settings=[settings[i] for i in group],
            )  # fmt: skip
        memories = driven.state.clients.estimator, driven.state.server.aggregator
        for place, i in enumerate(group):
            notes = review(*whole[i], *jax.tree.map(lambda leaf, place=place: leaf[place], memories))
            for note in notes:
                tell(f"setting {i}: {note}")
            meta = about(whole[i][1], seed, first, driven.seconds / len(group), compute)
            meta |= {"setting": describe(settings[i])} | ({"notes": notes} if notes else {})
            meta |= {} if driven.stopped_by is None else {"stopped_by": driven.stopped_by}
            history = write_history(
                fixed, start, watch, length, driven.chunks, driven.state, meta, driven.first, place, driven.models
            )
            histories[i] = judge(history)
    return Sweep(values_of(settings), settings, [histories[i] for i in range(len(settings))], len(groups))


def _identity(
    whole: list[tuple[Problem, Algorithm]], start: Theta, seed: int, repeats: int, watch: RecordConfig, options: Options
) -> dict[str, Any]:
    """What identifies a program of a sweep, for its checkpoint."""
    return {
        "numerics": NUMERICS,
        "settings": [{"problem": describe(here), "algorithm": describe(how)} for here, how in whole],
        "start": describe(start),
        "seed": seed,
        "repeats": repeats,
        "record": describe(options.record),
        "executor": watch.executor.name,
        "dtype": options.dtype,
        "clock": describe(options.clock),
    }


def _same_program(ready: list[Setup], lengths: list[int]) -> list[list[int]]:
    """Indices of settings that share structure, shapes, static fields and the number of rounds."""
    groups: dict[Any, list[int]] = {}
    for i, setup in enumerate(ready):
        leaves, structure = jax.tree.flatten(setup)
        shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) if _is_number(leaf) else leaf for leaf in leaves)
        groups.setdefault((structure, shapes, lengths[i]), []).append(i)
    return list(groups.values())


def _is_number(leaf: PyTree) -> bool:
    return isinstance(leaf, (int, float, np.ndarray, np.generic, jax.Array))


def _stack(setups: list[Setup], keys: PyTree, dtype: DTypeLike) -> RunInputs:
    """Leaves that differ get a leading axis of settings; the others are shared."""
    columns = list(zip(*(jax.tree.leaves(setup) for setup in setups), strict=True))
    structure = jax.tree.structure(setups[0])
    values, axes = [], []
    for column in columns:
        varies = _is_number(column[0]) and not all(c is column[0] or np.array_equal(c, column[0]) for c in column)
        values.append(np.stack([np.asarray(c) for c in column]) if varies else column[0])
        axes.append(0 if varies else None)
    setup = on_device(jax.tree.unflatten(structure, values), dtype)
    return RunInputs(setup, keys, jax.tree.unflatten(structure, axes), len(setups))
