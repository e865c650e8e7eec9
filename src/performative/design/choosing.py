"""The cheapest exploration that meets the requirements."""

from typing import NamedTuple

import numpy as np

from performative.audit.drift import lost
from performative.audit.effect import effect_arrays
from performative.design.conditions import Conditions
from performative.design.outcome import Alternative, Design
from performative.design.pattern import FEWEST, effective_deployments, lengths, signs
from performative.design.power import mean_width, power_of, ratio_for

# Maximum number of deployments: without a limit on size, and with one.
_LENGTH, _LONGEST = 20, 400
# Designs whose cost is within this share of the least count as equally cheap: the shortest is chosen.
_ALIKE = 0.05
# Number of simulated logs for the audit's own test, by the most deployments: its cost grows with their cube.
_SIMULATED = {32: 400, 64: 100}


class Aim(NamedTuple):
    """The requirement on the slope; one of effect and width is None."""

    effect: float | None
    width: float | None
    power: float
    level: float
    drift: str

    def precision(self, T: int, m: int) -> float:
        """1 / standard error that the slope needs."""
        df = T - lost(self.drift) - m
        if self.effect is not None:
            return ratio_for(self.power, df, self.level) / self.effect
        assert self.width is not None
        return mean_width(1.0, df, self.level) / self.width


class Option(NamedTuple):
    """T deployments at these clients, with these step sizes; `cost` to leading order, for choosing."""

    T: int
    who: list[int]
    sizes: np.ndarray
    cost: float


def choose(
    found: Conditions, aim: Aim, column: int, explored: list[int], who: list[int] | None, each: bool,
    deployments: int | None, size: float | None, seed: int,
) -> Design:  # fmt: skip
    """The cheapest exploration; arguments as in `design`, with indices instead of names."""
    most = (_LENGTH if size is None else _LONGEST) if deployments is None else deployments
    fewest = 4 * max(FEWEST, -(-(lost(aim.drift) + len(explored) + 3) // 4), len(explored))
    if most < fewest:
        raise ValueError(f"design: deployments = {most} are too few; {len(explored)} parameters need {fewest} or more.")
    information = found.information(column)
    price = _prices(found, explored)
    everyone = list(range(len(information))) if who is None else who
    sets = [everyone]
    if who is None and size is not None and not each:
        # By information per cost: the best client first.
        order = np.argsort(-information / np.maximum(price, 1e-300), kind="stable")
        sets = [sorted(order[: k + 1].tolist()) for k in range(len(order))]
    steps = lengths(most - 3, most) if size is None else lengths(fewest, most)
    options = []
    for T in steps:
        told = effective_deployments(signs(T, len(explored)), aim.drift)
        if told == 0:
            continue
        need = aim.precision(T, len(explored))
        for some in sets:
            share = information[some]
            sizes = need / np.sqrt(told * (share if each else np.full(len(some), share.sum())))
            if size is None or sizes.max() <= size * (1 + 1e-12):
                options.append(Option(T, some, sizes, float(T * (price[some] * sizes**2).sum())))
    if not options:
        raise ValueError(_out_of_reach(aim, information[everyone], explored, most, size, each))
    least = min(option.cost for option in options)
    best = min((o for o in options if o.cost <= least * (1 + _ALIKE)), key=lambda o: (o.T, o.cost))
    return _told(found, aim, column, explored, best, each, size, seed)


def _told(
    found: Conditions, aim: Aim, column: int, explored: list[int], best: Option, each: bool, limit: float | None,
    seed: int,
) -> Design:  # fmt: skip
    """The full design of an option, with its exact cost and alternatives."""
    T, m, who = best.T, len(explored), best.who
    pattern = signs(T, m)
    df = T - lost(aim.drift) - m
    shares = found.information(column)[who]
    told = effective_deployments(pattern, aim.drift)
    error = 1 / (best.sizes.max() * np.sqrt(told * (shares[np.argmax(best.sizes)] if each else shares.sum())))
    effect = aim.effect if aim.effect is not None else ratio_for(aim.power, df, aim.level) * error
    step = np.zeros((T, len(found.theta)))
    step[:, explored] = pattern
    spent = [found.extra_loss(found.theta + s * step, np.array([i])) for i, s in zip(who, best.sizes, strict=True)]
    cost = None if any(one is None for one in spent) else float(sum(one for one in spent if one is not None))
    names = tuple(found.clients[i] for i in who)
    others = []
    if limit is None:
        for length in (T // 2 // 4 * 4, 2 * T):
            told_there = effective_deployments(signs(length, m), aim.drift) if length >= 4 * FEWEST else 0.0
            if length - lost(aim.drift) - m >= 3 and told_there > 0:
                ratio = aim.precision(length, m) / aim.precision(T, m) * np.sqrt(told / told_there)
                again = None if cost is None else float(cost * ratio**2 * length / T)
                others.append(Alternative(length, float(best.sizes.max() * ratio), again))
    variance = 1 / (shares[np.argmax(best.sizes)] if each else shares.sum())
    return Design(
        names, dict(zip(names, map(float, best.sizes), strict=True)), T, int(found.rows[who].sum().round()),
        tuple(found.parameters[k] for k in explored), found.columns[column], found.theta,
        found.theta + float(best.sizes.max()) * step, pattern, float(effect),
        power_of(effect / error, df, aim.level), mean_width(error, df, aim.level), aim.level,
        _audited(effect, float(best.sizes.max()), pattern, variance, 1 - aim.level, seed), cost, df, aim.drift, each,
        "effect" if aim.effect is not None else "width", tuple(others),
        ("Cost and alternatives hold to leading order.",) if cost is not None and found.losses is None else (),
    )  # fmt: skip


def _audited(effect: float, size: float, pattern: np.ndarray, variance: float, error: float, seed: int) -> float | None:
    """How often the audit's own test, which allows for smooth drift, detects such a reaction to the first parameter."""
    T = len(pattern)
    runs = next((runs for most, runs in _SIMULATED.items() if most >= T), None)
    if runs is None:
        return None
    noise = np.random.default_rng(seed).normal(size=(runs, 1, T))
    y = effect * size * pattern[:, 0] + np.sqrt(variance) * noise
    theta = np.broadcast_to(size * pattern, (runs, *pattern.shape))
    tested = effect_arrays(y, np.full(y.shape, variance), theta, np.arange(T, dtype=np.float64), "smooth")
    return float(np.mean(tested.p_value <= error))


def _prices(found: Conditions, explored: list[int]) -> np.ndarray:
    """[N] deployed loss that a unit step adds at each client per deployment; the clients' weights if unknown."""
    if found.curvature is None:
        return found.weights
    bend = 0.5 * found.curvature[:, explored].sum(axis=1) * found.weights
    # With negative curvature a detour gains; that is no reason to explore there without bound.
    return np.maximum(bend, 1e-3 * found.weights * max(float(np.abs(bend).max()), 1e-300))


def _out_of_reach(
    aim: Aim, information: np.ndarray, explored: list[int], most: int, size: float | None, each: bool
) -> str:
    T = most // 4 * 4
    told = effective_deployments(signs(T, len(explored)), aim.drift)
    share = float(information.min() if each else information.sum())
    need = aim.precision(T, len(explored)) / np.sqrt(told * share) if told > 0 else np.inf
    return (
        f"design: out of reach with size = {size:g} and deployments = {most}: steps of {need:.3g} would be needed. "
        f"Allow these, or {np.ceil((need / (size or 1)) ** 2 * most):.0f} deployments, or require less."
    )
