"""`pf.stability`: where a recipe settles, where it does so in the mean only, and where it runs away."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from performative._base.arguments import checked
from performative._engine.clock import Clock
from performative.algorithm import Algorithm
from performative.moments.building import build, rebuild
from performative.moments.limits import limits
from performative.moments.machine import Machine
from performative.moments.outcome import VERDICTS, Radii, verdict_of
from performative.moments.playing import last_turn
from performative.problem import Problem
from performative.sweep.names import name_of, read_settings, set_by_name, values_of
from performative.types import Theta, Unchecked

if TYPE_CHECKING:
    import pandas

__all__ = ["Stability", "stability"]


@dataclasses.dataclass(frozen=True, eq=False)
class Stability:
    """Spectral radii of rounds, setting by setting.

    Attributes:
        over: what was varied, {name: values}; settings: one {name: value} each, in the order of all combinations
        radii: of each setting (`Radii`); errors: E|theta - theta_PS|^2 in the long run, NaN if it does not settle
    """

    over: dict[str, list[Any]]
    settings: list[dict[str, Any]]
    radii: list[Radii]
    errors: np.ndarray

    @property
    def verdicts(self) -> list[str]:
        """ "settles", "settles in the mean only" or "runs away", for each setting."""
        return [verdict_of(one) for one in self.radii]

    def largest(self, name: str = "rate", **fixed: Any) -> float:
        """The largest `name` up to which all settings with these values settle; NaN if the smallest does not."""
        rows = [
            (setting[name], verdict)
            for setting, verdict in zip(self.settings, self.verdicts, strict=True)
            if all(setting[key] == value for key, value in fixed.items())
        ]
        found = float("nan")
        for value, verdict in sorted(rows):
            if verdict != VERDICTS[0]:
                break
            found = float(value)
        return found

    def to_frame(self) -> "pandas.DataFrame":
        """One row per setting."""
        import pandas as pd

        rows = [
            {**setting, "mean_radius": one.mean, "second_radius": one.second, "mse_stable": error, "verdict": verdict}
            for setting, one, error, verdict in zip(self.settings, self.radii, self.errors, self.verdicts, strict=True)
        ]
        return pd.DataFrame(rows)

    def plot(self, ax: Any = None) -> Any:
        """A map of the three verdicts over two names, or the radii over one."""
        from performative.moments.charts import plot_stability

        return plot_stability(self, ax)

    def __str__(self) -> str:
        lines = [f"{len(self.settings)} settings: " + ", ".join(
            f"{self.verdicts.count(word)} {word}" for word in VERDICTS if word in self.verdicts
        )]  # fmt: skip
        for setting, one, verdict in zip(self.settings[:20], self.radii, self.verdicts, strict=False):
            lines.append(
                f"  {name_of(setting)}: {verdict} ({one.mean:.4g} in the mean, {one.second:.4g} in second moments)"
            )
        return "\n".join(lines + ["  ..."] * (len(self.settings) > 20))


@checked
def stability(
    problem: Problem,
    algorithm: Algorithm,
    over: Unchecked[Mapping[str, Sequence[Any]]],
    theta: Theta = None,
    *,
    clock: Clock | None = None,
) -> Stability:
    """Compute the spectral radii of a recipe's rounds over a grid of settings, exactly (see `pf.moments`).

    A setting settles if both radii are below one; if only that of the mean is, runs settle on average while their
    variance diverges; otherwise they run away. Decaying rates are evaluated at their last value.

    Args:
        over: {name: values}, names as in `pf.sweep`: "rate", "local_steps", "participation.k", "population.sensitivity"
        theta: the start, None for zeros; it determines which directions a run can take
        clock: as in `pf.moments`
    """
    settings, radii, errors = read_settings(over), [], []
    machines: dict[Any, Machine] = {}
    with jax.enable_x64(True):
        for setting in settings:
            here, recipe = problem, algorithm
            for name, value in setting.items():
                here, recipe = set_by_name(here, recipe, name, value)
            machine = _machine(machines, here, recipe, theta, clock)
            found = limits(last_turn(machine), np.asarray(machine.begin().mean))
            radii.append(Radii(found.mean_radius, found.second_radius))
            errors.append(_error(here, machine, found.law))
    return Stability(values_of(settings), settings, radii, np.asarray(errors))


def _machine(
    known: dict[Any, Machine], problem: Problem, algorithm: Algorithm, theta: Theta, clock: Clock | None
) -> Machine:
    """A machine with the same program and other numbers, if one was built before."""
    leaves, structure = jax.tree.flatten((problem, algorithm))
    kind = structure, tuple(np.shape(leaf) for leaf in leaves)
    if kind not in known:
        known[kind] = build(problem, algorithm, theta, 1, clock)[0]
        return known[kind]
    return rebuild(known[kind], problem, algorithm, theta)


def _error(problem: Problem, machine: Machine, law: Any) -> float:
    if law is None or problem.population.reads_time or not machine.setup.algorithm.sharing.is_one:
        return float("nan")
    stable = problem.population.stable_point(problem.loss, problem.client_weights)
    if stable is None:
        return float("nan")
    d = machine.layout.model
    away = np.asarray(law.mean)[1 : 1 + d] - np.ravel(stable)
    return float(away @ away + np.trace(np.asarray(law.covariance)[1 : 1 + d, 1 : 1 + d]))
