"""`audit_logs`: all that a folder of logs says, in one record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from performative.audit import outliers, outlook_words, people_words, words
from performative.audit.advice import Advice, advise
from performative.audit.client_report import ClientReport, Pooled, report_clients
from performative.audit.drift import DRIFTS
from performative.audit.group_logs import groups_of_logs
from performative.audit.groups import GroupReport
from performative.audit.prospect import Prospect, look_ahead
from performative.audit.reading import Logs, read_logs
from performative.audit.schema import LogError
from performative.certify.certificate import plain
from performative.errors import nearest


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The answer of `audit_logs`.

    logs:     what was read
    clients:  a `ClientReport` each
    pooled:   the test on the weighted mean over clients, None where there is one client or no two share deployments
    p_value:  of no effect anywhere: twice the lesser of the pooled one and the smallest client's times their number
    p_any_drift: the same were drift allowed to be as large as all that moved; see `Effect`
    effect:   whether p_value is at most the level; None where nothing can be tested, or where nothing was found and the
              label, or a client's, could not be tested; untested says why, "" where all was
    prospect: where retraining leads; not computed where no effect was found
    advice:   what to do next
    groups:   rates by protected group, None where the logs say nothing of decisions or groups
    warnings: what must not be overlooked; notes: what was dropped or assumed
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
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return words.verdict(self)

    def largest(self, most: int) -> tuple[ClientReport, ...]:
        """The clients with the largest weights."""
        return tuple(sorted(self.clients, key=lambda one: -one.weight)[:most])

    def to_dict(self) -> dict[str, Any]:
        """All of it for strict JSON: None for what is not a finite number."""
        out = {
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
            "clients": {
                one.name: {"verdict": words.client_verdict(one, self.level), **one.to_dict()} for one in self.clients
            },
            "outlook": self.prospect.to_dict(),
            "advice": self.advice.to_dict(),
            "groups": None if self.groups is None else self.groups.to_dict(),
            "read": self.logs.to_dict(),
            "notes": list(self.notes),
        }
        made: dict[str, Any] = plain(out)
        return made


def audit_logs(
    folder: str | Path, *, groups: str | None = None, drift: str = "smooth", seed: int = 0, tolerance: float = 0.01,
    level: float = 0.05,
) -> AuditReport:  # fmt: skip
    """What a folder of logs of past deployments says; `performative.audit.schema` tells what the folder holds.

    groups:    column of the protected group (default: the one called "group", where there is one)
    drift:     what may have moved the data without the model: "none", "linear", "walk" or "smooth", see `effect_test`
    seed:      which rows are kept, and of the draws behind the intervals
    tolerance: settled is |theta - stable| <= tolerance |stable|
    level:     of the tests; intervals are at 1 - level
    Tests are Holm's over clients. The outlook and the suggestion rest on a response that is linear and stays as it is.
    """
    if drift not in DRIFTS:
        raise ValueError(
            f"audit: drift must be one of {', '.join(map(repr, DRIFTS))}; got {drift!r}.{nearest(drift, DRIFTS)}"
        )
    for name, value in (("level", level), ("tolerance", tolerance)):
        if not 0 < value < 1:
            raise ValueError(f"audit: {name} must lie between 0 and 1; got {value!r}.")
    return report_on(read_logs(folder, groups=groups, seed=seed), drift, seed, tolerance, level)


def report_on(logs: Logs, drift: str, seed: int, tolerance: float, level: float) -> AuditReport:
    """The report on logs that were read before; see `audit_logs`."""
    clients, pooled = report_clients(
        logs.clients, logs.weights, logs.label is not None, drift, level, seed, logs.outcomes, logs.blocked
    )
    if not clients:
        raise LogError("in every client all columns are constant within deployments: nothing to test.", logs.folder)
    tested = [one for one in clients if one.effect.identified]
    p_value = _overall([one.p_value for one in tested], None if pooled is None else pooled.effect.p_value)
    p_any_drift = _overall(
        [one.effect.p_any_drift for one in tested], None if pooled is None else pooled.effect.p_any_drift
    )
    untested = people_words.untested(logs, clients)
    effect = None if not tested else True if p_value <= level else None if untested else False
    if effect:
        prospect = look_ahead(logs, clients, pooled, drift, tolerance, level, seed)
    else:
        prospect = Prospect(None, (outlook_words.no_outlook(effect, untested),))
    # Without decisions there is nothing to say of who was accepted.
    decided = logs.groups is not None and logs.decides
    people = groups_of_logs(logs, level=1 - level, reaction=effect) if decided else None
    loud, notes = _sort_notes(logs, clients, people, prospect)
    if not effect and (hidden := outliers.warning(outliers.drowned(clients))):
        loud = (*loud, hidden)
    return AuditReport(
        logs, clients, drift, level, tolerance, seed, pooled, p_value, p_any_drift, effect, untested, prospect,
        advise(clients, effect, prospect, untested, logs.blocked, p_any_drift > level), people, loud, notes,
    )  # fmt: skip


def _overall(clients: list[float], pooled: float | None) -> float:
    """The p-value of no effect anywhere: Bonferroni's over clients, and half of the level for all together."""
    p = min(1.0, len(clients) * min(clients)) if clients else 1.0
    return p if pooled is None else min(1.0, 2 * min(p, pooled))


def _sort_notes(
    logs: Logs, clients: tuple[ClientReport, ...], people: GroupReport | None, prospect: Prospect
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is said loudly, and what is said below."""
    mark = "WARNING: "
    loud = people_words.loud(logs) + [note.removeprefix(mark) for note in logs.notes if note.startswith(mark)]
    loud += [warning for warning in (people.warnings if people else ()) if "ensored" in warning]
    notes = [note for note in logs.notes if not note.startswith(mark)]
    notes += [warning for warning in (people.warnings if people else ()) if warning not in loud]
    notes += [f"{one.name}: {', '.join(one.still)} does not vary and is left out." for one in clients if one.still]
    gone = [name for name in logs.clients if name not in {one.name for one in clients}]
    if gone:
        notes.append(f"Nothing varies at {', '.join(gone)}; left out.")
    notes += outlook_words.outlook_notes(logs, prospect)
    return tuple(dict.fromkeys(loud)), tuple(dict.fromkeys(notes))
