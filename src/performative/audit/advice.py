"""What to do next: an algorithm, its settings, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from performative.audit.client_report import ClientReport
from performative.audit.formats import sentences
from performative.audit.prospect import Prospect
from performative.certify.certificate import plain

# A cost of stability above this share of the least risk is worth an algorithm of its own; below, the noise of learning
# the reaction eats much of the gain.
LARGE_COST = 0.05
# Share of rows far out from which an estimator that filters them is worth its cost.
FAR_OUT = 0.005
# A client whose level lies so many robust spreads from the others', in some column, is an outlier among clients.
_ODD_CLIENT = 6.0
_CLIENTS_FOR_ODD = 5
# Local steps that stand for training to the end: what is left of the error, and the most steps that we name.
_LEFT, _MOST_STEPS = 0.01, 1000
# No shift below this, in standard deviations, could be seen: "nothing found" then says little.
LARGE_SHIFT = 0.5
# Labeled people among the rejected, a client and deployment, that are suggested.
_LABELS = 100
# What exploring should be able to see: a tenth of a standard deviation per unit of a parameter, in ten deployments.
_WANTED, _DEPLOYMENTS = 0.1, 10


@dataclass(frozen=True, eq=False)
class Advice:
    """One suggestion. kind: "ordinary", "explore", "label", "retrain", "damp", "optimize" or "look closer".

    code is one expression in `pf` (or numpy), None where there is nothing to run; settings are its numbers.
    """

    kind: str
    title: str
    reasons: tuple[str, ...]
    code: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    otherwise: tuple[str, str] | None = None
    far_out: tuple[tuple[str, str, float], ...] = ()
    odd_clients: tuple[str, ...] = ()

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

    rows or labels chosen by the model -> log, or label, others too; not identified, or little to be seen -> explore; no
    effect -> ordinary training; settles and stability costs little -> retrain in full; settles and stability costs much
    -> POFL; does not settle for certain -> small steps, where these settle. hedged: whether drift may explain it too.
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
        why = "Which rows are in the logs changes with the model, so nothing can be said of the people behind them."
        return Advice("look closer", "Log everybody first", (why,), **extra)
    if effect is None and untested and any(one.reacts is not None for one in reports):
        return Advice("label", "See some outcomes of the rejected", _label(untested), **extra)
    if effect is None:
        return _explore(reports, extra)
    if not effect:
        if (missed := could_have_missed(reports)) > LARGE_SHIFT:
            why = f"A shift of {missed:.2g} standard deviations between the models deployed could have gone unseen."
            return _explore(reports, extra, why)
        why = "No client's data are seen to react to the model, so retraining is ordinary retraining."
        return Advice(
            "ordinary", "Train as usual", (why, "Audit again when more deployments have been logged."), **extra
        )
    if hedged:
        return _explore(
            reports, extra, "The models moved as the data did: drift of the same shape would explain it as well."
        )
    found = prospect.outlook
    if found is None:
        return Advice(
            "look closer", "The data react; where that leads was not computed", (sentences(prospect.reasons),), **extra
        )
    return _solve(prospect, extra)


def _solve(prospect: Prospect, extra: dict[str, Any]) -> Advice:
    found = prospect.outlook
    assert found is not None and prospect.hessian is not None
    high = found.contraction_limits[1]
    cost = prospect.relative_cost
    far = cost > LARGE_COST
    robust = _robust(extra)
    small = None if prospect.rate is None else _call("p_fedavg", {"rate": prospect.rate}, robust)
    optimize = _optimize(prospect, robust)
    least = "the least risk nearby" if prospect.optimal_is_local else "the least risk"
    off = f"settling at the stable point costs {100 * cost:.2g} % of {least}"
    if found.contraction < 1 and high < 1:
        if far and optimize:
            code, settings = optimize
            reasons = (
                f"Retraining settles, but {off}, which is worth an algorithm of its own.",
                "POFL learns how each client reacts from its past models and goes to the optimum itself.",
            )
            other = ("To settle at the stable point instead, retrain in full:", _retrain(prospect, robust)[0])
            return Advice("optimize", "Go for the optimum: POFL", reasons, code, settings, other, **extra)
        code, settings = _retrain(prospect, robust)
        reasons = (
            f"Each retraining multiplies the error by about {found.contraction:.2g}, so it settles by itself.",
            "No optimum of the fitted risk was found: it falls far out, where these logs say nothing."
            if math.isnan(cost)
            else f"Little is to be gained beyond that: {off}.",
        )
        return Advice("retrain", "Keep retraining in full", reasons, code, settings, None, **extra)
    does = "does not settle" if found.contraction >= 1 else "may not settle: the limits of its factor include 1"
    if small is not None:
        by = f"steps of {prospect.rate:.2g} along the gradient multiply the error by {prospect.stepped:.2g} each"
        share = f"moving only {100 * (prospect.damping or 0.0):.0f} % of the way to the retrained model"
        whole = f", or {share} at each deployment," if prospect.damping else ""
        reasons = (f"Retraining in full {does}.", f"Small steps do: {by}{whole} and end at the stable point.")
        instead = (f"But {off}; to go for the optimum itself:", optimize[0]) if far and optimize else None
        settings = {"rate": prospect.rate, "damping": prospect.damping}
        return Advice("damp", "Take small steps", reasons, small, settings, instead, **extra)
    lost = f"Retraining in full {does}, and small gradient steps run away from the stable point, too."
    if optimize:
        why = "The optimum is where the performative risk is least; POFL heads for it, and needs no contraction."
        return Advice("optimize", "Go for the optimum: POFL", (lost, why), *optimize, None, **extra)
    why = "No optimum was found either; keep the model where it is, or limit its domain."
    return Advice("look closer", "Do not retrain by itself", (lost, why), None, {}, None, **extra)


def _retrain(prospect: Prospect, robust: tuple[bool, bool]) -> tuple[str, dict[str, Any]]:
    """Full retraining as local steps: rate 1 / L, as many steps as bring the error down to a hundredth."""
    assert prospect.hessian is not None
    values = np.linalg.eigvalsh(prospect.hessian)
    rate, left = 1 / float(values[-1]), 1 - float(values[0] / values[-1])
    steps = 1 if left <= _LEFT else min(_MOST_STEPS, math.ceil(math.log(_LEFT) / math.log(left)))
    settings = {"rate": rate, "local_steps": steps, "deploy": "round"}
    return _call("p_fedavg", settings, robust), settings


def _optimize(prospect: Prospect, robust: tuple[bool, bool]) -> tuple[str, dict[str, Any]] | None:
    """POFL with a fifth of the step that curvature allows, against noise, and a window well above the parameters."""
    if prospect.performative_hessian is None or prospect.outlook is None or prospect.outlook.optimal is None:
        return None
    largest = float(np.linalg.eigvalsh(prospect.performative_hessian)[-1])
    seen = float(np.linalg.eigvalsh(prospect.hessian)[-1]) if prospect.hessian is not None else largest
    # The first steps of POFL are plain ones, so both curvatures bound the step.
    settings = {"rate": 0.2 / max(largest, seen), "window": 5 * len(prospect.performative_hessian)}
    return _call("profl" if robust[0] else "pofl", settings, (False, robust[1]), batch="pf.Fixed(500)"), settings


def _robust(extra: dict[str, Any]) -> tuple[bool, bool]:
    return bool(extra["far_out"]), bool(extra["odd_clients"])


def _call(name: str, settings: dict[str, Any], robust: tuple[bool, bool], batch: str = "pf.Whole()") -> str:
    said = [f"{key}={value:.2g}" if isinstance(value, float) else f"{key}={value!r}" for key, value in settings.items()]
    said.append(f"batch={batch}")
    if robust[0]:
        said.append("estimator=pf.estimators.Filtered(pf.estimators.Minibatch())")
    if robust[1]:
        said.append("aggregator=pf.aggregators.Median()")
    return f"pf.{name}({', '.join(said)})"


def could_have_missed(reports: Sequence[ClientReport]) -> float:
    """The smallest shift, in standard deviations of a column, that these deployments would have shown 9 times in 10.

    What a parameter's detectable response adds up to over the range that it was moved; the best client and column.
    """
    shifts = [one.detectable * np.ptp(one.log.theta, axis=0) for one in reports if one.effect.identified]
    finite = [float(shift[np.isfinite(shift)].min()) for shift in shifts if np.isfinite(shift).any()]
    return min(finite, default=math.inf)


def _label(untested: str) -> tuple[str, ...]:
    half = 1.96 * 0.5 / math.sqrt(_LABELS)
    return (
        f"Whether outcomes react cannot be told: {untested}.",
        f"Accept a random few of those whom the model rejects, and log the chance as `propensity`. With {_LABELS} of "
        f"them for each client and deployment, their rates of outcomes are known to within {100 * half:.0f} points.",
        "Until then, what holds for the features holds for them alone.",
    )


def _explore(reports: Sequence[ClientReport], extra: dict[str, Any], first: str = "") -> Advice:
    """How far to step off: se(B) = s / (delta sqrt(n T)), so that 0.1 s per unit is seen with 90 % power."""
    largest = max(reports, key=lambda one: one.weight)
    d, q = largest.log.theta.shape[1], largest.log.mean.shape[1]
    rows = float(np.median(largest.log.count))
    need = float(stats.norm.isf(0.05 / (4 * d * q)) + stats.norm.isf(0.1))
    delta = need / (_WANTED * math.sqrt(rows * _DEPLOYMENTS))
    reasons = [f"These deployments cannot tell. {sentences(largest.effect.reasons)}"] if largest.effect.reasons else []
    reasons += [first] if first else []
    reasons.append(
        f"Add a little chance to each model deployed. With a standard deviation of {delta:.2g} for each parameter, "
        f"{_DEPLOYMENTS} deployments of {rows:.0f} rows would show a response of {_WANTED} standard deviations "
        "per unit with 90 % power, if drift is small."
    )
    code = f"theta + {delta:.2g} * numpy.random.default_rng().standard_normal({d})"
    settings = {"deviation": delta, "deployments": _DEPLOYMENTS}
    return Advice("explore", "Explore a little", tuple(reasons), code, settings, None, **extra)


def odd_clients(reports: Sequence[ClientReport]) -> tuple[str, ...]:
    """Clients whose mean in the last deployment lies far from the others': 6 robust spreads, among five or more."""
    if len(reports) < _CLIENTS_FOR_ODD or len({one.log.columns for one in reports}) > 1:
        return ()
    last = np.stack([one.log.mean[-1] for one in reports])
    away = np.abs(last - np.median(last, axis=0))
    spread = 1.4826 * np.median(away, axis=0)
    far = np.any(away > _ODD_CLIENT * np.maximum(spread, 1e-300), axis=1)
    return tuple(one.name for one, is_far in zip(reports, far, strict=True) if is_far)
