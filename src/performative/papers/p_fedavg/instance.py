"""The Gaussian problem used in both versions of the paper, and its exact error."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import curves, mean, thinned
from performative.papers.runs import distance, given, sweep
from performative.theory import Assumptions, Moments, gaussian_moments, gaussian_points, gaussian_rate

# As the figures name them, and as `pf.theory` does.
SCHEMES = {"full": "full", "Scheme I": "one", "Scheme II": "two"}
NAMES = {scheme: name for name, scheme in SCHEMES.items()}


def taking_part(scheme: str, k: int) -> Any:
    """Full participation, Scheme I or Scheme II with k clients, by either name."""
    kinds: dict[str, Any] = {"one": pf.SchemeOne, "two": pf.SchemeTwo}
    scheme = SCHEMES.get(scheme, scheme)
    return pf.Full() if scheme == "full" else kinds[scheme](k)


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """z ~ N(m_i + eps_i theta, scale^2), l = (theta - z)^2 / 2, under P-FedAvg with eta_t = beta / (t + gamma).

    m_i, eps_i are uniform with exactly these moments, weighted by p_i (equal by default), so theta_PS = mean_m / (1 -
    sensitivity) exactly. Simulated for `rounds`; the exact recursion continues to `long_rounds`.
    """

    clients: int
    mean_m: float
    sensitivity: float
    scale: float
    seed: int
    mean_variance: float = 0.0
    sensitivity_variance: float = 0.0
    start: float = 0.0
    beta: float = 1.0
    gamma: float = 1.0
    local_steps: int = 1
    rounds: int = 1
    long_rounds: int = 1
    repeats: int = 1
    weights: np.ndarray | None = None

    @functools.cached_property
    def problem(self) -> pf.Problem:
        m, eps = np.random.default_rng(self.seed).uniform(size=(2, self.clients))
        p = np.full(self.clients, 1 / self.clients) if self.weights is None else np.asarray(self.weights)
        m = _with_moments(m, p, self.mean_m, self.mean_variance)
        eps = _with_moments(eps, p, self.sensitivity, self.sensitivity_variance)
        return pf.Problem(pf.losses.squared, pf.populations.Gaussian(m, eps, self.scale), self.weights)

    @functools.cached_property
    def own(self) -> dict[str, Any]:
        """m_i, eps_i, scale and p_i, as the functions of `pf.theory` take them."""
        population: Any = self.problem.population
        read = {name: np.asarray(getattr(population, name), np.float64) for name in ("mean", "sensitivity", "scale")}
        return read | {"weights": np.asarray(self.problem.client_weights, np.float64)}

    @property
    def given(self) -> Assumptions:
        return Assumptions.of_gaussian(**self.own, start=self.start)

    @property
    def stable(self) -> float:
        return self.mean_m / (1 - self.sensitivity)

    @property
    def optimal(self) -> float:
        """theta_PO."""
        return gaussian_points(self.own["mean"], self.own["sensitivity"], self.own["weights"]).optimal

    @property
    def marks(self) -> dict[str, float]:
        """Reference line for theta_PO on a distance-to-theta_PS axis."""
        return {"theta_PO": abs(self.optimal - self.stable)}

    @property
    def way(self) -> float:
        """Distance from the start to the stable point."""
        return abs(self.start - self.stable)

    @property
    def rate(self) -> Any:
        return pf.schedules.harmonic(self.beta, self.gamma)

    @property
    def t(self) -> np.ndarray:
        """Local steps at the end of every round of the exact recursion."""
        return np.arange(self.long_rounds + 1) * self.local_steps

    @property
    def eta(self) -> np.ndarray:
        """The step size of every local step of the exact recursion."""
        return self.beta / (np.arange(self.long_rounds * self.local_steps) + self.gamma)

    def of_steps(self, E: int, steps: int) -> "Study":
        """The study with E local steps per round and enough rounds for at least `steps` steps."""
        return dataclasses.replace(self, local_steps=E, long_rounds=-(-steps // E))

    def exact(self, scheme: str = "full", k: int | None = None, eta: np.ndarray | None = None) -> Moments:
        """Mean, variance and squared error after each round, without sampling."""
        steps, drawn = self.eta if eta is None else eta, None if scheme == "full" else k
        how: Any = {"local_steps": self.local_steps, "start": self.start, "scheme": scheme, "k": drawn}
        return gaussian_moments(**self.own, eta=steps, **how)

    def limit(self, scheme: str = "full", k: int | None = None) -> float:
        """lim t MSE_t in closed form."""
        how: Any = {"local_steps": self.local_steps, "scheme": scheme, "k": None if scheme == "full" else k}
        return gaussian_rate(**self.own, beta=self.beta, **how)

    def steps_to(self, moments: Moments, level: float) -> float:
        """Local steps after which the root mean square error stays below `level`; infinite if it never does.

        The last exit, not the first hit: with many local steps the trajectory overshoots.
        """
        outside = np.flatnonzero(np.sqrt(moments.mse) > level)
        if len(outside) and outside[-1] == len(moments.mse) - 1:
            return float("inf")
        return float((outside[-1] + 1) * self.local_steps if len(outside) else 0)

    def times(self, known: Mapping[Any, Moments], shares: tuple[float, ...]) -> dict[Any, np.ndarray]:
        """`steps_to` these fractions of the initial distance."""
        return {name: np.array([self.steps_to(one, self.way * x) for x in shares]) for name, one in known.items()}

    def line(self, moments: Moments, t: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The root mean square error for a figure."""
        return thinned(self.t if t is None else t, np.sqrt(moments.mse))

    def sweep(self, settings: Mapping[Any, Mapping[str, Any]], **how: Any) -> dict[Any, History]:
        """P-FedAvg under each setting."""
        algorithm = pf.p_fedavg(self.rate, local_steps=self.local_steps)
        return sweep(self.problem, algorithm, settings, self.rounds, self.start, self.seed, self.repeats, **how)


on_gaussian = given(Study)


def square(history: History, expected: float) -> tuple[float, float]:
    """Mean over repeats of the final distance^2, and its theoretical standard error.

    The error of theta is nearly normal, so distance^2 has variance 2 expected^2, which is more accurate than an
    estimate from a handful of repeats.
    """
    values = distance(history)[:, -1] ** 2
    return float(values.mean()), float(expected * np.sqrt(2 / len(values)))


def ratio(top: Any, bottom: Any) -> tuple[float, float]:
    """Mean over mean of paired repeats, and its standard error: that of top - ratio * bottom, over mean bottom."""
    top, bottom = (np.asarray(values, np.float64).ravel() for values in (top, bottom))
    found = float(top.mean() / bottom.mean())
    return found, mean(top - found * bottom)[1] / abs(float(bottom.mean()))


def fall(history: History, share: float = 0.2) -> tuple[float, float]:
    """Root mean square distance at the end over that after `share` of the records, with its standard error."""
    square = distance(history) ** 2
    found, error = ratio(square[:, -1], square[:, round(share * (square.shape[1] - 1))])
    return found**0.5, error / (2 * found**0.5)


def by_step(runs: Mapping[str, History]) -> Any:
    """Distances from the stable point over local steps."""
    return curves(runs, "distance_to_stable", "step")


def _with_moments(x: np.ndarray, p: np.ndarray, center: float, variance: float) -> np.ndarray:
    """Shift and scale to this weighted mean and weighted variance."""
    x = x - p @ x
    return center + x * np.sqrt(variance / (p @ x**2))
