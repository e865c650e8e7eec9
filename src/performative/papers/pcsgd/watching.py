"""What figures of PCSGD and DiceSGD look at: the error memory, which a run keeps to itself, and thinned curves."""

import dataclasses

import numpy as np

import performative as pf
from performative.estimators.base import AbstractEstimator, AbstractWrapper
from performative.types import Batch, Estimate, Local, Memory, Noise, Theta, squared_norm


class Watched(AbstractWrapper):
    """DiceSGD that counts |e|^2 after every step. For simulation only: it gives the memory away."""

    inner: AbstractEstimator

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate:
        out = self.inner.estimate(noise, theta, batch, local, memory)
        metrics = out.metrics | {"memory": squared_norm(out.memory.error)}  # type: ignore[attr-defined]  # DiceMemory
        return Estimate(out.direction, out.memory, metrics, out.facts)


def watched(algorithm: pf.Algorithm) -> pf.Algorithm:
    """The same algorithm, its memory in sight."""
    return dataclasses.replace(algorithm, estimator=Watched(algorithm.estimator))


def memory_of(history: pf.History) -> tuple[np.ndarray, np.ndarray]:
    """Steps [records] and the mean of |e|^2 since the record before, [repeats, records]."""
    steps = np.asarray(history.rounds, np.float64)
    return steps[1:], np.diff(history["memory"], axis=1) / np.diff(steps)


def growth(memory: np.ndarray) -> tuple[float, float]:
    """Mean |e|^2 in the last third over that in the middle one, and its standard error over repeats."""
    middle, late = (memory[:, part].mean(axis=1) for part in thirds(memory.shape[1]))
    ratio = late.mean() / middle.mean()
    error = (late - ratio * middle).std(ddof=1) / np.sqrt(len(late)) / middle.mean()
    return float(ratio), float(error)


def thirds(count: int) -> tuple[slice, slice]:
    """The middle and the last third."""
    return slice(count // 3, 2 * count // 3), slice(2 * count // 3, count)


def thinned(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve, [points] and [repeats, points], with at most 300 of them: half even, half even on a logarithmic axis."""
    if len(x) <= 300:
        return x, values
    even, logarithmic = np.linspace(0, len(x) - 1, 150), np.geomspace(1, len(x), 150) - 1
    kept = np.unique(np.concatenate([even, logarithmic]).round().astype(int))
    return x[kept], values[:, kept]
