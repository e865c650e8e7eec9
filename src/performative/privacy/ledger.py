"""The privacy spent by a run, round by round, and when it must stop."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.arguments import checked
from performative._base.files import Damaged, digest_of, write_whole
from performative.algorithm import Algorithm
from performative.privacy.accounting import Spending
from performative.privacy.certification import Guarantee, guarantee
from performative.privacy.promise import BOOK, Privacy
from performative.privacy.secure import describe_noise
from performative.problem import Problem
from performative.types import Theta

# Numbers of rounds at which epsilon is computed; in between, the ledger reports the next, larger value.
_POINTS = 32
# The grid used there, as a fraction of the final epsilon.
_COARSE = 1e-3


class Ledger:
    """The privacy ledger of one run, stored in its checkpoint folder if it has one.

    `wasted` counts rounds whose noise was drawn and lost: they count as spent. `seen` lists what observes more than
    the published models, which voids the guarantee.
    """

    @checked
    def __init__(
        self,
        privacy: Privacy,
        problem: Problem,
        algorithm: Algorithm,
        folder: Path | str | None = None,
        theta: Theta = None,
        unseen_rows: bool = False,
        seen: tuple[str, ...] = (),
        secure_threshold: int | None = None,
    ):
        self.privacy = privacy
        self.guarantee: Guarantee = guarantee(
            problem, algorithm, privacy.unit, privacy.published, privacy.conservative, theta, unseen_rows, seen,
            secure_threshold,
        )  # fmt: skip
        if privacy.epsilon is not None and not self.guarantee.promised:
            raise ValueError(
                f"privacy: no budget can be kept because epsilon is infinite: {'; '.join(self.guarantee.why)}."
            )
        self.secure = privacy.noise == "secure"
        if self.secure and not (algorithm.estimator.grid_noise or algorithm.channel.grid_noise):
            raise ValueError('privacy: noise="secure" needs a part that adds noise: Clipped, Dice or ClippedNoise.')
        self.file = None if folder is None else Path(folder) / BOOK
        self.wasted = self.done = 0
        mechanism = json.loads(json.dumps([one.told() for one in self.guarantee.releases]))
        self.told: dict[str, Any] = {"noise": privacy.noise, "mechanism": mechanism, "wasted": 0, "drawn": 0}

    def resume(self, notes: dict[str, Any]) -> None:
        """Resume the ledger of a run whose checkpoint has these notes.

        Secure noise drawn for more rounds than the checkpoint has is lost, but counts as spent. A ledger that is
        missing, altered, older than the checkpoint or of another kind of noise stops the run: otherwise lost rounds
        would not be counted.
        """
        self.done, noted = notes["round"], notes.get("ledger")
        if self.file is None:
            return
        if not self.file.exists():
            if noted is not None:
                raise ValueError(
                    f"privacy: {self.file} is missing, so the noise drawn and lost since the checkpoint is unknown. "
                    "Restore the file; without it this run cannot continue."
                )
            if self.done and self.secure:
                raise ValueError('privacy: the run in the checkpoint has fast noise; continue with noise="fast".')
            return
        book = self._read()
        if noted is not None and (book["drawn"] < noted["drawn"] or book["wasted"] < noted["wasted"]):
            raise ValueError(f"privacy: {self.file} is older than the checkpoint next to it; restore the right one.")
        if book["noise"] != self.privacy.noise:
            raise ValueError(
                f'privacy: the run in the checkpoint has {book["noise"]} noise; continue with noise="{book["noise"]}".'
            )
        if book["mechanism"] != self.told["mechanism"]:
            raise ValueError(
                f"privacy: {self.file} counts {book['drawn']} rounds of another mechanism (noise, sampling or steps "
                "differ), which are spent; continue with that one, or use another folder and add the two epsilons."
            )
        self.wasted, done = book["wasted"], self.done
        if self.secure:
            self.wasted += max(0, book["drawn"] - done)
            # Samples are redrawn, too: in the interrupted epoch, a person may be drawn a second time.
            epochs = [math.ceil(1 / mine.each) for mine in self.guarantee.releases if mine.each < 1]
            self.wasted += max(epochs, default=0)

    def _read(self) -> dict[str, Any]:
        """Read the ledger; raise `Damaged` if it was altered."""
        assert self.file is not None
        try:
            book = json.loads(self.file.read_text())
            digest = book.pop("digest")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(f"privacy: {self.file} is not what a run wrote; restore the file.") from None
        if digest != digest_of(json.dumps(book).encode()):
            raise Damaged(
                f"privacy: {self.file} was altered after it was written: its digest does not match. Restore the file."
            )
        return book

    def write(self, upto: int) -> None:
        """Record, in advance, up to which round noise will be drawn."""
        self.told |= {"wasted": self.wasted, "drawn": upto}
        if self.file is not None:
            spent = self.spent(upto).epsilon
            told = {**self.told, "spent": spent if math.isfinite(spent) else "infinite"}
            told |= {"delta": self.privacy.delta, "epsilon": self.privacy.epsilon}
            told |= {"unit": self.guarantee.unit, "on_word": list(self.guarantee.on_word)}
            book = json.loads(json.dumps(told))
            write_whole(self.file, json.dumps(book | {"digest": digest_of(json.dumps(book).encode())}).encode())

    def most_rounds(self, rounds: int) -> int:
        """How many of `rounds` the budget allows, at least the rounds already done."""
        budget, delta = self.privacy.epsilon, self.privacy.delta
        if budget is None or self.spent(rounds).epsilon <= budget:
            return rounds
        allowed = int(max(self.guarantee.most_rounds(budget, delta) - self.wasted, min(self.done, rounds)))
        if allowed == 0:
            raise ValueError(
                f"privacy: one round alone spends epsilon = {self.spent(1).epsilon:.4g}, but the budget is "
                f"{budget:.4g}; use more noise (pf.privacy.calibrate), smaller samples, or a larger budget."
            )
        return allowed

    def spent(self, rounds: int) -> Spending:
        """Epsilon after `rounds` rounds, including lost ones."""
        return self.guarantee.spent(rounds + self.wasted, self.privacy.delta)

    def column(self, rounds: np.ndarray) -> np.ndarray:
        """Epsilon at each of these increasing rounds, never underestimated; equal to `spent` at the last."""
        last = int(rounds[-1])
        if last == 0:
            return np.zeros(len(rounds))
        final = self.spent(last).epsilon
        marks = np.unique(np.concatenate([[last], rounds[rounds > 0][_spaced(int(np.sum(rounds > 0)))]]))
        grid = final * _COARSE if 0 < final < math.inf else None
        found = self.guarantee.spendings([int(r) + self.wasted for r in marks], self.privacy.delta, grid)
        values = np.minimum(np.maximum.accumulate([spending.epsilon for spending in found]), final)
        return np.where(rounds == 0, 0.0, values[np.searchsorted(marks, rounds)])

    def summary(self, rounds: int, wanted: int, stopped: bool) -> dict[str, Any]:
        """The privacy summary of a result; `stopped`: the budget ended the run before the requested rounds."""
        spending = self.spent(rounds)
        words = f"the budget was spent after {rounds} of {wanted} rounds" if stopped else None
        if self.privacy.epsilon is not None and spending.epsilon > self.privacy.epsilon:
            words = f"round {rounds} had been reached before this budget was set: the budget is exceeded"
        return {
            "epsilon": spending.epsilon if math.isfinite(spending.epsilon) else "infinite",
            "delta": self.privacy.delta,
            "budget": self.privacy.epsilon,
            "unit": self.guarantee.unit,
            "neighbors": spending.neighbors,
            "method": spending.method,
            "noise": describe_noise(self.privacy.noise),
            "why": list(self.guarantee.why),
            "assumes": list(self.guarantee.assumes),
            "not_covered": list(self.guarantee.not_covered),
            "on_word": list(self.guarantee.on_word),
            "verdict": self.guarantee.verdict,
            "stopped": words,
        }


def _spaced(count: int) -> np.ndarray:
    """About 32 of `count` indices, denser at the start."""
    if count <= _POINTS:
        return np.arange(count)
    return np.unique(np.round(np.geomspace(1, count, _POINTS)).astype(int)) - 1
