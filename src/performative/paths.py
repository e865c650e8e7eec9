"""Paths: how a quantity of the world drifts over time."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.checks import check_finite, check_rule
from performative._base.client_axis import count_clients
from performative.facts import AbstractPart
from performative.types import ArrayLike, Numbers, Unchecked, as_numbers, as_whole, per_client

__all__ = ["AbstractPath", "Jump", "Linear", "Periodic", "RandomWalk", "Sum"]

# Bisections from a walk's horizon of 2^24 units of time down to one.
_DEPTH = 24


class AbstractPath(AbstractPart):
    """m_i(t) - m_i(0) of client i; its fields are numbers for all clients, [N], or [N, d] for d quantities.

    Paths add up: Linear(0.01) + Periodic(1.0, 365.0).
    """

    ignores_data = True

    @abstractmethod
    def value(self, time: ArrayLike) -> Array:
        """The displacement of the client's quantity at that time."""

    def end(self) -> tuple[np.ndarray, float] | None:
        """(velocity, when): from that time on the path is linear with that velocity. None if unknown."""
        return None

    def longest_step(self) -> np.ndarray:
        """The largest move in a unit of time, shaped like its fields: a number, [N] or [N, d]. inf if unknown."""
        return np.asarray(np.inf)

    def __add__(self, other: "AbstractPath") -> "Sum":
        return Sum((self, other))


def _column(value: Numbers, other: Numbers) -> Any:
    """Make [N] a column if the other value is [N, d]."""
    value, other = jnp.asarray(value), jnp.asarray(other)
    return value[:, None] if value.ndim == 1 and other.ndim == 2 else value


class Linear(AbstractPath):
    """velocity_i * t."""

    references = ()

    velocity: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Linear", velocity=self.velocity)

    def value(self, time: ArrayLike) -> Array:
        return self.velocity * jnp.asarray(time)

    def end(self) -> tuple[np.ndarray, float] | None:
        return np.asarray(self.velocity, np.float64), 0.0

    def longest_step(self) -> np.ndarray:
        return np.abs(np.asarray(self.velocity, np.float64))


class Periodic(AbstractPath):
    """amplitude_i * (sin(2 pi t / period_i + phase_i) - sin(phase_i)): a seasonal pattern."""

    references = ()

    amplitude: Numbers = per_client()
    period: Numbers = per_client()
    phase: Numbers = per_client(default=0.0)

    def __check_init__(self) -> None:
        check_finite("Periodic", amplitude=self.amplitude, period=self.period, phase=self.phase)
        check_rule("Periodic", "must be above 0", period=self.period)
        _ = count_clients(self)

    def value(self, time: ArrayLike) -> Array:
        period, phase = _column(self.period, self.amplitude), _column(self.phase, self.amplitude)
        # Whole periods are subtracted first: in float32 the sine of a large number is inaccurate.
        turned = jnp.mod(jnp.asarray(time) / period, 1.0)
        return self.amplitude * (jnp.sin(2 * jnp.pi * turned + phase) - jnp.sin(phase))

    def end(self) -> tuple[np.ndarray, float] | None:
        return None if np.any(np.asarray(self.amplitude)) else (np.zeros(()), 0.0)

    def longest_step(self) -> np.ndarray:
        # sin(x + h) - sin(x) = 2 sin(h / 2) cos(x + h / 2).
        period = np.asarray(_column(self.period, self.amplitude), np.float64)
        half = np.where(period <= 2.0, 1.0, np.abs(np.sin(np.pi / period)))
        return 2.0 * np.abs(np.asarray(self.amplitude, np.float64)) * half


class Jump(AbstractPath):
    """size_i from time when_i on, 0 before."""

    references = ()

    when: Numbers = per_client()
    size: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Jump", when=self.when, size=self.size)
        _ = count_clients(self)

    def value(self, time: ArrayLike) -> Array:
        return jnp.where(jnp.asarray(time) >= _column(self.when, self.size), self.size, 0.0)

    def end(self) -> tuple[np.ndarray, float] | None:
        jumps = np.any(np.asarray(self.size))
        return np.zeros(()), max(0.0, float(np.max(np.asarray(self.when)))) if jumps else 0.0

    def longest_step(self) -> np.ndarray:
        return np.abs(np.asarray(self.size, np.float64))


class RandomWalk(AbstractPath):
    """A random walk with independent normal steps of standard deviation scale_i per unit of time; linear in between.

    It is a function of time: the same in every repeat of a run, so the target is known at any time. A scalar `scale`
    moves all clients together; with [N] each walks independently. Different seeds give different walks. It is evaluated
    at any time directly (by bisection, as a Brownian bridge), up to 2^24 units of time.
    """

    references = ()

    scale: Numbers = per_client()
    seed: int = eqx.field(static=True, converter=as_whole, default=0)
    stream: Any = per_client(default=None, converter=lambda value: value)

    def __init__(self, scale: ArrayLike, seed: Unchecked[int] = 0):
        self.scale = as_numbers(scale)
        self.seed = as_whole(seed)
        self.stream = np.arange(len(self.scale), dtype=np.int32) if np.ndim(self.scale) else None

    def __check_init__(self) -> None:
        check_finite("RandomWalk", scale=self.scale)
        check_rule("RandomWalk", "is a standard deviation and must be >= 0", scale=self.scale)
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ValueError(f"RandomWalk: seed must be a whole number; got {self.seed!r}.")

    def value(self, time: ArrayLike) -> Array:
        scale, time = jnp.asarray(self.scale), jnp.asarray(time)
        stream = jnp.asarray(0 if self.stream is None else self.stream, jnp.int32)
        if stream.ndim:  # the walks of all clients
            return jax.vmap(lambda s, k: _walk(s, k, time, self.seed))(scale, stream)
        return _walk(scale, stream, time, self.seed)

    def end(self) -> tuple[np.ndarray, float] | None:
        return None if np.any(np.asarray(self.scale)) else (np.zeros(()), 0.0)


def _walk(scale: Array, stream: Array, time: Array, seed: int) -> Array:
    """W(t): bisect the horizon down to the unit of time around t."""
    key = jax.random.fold_in(jax.random.key(seed), stream)
    dtype = jnp.result_type(scale, float)

    def normal(place: Array) -> Array:
        # Drawn in one precision, so runs and solvers see the same walk, whatever their dtype.
        return jax.random.normal(jax.random.fold_in(key, place), scale.shape, jnp.float32).astype(dtype)

    def halve(_: Array, carry: PyTree) -> PyTree:
        low, span, left, right, node = carry
        middle = (left + right) / 2 + jnp.sqrt(span.astype(dtype) / 4) * normal(node)
        half = span // 2
        later = unit >= low + half
        after = (jnp.where(later, low + half, low), half, jnp.where(later, middle, left))
        return *after, jnp.where(later, right, middle), 2 * node + later.astype(node.dtype)

    unit = jnp.clip(jnp.floor(time), 0, 2**_DEPTH - 1).astype(jnp.int32)
    zero, span = jnp.zeros(scale.shape, dtype), jnp.asarray(2**_DEPTH, jnp.int32)
    last = jnp.sqrt(span.astype(dtype)) * normal(jnp.zeros((), jnp.int32))
    start = (jnp.zeros((), jnp.int32), span, zero, last, jnp.ones((), jnp.int32))
    low, _, left, right, _ = jax.lax.fori_loop(0, _DEPTH, halve, start)
    share = jnp.clip(time.astype(dtype) - low.astype(dtype), 0, 1)
    return scale * (left + share * (right - left))


def _total(several: list[np.ndarray]) -> np.ndarray:
    """Sum of numbers, [N] and [N, d] on the host."""
    deepest = max(several, key=np.ndim)
    return np.asarray(sum(v[:, None] if v.ndim == 1 < deepest.ndim else v for v in several))


def _as_tuple(paths: object) -> Any:
    return tuple(paths) if isinstance(paths, list) else paths


class Sum(AbstractPath):
    """The sum of several paths."""

    references = ()

    paths: Unchecked[tuple[AbstractPath, ...]] = eqx.field(converter=_as_tuple)

    def __check_init__(self) -> None:
        several = isinstance(self.paths, tuple) and bool(self.paths)
        wrong = [path for path in self.paths if not isinstance(path, AbstractPath)] if several else self.paths
        if not several or wrong:
            raise ValueError(
                f"Sum: paths must be a tuple of paths, such as (pf.paths.Linear(0.1), ...); got {wrong!r}."
            )
        _ = count_clients(self)

    def value(self, time: ArrayLike) -> Array:
        found = [path.value(time) for path in self.paths]
        deepest = max(found, key=jnp.ndim)
        return sum((_column(one, deepest) for one in found[1:]), start=_column(found[0], deepest))

    def end(self) -> tuple[np.ndarray, float] | None:
        ends = [path.end() for path in self.paths]
        known = [end for end in ends if end is not None]
        if len(known) < len(ends):
            return None
        return _total([velocity for velocity, _ in known]), max(when for _, when in known)

    def longest_step(self) -> np.ndarray:
        return _total([path.longest_step() for path in self.paths])
