"""The settings that a plan chooses from, and the error of each."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from performative import batches, participation, recipes, schedules
from performative.algorithm import Algorithm, Parts
from performative.participation import AbstractParticipation
from performative.participation.latency import AbstractLatency
from performative.plan.near import Near
from performative.theory.gaussian import WeightMoments, weight_moments

Recipe = Callable[..., Algorithm]
# Rounds whose maps are cached: about the number of spans of one harmonic rate.
_KEPT = 256


@dataclasses.dataclass(frozen=True)
class Setting:
    """One training setup: E, participation, samples per step, and eta(t) = beta / (t + gamma) or constant."""

    local_steps: int
    scheme: str
    k: int | None
    batch: int
    rate: float
    decay: float | None = None
    noise: float = 0.0
    clip: float | None = None

    @property
    def kind(self) -> tuple[Any, ...]:
        """Everything but the step size."""
        return self.local_steps, self.scheme, self.k, self.batch

    def eta(self, t: Any) -> Any:
        """The step size of local step t: `rate`, or rate / (1 + t / decay), which is harmonic(rate * decay, decay)."""
        return np.full(np.shape(t), self.rate) if self.decay is None else self.rate / (1 + np.asarray(t) / self.decay)

    def steps_over(self, travel: float) -> float:
        """Local steps until the step sizes add up to `travel`."""
        if self.decay is None:
            return travel / self.rate
        return self.decay * math.expm1(min(travel / (self.rate * self.decay), 700.0))

    def participation(self, latency: AbstractLatency | None) -> AbstractParticipation:
        if self.k is None:
            return participation.Full()
        if self.scheme == "first":
            assert latency is not None
            return participation.FirstK(self.k, latency)
        return participation.SchemeOne(self.k) if self.scheme == "one" else participation.SchemeTwo(self.k)

    def algorithm(self, latency: AbstractLatency | None, deploy: str, recipe: Recipe = recipes.p_fedavg) -> Algorithm:
        """The recipe to run."""
        rate: Any = self.rate if self.decay is None else schedules.harmonic(self.rate * self.decay, self.decay)
        parts: Parts = {
            "local_steps": self.local_steps,
            "batch": batches.Fixed(self.batch) if self.clip is None else batches.Uniform(self.batch),
            "participation": self.participation(latency),
            "deploy": deploy,
        }
        if self.clip is not None:
            return recipes.pcsgd(rate, clip=self.clip, noise_multiplier=self.noise, **parts)
        return recipe(rate, **parts)

    def moments(self, weights: np.ndarray) -> WeightMoments:
        """Moments of the weights of a round. First-K is Scheme II if latencies are identically distributed."""
        return weight_moments(weights, "two" if self.scheme == "first" else self.scheme, self.k)

    def words(self) -> str:
        """The setting in one line."""
        schemes = {"one": "SchemeOne", "two": "SchemeTwo", "first": "FirstK"}
        who = "everyone" if self.k is None else f"{schemes[self.scheme]}({self.k})"
        if self.decay is None:
            rate = f"rate {self.rate:.3g}"
        else:
            rate = f"rate harmonic({self.rate * self.decay:.3g}, {self.decay:.3g})"
        private = "" if self.clip is None else f", clip {self.clip:.3g}, noise multiplier {self.noise:.3g}"
        return f"E = {self.local_steps}, {who}, batch {self.batch}, {rate}{private}"


@dataclasses.dataclass(frozen=True, eq=False)
class RoundMap:
    """The effect of a round with step eta on u: its mean, and the covariance it adds.

    client i:  delta_i = A_i u - b_i + noise,      E local steps from u
    """

    A: np.ndarray
    b: np.ndarray
    mean: np.ndarray
    shift: np.ndarray
    noise: np.ndarray
    weights: np.ndarray
    moments: WeightMoments

    def spread(self, u: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The covariance that a round adds, from a model of mean u and covariance S."""
        if not np.any(self.moments.own):  # full participation
            return self.noise
        move = self.A @ u - self.b
        square = move[:, :, None] * move[:, None, :] + self.A @ S @ np.swapaxes(self.A, 1, 2)
        average, slope = self.weights @ move, self.mean - np.eye(len(u))
        both = np.outer(average, average) + slope @ S @ slope.T
        return self.noise + (self.moments.pair - 1.0) * both + np.einsum("i,ijk->jk", self.moments.own, square)


class LocalMaps:
    """The effect of E local steps at each client. Cached: settings that differ only in participation share them."""

    def __init__(self, near: Near, deploy: str):
        self.near, self.deploy = near, deploy
        self._kept: dict[bytes, tuple[np.ndarray, ...]] = {}

    def of(self, eta: np.ndarray) -> tuple[np.ndarray, ...]:
        """A_i, b_i, and the covariances left by one sample per step and by unit noise per step, for steps eta."""
        key = eta.tobytes()
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[key] = local_maps(self.near, eta, self.deploy)
        return self._kept[key]


def local_maps(near: Near, eta: np.ndarray, deploy: str) -> tuple[np.ndarray, ...]:
    """A_i, b_i and the covariances left by one sample per step and by unit noise per step, after the steps eta.

    Args:
        eta: [E], or [E, R, 1, 1, 1] for R rounds at once, which then become the leading axis of the results
    """
    d, N = near.size, near.clients
    eye, times = np.eye(d), np.multiply if d == 1 else np.matmul  # faster for scalars
    own = near.H if deploy == "round" else near.H + near.C
    power, total = np.broadcast_to(eye, (N, d, d)), np.zeros((N, d, d))
    samples, unit = np.zeros((N, d, d)), np.zeros((N, d, d))
    for length in eta:
        keep = eye - length * own
        back = np.swapaxes(keep, -1, -2)
        power, total = times(keep, power), times(keep, total) + length * eye
        samples = times(times(keep, samples), back) + length**2 * near.noise
        unit = times(times(keep, unit), back) + length**2 * eye
    A = power - eye if deploy != "round" else power - eye - times(total, near.C)
    return A, np.einsum("...ijk,ik->...ij", total, near.pull), samples, unit


def round_map(maps: LocalMaps, setting: Setting, eta: np.ndarray) -> RoundMap:
    """The map of a round whose E local steps have sizes eta. Exact for quadratic problems."""
    near = maps.near
    A, b, samples, unit = maps.of(eta)
    noise = samples / setting.batch
    if setting.clip is not None:
        noise = noise + (setting.noise * setting.clip / setting.batch) ** 2 * unit
    w = setting.moments(near.weights)
    return RoundMap(
        A, b, np.eye(near.size) + np.einsum("i,ijk->jk", near.weights, A), -(near.weights @ b),
        np.einsum("i,ijk->jk", w.square, noise), near.weights, w,
    )  # fmt: skip


def rounds_to(maps: LocalMaps, setting: Setting, accuracy: float, limit: float = 2.0**22) -> float:
    """Rounds until the root mean square of |theta - theta_PS| is at most `accuracy`; infinite if it never is.

    Exact for a quadratic problem and a constant rate, except that the covariance added by a span of rounds is taken at
    its start. A harmonic rate is held constant over spans in which it falls by less than a tenth. If the boundary of
    the domain holds the stable point, at least the rounds it takes to get there.
    """
    near = maps.near
    there = float(math.ceil(setting.steps_over(near.travel) / setting.local_steps))
    if near.size == 0:
        return max(there, 1.0)
    return max(there, _rounds_to(maps, setting, accuracy, limit))


def _rounds_to(maps: LocalMaps, setting: Setting, accuracy: float, limit: float) -> float:
    near = maps.near
    u, S = near.start.copy(), np.zeros((near.size, near.size))
    done, target, span = 0, accuracy**2, 1
    while done < limit:
        middle = (done + span // 2) * setting.local_steps
        here = round_map(maps, setting, setting.eta(middle + np.arange(setting.local_steps)))
        if np.abs(np.linalg.eigvals(here.mean)).max() >= 1.0 and setting.decay is None:
            return math.inf
        while done < limit:
            before = (u, S)
            u, S = _ahead(here, u, S, span)
            if not np.all(np.isfinite(S)) or np.trace(S) > 1e12 * (target + near.start @ near.start):
                return math.inf
            if u @ u + np.trace(S) <= target:
                return float(done + _first_below(here, *before, span, target))
            done += span
            if setting.decay is None:
                if np.allclose(u, before[0], rtol=1e-9, atol=1e-12) and np.allclose(S, before[1], rtol=1e-6):
                    return math.inf
                span = max(1, done // 8)
            else:
                span = max(1, int((done + setting.decay / setting.local_steps) / 10))
                break
    return math.inf


def _ahead(here: RoundMap, u: np.ndarray, S: np.ndarray, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """u and S after some rounds, by doubling."""
    M, shift, noise = here.mean, here.shift, here.spread(u, S)
    power, gone, added = np.eye(len(u)), np.zeros(len(u)), np.zeros_like(S)
    while rounds:
        if rounds & 1:
            power, gone, added = M @ power, M @ gone + shift, M @ added @ M.T + noise
        noise, shift, M = noise + M @ noise @ M.T, shift + M @ shift, M @ M
        rounds >>= 1
    return power @ u + gone, power @ S @ power.T + added


def _first_below(here: RoundMap, u: np.ndarray, S: np.ndarray, span: int, target: float) -> int:
    low, high = 0, span
    while high - low > 1:
        middle = (low + high) // 2
        v, V = _ahead(here, u, S, middle)
        if v @ v + np.trace(V) <= target:
            high = middle
        else:
            low = middle
    return high
