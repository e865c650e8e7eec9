"""`run`: one problem, one algorithm, many repeats."""

import contextlib
import dataclasses
import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from performative.algorithm import Algorithm
from performative.describe import describe
from performative.engine.books import write_history
from performative.engine.cautions import caution_after, caution_before, judge
from performative.engine.checkpoint import Checkpoint
from performative.engine.chunk import Frozen, Targets, Watch
from performative.engine.clock import Clock
from performative.engine.drive import drive
from performative.engine.layout import Footprint, choose_compute, measure_footprint, set_compute
from performative.engine.processes import agree, several
from performative.engine.programs import cache_compilations, same_function
from performative.engine.report import Setup
from performative.engine.secrets import check_grid, secret_keys
from performative.engine.setup import check_fit, check_length, on_device, on_mesh, place_start, prepare, read_theta
from performative.engine.sharding import client_mesh, describe_mesh, everywhere, share_work, to_host
from performative.errors import check_counts, check_finite, check_flags, check_like, is_one_of
from performative.history import History
from performative.messages import coded, tell, warn
from performative.privacy.promise import BOOK, Privacy
from performative.problem import Problem

RISK_POINTS = 20
_CONFIG: Any = jax.config  # its flags are made at run time, so a type checker does not know them


# A run whose data and memory alone are this many times what is free is not begun.
_FAR_TOO_MUCH = 2


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
    consensus: bool = True,
    clock: Clock | None = None,
    dtype: str | None = None,
    executor: str | None = None,
    at_once: int | None = None,
    stable: Any = None,
    optimal: Any = None,
    limit: float = 1e8,
    privacy: Privacy | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> History:
    """Run an algorithm on a problem, `repeats` times at once, and return what was recorded.

    rounds:           server rounds
    theta:            the start; None for zeros where the population settles the shape
    seed, repeats:    repeat r of a seed is the same trajectory however many repeats there are
    record_theta:     "all" keeps the model of every record, "last" only the final one
    every:            rounds between records
    risk:             points along the run at which risks are measured (True for 20, False for none)
    consensus:        record how far clients end from each other; one more pass over their updates each round
    clock:            what a local step and an exchange cost in simulated time
    dtype:            "float32" (default), "float64", or "bfloat16": gradients in bfloat16, all else in float32
    executor:         "dense", "gather" or "loop"; None picks one, and `history.meta["executor"]` says which.
                      "sharded" deals clients out over all devices, their data and memory too; those of several
                      processes after `jax.distributed.initialize`, each of which calls `run` alike
    at_once:          clients that compute side by side (on each device), to save memory; None takes as many as fit,
                      and `history.meta["compute"]` says what was chosen
    stable, optimal:  points to record distances to; closed forms are used where the population has them
    limit:            a repeat counts as diverged when |theta| exceeds limit * (1 + |start|)
    privacy:          pf.Privacy(delta, epsilon): epsilon so far is recorded; a run stops before it exceeds its budget
    checkpoint:       folder for state and history, written every `checkpoint_every` rounds (20 times by default);
                      with resume=True a run that was killed goes on from there, to the same bits
    progress:         show a bar; None shows one on a terminal
    """
    check_counts(rounds=rounds, repeats=repeats, every=every, **({} if at_once is None else {"at_once": at_once}))
    if checkpoint_every is not None:
        check_counts(checkpoint_every=checkpoint_every)
    check_flags("run", consensus=consensus, resume=resume)
    check_executor(executor)
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise ValueError(f"checkpoint must be the path of a folder; got {checkpoint!r}.")
    if resume and checkpoint is None:
        raise ValueError("resume=True needs checkpoint=, the folder to go on with.")
    check_limit(limit)
    precision, points, clock = read_dtype(dtype), read_points(risk), read_clock(clock)
    with jax.enable_x64(precision == jnp.float64), contextlib.ExitStack() as stack:
        mesh = client_mesh() if executor == "sharded" else None
        if privacy is not None and several(mesh):
            raise ValueError("privacy: its books are kept by one process; run this one in a single process.")
        setup, start, targets = make_ready(
            problem, algorithm, theta, clock, consensus, precision, stable, optimal, mesh
        )
        check_length(rounds, algorithm)
        if several(mesh):
            shapes = [np.shape(leaf) for leaf in jax.tree.leaves(setup)]
            told = [rounds, seed, repeats, record_theta, every, points, dtype, at_once, limit, checkpoint_every]
            agree("run: the arguments", [*told, shapes, algorithm, start, checkpoint is None, resume], "Call it alike.")
        compute, footprint = choose_compute(setup, start, repeats, at_once, half=dtype == "bfloat16")
        if mesh is not None:
            compute, footprint = share_work(compute, footprint, at_once, mesh)
        setup = dataclasses.replace(setup, compute=compute)
        if footprint is not None and footprint.standing > _FAR_TOO_MUCH * footprint.available:
            raise ValueError(coded("far-too-large", f"run: repeats={repeats} need {footprint}."))
        if footprint is not None and footprint.missing:
            warn("not-enough-memory", f"run: it needs {footprint}.")
        watch = Watch(every, read_record_theta(record_theta), pick_executor(executor, algorithm))
        books = None
        if checkpoint is not None:
            identity = {
                "problem": describe(problem),
                "algorithm": describe(algorithm),
                "start": describe(start),
                "seed": seed,
                "repeats": repeats,
                "watch": describe(watch),
                "risk": points,
                "targets": describe(targets),
                "limit": limit,
                "checkpoint_every": checkpoint_every,
                "consensus": consensus,
                "dtype": str(setup.weights.dtype),
                "clock": describe(clock),
                "half": compute.half,
            }
            books = Checkpoint(checkpoint, identity, resume)
            # Of several processes the first one writes; the others read what it wrote.
            books = stack.enter_context(books.held()) if jax.process_index() == 0 else books
        ledger = read_ledger(privacy, problem, algorithm, books, theta)
        wanted, rounds = rounds, rounds if ledger is None else ledger.most_rounds(rounds)
        secure = ledger is not None and ledger.secure
        if secure:
            check_grid(problem, algorithm, start)
        # Who is drawn must be as hard to guess as the noise.
        keys = secret_keys(repeats) if secure else repeat_keys(seed, repeats)
        fixed = Frozen(setup, targets, everywhere(keys, mesh))
        if books is not None and checkpoint_every is None:
            checkpoint_every = max(1, rounds // RISK_POINTS)
        state, chunks, seconds = drive(
            fixed, start, watch, rounds,
            points=points, limit=limit, label=algorithm.name,
            books=books, checkpoint_every=checkpoint_every, progress=progress, ledger=ledger,
        )  # fmt: skip
        where = "" if mesh is None else "on each device: "
        meta = {
            "algorithm": algorithm.name,
            "config": describe(algorithm),
            "seed": None if secure else seed,
            "dtype": str(setup.weights.dtype),
            "seconds": round(seconds, 4),
            "compute": where + str(compute),
        } | ({} if footprint is None else {"memory": where + str(footprint)})
        if mesh is not None:
            meta["executor"] = describe_mesh(mesh)
        end = to_host(state, problem.clients, mesh, 1)
        notes = review(problem, algorithm, end.clients.estimator, end.server.aggregator)
        for note in notes:
            tell(note)
        history = write_history(fixed, start, watch, rounds, chunks, state, meta | ({"notes": notes} if notes else {}))
        history = judge(history)
        caution_after(history, problem, algorithm, start, targets.stable, chunks[0].get("first_risk"))
        return history if ledger is None else add_ledger(history, ledger, rounds, wanted)


def review(problem: Problem, algorithm: Algorithm, estimator: Any, aggregator: Any) -> list[str]:
    """What the memories after a run give reason to say; they lead with an axis of repeats."""
    notes = algorithm.estimator.review(estimator)
    return notes + algorithm.aggregator.review(aggregator, estimator, problem.client_weights)


def estimate_memory(
    problem: Problem, algorithm: Algorithm, theta: Any = None, repeats: int = 1, *, dtype: str | None = None
) -> Footprint:
    """What a run would need on this machine's device, and how many clients would compute at once. Nothing is run.

    By tracing one client's round: its bytes have been between 0.9 and 1.9 times those of the compiled program.
    """
    check_counts(repeats=repeats)
    precision = read_dtype(dtype)
    with jax.enable_x64(precision == jnp.float64):
        setup, start, _ = make_ready(problem, algorithm, theta, Clock(), True, precision)
        half = dtype == "bfloat16"
        return measure_footprint(set_compute(setup, start, half), start, repeats)


def make_ready(
    problem: Problem, algorithm: Algorithm, theta: Any, clock: Clock, consensus: bool, precision: Any,
    stable: Any = None, optimal: Any = None, mesh: Mesh | None = None,
) -> tuple[Setup, Any, Targets]:  # fmt: skip
    """Checked, cast and on the device: the setup, the start, and the points to measure distances to."""
    cache_compilations()
    if isinstance(problem, Problem):  # anything else is refused by what follows
        problem = dataclasses.replace(problem, loss=same_function(problem.loss))
    ready = prepare(problem, algorithm, clock, consensus)
    caution_before(problem, algorithm)
    setup = on_device(ready, precision) if mesh is None else on_mesh(ready, precision, mesh)
    start = read_theta(problem, theta, precision)
    check_fit(setup.problem, start)
    algorithm.estimator.check(problem, start, algorithm.batch)
    start = place_start(setup.problem, start, given=theta is not None)
    targets = everywhere(on_device(find_targets(problem, start, stable, optimal), precision), mesh)
    if targets.stable is not None:
        algorithm.estimator.check_point(problem, targets.stable)
    return setup, start, targets


def read_ledger(
    privacy: Any, problem: Problem, algorithm: Algorithm, books: Checkpoint | None, theta: Any = None,
    unseen_rows: bool = False,
) -> Any:  # fmt: skip
    """The books of privacy, with what an earlier part of the run has spent; None where none are kept."""
    if privacy is None:
        if books is not None and (books.notes.get("ledger") or (books.folder / BOOK).exists()):
            raise ValueError("privacy: the run in the checkpoint keeps a ledger; give privacy= to go on with it.")
        return None
    from performative.privacy.ledger import Ledger  # the accountant takes a while to import

    if not isinstance(privacy, Privacy):
        raise ValueError(f"privacy must be pf.Privacy(delta, epsilon); got {privacy!r}.")
    ledger = Ledger(privacy, problem, algorithm, None if books is None else books.folder, theta, unseen_rows)
    for told in ledger.guarantee.not_covered if ledger.guarantee.promised else ():
        warn("privacy-not-covered", f"privacy: epsilon does not cover that {told}.")
    ledger.resume({"round": 0} if books is None else books.notes)
    return ledger


def add_ledger(history: History, ledger: Any, allowed: int, wanted: int) -> History:
    """The history with epsilon at each record, and what is promised among its facts."""
    column = np.broadcast_to(ledger.column(history.rounds), (history.repeats, len(history.rounds)))
    return dataclasses.replace(
        history,
        records={**history.records, "epsilon": np.array(column)},
        meta={**history.meta, "privacy": ledger.summary(int(history.rounds[-1]), wanted, allowed < wanted)},
    )


def repeat_keys(seed: int, repeats: int) -> Any:
    """One key a repeat; repeat r of a seed does not depend on how many there are."""
    check_seed(seed)
    return _fold_repeats(jax.random.key(int(seed)), repeats)


def check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2^32 - 1; got {seed!r}.")


@functools.partial(jax.jit, static_argnums=1)
def _fold_repeats(key: Any, repeats: int) -> Any:
    return jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(repeats))


def pick_executor(executor: str | None, algorithm: Algorithm) -> str:
    """`dense` where everyone takes part, `gather` where only some do."""
    check_executor(executor)
    return executor or ("dense" if algorithm.participation.everyone else "gather")


def check_executor(executor: Any) -> None:
    if executor is not None and not is_one_of(executor, "dense", "gather", "loop", "sharded"):
        raise ValueError(f'executor must be "dense", "gather", "sharded", "loop" or None; got {executor!r}.')


def find_targets(problem: Problem, start: Any, stable: Any, optimal: Any) -> Targets:
    """Points to measure distances to: those given, else closed forms where the population has them."""
    weights = problem.client_weights
    if stable is None:
        stable = _inside(problem, problem.population.stable_point(problem.loss, weights))
    if optimal is None:
        optimal = _inside(problem, problem.population.optimal_point(problem.loss, weights))
    for name, point in (("stable", stable), ("optimal", optimal)):
        if isinstance(point, str):
            raise ValueError(
                f"{name} must be a point shaped like theta, such as pf.{name}_point(problem); got {point!r}."
            )
        if point is None:
            continue
        for leaf in jax.tree.leaves(point):
            check_finite("run", **{name: leaf})
        check_like(name, point, start)
    return Targets(stable, optimal)


def _inside(problem: Problem, point: Any) -> Any:
    """A closed form, None where it lies outside of the domain: there it is not the point that training goes to."""
    if point is None or problem.domain is None:
        return point
    return point if np.allclose(np.asarray(problem.domain.project(jnp.asarray(point))), point, rtol=1e-6) else None


def read_dtype(dtype: str | None) -> Any:
    if dtype is None:
        return jnp.float64 if _CONFIG.jax_enable_x64 else jnp.float32
    if not is_one_of(dtype, "float32", "float64", "bfloat16"):
        raise ValueError(f'dtype must be "float32", "float64" or "bfloat16"; got {dtype!r}.')
    return jnp.float64 if dtype == "float64" else jnp.float32


def read_record_theta(record_theta: str) -> bool:
    if not is_one_of(record_theta, "all", "last"):
        raise ValueError(f'record_theta must be "all" or "last" (every=n thins the rest); got {record_theta!r}.')
    return record_theta == "all"


def read_clock(clock: Clock | None) -> Clock:
    if clock is None:
        return Clock()
    if not isinstance(clock, Clock):
        raise ValueError(f"clock must be pf.Clock(compute, communication); got {clock!r}.")
    return clock


def check_limit(limit: float) -> None:
    if not isinstance(limit, (int, float, np.number)) or not (np.isfinite(limit) and limit > 0):
        raise ValueError(f"limit must be a positive number; got {limit!r}.")


def read_points(risk: bool | int) -> int:
    if isinstance(risk, bool):
        return RISK_POINTS if risk else 0
    if not (isinstance(risk, int) and risk >= 0):
        raise ValueError(f"risk must be True, False or a whole number of points; got {risk!r}.")
    return risk
