"""A certificate in words. What is sufficient and what was measured are kept apart."""

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from performative.types import Theta

if TYPE_CHECKING:
    from performative.certify.certificate import Certificate

_PAPER = "Jin et al. 2024, Proposition 2.8"


def verdict(c: "Certificate") -> str:
    """One sentence: does retraining settle?"""
    if c.proved_on_word:
        settled = ", where the data settle before each retraining" if c.stateful else ""
        lost = "" if c.stable is not None else "; the search did not find the point"
        word = " on the author's word" if c.on_word else ""
        return f"Retraining settles at the only stable point, whatever the start{settled}: this is proved{word}{lost}."
    if c.stable is None:
        return "Not known to settle anywhere: no stable point was found."
    if c.jumps:
        return "Not known: a stable point was found, but near it the data jump as the model moves."
    if c.attracting is None:
        return _undecided(c)
    others = "; there are other equilibria, so the start decides" if c.others else ""
    if math.isnan(c.contraction):
        steps = "small gradient steps settle there from nearby" if c.settles else "small gradient steps run away, too"
        return f"Retraining to the minimum is not defined at the stable point; {steps}{others}."
    if not c.attracting:
        return f"Not contracting: retraining runs away from the stable point, {_steps(c)}{others}."
    if c.deeper is not None:
        return (
            "Retraining settles at the stable point from nearby only where training stays nearby: on its data the risk "
            f"has a lower minimum elsewhere{others}."
        )
    if c.others:
        return f"Retraining settles at the stable point from nearby{others}."
    if c.contracts:
        known = c.mu_exact and c.L_exact
        return (
            "Retraining settles at the stable point: measured there, and promised as far as "
            f"{'the sensitivity was' if known else 'mu, L and the sensitivity were'} measured."
        )
    return "Retraining settles at the stable point from nearby; no theorem promises that it gets there from far away."


def _undecided(c: "Certificate") -> str:
    if math.isnan(c.contraction):
        return "A stable point was found, but whether retraining settles there was not computed."
    if c.contraction_error > 0:
        return (
            f"Not known: the contraction factor at the stable point, {c.contraction:.3g} ± {c.contraction_error:.2g}, "
            "cannot be told from 1."
        )
    return "On the edge: to first order retraining neither settles at the stable point nor runs away from it."


def _steps(c: "Certificate") -> str:
    if c.settles is None:
        return "and whether small gradient steps do so, too, is not known"
    return "but small gradient steps settle there" if c.settles else "and small gradient steps do so, too"


def reasons(c: "Certificate") -> dict[str, list[str]]:
    """Sentences by heading."""
    said = {
        "What is sufficient, for every start": _promised(c),
        "What holds near the stable point": _measured(c),
        "What it costs": _costs(c),
    }
    return said | ({"On the word of the parts' authors": [f"{word}." for word in c.on_word]} if c.on_word else {})


def summary(c: "Certificate") -> str:
    """The verdict and the reasons, for a terminal."""
    lines = [c.verdict]
    for heading, sentences in reasons(c).items():
        lines += ["", f"{heading}:", *(f"  - {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def _promised(c: "Certificate") -> list[str]:
    if math.isnan(c.threshold):
        return [f"mu and L were not computed, so eps_bar = {_limits(c)} has nothing to be compared with."]
    held = f"eps_bar = {_limits(c)}, mu / L = {_number(c.mu)} / {_number(c.L)} = {_number(c.threshold)}."
    said = [held]
    if c.mu <= 1e-9 * max(c.L, 1.0):
        flat = "is flat" if c.mu > -1e-9 * max(c.L, 1.0) else "curves down"
        said.append(
            f"The theorems promise nothing: they need mu > 0, and the risk that training sees {flat} somewhere."
        )
    elif c.others and c.eps_bar_upper < c.threshold:
        said.append("The condition holds where it was measured, but not everywhere: it allows one equilibrium only.")
    elif c.sufficient is None:
        said.append("Whether eps_bar < mu / L cannot be told from these draws; more `samples` narrow the limits.")
    elif c.sufficient:
        said.append(f"eps_bar < mu / L ({_PAPER}): {_so(c)}.")
    elif c.contracts:
        held = f"eps_bar < mu / L_data = {_number(c.mu)} / {_number(c.L_data)} = {_number(c.mu / c.L_data)}"
        said.append(f"eps_bar is not below mu / L, but retraining to the minimum needs less, {held}: {_so(c)}.")
    else:
        said.append("eps_bar is not below mu / L: the theorems promise nothing.")
        if c.stable is not None:
            said.append("The condition is sufficient, not necessary: what counts near the stable point stands below.")
    return said + _where(c)


def _so(c: "Certificate") -> str:
    settled = ", where the data settle before each," if c.stateful else ""
    so = f"retraining{settled} contracts from every start, and there is one stable point only"
    return so if c.proved else f"{so}, if the numbers hold beyond where they were measured"


def _where(c: "Certificate") -> list[str]:
    """How the constants were come by."""
    said = []
    if not (c.mu_exact and c.L_exact):
        what = "L was" if c.mu_exact else "mu and L were"
        caution = "the true L can be larger" if c.mu_exact else "the true mu can be smaller and the true L larger"
        said.append(f"{what} measured at {c.models} models and {c.rows} samples around the stable point; {caution}.")
    if c.sensitivity_source == "estimated":
        said.append(
            f"The sensitivities were estimated from {c.draws} draws a client; the 95 % limits are for the largest over "
            f"{c.pairs} pairs of models around the stable point, not for all models."
        )
    if c.stateful:
        said.append(
            "The data remember past models: mu, L and eps_bar are for data that have settled under a model, the factor "
            "below for one retraining a spell."
        )
    return said


def _measured(c: "Certificate") -> list[str]:
    if c.stable is None:
        return [_sentence(c.no_stable or "no stable point was found")]
    which = ", of several the attracting one nearest to the start" if c.others and c.attracting is not False else ""
    where = f"The stable point is {_model(c.stable)}{which}"
    said = [where + (", on the edge of the domain." if c.on_edge else ".")]
    said.append(_retraining(c))
    if c.deeper is not None:
        said.append(
            f"On its data the risk is lower at {_model(c.deeper)}: training that looks everywhere leaves the point."
        )
    if c.settles is not None:
        does = "settle there from nearby" if c.settles else "run away from it"
        said.append(f"Small gradient steps (P-FedAvg, gradient descent) {does}.")
    if c.others:
        kinds = [_kind(point.attracting) for point in c.others[:4]]
        more = f" and {len(c.others) - 4} more" if len(c.others) > 4 else ""
        listed = "; ".join(f"{_model(p.theta)} ({kind})" for p, kind in zip(c.others, kinds, strict=False))
        said.append(f"Other equilibria that were found: {listed}{more}.")
        if c.reached is not None:
            here = jax.tree.all(jax.tree.map(np.array_equal, c.reached, c.stable))
            said.append(f"Exact retraining from the start ends {'there' if here else f'at {_model(c.reached)}'}.")
    elif c.unique is None:
        said.append("No other equilibrium was found, which is no proof that there is none.")
    return said


def _retraining(c: "Certificate") -> str:
    factor = c.contraction
    if c.jumps:
        return (
            "A small move of the model changes the data otherwise than the derivative of a sample says: people cross a "
            "threshold. The contraction factor means nothing there; `repeated_risk_minimization` shows what happens."
        )
    if c.attracting is None and math.isnan(factor):
        return "The contraction factor was not computed: too many parameters, or derivatives that are not finite."
    if math.isnan(factor):
        return "There the risk that training sees has no minimum of its own, so there is nothing to retrain to."
    if factor < 1e-9:
        return "Near it errors are gone after a few retrainings, at most one for each parameter (contraction factor 0)."
    if c.attracting is None and c.contraction_error > 0:
        by = f"{factor:.3g} ± {c.contraction_error:.2g}"
        return f"Near it one retraining multiplies the error by {by}, which may be above or below 1."
    error = "the error" if np.size(jax.tree.leaves(c.stable)[0]) == 1 else "the most stubborn part of the error"
    by = f"Near it one retraining multiplies {error} by {c.multiplier:.3g}"
    if c.attracting:
        times = max(1, math.ceil(math.log(0.01) / math.log(factor)))
        often = f"about {times} retrainings leave 1 % of it" if times > 1 else "one retraining leaves 1 % of it or less"
        return f"{by}, so that {often}."
    if c.attracting is None:
        return f"{by}: to first order it neither shrinks nor grows."
    return f"{by}: it {'overshoots, and the error grows' if c.multiplier < 0 else 'runs away'}."


def _costs(c: "Certificate") -> list[str]:
    said = []
    if c.optimal is None:
        said.append(_sentence(c.no_optimal or "no optimal point was found"))
    else:
        what = "The optimal point is" if c.optimal_known else "The best point that was found is"
        said.append(f"{what} {_model(c.optimal)}, with risk {_number(c.optimal_risk)} once deployed.")
        if c.falls_far_out:
            said.append("It is a local one: from some starts the risk keeps falling far out.")
    if c.stable is not None and c.optimal is not None and c.distance <= 1e-8 * (1.0 + _size(c.stable)):
        which = "optimal, too" if c.optimal_known else "that point"
        said.append(f"The stable point is {which}: stability costs nothing.")
    elif c.stable is not None and c.optimal is not None:
        away = f"The stable point is {_number(c.distance)} away from it"
        left = c.stable_risk - c.optimal_risk
        if left <= 1e-9 * (1.0 + abs(c.optimal_risk)):
            said.append(f"{away}, and has the same risk: stability costs nothing.")
        else:
            said.append(
                f"{away} and has risk {_number(c.stable_risk)}: stability leaves {_number(left)} on the table"
                f"{_share(c.relative_cost)}."
            )
    return said + _detection(c)


def _detection(c: "Certificate") -> list[str]:
    if c.static is None:
        return [_sentence(f"there is no static model to compare with: {c.no_static}")]
    if c.stable is None:
        return []
    if c.static_gap <= 1e-9 * (1.0 + _size(c.stable)):
        return ["Training once, on the data of the start, ends at the stable point already."]
    gap = f"Training once, on the data of the start, ends {_number(c.static_gap)} away from the stable point"
    if c.error is None:
        return [f"{gap}. Whether that shows depends on the training error; state it as `error`."]
    source = "as stated" if c.error_source == "given" else "from the sizes of the clients' tables"
    shows = {True: "shows", False: "cannot be told from noise", None: "may or may not show"}[c.detectable]
    return [
        f"{gap}. Along that way the training error is {_number(c.error)} ({source}), and a model trained anew lies "
        f"nearer to the wrong one of the two with a chance of {c.chance:.2g}: the effect {shows}."
    ]


def _limits(c: "Certificate") -> str:
    if c.sensitivity_source == "analytic":
        return _number(c.eps_bar)
    return f"{_number(c.eps_bar)} ({_number(c.eps_bar_lower)} to {_number(c.eps_bar_upper)})"


def _kind(attracting: bool | None) -> str:
    return "not known" if attracting is None else ("attracting" if attracting else "repelling")


def _number(value: float) -> str:
    """Four digits; rounding errors around zero are zero."""
    return "0" if abs(value) < 1e-12 else f"{value:.4g}"


def _share(cost: float) -> str:
    if math.isnan(cost):
        return ""
    return f", {100 * cost:.3g} % of the optimal risk" if cost < 2 else f", {cost:.3g} times the optimal risk"


def _model(theta: Theta) -> str:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(theta)]
    if len(leaves) == 1:
        shown: Any = {"float_kind": _number}  # the stubs of NumPy want every kind that there is
        return np.array2string(leaves[0], threshold=6, edgeitems=2, separator=", ", formatter=shown)
    return f"a model of {sum(leaf.size for leaf in leaves)} numbers with norm {_number(_size(theta))}"


def _size(theta: Theta) -> float:
    return float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(theta))))


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
