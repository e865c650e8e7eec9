"""Did the model decide whose outcome is observed? Then labeled rows change with it, whether or not anybody reacts."""

import dataclasses
from typing import Any

import numpy as np

from performative.audit.missing import SEEN, Pattern, compare
from performative.audit.outcomes import LEAST, Outcomes, Plan
from performative.audit.summaries import Summaries
from performative.findings import Plain

SCORE, ACCEPTANCE = "the model's score", "acceptance"
# Missing features: a pattern matters if it moves a mean by more than this many of its standard errors.
_MATTERS = 0.5


@dataclasses.dataclass(frozen=True)
class Selection(Plain):
    """How labels are missing, and what was done about it.

    Attributes:
        kind: "chance" (no detected dependence of having a label on anything), "people" (it depends on `by`, in the same
            way under all deployments), "model" (on acceptance, or differently from deployment to deployment)
        by: what it depends on most; p_value: Bonferroni-corrected over features, score and acceptance
        accepted, rejected: share of the accepted with a label, and of the rejected; NaN if decisions are unknown
        method: how the label is tested: "labeled" (rows as they are), "weighted" (by 1 / the probability of a label),
            "always accepted" (people whom every deployed model accepts), "withheld", "left out" (on request)
        coverage: share of all people that the test of the label covers, the minimum over clients and deployments
        effective: smallest and largest effective number of labeled rows of a client under a deployment
    """

    share: float
    kind: str
    by: str
    p_value: float
    accepted: float
    rejected: float
    method: str = "withheld"
    source: str = ""
    why: str = ""
    coverage: float = np.nan
    effective: tuple[float, float] = (np.nan, np.nan)

    def using(self, plan: Plan, found: Outcomes) -> "Selection":
        """The same after a correction, or with the reason why it failed."""
        if found.why:
            return dataclasses.replace(self, why="; ".join(part for part in (self.why, found.why) if part))
        return dataclasses.replace(
            self, method="always accepted" if plan.kind == "always" else "weighted", source=plan.source, why="",
            coverage=found.coverage, effective=found.effective,
        )  # fmt: skip


def judge(seen: Summaries) -> Selection:
    """Who has a label, and does the model decide that?"""
    counts = _decisions(seen)
    total = counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = counts[:, 1] / counts.sum(axis=1)
    known: dict[str, Any] = {
        "share": float(counts[:, 0].sum() / total),
        "accepted": float(shares[1]),
        "rejected": float(shares[0]),
    }
    if not seen.comparable:
        return Selection(kind="model", by="something that cannot be checked (too many clients)", p_value=0.0, **known)
    names = (*seen.columns.features, SCORE, ACCEPTANCE)
    pattern = label_pattern(seen)
    acceptance = pattern.depends[-1] * max(1, int(np.sum(~np.isnan(pattern.depends))))
    if acceptance <= SEEN:
        return Selection(kind="model", by=ACCEPTANCE, p_value=float(acceptance), **known)
    at, p = pattern.first("changes")
    if p <= SEEN:
        return Selection(kind="model", by=names[at], p_value=p, **known)
    at, p = pattern.first("depends")
    return Selection(kind="people" if p <= SEEN else "chance", by=names[at] if at >= 0 else "", p_value=p, **known)


def label_pattern(seen: Summaries) -> Pattern:
    """Compare labeled rows with unlabeled ones."""
    whole, bare = (seen.parts(which, (0, 1)) for which in ("labeled", "unlabeled"))
    return _of_features(compare(whole, bare, deployments=len(seen.deployments.names)))


def _of_features(pattern: Pattern) -> Pattern:
    """Scores and decisions change with the model anyway: only features can show that a pattern changes."""
    changes = pattern.changes.copy()
    changes[-2:] = np.nan
    return pattern._replace(changes=changes)


def _decisions(seen: Summaries) -> np.ndarray:
    """[3, 2] rows by decision (rejected, accepted, unknown) and by whether they have a label."""
    out = np.zeros((3, 2))
    for at, own in ((1, seen.labeled), (0, seen.unlabeled)):
        decision = own.stratum // 3 if seen.strata > 1 else np.full(len(own.stratum), 2)
        out[:, at] = np.bincount(decision, own.count, minlength=3)
    return out


def plans(seen: Summaries) -> tuple[list[Plan], str]:
    """Corrections that these logs allow, the best first, and why others are not possible."""
    found, why = [], []
    if seen.columns.propensity:
        if seen.no_chance:
            why.append(
                f"{seen.no_chance:,} people had a zero or unlogged probability of acceptance, so nobody represents "
                "them (no overlap)"
            )
        else:
            found.append(Plan("propensity", f"logged as {seen.columns.propensity!r}"))
    if seen.strata > 1:
        for axes, name in (((1,), "among the accepted and the rejected"), ((0,), "on each side of the threshold")):
            made, cannot = _strata(seen, axes, name)
            if made is not None:
                found.append(made)
            elif cannot and cannot not in why:
                why.append(cannot)
    if seen.rule is not None:
        found.append(Plan("always", "accepted by every deployed model"))
    else:
        why.append(
            "whom every deployed model would accept is unknown: that requires theta_<feature> and [decision] threshold"
        )
    return found, "; ".join(why)


def _strata(seen: Summaries, axes: tuple[int, ...], name: str) -> tuple[Plan | None, str]:
    """Probabilities of a label as shares, if each kind of decision has labels and nothing else seems to matter."""
    labeled, bare = (seen.parts(which, axes) for which in ("labeled", "unlabeled"))
    has, people = labeled[0][:, 0], labeled[0][:, 0] + bare[0][:, 0]
    by = people.reshape(seen.cells, -1)
    if by[:, :2].sum() == 0:
        return None, ""
    without = (people > 0) & (has == 0)
    if np.any(without):
        share = people[without].sum() / people.sum()
        return None, (
            f"under some deployments none of the rejected has a label ({share:.0%} of the people), so nobody "
            "represents them (no overlap)"
        )
    if np.any((people > 0) & (has < LEAST)):
        return None, f"{name}, some deployments have fewer than {LEAST} labels"
    # Within a stratum, having a label must not depend on anything else.
    at, p = compare(labeled[..., :-1], bare[..., :-1]).first("depends")
    if p <= SEEN:
        names = (*seen.columns.features, SCORE)
        return None, f"{name}, who has a label still depends on {names[at]} (p = {p:.1g})"
    chance = np.divide(has, people, out=np.zeros_like(has), where=people > 0).reshape(seen.cells, -1)
    whole = np.zeros((seen.cells, 3, 3))
    whole[:] = chance[:, :, None] if axes == (1,) else chance[:, None, :]
    return Plan("strata", f"the share with a label {name}", whole), ""


def only_accepted(seen: Summaries) -> bool:
    """Whether decisions are known and nobody was rejected: the rejected may be missing from the logs."""
    counts = _decisions(seen).sum(axis=1)
    return bool(seen.strata > 1 and counts[1] > 0 and counts[0] == 0)


def incomplete_by_model(seen: Summaries) -> str:
    """Whether the people dropped for an empty feature change from deployment to deployment; "" if not."""
    if not seen.comparable or not seen.incomplete.n.sum():
        return ""
    whole, rest = seen.parts("labeled", (0, 1)) + seen.parts("unlabeled", (0, 1)), seen.parts("incomplete", (0, 1))
    pattern = _of_features(compare(whole, rest, deployments=len(seen.deployments.names)))
    at, p = pattern.first("changes")
    if p > SEEN or pattern.size[at] <= _MATTERS:
        return ""
    worst = ", ".join(name for name, lost in seen.empty.most_common(3) if lost)
    name = (*seen.columns.features, SCORE, ACCEPTANCE)[at]
    return (
        f"Rows with an empty feature ({worst}) were dropped, and which people these are changes from deployment to "
        f"deployment (most in {name}, p = {p:.1g}): means of the other rows then move with the model, whether or not "
        "anybody reacts. Fill in the feature, or name it under `ignore` in audit.toml"
    )
