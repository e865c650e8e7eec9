"""What `pf.moments` returns."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Forecast", "Moments", "Radii", "Stationary"]


VERDICTS = ("settles", "settles in the mean only", "runs away")
# Radii of one, but for rounding, do not settle.
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
    """The law of the model in the long run, where rounds stay alike.

    Attributes:
        mean: shaped like the model; covariance: [d, d], of the model as one long vector
        mse_stable, mse_optimal: E|theta - theta_PS|^2 and to theta_PO; None where the point is not known
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
        mse_stable, mse_optimal: E|theta - theta_PS|^2, E|theta - theta_PO|^2, [rounds + 1]; None where the point is not
            known, or is not one that stays
        stable, optimal: those points
        spectral_radius: of one round's map, in the mean and in second moments (`Radii`); of rounds at the last rate
        stationary: the law that rounds at the last rate settle at; None where they do not, or people change by
            themselves (`Drifting`)
        steps: local steps of a round, E
        state: mean [rounds + 1, n] and covariance [rounds + 1, n, n] of all that is random, named by `names`, where
            `full=True` asked for it
        decay: works out `rate_limit`, where there is one
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
        """What `rate` tends to where steps fall as beta / t; None where they do not, infinite where it has no limit."""
        return None if self.decay is None else self.decay()

    @property
    def verdict(self) -> str:
        """ "settles"; "settles in the mean only" where noise alone blows it up; "runs away". At the last rate."""
        return verdict_of(self.spectral_radius)

    @property
    def rate(self) -> np.ndarray | None:
        """t E|theta - theta_PS|^2 with t the local steps done, [rounds + 1]: level where the error falls as 1/t."""
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
    """Where a run settles, near the stable point of a problem that need not be linear.

    Attributes:
        stable: theta_PS; spectral_radius: of a round, linearized where runs settle
        mean, covariance: of the model in the long run; None where it does not settle
        mse_stable: E|theta - theta_PS|^2 in the long run
        doubt: by how much of it the forecast changes one standard deviation away
        valid: whether that is at most 15 %
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
        """As of `Moments`."""
        return verdict_of(self.spectral_radius)

    def __str__(self) -> str:
        mean, second = self.spectral_radius
        line = f"near the stable point: {self.verdict} (spectral radius {mean:.6g} in the mean, {second:.6g} in "
        line += "second moments)"
        if self.mse_stable is None or self.doubt is None:
            return line
        line += f"\n  root mean square distance to it in the long run: {np.sqrt(self.mse_stable):.4g}"
        doubt = f"the error differs by {100 * self.doubt:.0f} % one standard deviation away"
        return f"{line}\n  {'valid' if self.valid else 'not valid'}: {doubt}"
