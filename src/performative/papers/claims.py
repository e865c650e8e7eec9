"""What a paper says, what was measured, and the verdict that follows from both."""

from typing import Annotated, Any, Literal

import pydantic

from performative.papers.checks import INTERVAL, Check
from performative.papers.outcome import Numbers

REPRODUCED, CORRECTED, REFUTED = "reproduced", "reproduced with corrections", "refuted"
UNDECIDED, UNTESTED = "undecided", "not tested"
HOLDS, FAILS = "holds", "fails"
# Verdicts on the papers' claims.
VERDICTS = {
    REPRODUCED: "it holds as printed: the same instance, constants and algorithm",
    CORRECTED: "it holds once a stated error in print is corrected",
    REFUTED: "it fails in the authors' own setting, under every reading we could think of",
    UNDECIDED: "constants are not given, the setting was not run, or the difference is within the noise",
    UNTESTED: "nothing was measured, for the reason given",
}
# Verdicts on our own results and on checks of the library.
OWN_VERDICTS = {
    HOLDS: "the measured number is as stated",
    FAILS: "it is not",
    UNDECIDED: VERDICTS[UNDECIDED],
    UNTESTED: VERDICTS[UNTESTED],
}
KINDS = {
    "paper": "claims of papers",
    "own": "our own results",
    "check": "checks of our own runs",
    "definition": "definitions, which no measurement can refute",
}


class Claim(pydantic.BaseModel, extra="forbid", frozen=True):
    """One row of the ledger.

    Attributes:
        kind: Whose claim it is, a key of `KINDS`; defaults to the kind of the experiment's folder.
        statement: Rows of a paper with the same value here measure the same claim.
        about: Numbered statements of the paper that the row tests, such as "Theorem 3.1".
        printed: The check that holds if the claim does. `corrected`: the check that holds after `correction`.
        correction: The error in print that was corrected. Without `corrected`, the instance itself is the corrected
            one.
        undecided: Why the measurement cannot decide: constants not given, different setting.
        untested: Why there is no measurement.
        reason: Why it fails.
        expected: The verdict that full runs are known to give; it does not affect the verdict.
    """

    id: Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    claim: str
    how: str = ""
    kind: Literal["", "paper", "own", "check", "definition"] = ""
    statement: str = ""
    about: tuple[str, ...] = ()
    place: str = ""
    printed: Check | None = None
    corrected: Check | None = None
    correction: str = ""
    undecided: str = ""
    untested: str = ""
    reason: str = ""
    expected: str
    quick: bool = True

    @pydantic.model_validator(mode="after")
    def _says_why(self) -> "Claim":
        if self.corrected is not None and not self.correction:
            raise ValueError(f"{self.id}: say in `correction` what is corrected")
        words = VERDICTS if self.kind in ("", "paper") else OWN_VERDICTS
        if self.expected not in words:
            raise ValueError(f"{self.id}: `expected` is one of {', '.join(words)}")
        if self.expected in (REFUTED, FAILS) and not self.reason:
            raise ValueError(f"{self.id}: say in `reason` why it does not hold")
        if (self.printed is None) != bool(self.untested):
            raise ValueError(f"{self.id}: give `printed`, or say in `untested` why nothing is measured")
        if self.printed is not None and not self.how:
            raise ValueError(f"{self.id}: say in `how` what is measured")
        return self

    def judge(self, numbers: Numbers, quick: bool) -> dict[str, Any]:
        """The row: numbers, verdict and reason."""
        row = {"id": self.id, "claim": self.claim, "how": self.how, "place": self.place, "statement": self.statement}
        if self.printed is None or (quick and not self.quick):
            why = self.untested or "needs the full size"
            return row | {"number": "", "verdict": UNTESTED, "reason": why}
        said = self.printed.tell(numbers)
        if self.corrected is not None:
            said = f"as printed: {said}; corrected: {self.corrected.tell(numbers)}"
        verdict, reason = self._verdict(self.printed, numbers)
        row |= self.printed.values(numbers)
        return row | {"number": said, "verdict": verdict, "reason": reason}

    def _verdict(self, printed: Check, numbers: Numbers) -> tuple[str, str]:
        """Check as printed first, then as corrected."""
        so = printed.decide(numbers)
        mended = None if self.corrected is None else self.corrected.decide(numbers)
        within = f"the difference is within {INTERVAL:g} standard errors"
        if self.kind in ("own", "check", "definition"):
            word = {True: HOLDS, False: FAILS, None: UNDECIDED}[so]
            return word, {True: "", False: self.reason or "it does not hold in this run", None: within}[so]
        if self.undecided:
            here = {True: "here it holds", False: "here it does not hold", None: f"here {within}"}[so or mended or so]
            return UNDECIDED, f"{self.undecided.rstrip('.')}; {here}"
        if so is None or (so is False and self.corrected is not None and mended is None):
            return UNDECIDED, within
        if so:
            mended_instance = self.correction and self.corrected is None
            return (CORRECTED, self.correction) if mended_instance else (REPRODUCED, "")
        if mended:
            return CORRECTED, self.correction
        return REFUTED, self.reason or "it was expected to hold, and does not in this run"
