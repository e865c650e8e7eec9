"""A closer look at the leading settings: exact moments where a recipe has them, else pilot runs."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative import recipes
from performative._base.messages import code_of
from performative.moments import moments
from performative.moments.probes import loss_bends
from performative.plan.cost import Cost
from performative.plan.near import Near
from performative.plan.outcome import Option
from performative.plan.pilots import Trial, last_exit, pilot
from performative.plan.recursion import errors, is_exact
from performative.plan.settings import Recipe, Setting
from performative.problem import Problem

# Settings that are looked at: in pilot runs or by exact moments, no two of the same kind, or by the short recursion.
_PILOTS, _SHORT = 6, 120
# Rounds, times numbers that are remembered squared, that moments may take: beyond, a pilot run is sooner done.
_MOST = 1 << 28
# How much longer than predicted the moments are followed, one try after the other; and shares of the step that are
# tried: another recipe may want shorter ones than P-FedAvg.
_STRETCH, _SHARES = (1.5, 6.0), (1.0, 0.5, 0.25)


@dataclasses.dataclass
class Look:
    """What a setting is looked at with.

    Attributes:
        affine: whether the recipe may have exact moments here; None before that was looked at
    """

    problem: Problem
    near: Near
    cost: Cost
    accuracy: float
    recipe: Recipe
    theta: Any
    deploy: str
    pilots: bool
    seed: int
    affine: bool | None = None

    def at(self, option: Option) -> tuple[Setting, str, Trial] | None:
        """A setting or one with shorter steps, how it was looked at, and what came of it; None where nothing tells."""
        setting = option.setting
        if self.recipe is recipes.p_fedavg and is_exact(self.problem, self.near, setting, option.rounds):
            return setting, "exact recursion", self._short(option)
        tried = [(shorter, self._moments(shorter, option.rounds)) for shorter in _shorter(setting)]
        exact = [(shorter, trial) for shorter, trial in tried if trial is not None]
        if exact:
            best, trial = min(exact, key=lambda pair: pair[1].rounds)
            return best, "exact moments", trial
        if not self.pilots:
            return None
        return setting, "pilot runs", pilot(
            self.problem, option.setting, self.theta, self.near.stable, self.accuracy, option.rounds, self.deploy,
            self.cost.latency, self.seed, self.recipe,
        )  # fmt: skip

    def _short(self, option: Option) -> Trial:
        """By the recursion of P-FedAvg."""
        count = math.ceil(1.5 * option.rounds) + 2
        return self._settled(errors(self.near, option.setting, count, self.deploy))

    def _moments(self, setting: Setting, rounds: float) -> Trial | None:
        """By `pf.moments`, None where the recipe has none or they would take too long."""
        algorithm, trial = setting.algorithm(self.cost.latency, self.deploy, self.recipe), None
        for stretch in _STRETCH:
            if self.affine is None:
                self.affine = not loss_bends(self.problem, self.near.stable)
            count = 1 << math.ceil(math.log2(stretch * rounds + 2))  # settings share programs of so many rounds
            if self.affine is False or count * (self.near.clients * self.near.size) ** 2 > _MOST:
                return trial
            try:
                found = moments(self.problem, algorithm, count, self.theta)
            except ValueError as error:
                if code_of(error) != "not-affine":
                    raise
                self.affine = False
                return None
            if found.mse_stable is None:
                return None
            trial = self._settled(np.sqrt(np.maximum(found.mse_stable, 0.0)))
            if math.isfinite(trial.rounds) or found.stationary is None:
                break
            if found.stationary.mse_stable is not None and found.stationary.mse_stable > self.accuracy**2:
                break
        return trial

    def _settled(self, error: np.ndarray) -> Trial:
        """The rounds after which the error stays at or below `accuracy`."""
        needed = last_exit(error, np.arange(len(error)), self.accuracy)
        return Trial(needed, float(error[int(needed)]) if math.isfinite(needed) else math.inf)


def _shorter(setting: Setting) -> list[Setting]:
    """The setting, and with shorter steps."""
    return [dataclasses.replace(setting, rate=share * setting.rate) for share in _SHARES]


def look_closely(look: Look, ranked: list[Option]) -> tuple[list[Option], str, Trial | None, int]:
    """The leading settings with the time that they really take, until no other is predicted to be faster.

    Also how the fastest was looked at, what came of it, and how many that are predicted to be faster were not tried.
    """
    seen: list[tuple[Option, str, Trial]] = []
    for option in ranked[:_SHORT]:
        if len(seen) > 1 and min(o.time for o, _, _ in seen) <= option.time:
            break
        if sum(how != "exact recursion" for _, how, _ in seen) == _PILOTS:
            break
        found = look.at(option)
        if found is None:
            break
        setting, how, trial = found
        timed = dataclasses.replace(option, setting=setting, rounds=trial.rounds, time=trial.rounds * option.round_time)
        seen.append((timed, how, trial))
    if not seen:
        return ranked, "linear model", None, 0
    good = sorted((one for one in seen if math.isfinite(one[0].time)), key=lambda one: one[0].time)
    if not good:
        raise ValueError(
            f"plan: none of the {len(seen)} best settings came within accuracy = {look.accuracy:g} when they were "
            f"looked at closely ({seen[-1][1]}): this far from the stable point, or for this recipe, the linear model "
            "misleads. Ask for another accuracy, or start nearer (theta)."
        )
    best, how, trial = good[0]
    rest = [option for option in ranked[len(seen) :] if option.time >= best.time]
    later = sorted([*(option for option, _, _ in good[1:]), *rest], key=lambda o: o.time)
    return [best, *later], how, trial, len(ranked) - len(seen) - len(rest)
