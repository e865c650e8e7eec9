"""`run`: one problem, one algorithm, many repeats."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from performative._base.arguments import spelt
from performative._base.checks import check_counts
from performative._base.describe import describe
from performative._base.messages import coded, tell, warn
from performative._engine.assemble import write_history
from performative._engine.cautions import caution_after, judge
from performative._engine.checkpoint import Checkpoint, RunFolder
from performative._engine.chunk import RecordConfig, RunInputs
from performative._engine.clock import Clock
from performative._engine.drive import drive
from performative._engine.executors import AbstractExecutor, pick_executor
from performative._engine.keys import NUMERICS
from performative._engine.layout import Footprint, choose_compute, measure_footprint, set_compute
from performative._engine.ledgers import add_ledger, read_ledger
from performative._engine.options import Options, read_dtype, read_options, repeat_keys
from performative._engine.prepare import check_length
from performative._engine.processes import agree, several
from performative._engine.ready import about, make_ready
from performative._engine.secrets import check_grid, secret_keys
from performative._engine.setup import Setup
from performative._engine.sharding import describe_mesh, everywhere, share_work, to_host
from performative.algorithm import Algorithm
from performative.game import Game
from performative.history import History
from performative.privacy.promise import Privacy
from performative.problem import Problem
from performative.record import RISK_POINTS, Record
from performative.types import Theta

# A run whose data and memory alone are this many times the free memory is refused.
_FAR_TOO_MUCH = 2


@spelt
def run(
    problem: Problem | Game,
    algorithm: Algorithm,
    rounds: int,
    theta: Theta = None,
    seed: int = 0,
    repeats: int = 1,
    *,
    record: Record | None = None,
    callbacks: Sequence[Any] = (),
    clock: Clock | None = None,
    privacy: Privacy | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    dtype: str | None = None,
    executor: str | AbstractExecutor | None = None,
    clients_at_once: int | None = None,
    **old: Any,
) -> History:
    """Run an algorithm on a problem, `repeats` times in parallel, and return the recorded history.

    Args:
        problem: or a `pf.Game`, all of whose players use the algorithm
        rounds: server rounds
        theta: the start; None for zeros if the population determines the shape
        seed, repeats: repeat r of a seed is the same trajectory whatever the number of repeats
        record: pf.Record(every, theta, risks, metrics, ...): what to record
        callbacks: called between chunks with the new records, see `pf.callbacks`
        clock: what a local step and an exchange cost in simulated time
        privacy: pf.Privacy(delta, epsilon): epsilon so far is recorded; the run stops before it exceeds its budget
        checkpoint: folder for state and history, or pf.Checkpoint(folder, every, resume): with resume=True a killed run
            continues from there, bit for bit
        dtype: "float32" (default), "float64", or "bfloat16": gradients in bfloat16, everything else in float32
        executor: "dense", "gather", "loop" or a custom one; None picks one, and `history.meta["executor"]` names it.
            "sharded" distributes clients, with their data and memory, over all devices; after
            `jax.distributed.initialize` over those of all processes, each of which makes the same call to `run`
        clients_at_once: clients that compute in parallel (on each device), to save memory; None uses as many as fit,
            and `history.meta["compute"]` reports the choice

    The deprecated keywords (record_theta, every, risk, consensus, stable, optimal, limit, checkpoint_every, resume,
    at_once, progress) still work, with a warning that names their replacement.
    """
    check_counts(rounds=rounds, repeats=repeats)
    if isinstance(problem, Game):
        problem, algorithm, theta = problem.as_run(algorithm, theta)
    options = read_options("run", Record(), record, callbacks, clock, dtype, executor, clients_at_once, old, checkpoint)
    with jax.enable_x64(options.precision == jnp.float64), contextlib.ExitStack() as stack:
        return _run(problem, algorithm, rounds, theta, seed, repeats, privacy, options, stack)


def _run(
    problem: Problem, algorithm: Algorithm, rounds: int, theta: Theta, seed: int, repeats: int, privacy: Any,
    options: Options, stack: contextlib.ExitStack,
) -> History:  # fmt: skip
    """Prepare, drive, write the history."""
    record, kept = options.record, options.checkpoint
    mesh = options.executor.mesh() if isinstance(options.executor, AbstractExecutor) else None
    if options.executor == "sharded":
        mesh = pick_executor("sharded", algorithm).mesh()
    if privacy is not None and several(mesh):
        raise ValueError("privacy: its ledger is kept by one process; run this in a single process.")
    setup, start, stable = make_ready(problem, algorithm, theta, options.clock, record, options.precision, mesh)
    check_length(rounds, algorithm)
    if several(mesh):
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(setup) if hasattr(leaf, "shape")]
        told = [rounds, seed, repeats, dataclasses.asdict(record), options.dtype, options.clients_at_once]
        told_kept = None if kept is None else [kept.every, kept.resume]
        agree("run: the arguments", [*told, shapes, algorithm, start, told_kept], "Make the same call in each.")
    setup, footprint = _lay_out(setup, start, repeats, options, mesh)
    watch = RecordConfig(record.every, record.theta == "all", pick_executor(options.executor, algorithm))
    folder = None
    if kept is not None:
        identity = _identity(problem, algorithm, start, seed, repeats, watch, options, setup)
        folder = RunFolder(kept.folder, identity, kept.resume)
        # With several processes the first one writes; the others read what it wrote.
        folder = stack.enter_context(folder.held()) if jax.process_index() == 0 else folder
    seen = record.looks_at() + options.calls.looks_at()
    ledger = read_ledger(privacy, problem, algorithm, folder, theta, seen=seen)
    setup = dataclasses.replace(setup, guarded=ledger is not None)
    wanted, rounds = rounds, rounds if ledger is None else ledger.most_rounds(rounds)
    secure = ledger is not None and ledger.secure
    if secure:
        check_grid(problem, algorithm, start)
    # The sampled cohorts must be as hard to guess as the noise.
    keys = secret_keys(repeats) if secure else repeat_keys(seed, repeats)
    fixed = RunInputs(setup, everywhere(keys, mesh))
    every = None if kept is None else kept.every or max(1, rounds // RISK_POINTS)
    meta = about(algorithm, None if secure else seed, setup, 0.0, setup.compute)
    driven = drive(
        fixed, start, watch, rounds,
        points=record.points, limit=record.limit, about=meta | {"label": algorithm.name}, folder=folder,
        checkpoint_every=every, calls=options.calls, ledger=ledger,
    )  # fmt: skip
    where = "" if mesh is None else "on each device: "
    meta |= {"seconds": round(driven.seconds, 4), "compute": where + str(setup.compute)}
    meta |= {} if footprint is None else {"memory": where + str(footprint)}
    meta |= {} if driven.stopped_by is None else {"stopped_by": driven.stopped_by}
    if mesh is not None:
        meta["executor"] = describe_mesh(mesh)
    end = to_host(driven.state, problem.clients, mesh, 1)
    notes = review(problem, algorithm, end.clients.estimator, end.server.aggregator)
    for note in notes:
        tell(note)
    meta |= {"notes": notes} if notes else {}
    history = write_history(
        fixed, start, watch, rounds, driven.chunks, driven.state, meta, driven.first, None, driven.models
    )
    history = judge(history)
    caution_after(history, problem, algorithm, start, stable, driven.chunks[0].get("first_risk"))
    return history if ledger is None else add_ledger(history, ledger, rounds, wanted)


def _lay_out(
    setup: Setup, start: Theta, repeats: int, options: Options, mesh: Mesh | None
) -> tuple[Setup, Footprint | None]:
    """The setup with its compute layout chosen; raises if it cannot fit."""
    at_once = options.clients_at_once
    compute, footprint = choose_compute(setup, start, repeats, at_once, half=options.half)
    if mesh is not None:
        compute, footprint = share_work(compute, footprint, at_once, mesh)
    if footprint is not None and footprint.standing > _FAR_TOO_MUCH * footprint.available:
        raise ValueError(coded("far-too-large", f"run: repeats={repeats} need {footprint}."))
    if footprint is not None and footprint.missing:
        warn("not-enough-memory", f"run: it needs {footprint}.")
    return dataclasses.replace(setup, compute=compute), footprint


def _identity(
    problem: Problem, algorithm: Algorithm, start: Theta, seed: int, repeats: int, watch: RecordConfig,
    options: Options, setup: Setup,
) -> dict[str, Any]:  # fmt: skip
    """What identifies a run, for a checkpoint."""
    assert options.checkpoint is not None
    return {
        "numerics": NUMERICS,
        "problem": describe(problem),
        "algorithm": describe(algorithm),
        "start": describe(start),
        "seed": seed,
        "repeats": repeats,
        "record": describe(options.record),
        "metrics": describe(setup.metrics),
        "executor": describe(watch.executor),
        "checkpoint_every": options.checkpoint.every,
        "dtype": str(setup.weights.dtype),
        "clock": describe(options.clock),
        "half": options.half,
    }


def review(problem: Problem, algorithm: Algorithm, estimator: PyTree, aggregator: PyTree) -> list[str]:
    """Notes on the final memories of estimator and aggregator, which have a leading axis of repeats."""
    notes = algorithm.estimator.review(estimator)
    return notes + algorithm.aggregator.review(aggregator, estimator, problem.client_weights)


def estimate_memory(
    problem: Problem | Game, algorithm: Algorithm, theta: Theta = None, repeats: int = 1, *, dtype: str | None = None
) -> Footprint:
    """Estimate the memory a run needs on this machine's device, and how many clients compute at once. Nothing is run.

    The estimate traces one client's round; it was between 0.9 and 1.9 times the memory of the compiled program.
    """
    check_counts(repeats=repeats)
    if isinstance(problem, Game):
        problem, algorithm, theta = problem.as_run(algorithm, theta)
    precision = read_dtype(dtype)
    with jax.enable_x64(precision == jnp.float64):
        setup, start, _ = make_ready(problem, algorithm, theta, Clock(), Record(), precision)
        half = dtype == "bfloat16"
        return measure_footprint(set_compute(setup, start, half), start, repeats)
