"""One strength: what the certificate says, and what becomes of decisions about these very people."""

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
# Verdicts of a certificate that answer the question; by all others it does not know.
SETTLES = {"proved": True, "settles": True, "settles-nearby": True, "not-contracting": False}
# Retrainings that are tried, and how far off, in units of the first way, one has run away.
_RETRAININGS, _FAR = 20, 10.0


@dataclasses.dataclass(frozen=True)
class Rates(Plain):
    """One model, for people whom it judges on the data that it was learnt from (`expected`) and once it is deployed.

    Attributes:
        caught: share of people with label 1 who are refused (the true positive rate); wrongly: that of people with
            label 0 (the false positive rate); refused, accuracy: of all
        risk: the mean loss once deployed
        effort: |x' - x|^2 / (2 strength), what people pay on average, in the unit of the score
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
    """A group under one model: as in `Rates`; `rise` is wrongly less expected_wrongly of the *static* model before
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
        changed: share of the static model's decisions on those who respond that flip once they do
        settles: whether retraining settles, by the certificate; None: it does not know
        verdict, code: the certificate's, in words and as its finding
        factor: what one retraining leaves of an error near the stable point, None where that is not known
        reached: exact retrainings from the static model after which 99 % of the way to the stable point is done; None
            where that takes more than 20, or it does not settle
        lost: by how much the static model catches fewer of label 1 than expected, once deployed, with standard error
            `lost_error` over people
        excess: mean loss of the static less that of the stable model, both deployed, with standard error
            `excess_error` over people; None where there is no stable model
        further: mean loss of the stable less that of the optimal model
        detectable: whether static and stable model can be told apart with so many rows, by the certificate
        models: rates of those models that were found
        groups: rates by group
    """

    strength: float
    changed: float
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
    """Clients' tables as one, without padding."""
    population: Any = problem.population
    return np.concatenate([np.asarray(table)[:rows] for table, rows in zip(tables, population.count, strict=True)])


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
        learnt = people.x if name == "static" else after
        limit = float(np.quantile(learnt @ theta, 1.0 - people.share))
        scores[name] = after @ theta
        before[name], told[name] = learnt @ theta > limit, scores[name] > limit
        risk = float(getattr(found, f"{name}_risk"))
        models[name] = _rates(people, before[name], told[name], risk, _effort(people.x, after, strength))
    groups = _groups(people, before["static"], told)
    caught = [answers[people.bad].astype(float) for answers in (before["static"], told["static"])]
    lost, lost_error = _paired(*caught)
    excess, excess_error = None, None
    if "stable" in scores:
        excess, excess_error = _paired(*(_losses(scores[name], people.bad) for name in ("static", "stable")))
        # The penalty is part of the risk, and no matter of people.
        excess = models["static"].risk - models["stable"].risk
    further = models["stable"].risk - models["optimal"].risk if {"stable", "optimal"} <= models.keys() else None
    verdict = part(found.findings, "verdict")[0]
    settles = _settles(found)
    reached = _reached(problem, thetas) if settles else None
    return Scenario(
        strength=strength, changed=_changed(people, problem, before["static"], told["static"]), settles=settles,
        verdict=found.verdict, code=verdict.code, factor=None if math.isnan(found.contraction) else found.contraction,
        small_steps=found.settles, reached=reached, lost=lost, lost_error=lost_error,
        excess=excess, excess_error=excess_error, further=further, detectable=found.detectable, models=models,
        groups=groups,
    ), found  # fmt: skip


def _settles(found: Certificate) -> bool | None:
    """Yes or no where the certificate says so."""
    code = part(found.findings, "verdict")[0].code.removeprefix("verdict.")
    return SETTLES.get(code)


def _reached(problem: Problem, thetas: dict[str, Any]) -> int | None:
    """Exact retrainings from the static model until 99 % of the way to an attracting stable model is done."""
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
    """|x' - x|^2 / (2 strength): what a person pays on average, in the unit of the score."""
    return float(np.mean(np.sum(np.square(after - x), axis=1))) / (2.0 * strength) if strength > 0 else 0.0


def _rates(people: People, before: np.ndarray, told: np.ndarray, risk: float, effort: float) -> Rates:
    bad, good = people.bad, ~people.bad
    return Rates(
        expected_caught=float(np.mean(before[bad])), caught=float(np.mean(told[bad])),
        expected_wrongly=float(np.mean(before[good])), wrongly=float(np.mean(told[good])),
        refused=float(np.mean(told)), expected_accuracy=float(np.mean(before == bad)),
        accuracy=float(np.mean(told == bad)), risk=risk, effort=effort,
    )  # fmt: skip


def _changed(people: People, problem: Problem, before: np.ndarray, told: np.ndarray) -> float:
    """Share of decisions that flip, of those on people who respond: of class 1 alone where only they do."""
    population: Any = problem.population
    by_class = np.ndim(population.strength) == 2
    return float(np.mean((before != told)[people.bad if by_class else slice(None)]))


def _losses(scores: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """The logistic loss of each person, without the penalty."""
    return np.logaddexp(0.0, scores) - bad * scores


def _paired(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The mean difference over the same people, and its standard error."""
    apart = one - other
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
