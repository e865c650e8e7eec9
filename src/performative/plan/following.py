"""What a plan for data that drift says."""

import dataclasses
import math
from typing import Any

from performative._engine.clock import Clock
from performative.algorithm import Algorithm
from performative.plan.settings import Setting
from performative.theory.drifting import DriftError


@dataclasses.dataclass(frozen=True)
class Steps:
    """Steps of constant length that follow a moving point.

    Attributes:
        setting, round_time: E = 1, everyone, the batch and the rate; the time of a round
        error: mean square distance to the stable point of the time, as each round begins
        in_use: the same over all whole ages of a model, since the point moves on while a round lasts
    """

    setting: Setting
    round_time: float
    error: DriftError
    in_use: float

    def to_dict(self) -> dict[str, Any]:
        known = {"lag": math.sqrt(self.error.lag), "scatter": math.sqrt(self.error.noise)}
        found = {"error": math.sqrt(self.error.total), "in_use": math.sqrt(self.in_use)}
        return {**dataclasses.asdict(self.setting), "round_time": self.round_time, **known, **found}


@dataclasses.dataclass(frozen=True)
class Retraining:
    """Training to the minimum on `rows` rows a client, every `period` units of time; see pf.theory.retraining_error.

    Attributes:
        error: mean square distance to the stable point of the time, over the time that its models are in use
        deployed: the same as each of its models is deployed
    """

    rows: int
    period: int
    error: DriftError
    deployed: float

    def to_dict(self) -> dict[str, Any]:
        found = {"error": math.sqrt(self.error.total), "deployed": math.sqrt(self.deployed)}
        return {"rows": self.rows, "period": self.period, **found}


@dataclasses.dataclass(frozen=True, eq=False)
class Tracking:
    """How to follow data that drift in a straight line: the answer of `plan` where no setting ends at a point.

    Attributes:
        accuracy: the root mean square of |theta - theta_PS| that was asked for, theta_PS the point of the time
        choice: the steps with the least error in the long run, as rounds begin
        retraining: the best retraining to the minimum, None where that runs away or there is no minimum
        ranked: the best steps for each number of samples, the closest first
        algorithm, clock: ready for pf.run(problem, found.algorithm, found.rounds, clock=found.clock)
        since, speed: the time from which on the stable point moves in a straight line, and by how much a unit of time
        rounds: after so many the start is forgotten and the error is that of the long run
    """

    accuracy: float
    choice: Steps
    retraining: Retraining | None
    ranked: tuple[Steps, ...]
    algorithm: Algorithm
    clock: Clock
    since: float
    speed: float
    rounds: int
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The root mean square of |theta - theta_PS| to expect of `algorithm` in the long run, as rounds begin."""
        return math.sqrt(self.choice.error.total)

    @property
    def reachable(self) -> bool:
        """Whether `algorithm` keeps within `accuracy`."""
        return self.error <= self.accuracy

    @property
    def better(self) -> str:
        """Which has the smaller error as its models are deployed: "steps" or "retraining"."""
        again = self.retraining
        return "retraining" if again is not None and again.deployed < self.choice.error.total else "steps"

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons, in sentences."""
        T, known, start = self.choice.round_time, self.choice.error, f"From time {self.since:g} on the"
        lines = [
            f"{start if self.since else 'The'} stable point moves by {self.speed:.3g} a unit of time, so by "
            f"{self.speed * T:.3g} in a round, which takes {T:.3g}.",
            f"Steps of {self.choice.setting.rate:.3g} stay {math.sqrt(known.lag):.3g} behind and scatter by "
            f"{math.sqrt(known.noise):.3g}: shorter ones lag more, longer ones are noisier.",
        ]
        others = [
            f"batches of {found.setting.batch} {math.sqrt(found.error.total) / self.error:.2f}"
            for found in sorted(self.ranked, key=lambda found: found.setting.batch)
            if found is not self.choice
        ]
        if others and self.error > 0:
            lines.append(f"With the error at batches of {self.choice.setting.batch} as 1: {', '.join(others)}.")
        return (*lines, self._beside(), *self.notes)

    def _beside(self) -> str:
        """What retraining would do."""
        again = self.retraining
        if again is None:
            return "Retraining to the minimum does not follow it: there is none, or it runs away."
        found = math.sqrt(again.deployed)
        rows = f"{again.rows} row{'s' if again.rows > 1 else ''} a client"
        every = f"{again.period} units" if again.period > 1 else "unit"
        within = ", within the accuracy," if found <= self.accuracy and not self.reachable else ""
        return (
            f"Retraining to the minimum on {rows} every {every} of time has an error of {found:.3g}{within} as its "
            f"models are deployed, these steps {self.error:.3g}: "
            f"{'retraining follows' if self.better == 'retraining' else 'steps follow'} more closely. While models are "
            f"in use it is {math.sqrt(again.error.total):.3g}, and {math.sqrt(self.choice.in_use):.3g} for steps."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "accuracy": self.accuracy,
            "reached": self.error,
            "reachable": self.reachable,
            "rounds": self.rounds,
            "since": self.since,
            "speed": self.speed,
            "choice": self.choice.to_dict(),
            "retraining": None if self.retraining is None else self.retraining.to_dict(),
            "better": self.better,
            "method": "exact recursion",
            "why": list(self.why),
            "ranked": [found.to_dict() for found in self.ranked[:20]],
        }

    def __str__(self) -> str:
        if self.reachable:
            head = f"Follows the moving stable point with an error of {self.error:.3g}, within {self.accuracy:g}"
        else:
            head = f"{self.accuracy:g} is out of reach: the stable point moves; the best steps have an error of "
            head += f"{self.error:.3g}"
        lines = [f"{head} (exact recursion):", f"  {self.choice.setting.words()}", "Why:"]
        return "\n".join([*lines, *(f"  - {line}" for line in self.why)])
