"""`Cause`: what the model does to an outcome, which design shows it, and why other designs were not used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from performative.audit.causes.words import NAMES, WORDS
from performative.findings import Finding, plain


@dataclass(frozen=True, eq=False)
class Cause:
    """The result of `effect`.

    Attributes:
        outcome: the column
        design: "randomized", "threshold", "breaks" or "overlap"; None if no design identifies the effect
        estimate, standard_error: of the effect of decision 1 instead of 0 (of the change of model for "breaks"), in
            units of the outcome; NaN if there is none
        interval: (lower, upper) at `level`; infinite if there is none
        p_value: for no effect
        in_sd: the estimate in standard deviations of the outcome
        rows: how many rows it is based on
        diagnostics: what was checked
        assumption: what must hold beyond the data, in words
        refusals: why each unused design was not used, in words
        findings: all of this as data
    """

    outcome: str
    design: str | None
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float
    in_sd: float
    level: float
    rows: int
    diagnostics: Mapping[str, Any]
    assumption: str
    refusals: Mapping[str, str]
    findings: tuple[Finding, ...]

    @property
    def identified(self) -> bool:
        """Whether some design identified the effect."""
        return self.design is not None

    def to_dict(self) -> dict[str, Any]:
        """For strict JSON."""
        names = (
            "outcome", "design", "estimate", "standard_error", "interval", "p_value", "in_sd", "level", "rows",
            "diagnostics", "assumption", "refusals",
        )  # fmt: skip
        told = {name: plain(getattr(self, name)) for name in names}
        return {**told, "identified": self.identified, "findings": WORDS.to_json(self.findings)}

    def __str__(self) -> str:
        lines = [WORDS.say(one) for one in self.findings if one.code.startswith(("effect.", "assumption.", "caution."))]
        others = [f"  {NAMES[name]}: {why}" for name, why in self.refusals.items()]
        return "\n".join([" ".join(lines), *(["Not used:", *others] if others else [])])
