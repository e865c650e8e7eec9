"""Rates by protected group, burden and improvement, from logs."""

import numpy as np

from performative.audit.burden import COSTS, Burden, least_cost, social_burden
from performative.audit.groups import GroupReport, social_gap
from performative.audit.improvement import ASSUMPTION, Improvement, improvement
from performative.audit.rates import count_people, detect_censoring, rates_by_group
from performative.audit.reading import Logs
from performative.audit.rules import decide
from performative.audit.tally import GroupLog


def groups_of_logs(logs: Logs, *, level: float = 0.95, reaction: bool | None = None) -> GroupReport:
    """Compare the people of the first deployment with those of the last, from logs.

    Args:
        reaction: Whether the data were found to react to the model (`AuditReport.effect`). Only then does the report
            say that people improved or gamed the model; otherwise it may just be change over time.

    If the models are linear in the features and [decision] sets a threshold, "before" is the first deployment's people
    under the last model (a sample of them); otherwise it is as logged, under the model of their time. The two are
    different people, so what anyone paid is unknown. The cost is the distance in standard deviations.
    """
    log = logs.groups
    if log is None:
        raise ValueError(
            "groups: the logs contain neither decisions nor groups; provide a column `group`, and `accepted` or a "
            "[decision] threshold in audit.toml."
        )
    counts = log.counts.sum(axis=0)
    seen = [t for t in range(len(counts)) if counts[t].sum()]
    first, last = seen[0], seen[-1]
    censored = {t: detect_censoring(counts[t].sum(axis=0), level).censored for t in seen}
    overall = detect_censoring(counts.sum(axis=(0, 1)), level)
    warnings = [overall.sentence()] if overall.censored else []
    if first == last:
        warnings.append("Only one deployment has people, so before and after are the same.")
    by_deployment = {log.deployments[t]: rates_by_group(log.names, counts[t], censored[t], level) for t in seen}
    before, before_is = counts[first], f"people of {log.deployments[first]!r} under its own model, as logged"
    burden: tuple[Burden, ...] = ()
    if logs.rule is None:
        warnings.append(
            "No linear model with a threshold is known: which people of the first deployment the last model would "
            "accept, and the burden, cannot be computed. Provide theta_<feature> (or scoring files) and [decision] "
            "threshold."
        )
    elif not log.x.shape[2]:
        warnings.append(
            "No rows were kept: which people of the first deployment the last model would accept is unknown."
        )
    elif first != last:
        before = _under_last(logs, log, first, last)
        before_is = f"people of {log.deployments[first]!r} (a sample) under the model of {log.deployments[last]!r}"
    if logs.rule is not None and log.x.shape[2]:
        if censored[first]:
            warnings.append("The burden is unknown: it requires outcomes of people whom the first model rejected.")
        else:
            burden = _burden_of_logs(logs, log, first, last, level)
    known = first != last and not overall.censored
    changes = _changes(log, first, last, level) if known and reaction else ()
    gap, bears = social_gap(burden)
    return GroupReport(
        before=rates_by_group(log.names, before, censored[first], level),
        before_is=before_is,
        after=by_deployment[log.deployments[last]],
        after_is=f"people of {log.deployments[last]!r} under its model, as logged",
        burden=burden,
        cost=f"{COSTS['distance']}, in standard deviations of the first deployment, strength 1",
        gap=gap,
        bears=bears,
        improvement=changes,
        assumption=ASSUMPTION
        if changes
        else "Improvement and gaming cannot be told apart: that requires labels in two deployments."
        if reaction or not known
        else "No reaction was found, so nothing is classified as improvement or gaming.",
        by_deployment=by_deployment,
        censoring=overall,
        warnings=tuple(warnings),
        reaction=reaction,
    )


def _people(log: GroupLog, t: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sample of one deployment without padding rows: features, qualified, group."""
    real = np.isfinite(log.x[t]).all(axis=2)
    names = np.broadcast_to(np.array(log.names)[:, None], real.shape)
    return log.x[t][real], log.qualified[t][real], names[real]


def _under_last(logs: Logs, log: GroupLog, first: int, last: int) -> np.ndarray:
    assert logs.rule is not None
    weights, offset, threshold = logs.rule
    x, qualified, group = _people(log, first)
    accepted = decide(x @ weights[last] + offset[last], threshold, logs.decision.accept)
    names, counts = count_people(accepted, qualified, group)
    out = np.zeros((len(log.names), 3, 3), np.int64)
    out[[log.names.index(n) for n in names]] = counts
    return out


def _burden_of_logs(logs: Logs, log: GroupLog, first: int, last: int, level: float) -> tuple[Burden, ...]:
    assert logs.rule is not None
    weights, offset, threshold = logs.rule
    x, qualified, group = _people(log, first)
    # The sample has as many of a small group as of a large one: reweight to the population.
    people = log.counts[:, first].sum(axis=(0, 2, 3))
    share = np.array([people[log.names.index(g)] / np.sum(group == g) for g in np.unique(group)])
    weight = share[np.unique(group, return_inverse=True)[1]]
    center = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - center) ** 2, axis=0, weights=weight))
    wanted = logs.decision.movable
    movable = None if wanted is None else np.isin(log.features, wanted)
    price = least_cost(
        x,
        weights[last],
        float(offset[last]),
        threshold,
        logs.decision.accept,
        movable=movable,
        scale=scale,
        cost="distance",
    )
    return social_burden(price, qualified, group, None, level)


def _changes(log: GroupLog, first: int, last: int, level: float) -> tuple[Improvement, ...]:
    out = []
    for g, name in enumerate(log.names):
        pairs = []
        for t in (first, last):
            use = np.isfinite(log.x[t, g]).all(axis=1) & ~np.isnan(log.qualified[t, g])
            pairs.append((log.x[t, g][use], log.qualified[t, g][use]))
        found = improvement(name, *pairs[0], *pairs[1], level)
        if found is not None:
            out.append(found)
    return tuple(out)
