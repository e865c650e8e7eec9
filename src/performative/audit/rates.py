"""Acceptance, true positives and true negatives by group, and unobserved outcomes."""

import dataclasses
import math

import numpy as np
import scipy.stats

from performative.audit.tally import NOT_QUALIFIED, QUALIFIED, UNKNOWN
from performative.audit.words import WORDS
from performative.findings import Finding, Plain


@dataclasses.dataclass(frozen=True)
class Rate(Plain):
    """hits out of trials, with Wilson's interval; NaN if there were no trials.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)                                      (Wilson 1927)
    """

    hits: int
    trials: int
    value: float
    low: float
    high: float


def wilson(hits: int, trials: int, level: float = 0.95) -> Rate:
    """A proportion with its interval."""
    if not 0 <= hits <= trials:
        raise ValueError(f"wilson: hits must lie in 0..trials; got {hits} of {trials}.")
    if not trials:
        return Rate(0, 0, math.nan, math.nan, math.nan)
    z = float(scipy.stats.norm.ppf(0.5 + level / 2))
    p, n = hits / trials, trials
    middle, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)
    return Rate(int(hits), int(trials), p, 0.0 if not hits else low, 1.0 if hits == trials else high)


@dataclasses.dataclass(frozen=True)
class Censoring(Plain):
    """How often the label is missing among the accepted and among the rejected.

    `censored` if it is missing more often among the rejected by more than three standard errors, or if no rejected
    person has one while some accepted do. Then TPR and TNR are not identified from the labeled rows.
    """

    accepted: Rate
    rejected: Rate
    censored: bool

    @property
    def findings(self) -> list[Finding]:
        """The finding that outcomes are censored, if they are."""
        facts = {"accepted": self.accepted.value, "rejected": self.rejected.value}
        return [Finding("loud.censored", "warning", facts)] if self.censored else []

    def sentence(self) -> str:
        return WORDS.tell(self.findings)


def detect_censoring(counts: np.ndarray, level: float = 0.95) -> Censoring:
    """From counts [3, 3] (accepted by outcome; see `GroupLog`)."""
    missing, trials = counts[:2, UNKNOWN], counts[:2].sum(axis=1)
    rejected, accepted = (wilson(int(missing[a]), int(trials[a]), level) for a in (0, 1))
    censored = False
    if trials.all() and rejected.value > accepted.value:
        p = missing.sum() / trials.sum()
        error = math.sqrt(p * (1 - p) * (1 / trials[0] + 1 / trials[1]))
        censored = missing[0] == trials[0] or rejected.value - accepted.value > 3 * error
    return Censoring(accepted, rejected, bool(censored))


@dataclasses.dataclass(frozen=True)
class GroupRates(Plain):
    """One group under one model.

    tpr = P(accepted | qualified), tnr = P(rejected | not qualified), among people with a label; None if outcomes are
    censored. tpr_bounds, tnr_bounds: the smallest and largest values over all ways to fill in the missing labels
    (Manski 1989), without sampling error. precision = P(qualified | accepted), among the labeled.
    """

    group: str
    count: int
    acceptance: Rate
    tpr: Rate | None
    tnr: Rate | None
    tpr_bounds: tuple[float, float]
    tnr_bounds: tuple[float, float]
    precision: Rate
    unlabeled: int


def group_rates(group: str, counts: np.ndarray, censored: bool = False, level: float = 0.95) -> GroupRates:
    """From counts [3, 3] (accepted by outcome; see `GroupLog`). Unknown decisions enter only `count`."""
    (r0, r1, r_), (a0, a1, a_) = (
        (int(row[NOT_QUALIFIED]), int(row[QUALIFIED]), int(row[UNKNOWN])) for row in counts[:2]
    )
    decided = r0 + r1 + r_ + a0 + a1 + a_
    return GroupRates(
        group=group,
        count=int(counts.sum()),
        acceptance=wilson(a0 + a1 + a_, decided, level),
        tpr=None if censored else wilson(a1, a1 + r1, level),
        tnr=None if censored else wilson(r0, r0 + a0, level),
        tpr_bounds=(_share(a1, r1 + r_), _share(a1 + a_, r1)),
        tnr_bounds=(_share(r0, a0 + a_), _share(r0 + r_, a0)),
        precision=wilson(a1, a1 + a0, level),
        unlabeled=r_ + a_ + int(counts[2, UNKNOWN]),
    )


def _share(one: int, other: int) -> float:
    return one / (one + other) if one + other else math.nan


def count_people(accepted: np.ndarray, qualified: np.ndarray, group: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the groups, sorted, and counts [G, 3, 3] of arrays [n] of 0, 1 or NaN (unknown)."""
    for name, values in (("accepted", accepted), ("qualified", qualified)):
        known = values[~np.isnan(values)]
        if not np.all((known == 0) | (known == 1)):
            odd = known[(known != 0) & (known != 1)][0]
            raise ValueError(f"{name} must contain 0, 1 or NaN; got {odd:g}.")
        if values.shape != group.shape:
            raise ValueError(f"{name} needs one entry for each of the {len(group)} people; got shape {values.shape}.")
    names, code = np.unique(group.astype(str), return_inverse=True)
    counts = np.zeros((len(names), 3, 3), np.int64)
    places = [np.where(np.isnan(values), UNKNOWN, values).astype(np.int64) for values in (accepted, qualified)]
    np.add.at(counts, (code, *places), 1)
    return tuple(str(n) for n in names), counts


def rates_by_group(
    names: tuple[str, ...], counts: np.ndarray, censored: bool = False, level: float = 0.95
) -> tuple[GroupRates, ...]:
    """One entry per group."""
    return tuple(group_rates(name, table, censored, level) for name, table in zip(names, counts, strict=True))
