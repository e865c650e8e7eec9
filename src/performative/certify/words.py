"""A certificate in words: one sentence for each finding."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from performative._base.messages import coded
from performative.findings import Finding, Words, part

_PAPER = "Jin et al. 2024, Proposition 2.8"
_HEADINGS = {
    "drift": "How the data drift on their own",
    "sufficient": "What is sufficient, for every start",
    "near": "What holds near the stable point",
    "cost": "What it costs",
    "word": "On the word of the parts' authors",
}


def reasons(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Sentences: what the theorems guarantee, what was measured, what it costs."""
    found = list(findings)
    return tuple(WORDS.say(one) for group in _HEADINGS for one in part(found, group))


def summary(findings: Iterable[Finding]) -> str:
    """The verdict and the reasons, for a terminal."""
    found = list(findings)
    lines = [WORDS.tell(part(found, "verdict"))]
    for group, heading in _HEADINGS.items():
        if inside := part(found, group):
            lines += ["", f"{heading}:", *(f"  - {WORDS.say(one)}" for one in inside)]
    return "\n".join(lines)


def _number(value: float) -> str:
    """Four digits; roundoff around zero is zero."""
    return "0" if abs(value) < 1e-12 else f"{value:.4g}"


def _model(point: dict[str, Any]) -> str:
    if point["values"] is None:
        return f"a model of {point['size']} numbers with norm {_number(point['norm'])}"
    shown: Any = {"float_kind": _number}  # NumPy's stubs require every kind
    values = np.asarray(point["values"], np.float64)
    return np.array2string(values, threshold=6, edgeitems=2, separator=", ", formatter=shown)


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _may_move(bound: float | None) -> str:
    said = "Not known to settle: the data change on their own, and it is unknown whether the stable point comes to rest"
    if bound is None:
        return f"{said}."
    return f"{said}. Retraining once per unit of time stays within {_number(bound)} of it after burn-in."


def _moves(speed: float, lag: float | None, attracting: bool | None) -> str:
    said = f"Does not settle: the stable point itself moves by {_number(speed)} per unit of time"
    if lag is not None:
        return f"{said}. Retraining once per unit of time follows it with a lag of {_number(lag)}."
    return f"{said}, and retraining {'diverges from it' if attracting is False else 'is not known to follow it'}."


def _others(others: bool) -> str:
    return "; there are other equilibria, so the start decides" if others else ""


def _proved(waits: bool, found: bool, on_word: bool) -> str:
    settled = ", if the data settle before each retraining" if waits else ""
    lost = "" if found else "; the search did not find the point"
    word = " on the author's word" if on_word else ""
    return f"Retraining settles at the only stable point, whatever the start{settled}: this is proved{word}{lost}."


def _undefined(settles: bool | None, others: bool) -> str:
    steps = "small gradient steps settle there from nearby" if settles else "small gradient steps diverge, too"
    return f"Retraining to the minimum is not defined at the stable point; {steps}{_others(others)}."


def _not_contracting(settles: bool | None, others: bool) -> str:
    steps = {
        None: "and it is not known whether small gradient steps do, too",
        True: "but small gradient steps settle there",
        False: "and so do small gradient steps",
    }[settles]
    return f"Not contracting: retraining diverges from the stable point, {steps}{_others(others)}."


def _limits(eps_bar: float, limits: list[float] | None) -> str:
    return _number(eps_bar) + (f" ({_number(limits[0])} to {_number(limits[1])})" if limits else "")


def _so(waits: bool, proved: bool) -> str:
    settled = ", if the data settle before each," if waits else ""
    so = f"retraining{settled} contracts from every start, and there is only one stable point"
    return so if proved else f"{so}, if the numbers hold beyond the region where they were measured"


def _in_data(mu: float, L_data: float, waits: bool, proved: bool) -> str:
    held = f"eps_bar < mu / L_data = {_number(mu)} / {_number(L_data)} = {_number(mu / L_data)}"
    return f"eps_bar is not below mu / L, but retraining to the minimum only needs {held}: {_so(waits, proved)}."


def _pace(spells: int) -> str:
    return "every spell" if spells == 1 else f"every {spells} spells"


def _memory(spells: int, rate: float | None) -> str:
    said = f"People feel a model that trails the deployed one, with a retraining {_pace(spells)}"
    if rate is None:
        return f"{said}: the factor below is for model and felt models jointly."
    return f"{said}: each leaves at most {_number(rate)} of the error in model and felt models, from every start."


def _measured(mu_exact: bool, models: int, rows: int) -> str:
    what = "L was" if mu_exact else "mu and L were"
    caution = "the true L can be larger" if mu_exact else "the true mu can be smaller and the true L larger"
    return f"{what} measured at {models} models and {rows} samples around the stable point; {caution}."


def _stable(point: dict[str, Any], several: bool, on_edge: bool) -> str:
    which = " (of several, the attracting one nearest to the start)" if several else ""
    return f"The stable point is {_model(point)}{which}{', on the boundary of the domain' if on_edge else ''}."


def _factor(multiplier: float, scalar: bool, attracting: bool | None, retrainings: int | None) -> str:
    error = "the error" if scalar else "the slowest component of the error"
    by = f"Near it one retraining multiplies {error} by {multiplier:.3g}"
    if retrainings is not None:
        several = f"about {retrainings} retrainings leave 1% of it"
        return f"{by}, so {several if retrainings > 1 else 'one retraining leaves 1% of it or less'}."
    if attracting is None:
        return f"{by}: to first order it neither shrinks nor grows."
    return f"{by}: it {'overshoots, and the error grows' if multiplier < 0 else 'diverges'}."


def _equilibria(points: list[dict[str, Any]], more: int) -> str:
    kinds = {None: "not known", True: "attracting", False: "repelling"}
    listed = "; ".join(f"{_model(one['point'])} ({kinds[one['attracting']]})" for one in points)
    return f"Other equilibria found: {listed}{f' and {more} more' if more else ''}."


def _left(distance: float, risk: float, left: float, relative: float) -> str:
    share = ""
    if not math.isnan(relative):
        small = f"{100 * relative:.3g}% of the optimal risk"
        share = f", {small if relative < 2 else f'{relative:.3g} times the optimal risk'}"
    return (
        f"The stable point is {_number(distance)} away from it and has risk {_number(risk)}: stability leaves "
        f"{_number(left)} on the table{share}."
    )


def _detection(gap: float, error: float, given: bool, chance: float, shows: bool | None) -> str:
    source = "as given" if given else "from the sizes of the clients' tables"
    does = {True: "is detectable", False: "is lost in the noise", None: "may or may not be detectable"}[shows]
    return (
        f"Training once, on the initial data, ends {_number(gap)} away from the stable point. In that direction "
        f"the training error is {_number(error)} ({source}), and with probability {chance:.2g} a newly trained "
        f"model is closer to the wrong one of these two points: the effect {does}."
    )


_GAP = "Training once, on the initial data, ends"
WORDS = Words(
    {
        "verdict.proved": _proved,
        "verdict.moves": _moves,
        "verdict.may-move": _may_move,
        "drift.over": "The data stand still from time {since:number} on. Everything else here refers to that time.",
        "drift.cancels": lambda since: (
            "Clients' data keep moving, but the movements cancel: the stable point stands still. Everything else "
            f"here refers to the data of time {_number(since)}."
        ),
        "drift.stopped": "Everything else here refers to the data frozen at time {since:number}.",
        "drift.steps": (
            "Gradient steps of constant size eta, one per unit of time, follow the stable point with a lag of "
            "{lag:number} / eta, if eta is small enough to settle without drift."
        ),
        "verdict.no-stable-point": "Not known to settle anywhere: no stable point was found.",
        "verdict.jumps": "Not known: a stable point was found, but near it the data jump as the model moves.",
        "verdict.not-computed": "A stable point was found, but whether retraining settles there was not computed.",
        "verdict.factor-near-one": (
            "Not known: the contraction factor at the stable point, {factor:.3g} ± {error:.2g}, may exceed 1."
        ),
        "verdict.on-the-edge": (
            "Borderline: to first order retraining neither settles at the stable point nor diverges from it."
        ),
        "verdict.undefined": _undefined,
        "verdict.not-contracting": _not_contracting,
        "verdict.lower-minimum-elsewhere": lambda others: (
            "Retraining settles at the stable point from nearby only if training stays nearby: on its data the risk "
            f"has a lower minimum elsewhere{_others(others)}."
        ),
        "verdict.settles": lambda exact: (
            "Retraining settles at the stable point: measured there, and guaranteed as far as "
            f"{'the sensitivity was' if exact else 'mu, L and the sensitivity were'} measured."
        ),
        "verdict.settles-nearby": lambda others: (
            "Retraining settles at the stable point from nearby"
            f"{_others(others) or '; no theorem guarantees that it gets there from far away'}."
        ),
        "sufficient.not-computed": lambda eps_bar, limits: (
            f"mu and L were not computed, so eps_bar = {_limits(eps_bar, limits)} cannot be compared with mu / L."
        ),
        "sufficient.numbers": lambda eps_bar, limits, mu, L, threshold: (
            f"eps_bar = {_limits(eps_bar, limits)}, mu / L = {_number(mu)} / {_number(L)} = {_number(threshold)}."
        ),
        "sufficient.not-convex": lambda flat: (
            "The theorems guarantee nothing: they need mu > 0, and the risk that training sees "
            f"{'is flat' if flat else 'has negative curvature'} somewhere."
        ),
        "sufficient.not-everywhere": (
            "The condition holds where it was measured, but not everywhere: it allows only one equilibrium."
        ),
        "sufficient.undecided": (
            "These draws do not decide whether eps_bar < mu / L; more `samples` narrow the limits."
        ),
        "sufficient.holds": lambda waits, proved: f"eps_bar < mu / L ({_PAPER}): {_so(waits, proved)}.",
        "sufficient.holds-in-data": _in_data,
        "sufficient.fails": "eps_bar is not below mu / L: the theorems guarantee nothing.",
        "sufficient.not-necessary": (
            "The condition is sufficient, not necessary: see below for what matters near the stable point."
        ),
        "sufficient.measured": _measured,
        "sufficient.estimated": (
            "The sensitivities were estimated from {draws} draws per client; the 95% limits are for the largest over "
            "{pairs} pairs of models around the stable point, not for all models."
        ),
        "sufficient.settled-data": (
            "The data remember past models: mu, L, eps_bar and the factor below are for data that have settled under "
            "each model before the next."
        ),
        "sufficient.memory": _memory,
        "sufficient.memory-unknown": lambda spells: (
            "The data remember past models: mu, L and eps_bar are for data that have settled under a model. With a "
            f"retraining {_pace(spells)} they guarantee nothing; the factor below is for model and memories jointly."
        ),
        "near.none": "{why:sentence}",
        "near.point": _stable,
        "near.closed-form-disagrees": coded(
            "closed-form-disagrees",
            "But the gradient is not zero at the point that the population declares: its `stable_point` is wrong, or "
            "its `quadrature` is not exact.",
        ),
        "near.jumps": (
            "A small change of the model moves the data differently from a sample's derivative: people cross a "
            "threshold. The contraction factor is meaningless there; `repeated_risk_minimization` shows what happens."
        ),
        "near.not-computed": (
            "The contraction factor was not computed: too many parameters, or non-finite derivatives."
        ),
        "near.nothing-to-retrain-to": (
            "There the risk that training sees has no strict minimum, so there is nothing to retrain to."
        ),
        "near.gone-at-once": (
            "Near it errors vanish after a few retrainings, at most one per parameter (contraction factor 0)."
        ),
        "near.uncertain-factor": (
            "Near it one retraining multiplies the error by {factor:.3g} ± {error:.2g}, which may be above or below 1."
        ),
        "near.factor": _factor,
        "near.deeper": (
            "On its data the risk is lower at {point:model}: training that finds the global minimum leaves the point."
        ),
        "near.small-steps": lambda settle: (
            "Small gradient steps (P-FedAvg, gradient descent) "
            f"{'settle there from nearby' if settle else 'diverge from it'}."
        ),
        "near.mixed": (
            "None of the points found attracts. No-regret play within a bounded domain (`pf.no_regret`) still leads to "
            "a distribution of models that is stable in the mean; `pf.mixed_regret` measures how close it is."
        ),
        "near.others": _equilibria,
        "near.reached": lambda here, point: (
            f"Exact retraining from the start ends {'there' if here else f'at {_model(point)}'}."
        ),
        "near.no-other": "No other equilibrium was found, which does not prove that there is none.",
        "cost.no-optimum": "{why:sentence}",
        "cost.optimum": lambda point, risk, known: (
            f"{'The optimal point is' if known else 'The best point found is'} {_model(point)}, with risk "
            f"{_number(risk)} once deployed."
        ),
        "cost.closed-form-disagrees": coded(
            "closed-form-disagrees",
            "The `optimal_point` that the population declares is wrong: the gradient is not zero there, or the risk is "
            "lower elsewhere.",
        ),
        "cost.falls-far-out": "It is only local: from some starts the risk keeps decreasing far out.",
        "cost.lower-elsewhere": coded("lower-elsewhere", "It is only local: a wider search found a lower risk."),
        "cost.nothing": lambda known: (
            f"The stable point is {'optimal, too' if known else 'that point'}: stability costs nothing."
        ),
        "cost.same-risk": (
            "The stable point is {distance:number} away from it, and has the same risk: stability costs nothing."
        ),
        "cost.left": _left,
        "cost.no-static": lambda why: _sentence(f"there is no static model to compare with: {why}"),
        "cost.no-gap": f"{_GAP} at the stable point already.",
        "cost.gap": _GAP + " {gap:number} away from the stable point. Whether that is detectable depends on the "
        "training error; pass it as `error`.",
        "cost.detection": _detection,
        "word.author": "{word}.",
    },
    number=_number,
    model=_model,
    sentence=_sentence,
)
