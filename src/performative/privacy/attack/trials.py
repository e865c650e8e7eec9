"""Crafted neighbors: our own steps on two data sets that differ in one row, and how well one can distinguish them."""

import dataclasses
import math
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._engine import run
from performative.algorithm import Algorithm
from performative.batches import Uniform
from performative.callbacks import Progress
from performative.draws import Everyone
from performative.participation import Full
from performative.privacy.attack.bounds import epsilon_lower
from performative.privacy.attack.crafted import Neighbors, craft, default_relation, score
from performative.privacy.attack.report import AttackResult
from performative.privacy.attack.target import STRETCH, Contrast, Target, accounted, problem_of, read_target
from performative.privacy.certification import read_unit
from performative.problem import Problem
from performative.record import Record

# Maximum number of published models per call of `run`: about 0.3 GB while they are scored.
_MODELS = 5_000_000


@dataclasses.dataclass(frozen=True)
class Trials:
    """Scores of runs with and without the row, and how they were run."""

    method: str
    target: Target
    problem: Problem
    pair: Neighbors
    rounds: int
    present: np.ndarray
    absent: np.ndarray
    seconds: float

    def finding(self, delta: float, claimed: float | None = None, confidence: float = 0.999) -> AttackResult:
        """The bound at this delta, next to the claim; None uses the accountant's."""
        if claimed is None:
            claimed = accounted(self.target, self.problem, self.rounds, delta)
        lower = epsilon_lower(self.present, self.absent, delta, confidence).lower
        return AttackResult(
            self.method, self.target.unit, self.pair.relation, lower, float(claimed), delta, confidence,
            self.pair.rows, self.rounds, len(self.present) + len(self.absent), self.seconds,
        )  # fmt: skip


@checked
def neighbors(
    algorithm: Algorithm,
    rows: int = 100,
    rounds: int = 100,
    delta: float = 1e-5,
    repeats: int = 2000,
    seed: int = 0,
    *,
    unit: str | None = None,
    relation: str | None = None,
    claimed: float | None = None,
    confidence: float = 0.999,
) -> AttackResult:
    """Run the algorithm `repeats` times on each of two crafted neighbors and bound epsilon from below.

    The attacker sees every model, knows all but one row, and scores by the likelihood ratio of the algorithm's declared
    sampler. `rows` is the size of the table, or the number of clients. `claimed` defaults to what `guarantee` says for
    the same parts. The largest bound that can be shown is about log(repeats / 10). The accountant's claim holds for
    every delta, and a large delta (0.01) reveals errors with fewer runs.
    """
    return try_neighbors(algorithm, rows, rounds, repeats, seed, unit, relation).finding(delta, claimed, confidence)


def try_neighbors(
    algorithm: Algorithm, rows: int, rounds: int, repeats: int, seed: int, unit: str | None, relation: str | None
) -> Trials:
    """The runs behind `neighbors`."""
    target = read_target(algorithm, rows, unit)
    pair = craft(rows, default_relation(target.law) if relation is None else relation, target.law, target.exact)
    return _try("crafted neighbors", target, pair, rounds, repeats, seed)


def _try(
    method: str, target: Target, pair: Neighbors, rounds: int, repeats: int, seed: int, two: bool = False
) -> Trials:
    """Run on both tables; with `two`, alongside a second client whose table lacks the row."""
    check_counts(rounds=rounds)
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 8:
        raise ValueError(
            f"repeats must be a whole number >= 8, some to choose a test and some to evaluate it; got {repeats!r}."
        )
    began = time.perf_counter()
    tables = pair.tables(STRETCH * target.clip)
    other = tables[1] if two else None
    problems = [problem_of(target, table, other) for table in tables]
    # Independent randomness for the two sides.
    seeds = np.random.SeedSequence(seed).spawn(2)
    scores = [
        _collect(target, problem, pair, rounds, repeats, side, two)
        for problem, side in zip(problems, seeds, strict=True)
    ]
    return Trials(method, target, problems[0], pair, rounds, scores[0], scores[1], time.perf_counter() - began)


@checked
def release(
    algorithm: Algorithm,
    delta: float | None = None,
    repeats: int = 100_000,
    seed: int = 0,
    *,
    unit: str | None = None,
    claimed: float | None = None,
    confidence: float = 0.999,
) -> AttackResult:
    """Draw ONE release that is certain to include the row many times, to test whether its noise is as declared.

    A Gaussian release has a guarantee for every delta; None uses the most revealing one, at which
    epsilon = min(1, mu / 2), where mu = 2 / noise_multiplier is the shift relative to the noise.
    """
    unit = read_unit(unit, algorithm)
    sure: dict[str, Any] = {"participation": Full()} if unit == "client" else {"batch": Uniform(2)}
    algorithm = dataclasses.replace(algorithm, **sure)
    target = read_target(algorithm, 2, unit)
    if delta is None:
        mu = 2 / max(target.noise, 1e-3)
        delta = gaussian_delta(min(1.0, mu / 2), mu)
    found = neighbors(
        algorithm, 2, 1, delta, repeats, seed,
        unit=unit, relation="replace", claimed=claimed, confidence=confidence,
    )  # fmt: skip
    return dataclasses.replace(found, method="single releases")


@checked
def messages(
    algorithm: Algorithm,
    rows: int = 100,
    rounds: int = 100,
    delta: float = 1e-5,
    repeats: int = 2000,
    seed: int = 0,
    *,
    unit: str | None = None,
    claimed: float | None = None,
    confidence: float = 0.999,
) -> AttackResult:
    """Observe the messages of two clients, one with the crafted row, to test whether shared noise reveals it.

    The attacker uses the difference of the two messages, in which shared noise cancels.
    """
    return try_messages(algorithm, rows, rounds, repeats, seed, unit).finding(delta, claimed, confidence)


def try_messages(algorithm: Algorithm, rows: int, rounds: int, repeats: int, seed: int, unit: str | None) -> Trials:
    """The runs behind `messages`."""
    target = read_target(algorithm, rows, unit)
    if target.unit == "client":
        target, rows = dataclasses.replace(target, law=Everyone(), size=1.0), 2
    whole = dataclasses.replace(target.algorithm, aggregator=Contrast(), participation=Full())
    target = dataclasses.replace(target, algorithm=whole)
    pair = craft(rows, default_relation(target.law), target.law, target.exact)
    return _try("differences of two clients' messages", target, pair, rounds, repeats, seed, two=True)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) of a Gaussian release shifted by mu standard deviations. Balle and Wang 2018, Theorem 8."""
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def _collect(
    target: Target,
    problem: Problem,
    pair: Neighbors,
    rounds: int,
    repeats: int,
    seeds: np.random.SeedSequence,
    two: bool,
) -> np.ndarray:
    """The attacker's scores of `repeats` runs."""
    block = min(repeats, max(1, _MODELS // rounds))
    rate = np.asarray(jax.vmap(target.algorithm.rate)(jnp.arange(rounds, dtype=jnp.int32)), float)
    if not np.all(rate > 0):
        raise ValueError("rate: the attack divides by it; use a step size that stays above 0 in all of these rounds.")
    # In a difference, the independent noise of two clients adds up; for the client unit, each message contains only a
    # share of the sum's noise, and the two shares add up to the whole.
    noise = target.noise * (math.sqrt(2.0) if two and target.unit == "example" else 1.0)
    scores = []
    for state in seeds.generate_state(-(-repeats // block)):
        with warnings.catch_warnings():
            # Crafted data make the memory grow on purpose.
            warnings.simplefilter("ignore", UserWarning)
            history = run(
                problem,
                target.algorithm,
                rounds,
                theta=0.0,
                seed=int(state),
                repeats=block,
                record=Record(risks=False, consensus=False, limit=1e15),
                callbacks=[Progress(False)],
            )
        moves = -np.diff(np.asarray(history.theta, np.float64), axis=1)
        moves /= rate[: moves.shape[1]]  # a diverged run ends early
        y = np.nan_to_num(moves * (target.size / target.clip))
        # In a difference, common rows cancel.
        scores.append(score(y, noise, pair, target.law, 0.0 if two else target.size, target.exact))
    return np.concatenate(scores)[:repeats]
