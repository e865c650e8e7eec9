"""What wins where, and why, in words generated from the results."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from performative.suite.methods import METHODS
from performative.suite.pairs import Interval, interval, paired, seed_scores
from performative.suite.protocol import Result
from performative.suite.ranking import compared, mean_score
from performative.suite.registry import family_of

# If the stable point closes this fraction of the gap, retraining is considered enough.
_ENOUGH = 0.9
# Scores that differ by less are considered equal.
_SAME = 0.02


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A family of environments, or all of them.

    Attributes:
        best: the method with the highest mean score; score: its mean over environments, with an interval over seeds
        ties: methods not significantly different from it, by paired differences over seeds at 95%
        of_aim: the best method of each aim, with its mean score
        stable: the mean score of the stable point; spirals: environments in which retraining does not contract
        failures, runs: diverged runs, and total runs; worst: the method with the most diverged runs, if there are any
        harms: fraction of (method, environment) pairs that end below the model that is never retrained
    """

    family: str
    envs: tuple[str, ...]
    best: str
    score: Interval
    ties: tuple[str, ...]
    of_aim: Mapping[str, tuple[str, float]]
    lead: Interval | None
    stable: float
    spirals: int
    failures: int
    runs: int
    worst: str | None
    harms: float

    @property
    def words(self) -> str:
        """What wins here, and why."""
        ties = f" ({_listed(self.ties)} not significantly different)" if self.ties else ""
        said = [f"`{self.best}` closes {self.score} of the gap{ties}.", self._why()]
        if self.spirals:
            said.append(f"Full retraining does not contract in {self.spirals} of {len(self.envs)} environments.")
        if self.failures:
            said.append(f"{self.failures} of {self.runs} runs diverged, most of them with `{self.worst}`.")
        if self.harms > 0.25 and self.score.mean >= 0:
            said.append(f"{self.harms:.0%} of all entries end below the model that is never retrained.")
        return " ".join(said)

    def _why(self) -> str:
        aim = _aim(self.best)
        top = self.score.mean
        if top < 0:
            return "No method that applies here ends above the model that is never retrained."
        if aim == "foresees":
            return self._foreseen()
        if aim == "hedges":
            return f"It does not settle at the stable point, which closes {self.stable:.2f}."
        if top > self.stable + _SAME:
            return (
                f"It ends above the stable point, which closes {self.stable:.2f}: "
                "with the tuned step size it stops on the way there."
            )
        if self.stable >= _ENOUGH:
            return f"The stable point closes {self.stable:.2f}, so retraining is enough."
        if top < self.stable - _SAME:
            return f"It does not reach the stable point, which closes {self.stable:.2f}, within the budget."
        return (
            f"It ends near the stable point, which closes {self.stable:.2f}; anticipating the reaction does no better."
        )

    def _foreseen(self) -> str:
        point = f"the stable point closes {self.stable:.2f}"
        second = self.of_aim.get("retrains")
        if second is None or self.lead is None:
            return f"Anticipating the reaction pays off: {point}."
        beside = f"the best retraining method, `{second[0]}`, closes {second[1]:.2f}, {self.lead} less"
        if self.lead.holds_zero:
            return f"It is unclear whether anticipating the reaction pays off: {point}; {beside}."
        return f"Anticipating the reaction pays off: {point}; {beside}."


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """One verdict for all environments together, then one per family. Scores are floored at -1 in each run."""
    table = compared(results)
    by_family: dict[str, list[str]] = {}
    for env in table.envs:
        by_family.setdefault(family_of(env), []).append(env)
    groups = {"all": list(table.envs), **dict(sorted(by_family.items()))}
    return [_verdict(name, envs, table.methods, table.cells) for name, envs in groups.items()]


def _verdict(
    family: str, envs: Sequence[str], methods: Sequence[str], cells: Mapping[tuple[str, str], Result]
) -> Verdict:
    rows = {method: [cells[env, method] for env in envs] for method in methods}
    means = {method: float(np.mean([mean_score(one) for one in mine])) for method, mine in rows.items()}
    applied_by = [method for method, mine in rows.items() if any(one.why is None for one in mine)]
    best = max(applied_by, key=lambda method: means[method])
    ties = tuple(m for m in applied_by if m != best and paired(rows[best], rows[m]).holds_zero)
    of_aim: dict[str, tuple[str, float]] = {}
    for method in sorted(applied_by, key=lambda one: -means[one]):
        of_aim.setdefault(_aim(method), (method, means[method]))
    second = of_aim.get("retrains")
    applied = [one for mine in rows.values() for one in mine if one.why is None]
    failed = {method: sum(one.failures for one in mine) for method, mine in rows.items()}
    stable = [cells[env, "stable"] for env in envs if (env, "stable") in cells]
    seeds = min(len(one.scores) for one in applied)
    return Verdict(
        family, tuple(envs), best, interval(np.mean([seed_scores(one, seeds) for one in rows[best]], axis=0)), ties,
        of_aim, None if second is None else paired(rows[best], rows[second[0]]),
        float(np.mean([mean_score(one) for one in stable])) if stable else float("nan"),
        sum(one.facts.get("contraction", 0.0) >= 1.0 for one in stable), sum(failed.values()),
        sum(len(one.scores) for one in applied),
        max(failed, key=lambda method: failed[method]) if any(failed.values()) else None,
        float(np.mean([mean_score(one) < 0 for one in applied])),
    )  # fmt: skip


def _aim(method: str) -> str:
    return METHODS[method].aim if method in METHODS else "unknown"


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} others"
