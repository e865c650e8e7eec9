"""What `pf.moments` returns."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Forecast", "Moments", "Radii", "Stationary"]


VERDICTS = ("settles", "settles in the mean only", "runs away")
# Radii of one, up to roundoff, do not settle.
ONE = 1.0 - 1e-12


class Radii(NamedTuple):
    """Spectral radii of a round's map: of the mean, and of second moments. Below one, they settle."""

    mean: float
    second: float


def verdict_of(radii: Radii) -> str:
    """In words."""
    if not radii.mean < ONE:
        return VERDICTS[2]
    return VERDICTS[0] if radii.second < ONE else VERDICTS[1]


@dataclasses.dataclass(frozen=True, eq=False)
class Stationary:
    """The stationary distribution of the model, if rounds repeat.

    Attributes:
        mean: shaped like the model; covariance: [d, d], of the model as one long vector
        mse_stable, mse_optimal: E|theta - theta_PS|^2 and the same for theta_PO; None if the point is unknown
    """

    mean: Any
    covariance: np.ndarray
    mse_stable: float | None
    mse_optimal: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Exact moments of a run, the start first.

    Attributes:
        mean: E theta, [rounds + 1, ...] per leaf
        covariance: [rounds + 1, d, d], of the model as one long vector
        mse_stable, mse_optimal: E|theta - theta_PS|^2, E|theta - theta_PO|^2, [rounds + 1]; None if the point is
            unknown or not fixed
        stable, optimal: those points
        spectral_radius: of one round's map, in the mean and in second moments (`Radii`); of rounds at the last rate
        stationary: the stationary distribution of rounds at the last rate; None if there is none, or people change on
            their own (`Drifting`)
        steps: local steps of a round, E
        state: mean [rounds + 1, n] and covariance [rounds + 1, n, n] of everything random, named by `names`, if
            `full=True`
        decay: computes `rate_limit`, if there is one
    """

    mean: Any
    covariance: np.ndarray
    mse_stable: np.ndarray | None
    mse_optimal: np.ndarray | None
    stable: Any
    optimal: Any
    spectral_radius: Radii
    stationary: Stationary | None
    steps: int = 1
    state: tuple[np.ndarray, np.ndarray] | None = None
    names: tuple[str, ...] = ()
    decay: Callable[[], float] | None = None

    @cached_property
    def rate_limit(self) -> float | None:
        """The limit of `rate` if steps decay as beta / t; None if they do not, infinite if there is no limit."""
        return None if self.decay is None else self.decay()

    @property
    def verdict(self) -> str:
        """ "settles"; "settles in the mean only" if only the variance diverges; "runs away". At the last rate."""
        return verdict_of(self.spectral_radius)

    @property
    def rate(self) -> np.ndarray | None:
        """t E|theta - theta_PS|^2 with t the local steps done, [rounds + 1]: constant if the error falls as 1/t."""
        if self.mse_stable is None:
            return None
        return self.steps * np.arange(len(self.mse_stable)) * self.mse_stable

    def __str__(self) -> str:
        rounds = len(self.covariance) - 1
        mean, second = self.spectral_radius
        lines = [
            f"exact moments of {rounds} rounds: {self.verdict} (spectral radius {mean:.6g} in the mean, "
            f"{second:.6g} in second moments)"
        ]
        named = (("stable", self.mse_stable), ("optimal", self.mse_optimal))
        for name, error in named:
            if error is None:
                continue
            line = f"  root mean square distance to the {name} point: {np.sqrt(error[0]):.4g} at the start, "
            line += f"{np.sqrt(error[-1]):.4g} after round {rounds}"
            if self.stationary is not None:
                line += f", {np.sqrt(getattr(self.stationary, f'mse_{name}')):.4g} in the long run"
            lines.append(line)
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, eq=False)
class Forecast:
    """Where a run settles, near the stable point of a possibly nonlinear problem.

    Attributes:
        stable: theta_PS; spectral_radius: of a round, linearized where runs settle
        mean, covariance: of the model in the long run; None if it does not settle
        mse_stable: E|theta - theta_PS|^2 in the long run
        doubt: the relative change of the forecast one standard deviation away
        valid: whether that is at most 15%
    """

    stable: Any
    spectral_radius: Radii
    mean: Any
    covariance: np.ndarray | None
    mse_stable: float | None
    doubt: float | None
    valid: bool

    @property
    def verdict(self) -> str:
        """As in `Moments`."""
        return verdict_of(self.spectral_radius)

    def __str__(self) -> str:
        mean, second = self.spectral_radius
        line = f"near the stable point: {self.verdict} (spectral radius {mean:.6g} in the mean, {second:.6g} in "
        line += "second moments)"
        if self.mse_stable is None or self.doubt is None:
            return line
        line += f"\n  root mean square distance to it in the long run: {np.sqrt(self.mse_stable):.4g}"
        doubt = f"the error differs by {100 * self.doubt:.0f}% one standard deviation away"
        return f"{line}\n  {'valid' if self.valid else 'not valid'}: {doubt}"
