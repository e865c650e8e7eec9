"""What a paper says, what was measured, and the verdict that follows from both."""

from typing import Annotated, Any, Literal

import pydantic

from performative.papers.outcome import Numbers, tell

REPRODUCED = "reproduced"
CORRECTED = "reproduced with corrections"
FAILED = "not reproducible as printed"
UNTESTED = "not tested"
VERDICTS = (REPRODUCED, CORRECTED, FAILED, UNTESTED)

RULES = ("below", "above", "between", "near")
# A number, or the name of another number.
Limit = float | str


class Check(pydantic.BaseModel, extra="forbid", frozen=True):
    """One number held against another: below, above, between, or near within a distance or so many standard errors."""

    number: str
    below: Limit | None = None
    above: Limit | None = None
    between: tuple[Limit, Limit] | None = None
    near: Limit | None = None
    within: float | None = None
    errors: float | None = None

    @pydantic.model_validator(mode="after")
    def _one_rule(self) -> "Check":
        if sum(getattr(self, rule) is not None for rule in RULES) != 1:
            raise ValueError("give exactly one of below, above, between, near")
        if (self.near is not None) != ((self.within is None) != (self.errors is None)):
            raise ValueError("near needs one of within and errors; the others need neither")
        return self

    def _asked(self) -> tuple[str, tuple[Limit, ...]]:
        """The rule, and the limits that it has."""
        rule = next(rule for rule in RULES if getattr(self, rule) is not None)
        limits = getattr(self, rule)
        return rule, limits if isinstance(limits, tuple) else (limits,)

    def holds(self, numbers: Numbers) -> bool:
        """Whether it is so. NaN never is."""
        value, error = _read(numbers, self.number)
        rule, limits = self._asked()
        (first, other), (last, _) = (_read(numbers, limits[i]) for i in (0, -1))
        if rule == "near":
            spread = self.within if self.errors is None else self.errors * (error**2 + other**2) ** 0.5
            return abs(value - first) <= (spread or 0.0)
        return {"below": value < first, "above": value > first, "between": first <= value <= last}[rule]

    def tell(self, numbers: Numbers) -> str:
        """The number and the rule, as a reader wants them."""
        value, error = _read(numbers, self.number)
        rule, limits = self._asked()
        digits = _digits(value, [_read(numbers, limit)[0] for limit in limits])
        said = " to ".join(
            f"{one} = {tell(*_read(numbers, one), digits)}" if isinstance(one, str) else f"{one:.10g}" for one in limits
        )
        if rule == "near":
            said += f" within {self.within:g}" if self.errors is None else f" within {self.errors:g} standard errors"
        word = f"{rule} " if rule in ("below", "above") else ""
        return f"{self.number} = {tell(value, error, digits)}, asked for {word}{said}"


class Claim(pydantic.BaseModel, extra="forbid", frozen=True):
    """One row of the ledger. `expected` is the verdict that full runs are known to give; nothing is decided by it."""

    id: Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    claim: str
    how: str
    place: str = ""
    printed: Check
    corrected: Check | None = None
    correction: str = ""
    reason: str = ""
    expected: Literal["reproduced", "reproduced with corrections", "not reproducible as printed"]
    quick: bool = True

    @pydantic.model_validator(mode="after")
    def _says_why(self) -> "Claim":
        if (self.corrected is None) != (not self.correction):
            raise ValueError(f"{self.id}: corrected and correction belong together")
        if self.expected == FAILED and not self.reason:
            raise ValueError(f"{self.id}: say in `reason` why it does not hold")
        return self

    def judge(self, numbers: Numbers, quick: bool) -> dict[str, Any]:
        """The row: numbers, verdict and reason. As printed first, then as corrected."""
        row = {"id": self.id, "claim": self.claim, "how": self.how, "place": self.place}
        if quick and not self.quick:
            return row | {
                "number": "", "verdict": UNTESTED, "reason": "needs the full size",
                "printed_holds": None, "corrected_holds": None,
            }  # fmt: skip
        printed = self.printed.holds(numbers)
        corrected = None if self.corrected is None else self.corrected.holds(numbers)
        said = self.printed.tell(numbers)
        if printed:
            verdict, reason = REPRODUCED, ""
        elif corrected:
            verdict, reason = CORRECTED, self.correction
            said = f"as printed: {said}; corrected: {self.corrected.tell(numbers)}" if self.corrected else said
        else:
            verdict, reason = FAILED, self.reason or "it was expected to hold, and does not in this run"
        return row | {
            "number": said, "verdict": verdict, "reason": reason, "printed_holds": printed, "corrected_holds": corrected
        }  # fmt: skip


def _digits(value: float, limits: list[float], most: int = 12) -> int:
    """As many as tell a number from its limits, four at least: 0.999996 is below 1, and shall look so."""
    for digits in range(4, most):
        if all(value == limit or f"{value:.{digits}g}" != f"{limit:.{digits}g}" for limit in limits):
            return digits
    return most


def _read(numbers: Numbers, limit: Limit | None) -> tuple[float, float]:
    """Value and standard error (0 where there is none)."""
    if not isinstance(limit, str):
        return float(limit), 0.0  # type: ignore[arg-type]  # one rule is given, as was checked
    if limit not in numbers:
        raise KeyError(f"the experiment gives no number {limit!r}; it gives {sorted(numbers)}")
    number = numbers[limit]
    return (float(number[0]), float(number[1])) if isinstance(number, (tuple, list)) else (float(number), 0.0)
