"""One strength: the certificate, and how decisions about these people change."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from performative.certify import certify
from performative.certify.certificate import Certificate
from performative.findings import Plain, part
from performative.problem import Problem
from performative.sklearn.people import shown

MODELS = ("static", "stable", "optimal")
# Verdicts of a certificate that answer the question; all others leave it open.
SETTLES = {"proved": True, "settles": True, "settles-nearby": True, "not-contracting": False}
# Number of retrainings tried, and the distance, relative to the initial one, beyond which a run has diverged.
_RETRAININGS, _FAR = 20, 10.0


@dataclasses.dataclass(frozen=True)
class Rates(Plain):
    """Rates of one model, on the data it was trained on (`expected`) and once deployed.

    Attributes:
        caught: share of people with label 1 who are refused (the true positive rate); wrongly: the same for label 0
            (the false positive rate); refused, accuracy: over all people
        risk: the mean loss once deployed, including the penalty
        effort: |x' - x|^2 / (2 strength), people's average cost, in the unit of the score
    """

    expected_caught: float
    caught: float
    expected_wrongly: float
    wrongly: float
    refused: float
    expected_accuracy: float
    accuracy: float
    risk: float
    effort: float


@dataclasses.dataclass(frozen=True)
class GroupRates(Plain):
    """A group under one model: as in `Rates`; `rise` is wrongly minus expected_wrongly of the *static* model before
    anybody responds, and `error` its standard error over the group's people with label 0."""

    group: str
    model: str
    people: int
    good: int
    refused: float
    wrongly: float
    rise: float
    error: float


@dataclasses.dataclass(frozen=True)
class Scenario(Plain):
    """What follows if people respond with one strength.

    Attributes:
        changed: share of the static model's decisions on people who respond that flip once they do
        overturned: share of its refusals of these people that flip, 0 if there are none
        settles: whether retraining settles, by the certificate; None if unknown
        verdict, code: of the certificate, in words and as the code of its finding
        factor: factor by which one retraining shrinks an error near the stable point, None if unknown
        small_steps: whether small gradient steps converge there, by the certificate; None if unknown
        reached: exact retrainings from the static model to cover 99% of the distance to the stable point; None if that
            takes more than 20, or it does not settle
        lost: drop in the share of label 1 that the static model catches, expected minus deployed, with standard error
            `lost_error` over people
        excess: mean loss of the static minus that of the stable model, both deployed, with standard error
            `excess_error` over people; None if there is no stable model
        further: mean loss of the stable minus that of the optimal model
        detectable: whether this many rows can distinguish the static from the stable model, by the certificate
        models: rates of the models that were found
        groups: rates by group
    """

    strength: float
    changed: float
    overturned: float
    settles: bool | None
    verdict: str
    code: str
    factor: float | None
    small_steps: bool | None
    reached: int | None
    lost: float
    lost_error: float
    excess: float | None
    excess_error: float | None
    further: float | None
    detectable: bool | None
    models: dict[str, Rates]
    groups: list[GroupRates]


@dataclasses.dataclass(frozen=True, eq=False)
class People:
    """Rows in the order of the problem's tables: features before anybody responds, labels, groups."""

    problem: Problem
    x: Float[np.ndarray, "n d"]
    bad: Bool[np.ndarray, " n"]
    group: np.ndarray | None
    share: float

    def respond(self, theta: Float[np.ndarray, " d"], problem: Problem) -> Float[np.ndarray, "n d"]:
        return flat(problem, shown(problem, theta))


def flat(problem: Problem, tables: Any) -> np.ndarray:
    """Concatenate the clients' tables, without padding."""
    population: Any = problem.population
    return np.concatenate([np.asarray(table)[:rows] for table, rows in zip(tables, population.count, strict=True)])


def cut(scores: Float[np.ndarray, " n"], share: float) -> float:
    """The score above which this share is refused, or the nearest possible share: tied scores get one decision."""
    limit = float(np.quantile(scores, 1.0 - share))
    # Sums of the same terms may differ in the last digits.
    digits = 12 - int(np.ceil(np.log10(np.abs(scores).max() + 1e-300)))
    levels, counts = np.unique(np.round(scores, digits), return_counts=True)
    if len(levels) == 1:
        return limit
    above = 1.0 - np.cumsum(counts[:-1]) / len(scores)
    nearest = int(np.argmin(np.abs(above - share)))
    if abs(np.mean(scores > limit) - above[nearest]) < 0.5 / len(scores):
        return limit
    return float(levels[nearest] + levels[nearest + 1]) / 2.0


def measure(people: People, problem: Problem, strength: float) -> tuple[Scenario, Certificate]:
    """Certificate and decisions under one strength."""
    found = certify(problem, progress=False)
    thetas = {name: getattr(found, name) for name in MODELS if getattr(found, name) is not None}
    if "static" not in thetas:
        raise ValueError(f"no model can be trained on this table: {found.no_static or 'the loss has no minimum'}.")
    told: dict[str, np.ndarray] = {}
    models: dict[str, Rates] = {}
    before: dict[str, np.ndarray] = {}
    scores: dict[str, np.ndarray] = {}
    for name, theta in thetas.items():
        after = people.respond(theta, problem)
        learned = people.x if name == "static" else after
        limit = cut(learned @ theta, people.share)
        scores[name] = after @ theta
        before[name], told[name] = learned @ theta > limit, scores[name] > limit
        risk = float(getattr(found, f"{name}_risk"))
        models[name] = _rates(people, before[name], told[name], risk, _effort(people.x, after, strength))
    groups = _groups(people, before["static"], told)
    caught = [answers[people.bad].astype(float) for answers in (before["static"], told["static"])]
    lost, lost_error = _paired(*caught)
    excess, excess_error = None, None
    if "stable" in scores:
        excess, excess_error = _paired(*(_losses(scores[name], people.bad) for name in ("static", "stable")))
        # The penalty is part of the risk but does not depend on people.
        excess = models["static"].risk - models["stable"].risk
    further = models["stable"].risk - models["optimal"].risk if {"stable", "optimal"} <= models.keys() else None
    verdict = part(found.findings, "verdict")[0]
    settles = _settles(found)
    reached = _reached(problem, thetas) if settles else None
    changed, overturned = _changed(people, problem, before["static"], told["static"])
    return Scenario(
        strength=strength, changed=changed, overturned=overturned, settles=settles,
        verdict=found.verdict, code=verdict.code, factor=None if math.isnan(found.contraction) else found.contraction,
        small_steps=found.settles, reached=reached, lost=lost, lost_error=lost_error,
        excess=excess, excess_error=excess_error, further=further, detectable=found.detectable, models=models,
        groups=groups,
    ), found  # fmt: skip


def _settles(found: Certificate) -> bool | None:
    """True or False if the certificate decides it, else None."""
    code = part(found.findings, "verdict")[0].code.removeprefix("verdict.")
    return SETTLES.get(code)


def _reached(problem: Problem, thetas: dict[str, Any]) -> int | None:
    """Exact retrainings from the static model to cover 99% of the distance to an attracting stable model."""
    from performative.solve import repeated_risk_minimization

    theta, goal = thetas["static"], thetas["stable"]
    way = float(np.linalg.norm(theta - goal))
    for number in range(_RETRAININGS + 1):
        left = float(np.linalg.norm(theta - goal))
        if left <= 0.01 * way:
            return number
        if left > _FAR * way:
            return None
        path: Any = repeated_risk_minimization(problem, theta, 1)
        theta = np.asarray(path[1])
    return None


def _effort(x: np.ndarray, after: np.ndarray, strength: float) -> float:
    """|x' - x|^2 / (2 strength): the average cost per person, in the unit of the score."""
    return float(np.mean(np.sum(np.square(after - x), axis=1))) / (2.0 * strength) if strength > 0 else 0.0


def _rates(people: People, before: np.ndarray, told: np.ndarray, risk: float, effort: float) -> Rates:
    bad, good = people.bad, ~people.bad
    return Rates(
        expected_caught=float(np.mean(before[bad])), caught=float(np.mean(told[bad])),
        expected_wrongly=float(np.mean(before[good])), wrongly=float(np.mean(told[good])),
        refused=float(np.mean(told)), expected_accuracy=float(np.mean(before == bad)),
        accuracy=float(np.mean(told == bad)), risk=risk, effort=effort,
    )  # fmt: skip


def _changed(people: People, problem: Problem, before: np.ndarray, told: np.ndarray) -> tuple[float, float]:
    """Shares of decisions and of refusals that flip among people who respond: class 1 alone if only they do."""
    population: Any = problem.population
    own = people.bad if np.ndim(population.strength) == 2 else np.ones(len(before), bool)
    refused = before & own
    overturned = float(np.mean(~told[refused])) if refused.any() else 0.0
    return float(np.mean((before != told)[own])), overturned


def _losses(scores: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """The logistic loss of each person, without the penalty."""
    return np.logaddexp(0.0, scores) - bad * scores


def _paired(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The mean difference over the same people, and its standard error: NaN for one person."""
    apart = one - other
    if len(apart) < 2:
        return float(np.mean(apart)), math.nan
    return float(np.mean(apart)), float(np.std(apart, ddof=1) / np.sqrt(len(apart)))


def _groups(people: People, before: np.ndarray, told: dict[str, np.ndarray]) -> list[GroupRates]:
    if people.group is None:
        return []
    found = []
    for name in sorted(set(people.group.tolist())):
        own = people.group == name
        good = own & ~people.bad
        many = int(good.sum())
        for model, answers in told.items():
            rise, error = (math.nan, math.nan)
            if many > 1:
                rise, error = _paired(answers[good].astype(float), before[good].astype(float))
            wrongly = float(np.mean(answers[good])) if many else math.nan
            found.append(
                GroupRates(name, model, int(own.sum()), many, float(np.mean(answers[own])), wrongly, rise, error)
            )
    return found
