"""What to do next: an algorithm, its settings, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from performative.audit.client_report import ClientReport
from performative.audit.prospect import Prospect
from performative.audit.words import WORDS
from performative.findings import Finding, plain

# If the cost of stability exceeds this share of the least risk, a dedicated algorithm is worthwhile; below it, the
# noise of learning the reaction eats up much of the gain.
LARGE_COST = 0.05
# Share of outlying rows above which an estimator that filters them is worth its cost.
FAR_OUT = 0.005
# A client whose mean lies this many robust spreads from the others' in some column is an outlier among clients.
_ODD_CLIENT = 6.0
_CLIENTS_FOR_ODD = 5
# Local steps that count as training to convergence: the share of the error that remains, and the most steps to suggest.
_LEFT, _MOST_STEPS = 0.01, 1000
# If no shift below this, in standard deviations, could be detected, "nothing found" means little.
LARGE_SHIFT = 0.5
# Suggested number of labeled people among the rejected, per client and deployment.
_LABELS = 100
# What exploration should detect: a tenth of a standard deviation per unit of a parameter, in ten deployments.
_WANTED, _DEPLOYMENTS = 0.1, 10


@dataclass(frozen=True, eq=False)
class Advice:
    """One suggestion. kind: "ordinary", "explore", "label", "retrain", "damp", "optimize" or "look closer".

    why: the reasons. code: one expression in `pf` (or numpy), None if there is nothing to run. settings: its numbers.
    instead: an alternative, and the code for it.
    """

    kind: str
    title: str
    why: tuple[Finding, ...]
    code: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    instead: tuple[Finding, str] | None = None
    far_out: tuple[tuple[str, str, float], ...] = ()
    odd_clients: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, in sentences."""
        return tuple(map(WORDS.say, self.why))

    @property
    def otherwise(self) -> tuple[str, str] | None:
        """The alternative, in words, and the code for it."""
        return None if self.instead is None else (WORDS.say(self.instead[0]), self.instead[1])

    @property
    def robust(self) -> list[Finding]:
        """Rows and clients that do not belong with the others."""
        found = []
        if self.far_out:
            client, column, share = self.far_out[0]
            facts = {"client": client, "column": column, "share": share, "more": len(self.far_out) - 1}
            found.append(Finding("advice.far-out", "caution", facts))
        if self.odd_clients:
            found.append(Finding("advice.odd-clients", "caution", {"clients": list(self.odd_clients)}))
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "title": self.title,
            "reasons": list(self.reasons),
            "code": self.code,
            "settings": plain(self.settings),
            "otherwise": None if self.otherwise is None else {"why": self.otherwise[0], "code": self.otherwise[1]},
            "far_out": [{"client": c, "column": name, "share": share} for c, name, share in self.far_out],
            "odd_clients": list(self.odd_clients),
        }


def advise(
    reports: Sequence[ClientReport], effect: bool | None, prospect: Prospect, untested: str = "", blocked: str = "",
    hedged: bool = False,
) -> Advice:  # fmt: skip
    """The suggestion that follows from the tests and the outlook.

    Rows or labels selected by the model -> log, or label, the others too; not identified, or low power -> explore; no
    effect -> ordinary training; converges and stability costs little -> full retraining; converges and stability costs
    much -> POFL; may not converge -> small steps, if these converge. hedged: whether drift may explain it too.
    """
    far_out = tuple(
        sorted(
            ((one.name, name, share) for one in reports for name, share in one.far_out.items() if share >= FAR_OUT),
            key=lambda line: -line[2],
        )
    )
    odd = odd_clients(reports)
    extra: dict[str, Any] = {"far_out": far_out, "odd_clients": odd}
    if blocked:
        return Advice("look closer", "Log everyone first", (_why("log-everybody"),), **extra)
    if effect is None and untested and any(one.reacts is not None for one in reports):
        return Advice("label", "Label some of the rejected", _label(untested), **extra)
    if effect is None:
        return _explore(reports, extra)
    if not effect:
        if (missed := could_have_missed(reports)) > LARGE_SHIFT:
            return _explore(reports, extra, _why("missed", shift=missed))
        return Advice("ordinary", "Train as usual", (_why("no-reaction"), _why("audit-again")), **extra)
    if hedged:
        return _explore(reports, extra, _why("drift-alike"))
    found = prospect.outlook
    if found is None:
        why = _why("not-computed", reasons=list(prospect.reasons))
        return Advice("look closer", "The data react; where that leads could not be computed", (why,), **extra)
    return _solve(prospect, extra)


def _why(name: str, **facts: Any) -> Finding:
    return Finding(f"advice.{name}", "info", facts)


def _solve(prospect: Prospect, extra: dict[str, Any]) -> Advice:
    found = prospect.outlook
    assert found is not None and prospect.hessian is not None
    high = found.contraction_limits[1]
    cost = prospect.relative_cost
    far = cost > LARGE_COST
    robust = bool(extra["far_out"]), bool(extra["odd_clients"])
    small = None if prospect.rate is None else _call("p_fedavg", {"rate": prospect.rate}, robust)
    optimize = _optimize(prospect, robust)
    costs = {"cost": cost, "local": prospect.optimal_is_local}
    if found.contraction < 1 and high < 1:
        if far and optimize:
            code, settings = optimize
            reasons = (_why("stability-costs", **costs), _why("pofl"))
            other = (_why("retrain-instead"), _retrain(prospect, robust)[0])
            return Advice("optimize", "Aim for the optimum: POFL", reasons, code, settings, other, **extra)
        code, settings = _retrain(prospect, robust)
        gain = _why("no-optimum") if math.isnan(cost) else _why("little-gain", **costs)
        reasons = (_why("settles", factor=found.contraction), gain)
        return Advice("retrain", "Keep retraining in full", reasons, code, settings, None, **extra)
    certain = found.contraction >= 1
    if small is not None:
        steps = {"rate": prospect.rate, "factor": prospect.stepped, "damping": prospect.damping}
        reasons = (_why("does-not-settle", certain=certain), _why("small-steps", **steps))
        instead = (_why("optimum-instead", **costs), optimize[0]) if far and optimize else None
        settings = {"rate": prospect.rate, "damping": prospect.damping}
        return Advice("damp", "Take small steps", reasons, small, settings, instead, **extra)
    lost = _why("runs-away", certain=certain)
    if optimize:
        return Advice("optimize", "Aim for the optimum: POFL", (lost, _why("pofl-anyway")), *optimize, None, **extra)
    return Advice("look closer", "Do not retrain automatically", (lost, _why("stay")), None, {}, None, **extra)


def _retrain(prospect: Prospect, robust: tuple[bool, bool]) -> tuple[str, dict[str, Any]]:
    """Full retraining as local steps: rate 1 / L, with enough steps to reduce the error to a hundredth."""
    assert prospect.hessian is not None
    values = np.linalg.eigvalsh(prospect.hessian)
    rate, left = 1 / float(values[-1]), 1 - float(values[0] / values[-1])
    steps = 1 if left <= _LEFT else min(_MOST_STEPS, math.ceil(math.log(_LEFT) / math.log(left)))
    settings = {"rate": rate, "local_steps": steps, "deploy": "round"}
    return _call("p_fedavg", settings, robust), settings


def _optimize(prospect: Prospect, robust: tuple[bool, bool]) -> tuple[str, dict[str, Any]] | None:
    """POFL with a fifth of the largest stable step, to limit noise, and a window well above the parameter count."""
    if prospect.performative_hessian is None or prospect.outlook is None or prospect.outlook.optimal is None:
        return None
    largest = float(np.linalg.eigvalsh(prospect.performative_hessian)[-1])
    seen = float(np.linalg.eigvalsh(prospect.hessian)[-1]) if prospect.hessian is not None else largest
    # The first steps of POFL are plain ones, so both curvatures bound the step.
    settings = {"rate": 0.2 / max(largest, seen), "window": 5 * len(prospect.performative_hessian)}
    return _call("profl" if robust[0] else "pofl", settings, (False, robust[1]), batch="pf.Fixed(500)"), settings


def _call(name: str, settings: dict[str, Any], robust: tuple[bool, bool], batch: str = "pf.Whole()") -> str:
    said = [f"{key}={value:.2g}" if isinstance(value, float) else f"{key}={value!r}" for key, value in settings.items()]
    said.append(f"batch={batch}")
    if robust[0]:
        said.append("estimator=pf.estimators.Filtered(pf.estimators.Minibatch())")
    if robust[1]:
        said.append("aggregator=pf.aggregators.Median()")
    return f"pf.{name}({', '.join(said)})"


def could_have_missed(reports: Sequence[ClientReport]) -> float:
    """The smallest shift, in standard deviations of a column, that these deployments would reveal with 90% power.

    A parameter's detectable response times the range over which it was moved, for the best client and column.
    """
    with np.errstate(invalid="ignore"):  # no response to a parameter that never moved is detectable: infinity times 0
        shifts = [one.detectable * np.ptp(one.log.theta, axis=0) for one in reports if one.effect.identified]
    finite = [float(shift[np.isfinite(shift)].min()) for shift in shifts if np.isfinite(shift).any()]
    return min(finite, default=math.inf)


def _label(untested: str) -> tuple[Finding, ...]:
    half = 1.96 * 0.5 / math.sqrt(_LABELS)
    some = _why("label-some", labels=_LABELS, points=100 * half)
    return (_why("label-unknown", why=untested), some, _why("features-alone"))


def _explore(reports: Sequence[ClientReport], extra: dict[str, Any], first: Finding | None = None) -> Advice:
    """How far to perturb: se(B) = s / (delta sqrt(n T)), chosen to detect 0.1 s per unit with 90% power."""
    largest = max(reports, key=lambda one: one.weight)
    d, q = largest.log.theta.shape[1], largest.log.mean.shape[1]
    rows = float(np.median(largest.log.count))
    need = float(stats.norm.isf(0.05 / (4 * d * q)) + stats.norm.isf(0.1))
    delta = need / (_WANTED * math.sqrt(rows * _DEPLOYMENTS))
    vague = largest.effect.reasons
    reasons = [_why("cannot-tell", reasons=list(vague))] if vague else []
    reasons += [first] if first else []
    plan = {"deviation": delta, "deployments": _DEPLOYMENTS, "rows": rows, "wanted": _WANTED}
    reasons.append(_why("explore", **plan))
    code = f"theta + {delta:.2g} * numpy.random.default_rng().standard_normal({d})"
    settings = {"deviation": delta, "deployments": _DEPLOYMENTS}
    return Advice("explore", "Explore a little", tuple(reasons), code, settings, None, **extra)


def odd_clients(reports: Sequence[ClientReport]) -> tuple[str, ...]:
    """Clients whose mean in the last deployment lies 6 robust spreads or more from the others'; needs five clients."""
    if len(reports) < _CLIENTS_FOR_ODD or len({one.log.columns for one in reports}) > 1:
        return ()
    last = np.stack([one.log.mean[-1] for one in reports])
    away = np.abs(last - np.median(last, axis=0))
    spread = 1.4826 * np.median(away, axis=0)
    far = np.any(away > _ODD_CLIENT * np.maximum(spread, 1e-300), axis=1)
    return tuple(one.name for one, is_far in zip(reports, far, strict=True) if is_far)
