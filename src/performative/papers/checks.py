"""Compare one number with another, and say whether the noise allows a decision."""

import math
from typing import Any, Literal

import pydantic

from performative.papers.outcome import Numbers, tell

RULES = ("below", "above", "between", "near")
# Half-width of an interval in standard errors: about a 95% confidence interval for a mean.
INTERVAL = 2.0
# A number, or the name of another number.
Limit = float | str


class Check(pydantic.BaseModel, extra="forbid", frozen=True):
    """Compare a number with a limit: below, above, between, or near (within a distance or some standard errors).

        below:   yes  value + 2 s < limit      no  value - 2 s > limit      else undecided

    where s is the standard error of the difference; numbers without an error are exact and always decided.

    Attributes:
        within: Tolerance of `near`: the paper's rounding, or floating-point roundoff.
        errors: Tolerance of `near` in standard errors of the difference. Together with `within`, a difference inside
            the noise is undecided.
        limit: Source of a numeric limit other than 0 or 1: "printed" in the paper, "exact" from a closed form, or
            "roundoff" for a quantity that is zero in exact arithmetic.
        bound: The number is error / bound; it is reported as the factor by which the bound is loose.
    """

    number: str
    below: Limit | None = None
    above: Limit | None = None
    between: tuple[Limit, Limit] | None = None
    near: Limit | None = None
    within: float | None = None
    errors: float | None = None
    limit: Literal["", "printed", "exact", "roundoff"] = ""
    bound: bool = False

    @pydantic.model_validator(mode="after")
    def _one_rule(self) -> "Check":
        if sum(getattr(self, rule) is not None for rule in RULES) != 1:
            raise ValueError("give exactly one of below, above, between, near")
        if (self.near is not None) != (self.within is not None or self.errors is not None):
            raise ValueError("near needs within, errors or both; the others need neither")
        if self.bound and self.below != 1:
            raise ValueError("a bound is checked as error / bound below 1")
        return self

    @property
    def rule(self) -> str:
        return next(rule for rule in RULES if getattr(self, rule) is not None)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """One limit, or two for `between`."""
        limits = getattr(self, self.rule)
        return limits if isinstance(limits, tuple) else (limits,)

    def threshold_of_ours(self) -> bool:
        """Whether a limit is a number that comes neither from the paper nor from arithmetic."""
        plain = all(isinstance(limit, str) or limit in (0, 1) for limit in self.limits) and not self.within
        return not plain and not self.limit

    def decide(self, numbers: Numbers) -> bool | None:
        """Whether the check holds; None if the noise leaves it undecided. NaN never holds."""
        value, error = _read(numbers, self.number)
        limits = [_read(numbers, limit) for limit in self.limits]
        room = _room(self.rule, value, [limit for limit, _ in limits], self.within or 0.0)
        noise = max((error**2 + other**2) ** 0.5 for _, other in limits)
        if noise and not noise < float("inf"):  # a single run: the error is unknown
            return None
        if self.errors is not None and self.within is None:
            return room + self.errors * noise >= 0
        if self.errors is not None:  # against a printed number: close, off by more than the noise, or undecided
            allowed = self.errors * noise
            return None if room + allowed >= 0 and (room < 0 or allowed > (self.within or 0)) else room >= 0
        if noise and abs(room) <= INTERVAL * noise:
            return None
        return room >= 0 if self.rule in ("between", "near") else room > 0

    def values(self, numbers: Numbers) -> dict[str, Any]:
        """The measured value, its standard error, and the paper's printed value if there is one."""
        value, error = _read(numbers, self.number)
        told = {"measured": value, "error": error, "of_paper": None}
        if self.limit == "printed" and len(self.limits) == 1:
            told["of_paper"] = _read(numbers, self.limits[0])[0]
        return {name: one if one is None or math.isfinite(one) else None for name, one in told.items()}

    def tell(self, numbers: Numbers) -> str:
        """The number and the rule as readable text."""
        value, error = _read(numbers, self.number)
        if self.bound:
            told = f"loose by a factor of {1 / value:.3g}" if value > 0 else "the error is 0"
            return f"{self.number} = {tell(value, error)}: {told if value <= 1 else 'the bound is exceeded'}"
        digits = _digits(value, [_read(numbers, limit)[0] for limit in self.limits])
        said = " to ".join(
            f"{one} = {tell(*_read(numbers, one), digits)}" if isinstance(one, str) else f"{one:.10g}"
            for one in self.limits
        )
        allowed = [f"{self.within:g}"] if self.within else []
        allowed += [f"{self.errors:g} standard errors"] if self.errors else []
        said += f" within {' and '.join(allowed)}" if allowed else ""
        word = f"{self.rule} " if self.rule in ("below", "above") else ""
        return f"{self.number} = {tell(value, error, digits)}, required: {word}{said}"


def _room(rule: str, value: float, limits: list[float], within: float) -> float:
    """Margin by which a value satisfies its limits; negative if it does not, NaN for NaN."""
    if rule == "below":
        return limits[0] - value
    if rule == "above":
        return value - limits[0]
    if rule == "between":
        return min(value - limits[0], limits[1] - value)
    return within - abs(value - limits[0])


def _digits(value: float, limits: list[float], most: int = 12) -> int:
    """Digits needed to tell a number from its limits, at least four: 0.999996 must not print as 1."""
    for digits in range(4, most):
        if all(value == limit or f"{value:.{digits}g}" != f"{limit:.{digits}g}" for limit in limits):
            return digits
    return most


def _read(numbers: Numbers, limit: Limit) -> tuple[float, float]:
    """Value and standard error (0 if exact)."""
    if not isinstance(limit, str):
        return float(limit), 0.0
    if limit not in numbers:
        raise KeyError(f"the experiment returns no number {limit!r}; it returns {sorted(numbers)}")
    number = numbers[limit]
    return (float(number[0]), float(number[1])) if isinstance(number, (tuple, list)) else (float(number), 0.0)
