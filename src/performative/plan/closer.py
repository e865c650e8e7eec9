"""A closer look at the leading settings: exact moments if a recipe has them, else pilot runs."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative import recipes
from performative._base.messages import code_of
from performative.moments.probes import loss_bends
from performative.plan.cost import Cost
from performative.plan.law import Laws
from performative.plan.near import Near
from performative.plan.outcome import Option
from performative.plan.pilots import Trial, last_exit, pilot
from performative.plan.settings import Recipe, Setting
from performative.problem import Problem

# Settings examined: in pilot runs (no two of the same kind), and in total.
_PILOTS, _LOOKS = 6, 60
# Budget for moments: rounds times the squared size of the state. Beyond it a pilot run is faster.
_MOST = 1 << 28
# How much longer than predicted the moments are followed, in successive attempts; and fractions of the step to try:
# other recipes may need smaller steps than P-FedAvg.
_STRETCH, _SHARES = (1.5, 6.0), (1.0, 0.5, 0.25)
# The run is extended if its second half leaves at most this fraction of the error.
_FALLING = 0.97


@dataclasses.dataclass
class Look:
    """How settings are examined.

    Attributes:
        laws: the recipe's own errors by setting; None if it has none
        affine: whether these may be exact; None until checked
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
    laws: Laws | None = None
    affine: bool | None = None

    def at(self, option: Option) -> tuple[Setting, str, Trial] | None:
        """The setting or one with smaller steps, the method used, and its result; None if no method applies."""
        tried = [(shorter, self._law(shorter, option.rounds)) for shorter in self._shorter(option.setting)]
        known = [(shorter, trial) for shorter, trial in tried if trial is not None]
        setting, trial = min(known, key=lambda pair: pair[1].rounds) if known else (option.setting, None)
        if trial is not None and self.is_exact:
            return setting, "exact moments", trial
        if not self.pilots:
            return None if trial is None or self.is_plain else (setting, "linear model", trial)
        rounds = trial.rounds if trial is not None and math.isfinite(trial.rounds) else option.rounds
        return setting, "pilot runs", pilot(
            self.problem, setting, self.theta, self.near.stable, self.accuracy, rounds, self.deploy,
            self.cost.latency, self.seed, self.recipe,
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Whether the recipe is the one used to rank settings."""
        return self.recipe is recipes.p_fedavg

    @property
    def is_exact(self) -> bool:
        """Whether gradients are linear in the model, so the moments close."""
        if self.affine is None:
            self.affine = self.problem.domain is None and not loss_bends(self.problem, self.near.stable)
        return self.affine

    def _law(self, setting: Setting, rounds: float) -> Trial | None:
        """By the recipe's own moments, None if it has none or they would take too long.

        For P-FedAvg on a nonlinear problem, the settings were already ranked by this linear model.
        """
        if (self.is_plain and not self.is_exact) or self.laws is None:
            return None
        trial = None
        for stretch in _STRETCH:
            count = math.ceil(stretch * rounds) + 2
            if count * (self.near.clients * self.near.size) ** 2 > _MOST:
                return trial
            try:
                error = self.laws.errors(setting, count)
            except ValueError as refusal:
                if code_of(refusal) != "not-affine":
                    raise
                self.laws, self.affine = None, False
                return None
            trial = self._settled(error)
            if math.isfinite(trial.rounds) or len(error) <= count or error[-1] > _FALLING * error[len(error) // 2]:
                break
        return trial

    def _shorter(self, setting: Setting) -> list[Setting]:
        """The setting, and with smaller steps if another recipe may need them."""
        shares = _SHARES[:1] if self.is_plain else _SHARES
        return [dataclasses.replace(setting, rate=share * setting.rate) for share in shares]

    def _settled(self, error: np.ndarray) -> Trial:
        """The rounds after which the error stays at or below `accuracy`."""
        needed = last_exit(error, np.arange(len(error)), self.accuracy)
        return Trial(needed, float(error[int(needed)]) if math.isfinite(needed) else math.inf)


def look_closely(look: Look, ranked: list[Option]) -> tuple[list[Option], str, Trial | None, int]:
    """The leading settings with their actual times, until no other is predicted to be faster.

    Also the method and result for the fastest, and how many settings predicted to be faster were not tried.
    """
    seen: list[tuple[Option, str, Trial]] = []
    for option in ranked[:_LOOKS]:
        if len(seen) > 1 and min(o.time for o, _, _ in seen) <= option.time:
            break
        if sum(how == "pilot runs" for _, how, _ in seen) == _PILOTS:
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
            f"plan: none of the {len(seen)} best settings reached accuracy = {look.accuracy:g} when examined "
            f"closely ({seen[-1][1]}): this far from the stable point, or for this recipe, the linear model "
            "is misleading. Use a different accuracy, or start nearer (theta)."
        )
    best, how, trial = good[0]
    rest = [option for option in ranked[len(seen) :] if option.time >= best.time]
    later = sorted([*(option for option, _, _ in good[1:]), *rest], key=lambda o: o.time)
    return [best, *later], how, trial, len(ranked) - len(seen) - len(rest)
