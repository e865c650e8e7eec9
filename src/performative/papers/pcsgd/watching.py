"""Diagnostics for the PCSGD and DiceSGD figures: the error memory, which a run does not release."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import performative as pf
from performative.estimators.base import AbstractEstimator, AbstractWrapper
from performative.papers.outcome import mean
from performative.papers.runs import sweep
from performative.privacy.printed import corollary_3_6_as_printed
from performative.theory import ClippedQuadratic
from performative.theory.bound import unroll
from performative.types import Batch, Estimate, Local, Memory, Noise, Theta, squared_norm

# Ratio of a random walk's mean square in the last third of its steps to that in the middle third.
RANDOM_WALK = 5 / 3


class Watched(AbstractWrapper):
    """DiceSGD that records |e|^2 after every step. For simulation only: it reveals the memory."""

    inner: AbstractEstimator

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate:
        out = self.inner.estimate(noise, theta, batch, local, memory)
        metrics = out.metrics | {"memory": squared_norm(out.memory.error)}  # type: ignore[attr-defined]  # DiceMemory
        return Estimate(out.direction, out.memory, metrics, out.facts)


def memory_of(history: pf.History) -> tuple[np.ndarray, np.ndarray]:
    """Steps [records] and the mean of |e|^2 since the previous record, [repeats, records]."""
    steps = np.asarray(history.rounds, np.float64)
    return steps[1:], np.diff(history["memory"], axis=1) / np.diff(steps)


def ratio(values: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The ratio of two means over the same repeats, and its standard error."""
    found = values.mean() / others.mean()
    error = (values - found * others).std(ddof=1) / math.sqrt(len(values)) / abs(others.mean())
    return float(found), float(error)


@dataclasses.dataclass(frozen=True)
class Runs:
    """Steps scale / (offset + t), t = 1, 2, ..., along clipped gradients; p, a, b: Theorem 3.5's instance.

    The noise is what Corollary 3.6 prints for `epsilon` and one of `rows` people, delta = 1 / rows.
    """

    clip: float
    scale: float
    offset: float
    rounds: int
    repeats: int
    seed: int
    p: float = 0.0
    a: float = 0.0
    b: float = 0.0
    beta: float = 0.0
    sigma: float = 0.0
    start: Any = 0.0
    epsilon: float = 0.0
    rows: int = 1
    records: int = 1

    def quadratic(self, beta: float) -> ClippedQuadratic:
        return ClippedQuadratic(self.p, self.a, self.b, beta)

    def steps(self, rounds: int) -> np.ndarray:
        return self.scale / (self.offset + 1 + np.arange(rounds))

    @property
    def eta(self) -> np.ndarray:
        return self.steps(self.rounds)

    @property
    def noise(self) -> float:
        """In units of the clip."""
        printed = corollary_3_6_as_printed(self.epsilon, 1 / self.rows, self.rounds, self.rows, self.clip)
        return printed.noise_multiplier

    def pcsgd(self) -> pf.Algorithm:
        return pf.pcsgd(pf.schedules.harmonic(self.scale, self.offset + 1), self.clip, self.noise)

    def dicesgd(self, memory_clip: float) -> pf.Algorithm:
        """With sqrt(96) times the noise and a recorded memory."""
        rate = pf.schedules.harmonic(self.scale, self.offset + 1)
        made = pf.dicesgd(rate, self.clip, memory_clip, math.sqrt(96) * self.noise)
        return dataclasses.replace(made, estimator=Watched(made.estimator))

    def sweep(
        self, settings: Mapping[Any, Mapping[str, Any]], problem: Any = None, start: Any = None
    ) -> dict[Any, Any]:
        """Every setting contains its algorithm, and its problem if none is given."""
        first, start = next(iter(settings.values())), self.start if start is None else start
        here, algorithm = first["problem"] if problem is None else problem, first["algorithm"]
        how: dict[str, Any] = {"every": self.rounds // self.records, "theta": "all"}
        return sweep(here, algorithm, settings, self.rounds, start, self.seed, self.repeats, **how)


def simulate(
    q: ClippedQuadratic, s: Runs, eta: np.ndarray, memory_clip: float = 0.0, box: float = math.inf
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squares of theta - theta_PS, of theta - gamma e - theta_PS and of e, [T + 1, repeats], in plain NumPy.

    Algorithm 1 as printed; with a memory clip of 0 and a box it is PCSGD, (9).
    """
    rng = np.random.default_rng(s.seed)
    theta, e = np.full(s.repeats, s.start), np.zeros(s.repeats)
    rows = [(theta, theta, e)]
    for gamma in eta:
        gradient = q.mu_tilde * theta + q.a * q.b * (rng.random(s.repeats) < q.p)
        v = np.clip(gradient, -s.clip, s.clip) + np.clip(e, -memory_clip, memory_clip)
        e = e + gradient - v
        theta = np.clip(theta - gamma * (v + s.sigma * rng.standard_normal(s.repeats)), -box, box)
        rows.append((theta, theta - gamma * e, e))
    models, shifted, memories = (np.stack(column) for column in zip(*rows, strict=True))
    return (models - q.stable) ** 2, (shifted - q.stable) ** 2, memories**2


def unbiased_squares(q: ClippedQuadratic, eta: np.ndarray, start: float, sigma: float) -> np.ndarray:
    """E |theta_t - theta_PS|^2 of steps along unclipped gradients with noise, t = 0, ..., T, exactly: O(gamma_t).

    This is PCSGD when nothing is clipped, and DiceSGD up to gamma times its memory, which vanishes.
    """
    noise = q.p * (1 - q.p) * (q.a * q.b) ** 2 + sigma**2
    return unroll((1 - q.mu_tilde * eta) ** 2, noise * eta**2, (start - q.stable) ** 2)


def thirds(count: int) -> tuple[slice, slice]:
    """The middle and the last third."""
    return slice(count // 3, 2 * count // 3), slice(2 * count // 3, count)


def memory_numbers(history: pf.History, value: float) -> dict[str, Any]:
    """Mean |e|^2 in the last third of the run over that in the middle one, and its root in the last third."""
    _, memory = memory_of(history)
    middle, late = (memory[:, part].mean(axis=1) for part in thirds(memory.shape[1]))
    return {f"memory_growth_{value:g}": ratio(late, middle), f"memory_{value:g}": _root(mean(late))}


def _root(square: tuple[float, float]) -> tuple[float, float]:
    return math.sqrt(square[0]), square[1] / (2 * math.sqrt(square[0]))
