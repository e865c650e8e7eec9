"""The result of an audit, in one record."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from performative.audit.advice import Advice
from performative.audit.brief import Brief
from performative.audit.causes.cause import Cause
from performative.audit.client_report import ClientReport, Pooled
from performative.audit.groups import GroupReport
from performative.audit.outliers import Drowned
from performative.audit.prospect import Prospect
from performative.audit.reading import Logs
from performative.audit.words import WORDS
from performative.findings import Finding, part, plain


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The result of `audit_logs`.

    Attributes:
        logs: what was read
        clients: one `ClientReport` per client
        pooled: the test on the weighted mean over clients, None if there is one client or no two share deployments
        p_value: for no effect anywhere: the smallest client p-value times the number of clients that can be tested; if
            there is a pooled test, twice the smaller of that and the pooled p-value
        p_any_drift: the same if drift may be as large as the whole observed movement; see `Effect`
        effect: whether p_value is at most the level; None if nothing can be tested, or if nothing was found and the
            label, or a client's label, could not be tested; untested says why, "" if everything was tested
        prospect: where retraining leads; not computed if no effect was found
        advice: what to do next
        groups: rates by protected group, None if the logs have neither decisions nor groups
        drowned: columns in which outliers may hide a reaction
        cause: effect of decisions on the label, by a causal design; None if not requested
        brief: what it means for people, decisions, mistakes and money
        findings: everything the report says, as data
    """

    logs: Logs
    clients: tuple[ClientReport, ...]
    drift: str
    level: float
    tolerance: float
    seed: int
    pooled: Pooled | None
    p_value: float
    p_any_drift: float
    effect: bool | None
    untested: str
    prospect: Prospect
    advice: Advice
    groups: GroupReport | None
    drowned: tuple[Drowned, ...] = ()
    brief: Brief | None = None
    findings: tuple[Finding, ...] = ()
    cause: Cause | None = None

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return WORDS.tell(part(self.findings, "verdict"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that must not be overlooked."""
        return tuple(self.said("loud"))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was dropped or assumed."""
        return tuple(self.said("note"))

    @property
    def hedged(self) -> bool:
        """Whether an effect was found that drift alone, as large as the whole observed movement, could also explain."""
        return bool(self.effect) and self.p_any_drift > self.level

    @property
    def reacting(self) -> list[ClientReport]:
        """Clients whose directions are worth reporting."""
        return [one for one in self.clients if one.reacts] if self.effect else []

    def said(self, group: str) -> list[str]:
        """Sentences of a group of findings, without duplicates."""
        return list(dict.fromkeys(map(WORDS.say, part(self.findings, group))))

    @property
    def client_verdicts(self) -> dict[str, str]:
        """Client -> whether its data react, to what, and how certain that is."""
        told: dict[str, list[Finding]] = {one.name: [] for one in self.clients}
        for one in part(self.findings, "client"):
            told[one.data["client"]].append(one)
        return {name: WORDS.tell(mine) for name, mine in told.items()}

    def largest(self, most: int) -> tuple[ClientReport, ...]:
        """The clients with the largest weights."""
        return tuple(sorted(self.clients, key=lambda one: -one.weight)[:most])

    def _repr_html_(self) -> str:
        # The page imports the report, not the other way round.
        shown: str = import_module(f"{__package__}.page").first_page(self)
        return shown

    def to_dict(self) -> dict[str, Any]:
        """The whole report for strict JSON: None for non-finite numbers."""
        told = self.client_verdicts
        out = {
            "brief": None if self.brief is None else self.brief.to_dict(),
            "verdict": self.verdict,
            "effect": self.effect,
            "p_value": self.p_value,
            "p_any_drift": self.p_any_drift,
            "untested": self.untested or None,
            "pooled": None if self.pooled is None else self.pooled.to_dict(),
            "drift": self.drift,
            "level": self.level,
            "tolerance": self.tolerance,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "clients": {one.name: {"verdict": told[one.name], **one.to_dict()} for one in self.clients},
            "outlook": self.prospect.to_dict(),
            "advice": self.advice.to_dict(),
            "groups": None if self.groups is None else self.groups.to_dict(),
            "cause": None if self.cause is None else self.cause.to_dict(),
            "read": self.logs.to_dict(),
            "notes": list(self.notes),
            "findings": WORDS.to_json(self.findings),
        }
        made: dict[str, Any] = plain(out)
        return made
