"""The result of a plan for drifting data."""

import dataclasses
import math
from typing import Any

from performative._engine.clock import Clock
from performative.algorithm import Algorithm
from performative.plan.settings import Setting
from performative.theory.drifting import DriftError


@dataclasses.dataclass(frozen=True)
class Steps:
    """Constant steps that track a moving point.

    Attributes:
        setting, round_time: E = 1, full participation, the batch and the rate; the time of a round
        error: mean square distance to the current stable point at the start of each round
        in_use: the same averaged over a model's age in whole time units, since the point moves during a round
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
    """Training to the minimum on `rows` rows per client, every `period` units of time; see pf.theory.retraining_error.

    Attributes:
        error: mean square distance to the current stable point, over the time its models are in use
        deployed: the same at the time each model is deployed
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
    """How to track data that drift in a straight line: the result of `plan` if no setting converges to a point.

    Attributes:
        accuracy: the requested root mean square of |theta - theta_PS|, with theta_PS the current stable point
        choice: the steps with the smallest long-run error at the start of rounds
        retraining: the best retraining to the minimum, None if that diverges or there is no minimum
        ranked: the best steps for each number of samples, smallest error first
        algorithm, clock: ready for pf.run(problem, found.algorithm, found.rounds, clock=found.clock)
        since, speed: the time from which the stable point moves in a straight line, and how far per unit of time
        rounds: the burn-in, after which the error is the long-run error
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
        """The root mean square of |theta - theta_PS| to expect of `algorithm` in the long run, as rounds start."""
        return math.sqrt(self.choice.error.total)

    @property
    def reachable(self) -> bool:
        """Whether `algorithm` stays within `accuracy`."""
        return self.error <= self.accuracy

    @property
    def better(self) -> str:
        """Which has the smaller error when its models are deployed: "steps" or "retraining"."""
        again = self.retraining
        return "retraining" if again is not None and again.deployed < self.choice.error.total else "steps"

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons, in sentences."""
        T, known, start = self.choice.round_time, self.choice.error, f"From time {self.since:g} on the"
        lines = [
            f"{start if self.since else 'The'} stable point moves by {self.speed:.3g} per unit of time, so by "
            f"{self.speed * T:.3g} in a round of time {T:.3g}.",
            f"Steps of {self.choice.setting.rate:.3g} lag by {math.sqrt(known.lag):.3g} and fluctuate by "
            f"{math.sqrt(known.noise):.3g}: smaller ones lag more, larger ones are noisier.",
        ]
        others = [
            f"{math.sqrt(found.error.total) / self.error:.2f} times with batches of {found.setting.batch}"
            for found in sorted(self.ranked, key=lambda found: found.setting.batch)
            if found is not self.choice
        ]
        if others and self.error > 0:
            lines.append(f"Relative to the error with batches of {self.choice.setting.batch}: {', '.join(others)}.")
        return (*lines, self._beside(), *self.notes)

    def _beside(self) -> str:
        """What retraining would do."""
        again = self.retraining
        if again is None:
            return "Retraining to the minimum does not follow it: there is no minimum, or it diverges."
        found = math.sqrt(again.deployed)
        rows = f"{again.rows} row{'s' if again.rows > 1 else ''} per client"
        every = f"{again.period} units" if again.period > 1 else "unit"
        within = ", within the accuracy," if found <= self.accuracy and not self.reachable else ""
        return (
            f"Retraining to the minimum on {rows} every {every} of time has an error of {found:.3g}{within} when its "
            f"models are deployed, and these steps have one of {self.error:.3g}: "
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
