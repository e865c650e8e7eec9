"""Tracking drifting data: the best step size and number of samples, and what retraining would do."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_discrete_lyapunov
from scipy.optimize import minimize_scalar

from performative._base.messages import coded
from performative._engine.clock import Clock
from performative._engine.prepare import on_device
from performative.certify.drift import is_linear, stop
from performative.facts import relying
from performative.plan.cost import Cost
from performative.plan.following import Retraining, Steps, Tracking
from performative.plan.near import check_size, check_variance, derivatives
from performative.plan.settings import Setting
from performative.problem import Problem
from performative.solve.landscape import survey
from performative.theory.drifting import DriftError
from performative.types import Theta

# Steps to try, as fractions of the largest that settles. Without noise larger is better up to that point: at 0.98 of it
# the squared lag is 4% above its bound.
_PARTS = np.append(np.geomspace(1e-8, 0.9, 80), [0.93, 0.96, 0.98])
# A target that moves by less than this fraction of the numbers involved per unit of time stands still.
_STILL = 1e-10
# The fraction of the error that the start may still contribute after burn-in.
_FORGOTTEN = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A linear problem whose stable point moves in a straight line: u' = (I - eta J) u - w T + eta noise.

    Attributes:
        J, H: derivatives of the mean gradient at the deployed model, and in the model alone; V: the covariance of the
            average over clients of one sample's gradient; w: the movement of the stable point per unit of time
        away: the start minus the stable point at time `since`, from which the line is straight
    """

    J: np.ndarray
    H: np.ndarray
    V: np.ndarray
    w: np.ndarray
    away: np.ndarray
    since: float
    weights: np.ndarray


def track(problem: Problem, cost: Cost, accuracy: float, theta: Theta, batches: Sequence[int]) -> Tracking:
    """The constant step and the batch that track a drifting problem most closely, with E = 1 and full participation.

        error = |(eta J)^-1 w T|^2 + tr S,      S = (I - eta J) S (I - eta J)' + eta^2 V / n

    T is the time of a round. Exact for linear gradients and a level that moves in a straight line; otherwise raises.
    """
    if cost.latency is not None:
        raise ValueError(
            "plan: if the data drift, rounds must take a fixed time, and Cost(latency=...) makes it random. Omit "
            "it, and add the clients' response time to communication."
        )
    with relying() as heard:
        line = straight(problem, theta)
    times = {n: cost.round_time("full", len(line.weights), 1, n, line.weights) for n in batches}
    steps = sorted(_best_steps(line, times), key=lambda found: found.error.total)
    retraining = [found for n, time in times.items() if (found := retrain(line, n, time)) is not None]
    best, n = steps[0], steps[0].setting.batch
    # The server does not wait for clients of zero weight: see Cost.round_time.
    counts = line.weights > 0
    each = (np.asarray(cost.step) + np.asarray(cost.sample) * n, np.asarray(cost.communication))
    clock = Clock(*(time if counts.all() else np.where(counts, time, 0.0) for time in each))
    return Tracking(
        accuracy, best, min(retraining, key=lambda found: found.error.total, default=None), tuple(steps),
        best.setting.algorithm(None, "step"), clock, line.since, float(np.linalg.norm(line.w)), _rounds(line, best),
        (f"Exact on the author's word: {', '.join(heard)}.",) if heard else (),
    )  # fmt: skip


def straight(problem: Problem, theta: Theta) -> Line:
    """The linear problem and its line; raises an error that says what to do instead."""
    check_variance(problem)
    still, known = stop(problem)
    with jax.enable_x64(True):
        land, start = survey(still, theta)
        check_size(land)
        if "since" not in known or not is_linear(problem, land):
            text = (
                "plan: the data change on their own, and how closely training follows is known exactly only if "
                "only their level moves, eventually in a straight line, and gradients are linear (the squared loss or "
                "prices, no memory, no domain). Compare settings with pf.sweep; plan(problem.at(time), ...) plans for "
                "the data at one time."
            )
            raise ValueError(coded("target-moves", text))
        since, p = known["since"], np.asarray(problem.client_weights, np.float64)
        later = on_device(problem.at(since + 1.0), jnp.float64)
        then = dataclasses.replace(land, problem=Problem(later.loss, later.population))
        pull, own, both, noise, _ = (np.asarray(part) for part in derivatives(land, jnp.asarray(start)))
        moved = p @ (np.asarray(derivatives(then, jnp.asarray(start))[0]) - pull)
    J, H, V = np.tensordot(p, both, 1), np.tensordot(p, own, 1), np.tensordot(p**2, noise, 1)
    settles = np.linalg.eigvals(J).real.min()
    if not settles > 1e-12 * np.linalg.norm(J, 2):
        raise ValueError(
            f"plan: small steps do not settle at the stable point (the slope there is {settles:.3g}), so no "
            "setting of P-FedAvg follows it. pf.certify(problem) gives the details."
        )
    w, away = -np.linalg.solve(J, moved), np.linalg.solve(J, p @ pull)
    if np.linalg.norm(w) <= _STILL * (1.0 + float(np.linalg.norm(start - away))):
        text = (
            f"plan: the data change on their own, but the stable point stands still from time {since:g} on: "
            f"plan(problem.at({since:g}), ...) plans how to get there."
        )
        raise ValueError(coded("target-moves", text))
    return Line(J, H, V, w, away, since, p)


def _best_steps(line: Line, times: dict[int, float]) -> list[Steps]:
    """The best step for each number of samples."""
    values = np.linalg.eigvals(line.J)
    longest = float(np.min(2.0 * values.real / np.abs(values) ** 2))
    rates = longest * _PARTS
    noises = np.array([step_noise(line, eta) for eta in rates])
    behind = np.linalg.solve(line.J, line.w)
    found = []
    for n, T in times.items():

        def error(log: float, n: int = n, T: float = T) -> float:
            eta = math.exp(log)
            return float(behind @ behind) * (T / eta) ** 2 + step_noise(line, eta) / n

        at = int(np.argmin(float(behind @ behind) * (T / rates) ** 2 + noises / n))
        ends = np.log(rates[[max(at - 1, 0), min(at + 1, len(rates) - 1)]])
        near = minimize_scalar(error, bounds=tuple(ends), method="bounded", options={"xatol": 1e-5})
        log = min(float(near.x), float(np.log(rates[at])), key=error)
        eta, lag = math.exp(log), behind * T / math.exp(log)
        known = DriftError(float(lag @ lag), step_noise(line, eta) / n)
        found.append(Steps(Setting(1, "full", None, n, eta), T, known, _in_use(lag, line.w, _whole(T)) + known.noise))
    return found


def step_noise(line: Line, eta: float) -> float:
    """tr S for one sample a step."""
    return float(np.trace(solve_discrete_lyapunov(np.eye(len(line.J)) - eta * line.J, eta**2 * line.V)))


def retrain(line: Line, rows: int, time: float) -> Retraining | None:
    """Training to the minimum on that many rows per client, as often as a round allows; None if that diverges.

        u' = M u - w P + H^-1 noise,      M = I - H^-1 J,      P whole units of time

    In one dimension this is `pf.theory.retraining_error`. Its error grows with P, so the shortest P is best.
    """
    if not np.linalg.cond(line.H) < 1e12:
        return None
    back = np.linalg.solve(line.H, line.J)  # I - M
    M, inverse = np.eye(len(back)) - back, np.linalg.inv(line.H)
    if np.abs(np.linalg.eigvals(M)).max() >= 1.0:
        return None
    P = _whole(time)
    noise = float(np.trace(solve_discrete_lyapunov(M, inverse @ line.V @ inverse.T / rows)))
    lag = np.linalg.solve(back, line.w) * P
    return Retraining(rows, P, DriftError(_in_use(lag, line.w, P), noise), float(lag @ lag) + noise)


def _in_use(lag: np.ndarray, w: np.ndarray, period: int) -> float:
    """The mean of |lag + w a|^2 over the ages a = 0, ..., period - 1 of a deployed model."""
    P = period
    return float(lag @ lag + (P - 1) * (lag @ w) + (P - 1) * (2 * P - 1) / 6 * (w @ w))


def _whole(time: float) -> int:
    """Round up to whole units, at least one."""
    return max(1, math.ceil(time))


def _rounds(line: Line, best: Steps) -> int:
    """Rounds until the line is straight and the start is forgotten (burn-in)."""
    rate = best.setting.rate
    away = float(np.linalg.norm(line.away + np.linalg.solve(line.J, line.w) * best.round_time / rate))
    radius = float(np.abs(np.linalg.eigvals(np.eye(len(line.J)) - rate * line.J)).max())
    ratio = away / (_FORGOTTEN * math.sqrt(best.error.total))
    needed = math.log(ratio) / -math.log(radius) if ratio > 1 and radius > 0 else 0.0
    return math.ceil(line.since / best.round_time) + math.ceil(needed) + 1
