"""How fast the error falls if steps decay as 1/t: the limit of t E|theta - theta_PS|^2.

With eta(t) = beta / (t + gamma) rounds become, for large r, in the slow directions,

    x' = (I - B / r) x + noise of covariance Q / r^2      so that      r Cov x -> X,   (B - 1/2) X + X (B - 1/2)^T = Q

B and Q come from the machine's own rounds, so late that steps are nearly constant.
"""

import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_continuous_lyapunov

from performative.moments.limits import limits, mean_limit, reachable
from performative.moments.machine import Machine
from performative.moments.playing import last_turn
from performative.schedules import Schedule

# The first round of evaluation; the remainder of order 1 / r is removed by extrapolation from there to twice that.
_ROUND = 100_000
# For a bias that does not vanish, twice as far.
_STAYS = 0.75


def falls_as_one_over(rate: Schedule) -> bool:
    """Whether 1 / eta(t) is linear and not constant for large t."""
    t = np.asarray([1, 2, 3]) * 2**28
    one, two, three = (1.0 / float(rate(jnp.asarray(k, jnp.int32))) for k in t)
    return abs(three - 2 * two + one) <= 1e-6 * three and three - one > 1e-6 * three


def rate_limit(machine: Machine, stable: np.ndarray) -> float:
    """The limit of t E|theta - theta_PS|^2; infinite if the error falls more slowly, or theta settles elsewhere."""
    start = np.asarray(machine.begin().mean)
    turn = last_turn(machine)
    directions = turn.without_time(reachable(turn, start))
    first = max(_ROUND, 10 * machine.rounds)
    found = [_at(machine, start, stable, directions, k * first) for k in (1, 2)]
    (one, near), (other, far) = found
    if not np.isfinite([one, other]).all() or (far > _STAYS * near and far > 1e-9 * (1.0 + np.abs(stable).max())):
        return float("inf")
    return machine.setup.algorithm.steps * (2.0 * other - one)


def _at(
    machine: Machine, start: np.ndarray, stable: np.ndarray, directions: np.ndarray, round: int
) -> tuple[float, float]:
    """tr X estimated from rounds around that number, and how far from the stable point the mean then settles."""
    period = machine.period
    ahead = (round - machine.rounds) // period * period
    turn = last_turn(machine.later(ahead))
    settled = limits(turn, start, directions).law
    if settled is None:
        return float("inf"), float("inf")
    inside = slice(1, 1 + machine.layout.model)
    bias = float(np.linalg.norm(np.asarray(settled.mean)[inside] - stable))
    S = np.asarray(settled.covariance)[inside, inside]
    _, T, _ = mean_limit(turn, start, directions)
    values, vectors = np.linalg.eig(T)
    slow = np.argsort(-np.abs(values))[: len(S)]
    W = (directions @ vectors[:, slow])[inside]
    r = ahead + machine.rounds - 0.5 * period
    B = np.real(W @ np.diag((1.0 - values[slow]) * r / period) @ np.linalg.inv(W))
    if np.linalg.eigvals(B).real.min() <= 0.5:
        return float("inf"), bias
    Q = r * (B @ S + S @ B.T)
    half = B - 0.5 * np.eye(len(B))
    return float(np.trace(solve_continuous_lyapunov(half, Q))), bias
