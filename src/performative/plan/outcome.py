"""The result of a plan."""

import dataclasses
from typing import Any

import numpy as np

from performative._base.notebook import card
from performative.algorithm import Algorithm
from performative.plan.cost import Cost
from performative.plan.settings import Setting

_SCHEMES = {"full": "asking everyone", "one": "Scheme I", "two": "Scheme II", "first": "waiting for the first K"}


@dataclasses.dataclass(frozen=True)
class Option:
    """A setting, the rounds it needs, their total time, and the time of one round."""

    setting: Setting
    rounds: float
    time: float
    round_time: float

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self.setting), "rounds": self.rounds, "time": self.time}


def one_of_each(ranked: list[Option]) -> list[Option]:
    """The first of each kind."""
    first: dict[Any, Option] = {}
    for option in ranked:
        first.setdefault(option.setting.kind, option)
    return list(first.values())


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The choice, the runner-up, and why.

    Attributes:
        accuracy, start: the requested error, and the initial error
        choice: the fastest setting, with its predicted rounds and time
        runner_up: the next best of another kind, None if there is none
        ranked: every kind of setting, the fastest first; times of the leaders come from `method`, of others from the
            linear model
        method: how the time of the choice was found: "exact moments", "pilot runs" or "linear model"
        algorithm: ready for pf.run(problem, plan.algorithm, plan.rounds)
        reached: the error to expect, None if only the linear model was used; above `accuracy` if privacy keeps it out
            of reach
    """

    accuracy: float
    start: float
    choice: Option
    runner_up: Option | None
    ranked: tuple[Option, ...]
    method: str
    algorithm: Algorithm
    cost: Cost
    clients: int
    reached: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return round(self.choice.rounds)

    @property
    def time(self) -> float:
        return self.choice.time

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons, in sentences."""
        chosen, lines = self.choice.setting, []
        everyone = np.full(self.clients, 1.0 / self.clients)
        idle = self.cost.round_time(chosen.scheme, chosen.k or self.clients, 0, chosen.batch, everyone)
        share = idle / self.choice.round_time
        lines.append(
            f"A round takes {self.choice.round_time:.3g}: {share:.0%} of it communication and waiting, the rest "
            f"{chosen.local_steps} local step{'s' if chosen.local_steps > 1 else ''} of {chosen.batch} "
            f"sample{'s' if chosen.batch > 1 else ''}."
        )
        lines += [*self._beside("local_steps", "E = {}"), *self._schemes(), *self._beside("batch", "batches of {}")]
        if self.runner_up is not None:
            times = self.runner_up.time / self.choice.time
            lines.append(f"The runner-up takes {times:.2f} times as long: {self.runner_up.setting.words()}.")
        return (*lines, *self.notes)

    def _best(self, of: str) -> dict[Any, Option]:
        best: dict[Any, Option] = {}
        for option in self.ranked:
            best.setdefault(getattr(option.setting, of), option)
        return best

    def _beside(self, of: str, words: str) -> list[str]:
        """Relative times of the nearest other values."""
        best, chosen = self._best(of), getattr(self.choice.setting, of)
        if chosen not in best or len(best) < 2:
            return []
        values = sorted(best)
        at = values.index(chosen)
        near = [values[i] for i in (at - 1, at + 1) if 0 <= i < len(values)]
        said = [f"{best[value].time / self.time:.2f} times as long with {words.format(value)}" for value in near]
        return [f"Relative to {words.format(chosen)}, the best setting takes " + " and ".join(said) + "."]

    def _schemes(self) -> list[str]:
        best, chosen = self._best("scheme"), self.choice.setting.scheme
        others = [scheme for scheme in best if scheme != chosen]
        if chosen not in best or not others:
            return []
        said = [f"{best[scheme].time / self.time:.2f} times as long with {_SCHEMES[scheme]}" for scheme in others]
        return [f"Relative to {_SCHEMES[chosen]}, the best setting takes {', '.join(said)}."]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "accuracy": self.accuracy,
            "reached": self.reached,
            "start": self.start,
            "time": self.time,
            "rounds": self.rounds,
            "choice": self.choice.to_dict(),
            "runner_up": None if self.runner_up is None else self.runner_up.to_dict(),
            "method": self.method,
            "why": list(self.why),
            "ranked": [option.to_dict() for option in self.ranked[:20]],
        }

    def _repr_html_(self) -> str:
        head, setting, *_ = str(self).splitlines()
        return card("Plan", [("setting", setting.strip())], self.why, lead=f"{head.removesuffix(':')}.")

    def __str__(self) -> str:
        if self.reached is not None and self.reached > self.accuracy:
            head = f"{self.accuracy:g} is out of reach; the best is an error of {self.reached:.3g}"
        else:
            head = f"The error falls from {self.start:.3g} to {self.accuracy:g}"
        return "\n".join(
            [
                f"{head} in {self.rounds} round{'s' if self.rounds > 1 else ''}, time {self.time:.4g} ({self.method}):",
                f"  {self.choice.setting.words()}",
                "Why:",
                *(f"  - {line}" for line in self.why),
            ]
        )
