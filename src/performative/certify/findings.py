"""A certificate as findings: sufficient conditions and measurements are kept apart."""

import math
from typing import Any

import jax
import numpy as np

from performative.certify.certificate import Certificate
from performative.findings import Finding, Severity, plain


def findings_of(c: Certificate) -> tuple[Finding, ...]:
    """The verdict, then the sufficient conditions, what holds near the stable point, and the cost."""
    on_word = [Finding("word.author", "caution", {"word": word}) for word in c.on_word]
    return (_verdict(c), *_drift(c), *_sufficient(c), *_near(c), *_costs(c), *on_word)


def _verdict(c: Certificate) -> Finding:
    """Does retraining settle?"""

    def said(name: str, severity: Severity = "caution", **data: Any) -> Finding:
        return Finding(f"verdict.{name}", severity, data)

    others = bool(c.others)
    if c.moves:
        return _moving(c)
    if c.proved_on_word:
        facts = {"waits": c.stateful and c.spells is None, "found": c.stable is not None, "on_word": bool(c.on_word)}
        return said("proved", "info", **facts)
    if c.stable is None:
        return said("no-stable-point", "warning")
    if c.jumps:
        return said("jumps")
    if c.attracting is None:
        if math.isnan(c.contraction):
            return said("not-computed")
        if c.contraction_error > 0:
            return said("factor-near-one", factor=c.contraction, error=c.contraction_error)
        return said("on-the-edge")
    if math.isnan(c.contraction):
        return said("undefined", settles=c.settles, others=others)
    if not c.attracting:
        return said("not-contracting", "warning", settles=c.settles, others=others)
    if c.deeper is not None:
        return said("lower-minimum-elsewhere", others=others)
    if c.contracts:
        return said("settles", "info", exact=bool(c.mu_exact and c.L_exact))
    return said("settles-nearby", others=others)


def _moving(c: Certificate) -> Finding:
    """The stable point keeps moving."""
    if c.still is None:
        bound = None if math.isnan(c.lag_bound) else c.lag_bound
        return Finding("verdict.may-move", "caution", {"bound": bound})
    lag = None if math.isnan(c.lag) else c.lag
    return Finding("verdict.moves", "warning", {"speed": c.speed, "lag": lag, "attracting": c.attracting})


def _drift(c: Certificate) -> list[Finding]:
    """How the data drift on their own."""
    if not c.drifts:
        return []
    if c.still:
        return [Finding("drift.cancels" if c.speed == 0 else "drift.over", "info", {"since": c.since})]
    found = [Finding("drift.stopped", "caution", {"since": c.since})]
    if not math.isnan(c.step_lag) and c.settles:
        found.append(Finding("drift.steps", "info", {"lag": c.step_lag}))
    return found


def _sufficient(c: Certificate) -> list[Finding]:
    limits = None if c.sensitivity_source == "analytic" else [c.eps_bar_lower, c.eps_bar_upper]
    eps = {"eps_bar": c.eps_bar, "limits": limits}
    if math.isnan(c.threshold):
        return [Finding("sufficient.not-computed", "caution", eps)]
    found = [Finding("sufficient.numbers", "info", {**eps, "mu": c.mu, "L": c.L, "threshold": c.threshold})]
    waits = c.stateful and (c.spells is None or not c.covers_memory)
    so = {"waits": waits, "proved": c.contracts_everywhere and not c.on_word}
    flat = 1e-9 * max(c.L, 1.0)
    if c.mu <= flat:
        found.append(Finding("sufficient.not-convex", "caution", {"flat": bool(c.mu > -flat)}))
    elif c.others and c.eps_bar_upper < c.threshold:
        found.append(Finding("sufficient.not-everywhere", "caution", {}))
    elif c.sufficient is None:
        found.append(Finding("sufficient.undecided", "caution", {}))
    elif c.sufficient:
        found.append(Finding("sufficient.holds", "info", so))
    elif c.contracts:
        found.append(Finding("sufficient.holds-in-data", "info", {"mu": c.mu, "L_data": c.L_data, **so}))
    else:
        found.append(Finding("sufficient.fails", "caution", {}))
        if c.stable is not None:
            found.append(Finding("sufficient.not-necessary", "info", {}))
    if not (c.mu_exact and c.L_exact):
        where = {"mu_exact": c.mu_exact, "models": c.models, "rows": c.rows}
        found.append(Finding("sufficient.measured", "caution", where))
    if c.sensitivity_source == "estimated":
        found.append(Finding("sufficient.estimated", "caution", {"draws": c.draws, "pairs": c.pairs}))
    if c.stateful:
        found.append(_memory(c))
    return found


def _memory(c: Certificate) -> Finding:
    """What is guaranteed for model and worlds jointly."""
    if c.spells is None:
        return Finding("sufficient.settled-data", "info", {})
    if not c.covers_memory:
        return Finding("sufficient.memory-unknown", "caution", {"spells": c.spells})
    return Finding("sufficient.memory", "info", {"spells": c.spells, "rate": c.memory_rate if c.contracts else None})


def _near(c: Certificate) -> list[Finding]:
    if c.stable is None:
        return [Finding("near.none", "warning", {"why": c.no_stable or "no stable point was found"})]
    several = bool(c.others) and c.attracting is not False
    found = [Finding("near.point", "info", {"point": _point(c.stable), "several": several, "on_edge": c.on_edge})]
    if c.stable_disagrees:
        found.append(Finding("near.closed-form-disagrees", "warning", {}))
    found.append(_factor(c))
    if c.deeper is not None:
        found.append(Finding("near.deeper", "caution", {"point": _point(c.deeper)}))
    if c.settles is not None:
        found.append(Finding("near.small-steps", "info", {"settle": c.settles}))
    if _nothing_attracts(c):
        found.append(Finding("near.mixed", "info", {}))
    if c.others:
        shown = [{"point": _point(p.theta), "attracting": p.attracting} for p in c.others[:4]]
        found.append(Finding("near.others", "caution", {"points": shown, "more": max(0, len(c.others) - 4)}))
        if c.reached is not None:
            here = jax.tree.all(jax.tree.map(np.array_equal, c.reached, c.stable))
            found.append(Finding("near.reached", "info", {"here": bool(here), "point": _point(c.reached)}))
    elif c.unique is None:
        found.append(Finding("near.no-other", "info", {}))
    return found


def _nothing_attracts(c: Certificate) -> bool:
    """Whether neither retraining nor small steps settle at any point found."""
    return c.attracting is False and c.settles is False and not any(p.attracting or p.settles for p in c.others)


def _factor(c: Certificate) -> Finding:
    """What one retraining does to an error."""
    factor = c.contraction
    if c.jumps:
        return Finding("near.jumps", "caution", {})
    if math.isnan(factor):
        return Finding("near.not-computed" if c.attracting is None else "near.nothing-to-retrain-to", "caution", {})
    if factor < 1e-9:
        return Finding("near.gone-at-once", "info", {})
    if c.attracting is None and c.contraction_error > 0:
        return Finding("near.uncertain-factor", "caution", {"factor": factor, "error": c.contraction_error})
    scalar = np.size(jax.tree.leaves(c.stable)[0]) == 1
    times = max(1, math.ceil(math.log(0.01) / math.log(factor))) if c.attracting else None
    data = {"multiplier": c.multiplier, "scalar": scalar, "attracting": c.attracting, "retrainings": times}
    return Finding("near.factor", "info" if c.attracting else "caution", data)


def _costs(c: Certificate) -> list[Finding]:
    found = []
    if c.optimal is None:
        found.append(Finding("cost.no-optimum", "caution", {"why": c.no_optimal or "no optimal point was found"}))
    else:
        facts = {"point": _point(c.optimal), "risk": c.optimal_risk, "known": c.optimal_known}
        found.append(Finding("cost.optimum", "info", facts))
        doubts = {
            "closed-form-disagrees": c.optimal_disagrees,
            "falls-far-out": c.falls_far_out,
            "lower-elsewhere": c.lower_elsewhere,
        }
        found += [Finding(f"cost.{name}", "warning", {}) for name, doubt in doubts.items() if doubt]
    if c.stable is not None and c.optimal is not None:
        left = c.stable_risk - c.optimal_risk
        if c.distance <= 1e-8 * (1.0 + _norm(c.stable)):
            found.append(Finding("cost.nothing", "info", {"known": c.optimal_known}))
        elif left <= 1e-9 * (1.0 + abs(c.optimal_risk)):
            found.append(Finding("cost.same-risk", "info", {"distance": c.distance}))
        else:
            risks = {"risk": c.stable_risk, "left": left, "relative": c.relative_cost}
            found.append(Finding("cost.left", "info", {"distance": c.distance, **risks}))
    return found + _detection(c)


def _detection(c: Certificate) -> list[Finding]:
    """Is the effect detectable given the training error?"""
    if c.static is None:
        return [Finding("cost.no-static", "info", {"why": c.no_static})]
    if c.stable is None:
        return []
    if c.static_gap <= 1e-9 * (1.0 + _norm(c.stable)):
        return [Finding("cost.no-gap", "info", {})]
    if c.error is None:
        return [Finding("cost.gap", "info", {"gap": c.static_gap})]
    facts = {"error": c.error, "given": c.error_source == "given", "chance": c.chance, "shows": c.detectable}
    return [Finding("cost.detection", "info", {"gap": c.static_gap, **facts})]


def _point(theta: Any) -> dict[str, Any]:
    """A single-array model by its values, others by their size."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(theta)]
    values = plain(leaves[0]) if len(leaves) == 1 else None
    return {"values": values, "size": sum(leaf.size for leaf in leaves), "norm": _norm(theta)}


def _norm(theta: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(theta))))
