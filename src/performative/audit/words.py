"""What an audit found, in sentences: one for each finding."""

import math
from typing import Any

from performative._base.messages import coded
from performative.audit import brief_words
from performative.audit.formats import chance, listed, number, percent, sentences
from performative.audit.formats import parameter as _theta
from performative.findings import Words

_DRIFTS = {"none": "sampling noise", "linear": "a straight line", "walk": "a random walk", "smooth": "smooth drift"}


def _selection(
    by: str, p_value: float, accepted: float, rejected: float, method: str, source: str, why: str, coverage: float,
    effective: Any,
) -> str:  # fmt: skip
    if by == "acceptance":
        shares = f"{percent(accepted)} of the accepted have one, {percent(rejected)} of the rejected"
        seen = f"The model decided whose label is known: {shares}"
    else:
        how = f"it goes with {by}, not in the same way under all ({chance(p_value)})"
        seen = f"Whose label is known changes between deployments: {how}"
    least, most = effective
    done = {
        "withheld": f"The label is not tested, only the features, which are logged for everybody: {why}",
        "weighted": (
            f"The label is tested on rows weighted by 1 / the chance of a label, {source}: they stand for "
            f"everybody, with {least:,.0f} to {most:,.0f} effective rows of a client under a deployment"
        ),
        "always accepted": (
            f"The label is tested among people whom every deployed model accepts, {coverage:.0%} of all or more, "
            f"with {least:,.0f} to {most:,.0f} rows of a client under a deployment; of the others nothing is said"
        ),
    }[method]
    text = f"{seen}. Rows with a label change when the model does, whether or not anybody reacts. {done}."
    return coded("selection-by-model", text)


def _outliers(client: str, column: str, wider: float, low: float, high: float, share: float, others: int) -> str:
    more = f" and in {others} more such columns" if others else ""
    rows = "less than 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
    return coded(
        "outliers-hide-effect",
        f"Rows far out can hide a reaction: {rows} of the rows of {client} make {column} {wider:.0f} times as wide as "
        f"the rest{more}, so a reaction must be as many times larger to be seen. Check these rows, and clip: {column} "
        f"= [{number(low)}, {number(high)}] under [clip] in audit.toml, or log the column on a robust scale.",
    )


def _test(p_value: float, untested: int) -> str:
    return f"({chance(p_value)}{f', {untested} could not be tested' if untested else ''})"


def _reaction(reacting: int, clients: int, drift: str, p_value: float, untested: int) -> str:
    at = f"at {reacting} of {clients} clients" if clients > 1 else "here"
    if not reacting:
        at = "on the whole, though no one client can be named"
    if_drift = "" if drift == "smooth" else f", if there was no drift but {_DRIFTS[drift]}"
    return f"The data react to the model {at} {_test(p_value, untested)}{if_drift}."


def _no_reaction(several: bool, features_only: bool, p_value: float, untested: int) -> str:
    of, who = " of the features" if features_only else "", "any client" if several else "the client"
    said = f"No reaction{of} to the model was found at {who} {_test(p_value, untested)}"
    return f"{said}: as far as these logs show, retraining is ordinary retraining."


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
        return f"Whether retraining settles cannot be told, {leans}: {factor}."
    if not settles:
        return f"Retraining does not settle: {factor}."
    within = f"within {100 * outlook['tolerance']:g} %"
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
    told = f"{percent(share)} of the people have no label, and this takes theirs to be {first} (missing at random)"
    others = "".join(f", {number(value)} were they {name}" for name, value in ends)
    rest = "The limits span these cases and no others"
    if not ends or not complete:
        rest = "At an end of what they can be there is no outlook, so that nothing bounds the factor"
    return f"{told}: the factor is {number(factor)} then{others}. {rest}."


def _p(p_value: float, adjusted: float) -> str:
    alone, counted = chance(p_value), chance(adjusted)
    return alone if alone == counted else f"{alone}; {counted} counting all tests"


def direction(column: str, parameter: str, slope: float, in_sd: float, **_: Any) -> str:
    """What moves, by how much."""
    how, by = "rises" if slope > 0 else "falls", f"{number(abs(slope))} ({number(abs(in_sd))} sd)"
    return f"{column} {how} by {by} per unit of {_theta(parameter)}"


def _reacts(client: str, p_value: float, adjusted: float, column: str, parameter: str, directions: list[Any]) -> str:
    lines = [direction(**line) for line in directions]
    what = "; ".join(lines) or f"{column} responds to the model; to which parameter, and how strongly, is not clear"
    if column.startswith("cov("):
        first, last = column[4:-1].rsplit(", ", 1)
        what = f"the relation between {first} and {last} responds to the model, most to {_theta(parameter)}"
        what += f", and {lines[0]}" if lines else ""
    return f"Reacts ({_p(p_value, adjusted)}): {what}."


def _detectable(client: str, low: float, high: float) -> str:
    span = number(low) if high <= 1.05 * low else f"{number(low)} (best case) to {number(high)} (worst)"
    return f"A response of {span} sd per unit of a parameter would have been seen with 90 % power."


def _driver(name: str, share: float, lower: float, upper: float, leads: float, without: float) -> str:
    if math.isnan(share):
        return "No client drives it: the slope of retraining is 0."
    part = f"{100 * share:.0f} % of the contraction factor ({100 * lower:.0f} to {100 * upper:.0f} %)"
    if leads < 0.95:
        return f"Which client drives it most cannot be told; {name} seems to, with {part}."
    against = "; others pull against it" if share > 1.005 else ""
    return f"{name} drives it most: {part}{against}. Were its data to stay, the factor would be {number(without)}."


def _acceptance(group: str, before: float, after: float, changed: bool) -> str:
    then = f"{'rises' if after > before else 'falls'} from {percent(before)} to {percent(after)}"
    same = f"is not seen to change ({percent(before)}, then {percent(after)})"
    return f"Acceptance of group {group} {then if changed else same}."


def _burden(group: str, gap: float, cost: str, reaction: bool | None) -> str:
    would = "would have to move most to be accepted, whether or not they do"
    most = "bear the largest burden" if reaction else would
    return f"Qualified people of group {group} {most}, {number(gap)} more than the least (cost: {cost})."


def _costs(cost: float, local: bool) -> str:
    least = "the least risk nearby" if local else "the least risk"
    return f"settling at the stable point costs {100 * cost:.2g} % of {least}"


def _does(certain: bool) -> str:
    return (
        f"Retraining in full {'does not settle' if certain else 'may not settle: the limits of its factor include 1'}"
    )


def _small_steps(rate: float, factor: float, damping: float | None) -> str:
    share = f"moving only {100 * (damping or 0.0):.0f} % of the way to the retrained model"
    whole = f", or {share} at each deployment," if damping else ""
    by = f"steps of {rate:.2g} along the gradient multiply the error by {factor:.2g} each"
    return f"Small steps do: {by}{whole} and end at the stable point."


def _far_out(client: str, column: str, share: float, more: int) -> str:
    also = f", and {more} more such columns" if more else ""
    return (
        f"{100 * share:.1f} % of the rows of {client} lie far out in {column}{also}: errors, or a long tail. "
        "Filtered estimators (pf.estimators.Filtered) leave out gradients that do not belong."
    )


_OVER_TIME = {
    True: "What changed between the first deployment and the last is the reaction and drift together.",
    False: "No reaction was found, so no gain and no cost is put down to one: this is change over time.",
    None: "Whether people react cannot be told, so no gain and no cost is put down to a reaction: this is "
    "change over time.",
}
_IMPROVEMENT = {
    "improvement": "became better qualified, as the features promise",
    "gaming": "look better than they are: gaming",
    "both": "became better qualified, but less than the features promise",
    "unclear": "moved, but whether they became better qualified cannot be told",
    "no move": "are not seen to move in ways that bear on qualification",
}
_CANNOT = "These logs cannot tell whether the data react to the model:"

WORDS = Words(
    {
        **brief_words.SENTENCES,
        "loud.text": "{text}",
        "loud.selection": _selection,
        "loud.outliers": _outliers,
        "loud.censored": (
            "Outcomes are censored: {rejected:.0%} of the rejected carry no label, against {accepted:.0%} of the "
            "accepted. True positive and true negative rates cannot be computed; the bounds hold whatever the missing "
            "outcomes are."
        ),
        "verdict.rows-chosen-by-model": f"{_CANNOT} which rows they hold changes with it.",
        "verdict.label-unknown": lambda p_value, untested, why: (
            f"No reaction of the features was found {_test(p_value, untested)}. Whether the label reacts cannot be "
            f"told: {why}."
        ),
        "verdict.unknown": f"{_CANNOT} it takes more deployments, or other models.",
        "verdict.no-reaction": _no_reaction,
        "verdict.reaction": _reaction,
        "verdict.drift-may-explain": (
            "But the models moved as the data did, so a drift that bends or settles in the same way would look the "
            "same: it takes a model deployed off that path, by a random step, to be sure."
        ),
        "verdict.label-not-tested": "The label was not tested: {why}.",
        "verdict.accepted-only": (
            "What is said of the label is about people whom every deployed model accepts, {coverage:.0%} of all or "
            "more."
        ),
        "verdict.outlook": _ahead,
        "verdict.outlook-assumes": _assumes,
        "client.unknown": "Cannot tell: {reasons:sentences}",
        "client.reacts": _reacts,
        "client.rests-on-drift": "This rests on drift={drift!r}: under {weak:listed} it could be drift.",
        "client.no-reaction": lambda client, p_value, adjusted: f"No reaction found ({_p(p_value, adjusted)}).",
        "client.chance-among-many": ("By itself it would count as one; among all the tests made it may be chance."),
        "client.under-other-drift": (
            "Under {strong:listed} it would count as one by itself, but drift={drift!r} explains it too."
        ),
        "client.detectable": _detectable,
        "moves.direction": direction,
        "moves.together": (
            "Over all clients together, {column} responds to the model; at which of them, and how strongly, is not "
            "clear."
        ),
        "outlook.none": "{reasons:sentences}",
        "outlook.settling": _settling,
        "outlook.assumes": _assumes,
        "outlook.driver": _driver,
        "advice.log-everybody": (
            "Which rows are in the logs changes with the model, so nothing can be said of the people behind them."
        ),
        "advice.label-unknown": "Whether outcomes react cannot be told: {why}.",
        "advice.label-some": (
            "Accept a random few of those whom the model rejects, and log the chance as `propensity`. With {labels} of "
            "them for each client and deployment, their rates of outcomes are known to within {points:.0f} points."
        ),
        "advice.features-alone": "Until then, what holds for the features holds for them alone.",
        "advice.cannot-tell": "These deployments cannot tell. {reasons:sentences}",
        "advice.missed": (
            "A shift of {shift:.2g} standard deviations between the models deployed could have gone unseen."
        ),
        "advice.drift-alike": ("The models moved as the data did: drift of the same shape would explain it as well."),
        "advice.explore": (
            "Add a little chance to each model deployed. With a standard deviation of {deviation:.2g} for each "
            "parameter, {deployments} deployments of {rows:.0f} rows would show a response of {wanted} standard "
            "deviations per unit with 90 % power, if drift is small."
        ),
        "advice.no-reaction": (
            "No client's data are seen to react to the model, so retraining is ordinary retraining."
        ),
        "advice.audit-again": "Audit again when more deployments have been logged.",
        "advice.not-computed": "{reasons:sentences}",
        "advice.stability-costs": lambda cost, local: (
            f"Retraining settles, but {_costs(cost, local)}, which is worth an algorithm of its own."
        ),
        "advice.pofl": "POFL learns how each client reacts from its past models and goes to the optimum itself.",
        "advice.retrain-instead": "To settle at the stable point instead, retrain in full:",
        "advice.settles": ("Each retraining multiplies the error by about {factor:.2g}, so it settles by itself."),
        "advice.no-optimum": (
            "No optimum of the fitted risk was found: it falls far out, where these logs say nothing."
        ),
        "advice.little-gain": lambda cost, local: f"Little is to be gained beyond that: {_costs(cost, local)}.",
        "advice.does-not-settle": lambda certain: f"{_does(certain)}.",
        "advice.small-steps": _small_steps,
        "advice.optimum-instead": lambda cost, local: f"But {_costs(cost, local)}; to go for the optimum itself:",
        "advice.runs-away": lambda certain: (
            f"{_does(certain)}, and small gradient steps run away from the stable point, too."
        ),
        "advice.pofl-anyway": (
            "The optimum is where the performative risk is least; POFL heads for it, and needs no contraction."
        ),
        "advice.stay": "No optimum was found either; keep the model where it is, or limit its domain.",
        "advice.far-out": _far_out,
        "advice.odd-clients": lambda clients: (
            f"Far from all other clients: {', '.join(clients[:5])}. The median of updates (pf.aggregators.Median) is "
            "what few clients cannot move far."
        ),
        "people.over-time": lambda reaction: _OVER_TIME[reaction],
        "people.acceptance": _acceptance,
        "people.burden": _burden,
        "people.improvement": lambda group, verdict: f"People of group {group} {_IMPROVEMENT[verdict]}.",
        "note.text": "{text}",
        "note.constant": lambda client, columns: f"{client}: {', '.join(columns)} does not vary and is left out.",
        "note.nothing-varies": lambda clients: f"Nothing varies at {', '.join(clients)}; left out.",
        "note.left-out": lambda client, why: f"Not in the outlook: {client}, because {why.rstrip('.')}.",
        "note.more-left-out": "Not in the outlook: {count} more clients.",
        "note.linear": lambda drift: (
            "The outlook takes the response as linear and to stay as it is, and retraining to go to the end."
            + ("" if drift == "none" else " The straight part of the drift is taken out, and to stop now.")
        ),
        "note.loss": (
            "The {loss} loss with penalty {penalty:g} on all parameters is minimized; the points then have no "
            "intervals, and the rows are taken to move without changing their shape."
        ),
        "note.local-optimum": (
            "The optimum is a local one: the best model found near those deployed, not the best of all. Far from them "
            "the fitted risk falls again, because it takes people to react in proportion however far the model goes. "
            "These logs do not show that they would; do not deploy such a model on the strength of this fit. The gap "
            "to the optimum and the risk left on the table count from the local one."
        ),
    },
    sentences=sentences,
    listed=listed,
)
