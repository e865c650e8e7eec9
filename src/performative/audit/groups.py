"""Who gains and who pays when people react: rates by protected group before and after, burden and improvement."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative.audit.burden import COSTS, Burden, least_cost, social_burden
from performative.audit.improvement import Improvement
from performative.audit.rates import Censoring, GroupRates, count_people, detect_censoring, rates_by_group
from performative.audit.rules import decide
from performative.facts import cites
from performative.findings import Plain
from performative.problem import Problem

STAYS = "Labels do not change when people move (the Strategic population): every move is gaming, none is improvement."


@dataclasses.dataclass(frozen=True)
class GroupReport(Plain):
    """Rates by group before and after the reaction, who bears the cost, and what had to be assumed.

    Attributes:
        before_is: Which people under which model; `after_is` the same for after.
        cost: The cost function of the burden.
        gap: The largest burden minus the smallest (the social gap), NaN with fewer than two groups.
        bears: The group with the largest burden.
        by_deployment: Rates as logged, {} if there are no logs.
        assumption: The assumption behind `improvement`.
        reaction: Whether people are known to react; if not, before and after may differ through time alone, and no
            cost is attributed to a reaction.
    """

    before: tuple[GroupRates, ...]
    before_is: str
    after: tuple[GroupRates, ...]
    after_is: str
    burden: tuple[Burden, ...]
    cost: str
    gap: float
    bears: str | None
    improvement: tuple[Improvement, ...]
    assumption: str
    by_deployment: dict[str, tuple[GroupRates, ...]]
    censoring: Censoring
    warnings: tuple[str, ...]
    reaction: bool | None = True


def compare_groups(
    before: np.ndarray,
    after: np.ndarray,
    label: np.ndarray,
    groups: np.ndarray,
    theta: np.ndarray,
    *,
    offset: float = 0.0,
    threshold: float = 0.0,
    accept: str = "above",
    qualified: int = 1,
    movable: np.ndarray | None = None,
    strength: Any = 1.0,
    cost: str = "quadratic",
    level: float = 0.95,
) -> GroupReport:
    """Compare the same n people, with features [n, k] before and after reacting to the linear model theta [k].

    label [n] is 0, 1 or NaN (unknown) and does not change; groups [n] are names. Accepted: theta.x + offset >=
    threshold ("above") or <= threshold ("below"); qualified: those whose label is `qualified`. movable [k] marks the
    features that people can change; strength is a number or one per person. Costs are nonnegative.
    """
    _check_people(before, after, label, groups, theta)
    truth = np.where(np.isnan(label), np.nan, label == qualified).astype(np.float64)
    tables = []
    for x in (before, after):
        names, counts = count_people(decide(x @ theta + offset, threshold, accept), truth, groups)
        tables.append(counts)
    censoring = detect_censoring(tables[1].sum(axis=0), level)
    warnings = [censoring.sentence()] if censoring.censored else []
    options: dict[str, Any] = {"movable": movable, "strength": strength, "cost": cost}
    price = least_cost(before, theta, offset, threshold, accept, **options)
    burden = social_burden(price, truth, groups, _paid(after - before, strength, cost), level)
    gap, bears = social_gap(burden)
    rates = [rates_by_group(names, table, censoring.censored, level) for table in tables]
    return GroupReport(
        before=rates[0],
        before_is="people as they are without a reaction, under the model",
        after=rates[1],
        after_is="the same people after reacting to the model",
        burden=burden,
        cost=COSTS[cost],
        gap=gap,
        bears=bears,
        improvement=(),
        assumption=STAYS,
        by_deployment={},
        censoring=censoring,
        warnings=tuple(warnings),
    )


@cites("milli2019social")
def groups_of_problem(
    problem: Problem,
    theta: Any,
    groups: Any,
    *,
    threshold: float = 0.0,
    accept: str = "below",
    qualified: int = 0,
    cost: str = "quadratic",
    level: float = 0.95,
) -> GroupReport:
    """Compare the people of a `Problem` with a Strategic population before and after reacting to theta.

    Args:
        groups: Names [N, m] like the population's y, or one list per client.

    By default people want a low score theta.x, as in the population's best response (a default score): accepted at or
    below the threshold, qualified with label 0. Rates are over people, ignoring the clients' weights.
    """
    import jax
    import jax.numpy as jnp

    from performative._base.client_axis import take_clients
    from performative.populations.strategic import Strategic

    population = problem.population
    if not isinstance(population, Strategic):
        raise ValueError(f"groups: needs a Strategic population; got {type(population).__name__}.")
    sizes = np.broadcast_to(np.asarray(population.rows), (population.clients,))
    names = _group_names(groups, sizes)
    rows = np.arange(population.capacity, dtype=np.int32)

    def react(whole: Strategic, model: Any) -> Any:
        one, axes = take_clients(whole, jnp.arange(whole.clients))
        return jax.vmap(lambda i: jax.vmap(lambda u: i.sample(u, None, model))(rows), in_axes=(axes,))(one)[0]

    with jax.enable_x64(True):
        moved = np.asarray(jax.jit(react)(population, jnp.asarray(theta, jnp.float64)))
    real = rows[None, :] < sizes[:, None]
    before, after, label = (np.asarray(a, np.float64)[real] for a in (population.x, moved, population.y))
    power = np.asarray(population.strength, np.float64)
    by_label = np.broadcast_to(power if power.ndim == 2 else power.reshape(-1, 1), (len(sizes), 2))
    strength = np.where(np.asarray(population.y) > 0, by_label[:, 1:], by_label[:, :1])[real]
    features = population.features
    movable = None if features is None else np.isin(np.arange(before.shape[1]), features)
    return compare_groups(
        before, after, label, names, np.asarray(theta, np.float64), threshold=threshold, accept=accept,
        qualified=qualified, movable=movable, strength=strength, cost=cost, level=level,
    )  # fmt: skip


def social_gap(burden: tuple[Burden, ...]) -> tuple[float, str | None]:
    """The largest burden minus the smallest, and the group that bears the largest."""
    known = [b for b in burden if not math.isnan(b.value)]
    if len(known) < 2:
        return math.nan, None
    low, high = min(known, key=lambda b: b.value), max(known, key=lambda b: b.value)
    if low.value == high.value:
        return (0.0 if math.isfinite(low.value) else math.nan), None
    return high.value - low.value, high.group


def _paid(move: np.ndarray, strength: Any, cost: str) -> np.ndarray:
    length = np.linalg.norm(move, axis=1)
    power = np.broadcast_to(np.asarray(strength, np.float64), length.shape)
    safe = np.where(power > 0, power, 1.0)
    price = length**2 / (2 * safe) if cost == "quadratic" else length / safe
    return np.where(length == 0, 0.0, np.where(power > 0, price, np.inf))


def _check_people(before: Any, after: Any, label: Any, groups: Any, theta: Any) -> None:
    n, k = np.shape(before) if np.ndim(before) == 2 else (0, 0)
    for name, value, want in (
        ("before", before, (n, k)), ("after", after, (n, k)), ("label", label, (n,)), ("groups", groups, (n,)),
        ("theta", theta, (k,)),
    ):  # fmt: skip
        if n == 0 or np.shape(value) != want:
            raise ValueError(
                f"groups: before and after must be [people, features], label and groups [people], theta [features]; "
                f"{name} has shape {np.shape(value)}, before has {np.shape(before)}."
            )
    known = np.asarray(label)[~np.isnan(label)]
    if not np.all(np.isin(known, (0, 1))):
        raise ValueError(f"groups: label must be 0, 1 or NaN; got {np.unique(known)[:5].tolist()}.")


def _group_names(groups: Any, sizes: np.ndarray) -> np.ndarray:
    if len(groups) != len(sizes):
        raise ValueError(f"groups: needs one row of names per client, {len(sizes)} in all; got {len(groups)}.")
    rows = []
    for i, (row, size) in enumerate(zip(groups, sizes, strict=True)):
        if len(row) < size:
            raise ValueError(f"groups: client {i} has {size} people; got {len(row)} names.")
        rows.append(np.asarray(row)[: int(size)].astype(str))
    return np.concatenate(rows)
