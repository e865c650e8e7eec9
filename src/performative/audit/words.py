"""What an audit found, in words: one sentence per finding."""

import math
from typing import Any

from performative._base.messages import coded
from performative.audit import brief_words
from performative.audit.formats import chance, listed, number, percent, sentences
from performative.audit.formats import parameter as _theta
from performative.findings import Words

_DRIFTS = {"none": "sampling noise", "linear": "a linear trend", "walk": "a random walk", "smooth": "smooth drift"}


def _selection(
    by: str, p_value: float, accepted: float, rejected: float, method: str, source: str, why: str, coverage: float,
    effective: Any,
) -> str:  # fmt: skip
    if by == "acceptance":
        shares = f"{percent(accepted)} of the accepted have one, {percent(rejected)} of the rejected"
        seen = f"The model decided whose label is known: {shares}"
    else:
        how = f"it depends on {by}, and not in the same way under all of them ({chance(p_value)})"
        seen = f"Whose label is known changes between deployments: {how}"
    least, most = effective
    done = {
        "withheld": f"The label is not tested, only the features, which are logged for everyone: {why}",
        "weighted": (
            f"The label is tested on rows weighted by 1 / the probability of a label, {source}: they represent "
            f"everyone, with {least:,.0f} to {most:,.0f} effective rows per client and deployment"
        ),
        "always accepted": (
            f"The label is tested among people whom every deployed model accepts, at least {coverage:.0%} of all, "
            f"with {least:,.0f} to {most:,.0f} rows per client and deployment; this says nothing about the others"
        ),
    }[method]
    text = f"{seen}. Labeled rows change when the model does, whether or not anybody reacts. {done}."
    return coded("selection-by-model", text)


def _outliers(client: str, column: str, wider: float, low: float, high: float, share: float, others: int) -> str:
    more = f" and in {others} more such columns" if others else ""
    rows = "less than 0.1%" if share < 0.001 else f"{100 * share:.1f}%"
    return coded(
        "outliers-hide-effect",
        f"Outliers can hide a reaction: {rows} of the rows of {client} make {column} {wider:.0f} times as wide as "
        f"the rest{more}, so a reaction must be that many times larger to be detected. Check these rows, and clip: "
        f"{column} = [{number(low)}, {number(high)}] under [clip] in audit.toml, or log the column on a robust scale.",
    )


def _test(p_value: float, untested: int) -> str:
    return f"({chance(p_value)}{f', {untested} could not be tested' if untested else ''})"


def _reaction(reacting: int, clients: int, drift: str, p_value: float, untested: int) -> str:
    at = f"at {reacting} of {clients} clients" if clients > 1 else "here"
    if not reacting:
        at = "overall, though no single client can be named"
    if_drift = "" if drift == "smooth" else f", if there was no drift other than {_DRIFTS[drift]}"
    return f"The data react to the model {at} {_test(p_value, untested)}{if_drift}."


def _no_reaction(several: bool, features_only: bool, p_value: float, untested: int) -> str:
    of, who = " of the features" if features_only else "", "any client" if several else "the client"
    said = f"No reaction{of} to the model was found at {who} {_test(p_value, untested)}"
    return f"{said}: as far as these logs show, this is ordinary retraining."


def _settling(outlook: dict[str, Any] | None) -> str:
    """Does full retraining settle?"""
    if outlook is None:
        return "Where retraining leads was not computed."
    if not outlook["stable"]:
        return "Retraining has no stable point."
    contraction, settles, left = outlook["contraction"], outlook["settles"], outlook["deployments"]
    low, high = map(number, outlook["limits"])
    factor = f"each retraining multiplies the error by {number(contraction)} ({low} to {high})"
    if settles is None:
        leans = "it seems to settle" if contraction < 1 else "it seems not to settle"
        return f"It is uncertain whether retraining settles, {leans}: {factor}."
    if not settles:
        return f"Retraining does not settle: {factor}."
    within = f"within {100 * outlook['tolerance']:g}%"
    if left is None:
        return f"Retraining settles: {factor}."
    if left == 0:
        return f"Retraining has settled, {within}: {factor}."
    return f"Retraining settles {within} after about {left} more deployment{'s' if left > 1 else ''}: {factor}."


def _ahead(hedged: bool, outlook: dict[str, Any] | None) -> str:
    said = _settling(outlook)
    return f"If they do react: {said[0].lower()}{said[1:]}" if hedged else said


def _assumes(share: float, factors: dict[str, float], complete: bool) -> str:
    (first, factor), *ends = factors.items()
    told = f"{percent(share)} of the people have no label, and theirs are assumed to be {first} (missing at random)"
    others = "".join(f", {number(value)} if they were {name}" for name, value in ends)
    rest = "The limits span these cases and no others"
    if not ends or not complete:
        rest = "At one extreme there is no outlook, so nothing bounds the factor"
    return f"{told}: the factor is then {number(factor)}{others}. {rest}."


def _p(p_value: float, adjusted: float) -> str:
    alone, counted = chance(p_value), chance(adjusted)
    return alone if alone == counted else f"{alone}; {counted} corrected for all tests"


def direction(column: str, parameter: str, slope: float, in_sd: float, **_: Any) -> str:
    """What moves, and by how much."""
    how, by = "rises" if slope > 0 else "falls", f"{number(abs(slope))} ({number(abs(in_sd))} sd)"
    return f"{column} {how} by {by} per unit of {_theta(parameter)}"


def _reacts(client: str, p_value: float, adjusted: float, column: str, parameter: str, directions: list[Any]) -> str:
    lines = [direction(**line) for line in directions]
    what = "; ".join(lines) or f"{column} responds to the model; to which parameter, and how strongly, is unclear"
    if column.startswith("cov("):
        first, last = column[4:-1].rsplit(", ", 1)
        what = f"the relation between {first} and {last} responds to the model, most to {_theta(parameter)}"
        what += f", and {lines[0]}" if lines else ""
    return f"Reacts ({_p(p_value, adjusted)}): {what}."


def _detectable(client: str, low: float, high: float) -> str:
    span = number(low) if high <= 1.05 * low else f"{number(low)} (best case) to {number(high)} (worst)"
    return f"A response of {span} sd per unit of a parameter would have been detected with 90% power."


def _driver(name: str, share: float, lower: float, upper: float, leads: float, without: float) -> str:
    if math.isnan(share):
        return "No client drives it: the slope of retraining is 0."
    part = f"{100 * share:.0f}% of the contraction factor ({100 * lower:.0f} to {100 * upper:.0f}%)"
    if leads < 0.95:
        return f"It is uncertain which client drives it most; it seems to be {name}, with {part}."
    against = "; others pull against it" if share > 1.005 else ""
    return f"{name} drives it most: {part}{against}. Without its reaction, the factor would be {number(without)}."


def _acceptance(group: str, before: float, after: float, changed: bool) -> str:
    then = f"{'rises' if after > before else 'falls'} from {percent(before)} to {percent(after)}"
    same = f"shows no detectable change ({percent(before)}, then {percent(after)})"
    return f"Acceptance of group {group} {then if changed else same}."


def _burden(group: str, gap: float, cost: str, reaction: bool | None) -> str:
    would = "would have to move most to be accepted, whether or not they do"
    most = "bear the largest burden" if reaction else would
    return f"Qualified people of group {group} {most}, {number(gap)} more than the lowest group (cost: {cost})."


def _costs(cost: float, local: bool) -> str:
    least = "the least risk nearby" if local else "the least risk"
    return f"settling at the stable point costs {100 * cost:.2g}% of {least}"


def _does(certain: bool) -> str:
    return f"Full retraining {'does not settle' if certain else 'may not settle: the limits of its factor include 1'}"


def _small_steps(rate: float, factor: float, damping: float | None) -> str:
    share = f"moving only {100 * (damping or 0.0):.0f}% of the way to the retrained model"
    whole = f", or {share} at each deployment," if damping else ""
    by = f"steps of {rate:.2g} along the gradient multiply the error by {factor:.2g} each"
    return f"Small steps do: {by}{whole} and end at the stable point."


def _far_out(client: str, column: str, share: float, more: int) -> str:
    also = f", and {more} more such columns" if more else ""
    return (
        f"{100 * share:.1f}% of the rows of {client} are outliers in {column}{also}: errors, or a long tail. "
        "Filtered estimators (pf.estimators.Filtered) leave out outlying gradients."
    )


_OVER_TIME = {
    True: "Changes between the first deployment and the last are the reaction and drift together.",
    False: "No reaction was found, so no gain and no cost is attributed to one: this is change over time.",
    None: "It is unknown whether people react, so no gain and no cost is attributed to a reaction: this is "
    "change over time.",
}
_IMPROVEMENT = {
    "improvement": "became better qualified, as the features predict",
    "gaming": "look better than they are: gaming",
    "both": "became better qualified, but less than the features predict",
    "unclear": "moved, but it is unclear whether they became better qualified",
    "no move": "show no detectable move that affects qualification",
}
_CANNOT = "These logs cannot tell whether the data react to the model:"

WORDS = Words(
    {
        **brief_words.SENTENCES,
        "loud.text": "{text}",
        "loud.selection": _selection,
        "loud.outliers": _outliers,
        "loud.censored": (
            "Outcomes are censored: {rejected:.0%} of the rejected have no label, against {accepted:.0%} of the "
            "accepted. True positive and true negative rates cannot be computed; the bounds hold whatever the missing "
            "outcomes are."
        ),
        "verdict.rows-chosen-by-model": f"{_CANNOT} which rows they contain changes with it.",
        "verdict.label-unknown": lambda p_value, untested, why: (
            f"No reaction of the features was found {_test(p_value, untested)}. Whether the label reacts is unknown: "
            f"{why}."
        ),
        "verdict.unknown": f"{_CANNOT} more deployments, or other models, are needed.",
        "verdict.no-reaction": _no_reaction,
        "verdict.reaction": _reaction,
        "verdict.drift-may-explain": (
            "But the models moved as the data did, so a drift that bends or settles in the same way would look the "
            "same: to be sure, deploy a model off that path, by a random step."
        ),
        "verdict.label-not-tested": "The label was not tested: {why}.",
        "verdict.accepted-only": (
            "Results about the label refer to people whom every deployed model accepts, at least {coverage:.0%} of all."
        ),
        "verdict.outlook": _ahead,
        "verdict.outlook-assumes": _assumes,
        "client.unknown": "Cannot tell: {reasons:sentences}",
        "client.reacts": _reacts,
        "client.rests-on-drift": "This depends on drift={drift!r}: under {weak:listed} it could be drift.",
        "client.no-reaction": lambda client, p_value, adjusted: f"No reaction found ({_p(p_value, adjusted)}).",
        "client.chance-among-many": ("Alone it would be significant; among all the tests it may be chance."),
        "client.under-other-drift": (
            "Under {strong:listed} it would be significant alone, but drift={drift!r} explains it too."
        ),
        "client.detectable": _detectable,
        "moves.direction": direction,
        "moves.together": (
            "Over all clients together, {column} responds to the model; at which of them, and how strongly, is unclear."
        ),
        "outlook.none": "{reasons:sentences}",
        "outlook.settling": _settling,
        "outlook.assumes": _assumes,
        "outlook.driver": _driver,
        "advice.log-everybody": (
            "Which rows are in the logs changes with the model, so they allow no conclusion about the people."
        ),
        "advice.label-unknown": "Whether outcomes react is unknown: {why}.",
        "advice.label-some": (
            "Accept a few of those whom the model rejects, at random, and log the probability as `propensity`. With "
            "{labels} of them per client and deployment, their outcome rates are known to within {points:.0f} points."
        ),
        "advice.features-alone": "Until then, results about the features apply to them alone.",
        "advice.cannot-tell": "These deployments cannot tell. {reasons:sentences}",
        "advice.missed": (
            "A shift of {shift:.2g} standard deviations between the deployed models could have gone undetected."
        ),
        "advice.drift-alike": ("The models moved as the data did: drift of the same shape could explain it as well."),
        "advice.explore": (
            "Add a little random noise to each deployed model. With a standard deviation of {deviation:.2g} for each "
            "parameter, {deployments} deployments of {rows:.0f} rows would reveal a response of {wanted} standard "
            "deviations per unit with 90% power, if drift is small."
        ),
        "advice.no-reaction": ("No reaction to the model was detected at any client, so this is ordinary retraining."),
        "advice.audit-again": "Audit again when more deployments have been logged.",
        "advice.not-computed": "{reasons:sentences}",
        "advice.stability-costs": lambda cost, local: (
            f"Retraining settles, but {_costs(cost, local)}, which justifies a dedicated algorithm."
        ),
        "advice.pofl": "POFL learns from past models how each client reacts, and converges to the optimum itself.",
        "advice.retrain-instead": "To settle at the stable point instead, retrain in full:",
        "advice.settles": ("Each retraining multiplies the error by about {factor:.2g}, so it settles by itself."),
        "advice.no-optimum": (
            "No optimum of the fitted risk was found: the risk falls far away, where there are no logs."
        ),
        "advice.little-gain": lambda cost, local: f"There is little more to gain: {_costs(cost, local)}.",
        "advice.does-not-settle": lambda certain: f"{_does(certain)}.",
        "advice.small-steps": _small_steps,
        "advice.optimum-instead": lambda cost, local: f"But {_costs(cost, local)}; to reach the optimum itself:",
        "advice.runs-away": lambda certain: (
            f"{_does(certain)}, and small gradient steps diverge from the stable point, too."
        ),
        "advice.pofl-anyway": (
            "The optimum minimizes the performative risk; POFL converges to it without needing a contraction."
        ),
        "advice.stay": "No optimum was found either; keep the model where it is, or limit its domain.",
        "advice.far-out": _far_out,
        "advice.odd-clients": lambda clients: (
            f"Far from all other clients: {', '.join(clients[:5])}. A few clients cannot move the median of updates "
            "(pf.aggregators.Median) far."
        ),
        "people.over-time": lambda reaction: _OVER_TIME[reaction],
        "people.acceptance": _acceptance,
        "people.burden": _burden,
        "people.improvement": lambda group, verdict: f"People of group {group} {_IMPROVEMENT[verdict]}.",
        "note.text": "{text}",
        "note.constant": lambda client, columns: f"{client}: {', '.join(columns)} does not vary and was dropped.",
        "note.nothing-varies": lambda clients: f"Nothing varies at {', '.join(clients)}; dropped.",
        "note.left-out": lambda client, why: f"Not in the outlook: {client}, because {why.rstrip('.')}.",
        "note.more-left-out": "Not in the outlook: {count} more clients.",
        "note.linear": lambda drift: (
            "The outlook assumes that the response is linear and stays as it is, and that retraining is complete."
            + ("" if drift == "none" else " The linear part of the drift is removed, and assumed to stop now.")
        ),
        "note.loss": (
            "The {loss} loss with penalty {penalty:g} on all parameters is minimized; the points then have no "
            "intervals, and the rows are assumed to shift without changing shape."
        ),
        "note.local-optimum": (
            "The optimum is local: the best model found near the deployed ones, not the best overall. Far from them "
            "the fitted risk falls again, because the fit assumes that people react in proportion however far the "
            "model moves. These logs do not show that they would; do not deploy such a model based on this fit alone. "
            "The gap to the optimum and the risk left on the table are relative to the local one."
        ),
    },
    sentences=sentences,
    listed=listed,
)
