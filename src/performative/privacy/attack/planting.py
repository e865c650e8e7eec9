"""Canaries: rows with their own directions, each included or not by a coin flip, all in one run."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._engine.clock import Clock
from performative._engine.executors import AbstractExecutor, pick_executor
from performative._engine.keys import run_keys
from performative._engine.options import repeat_keys
from performative._engine.prepare import on_device
from performative._engine.setup import Setup, init_state, prepare
from performative._engine.simulated import federated_round
from performative.algorithm import Algorithm
from performative.draws import Epochs, Law
from performative.facts import cites
from performative.populations import Database
from performative.privacy.attack.bounds import choose, split
from performative.privacy.attack.crafted import RELATIONS, OneHot, default_relation
from performative.privacy.attack.report import AttackResult
from performative.privacy.attack.target import STRETCH, Target, accounted, read_target
from performative.problem import Problem
from performative.record import Record
from performative.types import Unchecked

# Maximum number of floats of gradients, noise and tables in runs executed side by side.
_FLOATS = 1 << 25
# Fractions of the canaries that are guessed to be included.
_GUESSED = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)


@cites("steinke2023privacy")
@checked
def canaries(
    algorithm: Algorithm,
    rows: int = 100,
    rounds: int = 1,
    delta: float = 1e-5,
    canaries: int = 100_000,
    seed: int = 0,
    *,
    each: int | None = None,
    unit: str | None = None,
    relation: str | None = None,
    claimed: float | None = None,
    confidence: float = 0.999,
) -> AttackResult:
    """Guess which canaries were included from the sum of all updates; bound epsilon by the number of correct guesses.

    A run contains `each` canaries among its `rows` rows (or clients); as many runs as needed are executed side by side,
    which amounts to one larger run on disjoint data. Depending on its coin, canary j pushes coordinate j up, or else
    down ("replace") or not at all ("remove"). The bound is jax-privacy's for one run, with the threshold chosen on some
    of the canaries.

    If every row is in every step, the claim is that of a Gaussian for all deltas at once, and the bound is that of
    Mahloujifar, Melis and Chaudhuri 2024. Otherwise it is that of Steinke, Nasr and Jagielski 2023, which holds for any
    sampling but finds little once 2 delta * canaries approaches 1.
    """
    began = time.perf_counter()
    check_counts(rows=rows, rounds=rounds, canaries=canaries)
    for name, value in (("delta", delta), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie between 0 and 1; got {value}.")
    target = read_target(algorithm, rows, unit)
    relation = default_relation(target.law) if relation is None else relation
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {RELATIONS}; got {relation!r}.")
    each = min(rows, 250, canaries) if each is None else each
    if not 1 <= each <= rows:
        raise ValueError(f"each: a run has {rows} rows and can contain 1..{rows} canaries; got {each}.")
    runs = -(-canaries // each)
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, (runs, each)).astype(bool)
    scores = run_coins(target, coins, rows, rounds, relation, int(rng.integers(1 << 32)))
    gaussian = always_in(target.law) and target.exact
    lower = one_run_bound(scores.ravel(), coins.ravel(), delta, 1 - confidence, gaussian)
    if claimed is None:
        claimed = accounted(target, _problem(target, np.zeros(rows)), rounds, delta)
    return AttackResult(
        "canaries", target.unit, relation, lower, float(claimed), delta, confidence, rows, rounds, runs * each,
        time.perf_counter() - began,
    )  # fmt: skip


def always_in(law: Unchecked[Law]) -> bool:
    """Whether every row is in every step."""
    if isinstance(law, Epochs):
        return bool(law.n == law.rows)
    chances = None if law is None else law.chances()
    return chances is not None and bool(chances[0] == 0) and len(chances) == 2


def one_run_bound(scores: np.ndarray, coins: np.ndarray, delta: float, alpha: float, gaussian: bool) -> float:
    """jax-privacy's bound for one run, at a threshold chosen on other canaries of the run."""
    from jax_privacy import auditing

    (present, tried_present), (absent, tried_absent) = split(scores[coins]), split(scores[~coins])
    tried = auditing.CanaryScoreAuditor(tried_present, tried_absent)
    if gaussian:
        threshold, _ = choose(present, absent, delta, alpha, both=False)
        return float(tried.epsilon_one_run_fdp(alpha, delta, threshold_strategy=auditing.Explicit(threshold)))
    # The number of guesses matters here; the best fraction on the first part is used on the second.
    first = auditing.CanaryScoreAuditor(present, absent)
    levels = np.quantile(np.concatenate([present, absent]), 1 - np.asarray(_GUESSED))
    found = [first.epsilon_one_run(alpha, delta, threshold_strategy=auditing.Explicit(level)) for level in levels]
    best = auditing.Explicit(float(levels[int(np.argmax(found))]))
    return float(tried.epsilon_one_run(alpha, delta, threshold_strategy=best))


def _problem(target: Target, table: np.ndarray) -> Problem:
    z = table[:, None] if target.unit == "client" else table[None]
    return Problem(OneHot(STRETCH * target.clip), Database(z))


def run_coins(target: Target, coins: np.ndarray, rows: int, rounds: int, relation: str, seed: int) -> np.ndarray:
    """The sum of updates along each canary, [runs, each], from runs with independent coins."""
    runs, each = coins.shape
    tables = np.zeros((runs, rows), np.float32)
    tables[:, :each] = np.arange(1, each + 1) * np.where(coins, 1, -1 if relation == "replace" else 0)
    z = tables[:, :, None] if target.unit == "client" else tables[:, None]
    with jax.enable_x64(False):
        setup = on_device(
            prepare(_problem(target, tables[0]), target.algorithm, Clock(), Record(consensus=False)), jnp.float32
        )
        executor = pick_executor(None, target.algorithm)
        # Gradients of a batch for examples, messages of all clients for clients: both have `each` numbers per row.
        block = max(1, min(runs, _FLOATS // (each * target.width)))
        keys, start = repeat_keys(seed, -(-runs // block) * block), jnp.zeros(each)
        parts = []
        for first in range(0, runs, block):
            here = np.resize(z[first : first + block], (block, *z.shape[1:]))
            some = keys[first : first + block]
            parts.append(
                -np.asarray(_runs(setup, jnp.asarray(here), some, start, jnp.asarray(rounds, jnp.int32), executor))
            )
    return np.concatenate(parts)[:runs].astype(np.float64)


@eqx.filter_jit
def _runs(
    setup: Setup, z: Array, keys: PyTree, start: Array, rounds: Int[Array, ""], executor: AbstractExecutor
) -> Array:
    """The last models of runs on separate tables, by the round function that `pf.run` uses."""

    def one(table: Array, key: Array) -> Array:
        mine = eqx.tree_at(lambda s: s.problem.population.z, setup, table)
        keys = run_keys(key)
        state = init_state(mine, start, False)
        again = jax.lax.fori_loop(0, rounds, lambda _, s: federated_round(mine, s, keys, executor)[0], state)
        return again.theta

    return jax.vmap(one)(z, keys)
