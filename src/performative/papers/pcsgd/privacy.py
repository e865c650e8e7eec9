"""Corollary 3.6 and DiceSGD's sqrt(96): the claimed privacy, what the noise provides, and what would suffice."""

import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, bars, mean
from performative.papers.runs import models, quiet
from performative.privacy import attack, guarantee
from performative.privacy.accounting import Release, WithoutReplacement, epsilon, epsilon_bounds
from performative.privacy.attack.crafted import along
from performative.privacy.printed import PrintedNoise, corollary_3_6_as_printed


def claims(
    settings: dict[str, list[float]], enough: dict[str, float], attacked: dict[str, list[float]], watched_rows: int,
    watched_repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """settings: {name: [epsilon, delta, T, m]}; enough: {name: sigma / c that guarantees that epsilon}.

    attacked: {name: [epsilon, delta, T, m, runs]}, all with epsilon <= T / m^2; "dice" is DiceSGD, the others are
    PCSGD. An epsilon known to lie in an interval is reported as its midpoint, with a quarter of the width as standard
    error, so two of those reach the endpoints.
    """
    numbers: dict[str, Any] = {}
    shown: dict[str, float] = {}
    for name, (claimed, delta, T, m) in settings.items():
        noise = corollary_3_6_as_printed(claimed, delta, int(T), int(m), 1.0)
        draws = WithoutReplacement(1, int(m))
        real = epsilon_bounds(Release(noise.noise_multiplier, int(T), draws), delta)
        poisson = noise.poisson_epsilon
        numbers |= {f"{name}_claimed": claimed, f"{name}_real": _between(*real), f"{name}_poisson": poisson}
        label = name.replace("_", " ")
        shown |= {f"{label}: claimed": claimed, f"{label}: Poisson": poisson, f"{label}: real": real[0]}
        if name in enough:
            numbers[f"{name}_enough"] = epsilon(Release(enough[name], int(T), draws), delta)
    for name, (claimed, delta, T, m, repeats) in attacked.items():
        noise = corollary_3_6_as_printed(claimed, delta, int(T), int(m), 1.0)
        low, high = _attacked(name, noise, int(repeats), seed)
        numbers |= {f"{name}_attack_claimed": claimed, f"{name}_attacked": _between(low, high)}
        shown |= {f"attack, {name}: claimed": claimed, f"attack, {name}: shown": low}
    numbers |= _unhidden(watched_rows, watched_repeats, seed)
    return Outcome(numbers, {"epsilon": bars(shown)})


def _between(low: float, high: float) -> tuple[float, float]:
    return (low + high) / 2, (high - low) / 4


def _attacked(name: str, noise: PrintedNoise, repeats: int, seed: int) -> tuple[float, float]:
    """The epsilon an attack demonstrates with 99.9% confidence, and the proved one."""
    z, dice, batch = noise.noise_multiplier, name == "dice", pf.Fixed(1)
    algorithm = (
        pf.dicesgd(1.0, 1.0, 1.0, math.sqrt(96) * z, batch=batch) if dice else pf.pcsgd(1.0, 1.0, z, batch=batch)
    )
    table = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((1, noise.rows))))
    proved = guarantee(table, algorithm, conservative=dice).spent(noise.steps, noise.delta).epsilon
    tried = attack.neighbors(algorithm, noise.rows, noise.steps, noise.delta, repeats, seed, claimed=proved)
    return tried.lower, proved


def _unhidden(rows: int, repeats: int, seed: int) -> dict[str, Any]:
    """Remark 2.4: how often projected models, with gradients neither clipped nor noised, reveal one row.

    All rows but one pull down. A model that moves up must come from the table with that row.
    """
    table = np.full((1, rows), -1.0)
    table[0, 0] = 1.0
    problem = pf.Problem(along, pf.populations.Database(table), domain=pf.domains.Box(-1.0, 1.0))
    algorithm = pf.p_fedavg(1e-3, batch=pf.Fixed(1))
    history = pf.run(problem, algorithm, rows, 0.0, seed=seed, repeats=repeats, **quiet(theta="all"))
    seen = (np.diff(models(history), axis=1) < 0).any(axis=1)
    return {"seen_for_certain": mean(seen), "seen_exact": 1 - (1 - 1 / rows) ** rows}
