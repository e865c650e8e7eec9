"""Two groups of people who leave if the model serves them badly, exactly: who remains, and from which start.

    z_k ~ N(m_k + eps_k theta, scale_k^2),   l(theta; z) = (theta - z)^2 / 2
    left_k' = nu(l_k - pay_k) left_k + join_k
    theta' = sum_k a_k (m_k + eps_k theta),   a_k = p_k left_k / sum_j p_j left_j

Retrained to the minimum each round on those who remain. The setting is that of Hashimoto et al. 2018.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.arguments import Count, Values, check_fields, checked
from performative.theory.gaussian import with_weights

__all__ = ["RetentionPoint", "TwoGroups"]

# Grid size for weights of the first group, and number of bisections between two grid points; the step of numerical
# derivatives; the movement per round below which a state is at rest.
_GRID, _BISECTIONS, _STEP, _REST = 4001, 50, 1e-6, 1e-12


@dataclasses.dataclass(frozen=True)
class RetentionPoint:
    """Where people and model can settle.

    Attributes:
        left: what remains of each group, relative to its size at the start; theta: the model
        shares: a_k, the weight of each group; losses: what each sees
        contraction: the fraction of a small error that a round leaves (spectral radius); attracting: whether that is
            below 1
    """

    left: np.ndarray
    theta: float
    shares: np.ndarray
    losses: np.ndarray
    contraction: float

    @property
    def attracting(self) -> bool:
        return self.contraction < 1


@dataclasses.dataclass(frozen=True, eq=False)
class TwoGroups:
    """Two groups, the loss of each, and the model fitted to those who remain.

    Args:
        mean, scale: m_k and the standard deviation, a number or one per group
        stay: nu, a function of the losses (`pf.participation.Patience`): the probability of staying, in [0, 1]
        join: newcomers per round, as a fraction of a group's initial size; above 0
        sensitivity: eps_k < 1
        pay: what each is paid per round to stay, in units of the loss
        weights: p_k, None for equal weights
    """

    mean: Values
    scale: Values
    stay: Callable[[Any], Any]
    join: Values
    sensitivity: Values = 0.0
    pay: Values = 0.0
    weights: Values | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        given = {name: getattr(self, name) for name in ("mean", "scale", "join", "sensitivity", "pay")}
        for name, value in zip((*given, "weights"), with_weights(self.weights, **given), strict=True):
            object.__setattr__(self, name, value)
        if len(self.mean) != 2:
            raise ValueError(f"TwoGroups needs two groups; mean has {len(self.mean)} entries.")
        if not callable(self.stay):
            raise ValueError(f"TwoGroups: stay must be a function of the loss; got {self.stay!r}.")
        if np.any(self.scale < 0):
            raise ValueError(f"TwoGroups: scale is a standard deviation and must be >= 0; got {self.scale}.")
        if np.any(self.join <= 0):
            raise ValueError(f"TwoGroups: join must be above 0, otherwise nobody remains in the end; got {self.join}.")
        if np.any(self.sensitivity >= 1):
            raise ValueError(
                f"TwoGroups: sensitivity must be below 1, otherwise models diverge; got {self.sensitivity}."
            )
        chance = self._chance(np.zeros(2))
        if chance.shape != (2,) or not np.all((chance >= 0) & (chance <= 1)):
            raise ValueError(f"TwoGroups: stay must return a probability in [0, 1] per loss; got {chance} for [0, 0].")

    def losses(self, theta: Any) -> np.ndarray:
        """The loss of each group under a model, [..., 2]."""
        gap = np.asarray(theta)[..., None] * (1 - self.sensitivity) - self.mean
        return (gap**2 + self.scale**2) / 2

    def model(self, shares: Any) -> np.ndarray:
        """The stable point for groups of these weights a_k: sum_k a_k m_k / (1 - sum_k a_k eps_k)."""
        return np.asarray(shares @ self.mean / (1 - shares @ self.sensitivity))

    def step(self, left: Any, theta: Any) -> tuple[np.ndarray, np.ndarray]:
        """What remains and the model, one round later; vectorized over starts with left [..., 2], theta [...]."""
        left, theta = np.asarray(left, np.float64), np.asarray(theta, np.float64)
        a = self._shares(left)
        answers = self.mean + self.sensitivity * theta[..., None]
        return self._chance(self.losses(theta)) * left + self.join, np.asarray(np.sum(a * answers, axis=-1))

    def points(self) -> tuple[RetentionPoint, ...]:
        """All fixed points of a round, ordered by the weight of the first group.

        Found as fixed points of the map from a_0 to its value once people have settled under the model for a_0: each
        sign change on a grid of 4001 weights is bisected.
        """
        grid = np.linspace(0.0, 1.0, _GRID)
        gaps = self._gap(grid)
        found = list(grid[gaps == 0])
        for i in np.flatnonzero(gaps[:-1] * gaps[1:] < 0):
            low, high = grid[i], grid[i + 1]
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if self._gap(middle) * gaps[i] > 0 else (low, middle)
            found.append((low + high) / 2)
        return tuple(self._point(a) for a in sorted(found))

    @checked
    def ends(self, left: Values, theta: Values | None = None, rounds: Count = 2000) -> np.ndarray:
        """Index of the point in `points` that each start leads to; -1 if it is at none of them after `rounds` rounds.

        left [..., 2]; theta None starts with the model fitted to those present.
        """
        left = np.asarray(left, np.float64)
        if left.shape[-1:] != (2,) or not np.all(np.isfinite(left)) or np.any(left < 0) or np.any(left.sum(-1) <= 0):
            raise ValueError(f"ends: left must contain what remains of both groups, [..., 2], not all 0; got {left}.")
        at = self.model(self._shares(left)) if theta is None else np.broadcast_to(theta, left.shape[:-1])
        for _ in range(rounds):
            before = left, at
            left, at = self.step(left, at)
            if max(np.max(np.abs(left - before[0])), np.max(np.abs(at - before[1]))) < _REST:
                break
        points = self.points()
        apart = np.stack([np.abs(at - p.theta) + np.abs(left - p.left).sum(-1) for p in points], axis=-1)
        return np.where(apart.min(-1) < 1e-6, apart.argmin(-1), -1)

    def _chance(self, losses: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(self.stay(jnp.asarray(losses - self.pay)), np.float64)

    def _shares(self, left: np.ndarray) -> np.ndarray:
        heads = self.weights * left
        return heads / heads.sum(-1, keepdims=True)

    def _gap(self, a: Any) -> Any:
        shares = np.stack([a, 1 - np.asarray(a)], axis=-1)
        # left_k = join_k / (1 - nu_k), each multiplied by both 1 - nu, which may be 0.
        goes = 1 - self._chance(self.losses(self.model(shares)))
        heads = self.weights * self.join * goes[..., ::-1]
        return heads[..., 0] - np.asarray(a) * heads.sum(-1)

    def _point(self, a: float) -> RetentionPoint:
        shares = np.array([a, 1 - a])
        theta = float(self.model(shares))
        losses = self.losses(theta)
        with np.errstate(divide="ignore"):
            left = self.join / (1 - self._chance(losses))
        x = np.array([*left, theta])
        moves = _STEP * np.maximum(np.abs(x), 1.0) * np.eye(3)
        ahead, behind = (self.step((x + s * moves)[:, :2], (x + s * moves)[:, 2]) for s in (1, -1))
        change = [np.concatenate([w, t[:, None]], axis=1) for w, t in (ahead, behind)]
        slope = (change[0] - change[1]).T / (2 * np.diag(moves))
        return RetentionPoint(left, theta, shares, losses, float(np.max(np.abs(np.linalg.eigvals(slope)))))
