"""What a run has spent, round by round, and when it has to stop."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from performative.algorithm import Algorithm
from performative.arguments import checked
from performative.files import write_whole
from performative.privacy.accounting import Spending
from performative.privacy.certification import Guarantee, guarantee
from performative.privacy.promise import BOOK, Privacy
from performative.privacy.secure import describe_noise
from performative.problem import Problem

# Numbers of rounds at which epsilon is worked out; between two of them the ledger writes the later, larger one.
_POINTS = 32
# The grid for that, in parts of the last epsilon.
_COARSE = 1e-3


class Ledger:
    """The books of one run, kept in its checkpoint's folder where it has one.

    `wasted` counts rounds whose noise was drawn and lost: they were spent all the same.
    """

    @checked
    def __init__(
        self,
        privacy: Privacy,
        problem: Problem,
        algorithm: Algorithm,
        folder: Path | str | None = None,
        theta: Any = None,
        unseen_rows: bool = False,
    ):
        self.privacy = privacy
        self.guarantee: Guarantee = guarantee(
            problem, algorithm, privacy.unit, privacy.published, privacy.conservative, theta, unseen_rows
        )
        if privacy.epsilon is not None and not self.guarantee.certified:
            raise ValueError(f"privacy: no budget can be kept, epsilon is infinite: {'; '.join(self.guarantee.why)}.")
        self.secure = privacy.noise == "secure"
        if self.secure and not (algorithm.estimator.grid_noise or algorithm.channel.grid_noise):
            raise ValueError('privacy: noise="secure" needs a part that adds noise: Clipped, Dice or ClippedNoise.')
        self.file = None if folder is None else Path(folder) / BOOK
        self.wasted = self.done = 0

    def resume(self, done: int) -> None:
        """Take up the books of a run that is at round `done`: secure noise that was drawn for more rounds is lost."""
        self.done = done
        if self.file is None or not (done or self.file.exists()):
            return
        book: dict[str, Any] = {"noise": "fast", "wasted": 0, "drawn": done}
        if self.file.exists():
            book = json.loads(self.file.read_text())
        if done and book["noise"] != self.privacy.noise:
            raise ValueError(
                f'privacy: the run in the checkpoint has {book["noise"]} noise; go on with noise="{book["noise"]}".'
            )
        self.wasted = book["wasted"]
        if book["noise"] == "secure":
            self.wasted += max(0, book["drawn"] - done)
            # Samples are drawn anew, too: in the epoch that was left a person can come a second time.
            epochs = [math.ceil(1 / mine.each) for mine in self.guarantee.releases if mine.each < 1]
            self.wasted += max(epochs, default=0)

    def write(self, upto: int) -> None:
        """Write down, before it begins, up to which round noise will be drawn."""
        if self.file is not None:
            spent = self.spent(upto).epsilon
            told = {"noise": self.privacy.noise, "wasted": self.wasted, "drawn": upto}
            told |= {"spent": spent if math.isfinite(spent) else "infinite"}
            promise = {"delta": self.privacy.delta, "epsilon": self.privacy.epsilon, "unit": self.guarantee.unit}
            write_whole(self.file, json.dumps({**told, **promise}).encode())

    def most_rounds(self, rounds: int) -> int:
        """How many of `rounds` the budget allows; what is done stays done."""
        budget, delta = self.privacy.epsilon, self.privacy.delta
        if budget is None or self.spent(rounds).epsilon <= budget:
            return rounds
        allowed = int(max(self.guarantee.most_rounds(budget, delta) - self.wasted, min(self.done, rounds)))
        if allowed == 0:
            raise ValueError(
                f"privacy: one round alone spends epsilon = {self.spent(1).epsilon:.4g}, the budget is {budget:.4g}; "
                "use more noise (pf.privacy.calibrate), smaller samples, or a larger budget."
            )
        return allowed

    def spent(self, rounds: int) -> Spending:
        """Epsilon after `rounds` rounds, what was lost included."""
        return self.guarantee.spent(rounds + self.wasted, self.privacy.delta)

    def column(self, rounds: np.ndarray) -> np.ndarray:
        """Epsilon at each of these rounds (rising), never too small; as `spent` has it at the last."""
        last = int(rounds[-1])
        if last == 0:
            return np.zeros(len(rounds))
        final = self.spent(last).epsilon
        marks = np.unique(np.concatenate([[last], rounds[rounds > 0][_spaced(int(np.sum(rounds > 0)))]]))
        grid = final * _COARSE if math.isfinite(final) else None
        found = self.guarantee.spendings([int(r) + self.wasted for r in marks], self.privacy.delta, grid)
        values = np.minimum(np.maximum.accumulate([spending.epsilon for spending in found]), final)
        return np.where(rounds == 0, 0.0, values[np.searchsorted(marks, rounds)])

    def summary(self, rounds: int, wanted: int, stopped: bool) -> dict[str, Any]:
        """What a result says of privacy; `stopped`: the budget is why there are fewer rounds than wanted."""
        spending = self.spent(rounds)
        words = f"the budget was spent after {rounds} of {wanted} rounds" if stopped else None
        if self.privacy.epsilon is not None and spending.epsilon > self.privacy.epsilon:
            words = f"round {rounds} had been reached before this budget was set: it is exceeded"
        return {
            "epsilon": spending.epsilon if math.isfinite(spending.epsilon) else "infinite",
            "delta": self.privacy.delta,
            "budget": self.privacy.epsilon,
            "unit": self.guarantee.unit,
            "neighbours": spending.neighbours,
            "method": spending.method,
            "noise": describe_noise(self.privacy.noise),
            "why": list(self.guarantee.why),
            "assumes": list(self.guarantee.assumes),
            "not_covered": list(self.guarantee.not_covered),
            "stopped": words,
        }


def _spaced(count: int) -> np.ndarray:
    """At most 32 or so of `count` places, close together at first."""
    if count <= _POINTS:
        return np.arange(count)
    return np.unique(np.round(np.geomspace(1, count, _POINTS)).astype(int)) - 1
