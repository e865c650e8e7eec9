"""Corollary 3.6 and DiceSGD's sqrt(96): the privacy that is claimed, what the noise gives, what would be enough."""

import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, bars
from performative.privacy import attack, guarantee
from performative.privacy.accounting import Release, WithoutReplacement, epsilon, epsilon_bounds
from performative.privacy.printed import corollary_3_6_as_printed


def claims(
    settings: dict[str, list[float]], enough: dict[str, float], attacked_rows: int, attacked_claim: float,
    attacked_delta: float, pcsgd_rounds: int, pcsgd_repeats: int, dice_rounds: int, dice_repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """settings: {name: [epsilon, delta, T, m]}; enough: {name: sigma / c that keeps that epsilon}.

    Epsilons of one record replaced, one of m drawn at random a step, lie between two ends; the lower end is told, so
    that what exceeds a claim refutes it.
    """
    numbers: dict[str, Any] = {}
    shown: dict[str, float] = {}
    for name, (claimed, delta, T, m) in settings.items():
        noise = corollary_3_6_as_printed(claimed, delta, int(T), int(m), 1.0)
        draws = WithoutReplacement(1, int(m))
        real, _ = epsilon_bounds(Release(noise.noise_multiplier, int(T), draws), delta)
        numbers |= {
            f"{name}_claimed": claimed,
            f"{name}_real": real,
            f"{name}_poisson": noise.poisson_epsilon,
            f"{name}_noise": noise.noise_multiplier,
            f"{name}_regime": T / m**2,
        }
        label = name.replace("_", " ")
        shown |= {f"{label}: claimed": claimed, f"{label}: Poisson": noise.poisson_epsilon, f"{label}: real": real}
        if name in enough:
            numbers[f"{name}_corrected"] = epsilon(Release(enough[name], int(T), draws), delta)
            numbers[f"{name}_more_noise"] = enough[name] / noise.noise_multiplier
    where: dict[str, Any] = {"rows": attacked_rows, "delta": attacked_delta, "seed": seed, "claimed": attacked_claim}

    def multiplier(rounds: int) -> float:
        noise = corollary_3_6_as_printed(attacked_claim, attacked_delta, rounds, attacked_rows, 1.0)
        return noise.noise_multiplier

    plain = pf.pcsgd(1.0, 1.0, multiplier(pcsgd_rounds), batch=pf.Fixed(1))
    dice = pf.dicesgd(1.0, 1.0, 1.0, math.sqrt(96) * multiplier(dice_rounds), batch=pf.Fixed(1))
    table = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((1, attacked_rows))))
    proved = guarantee(table, dice, conservative=True).spent(dice_rounds, attacked_delta)
    numbers |= {
        "attacked_claim": attacked_claim,
        "pcsgd_attack": attack.neighbors(plain, rounds=pcsgd_rounds, repeats=pcsgd_repeats, **where).lower,
        "dice_attack": attack.neighbors(dice, rounds=dice_rounds, repeats=dice_repeats, **where).lower,
        "dice_proved": proved.epsilon,
    }
    return Outcome(numbers, {"epsilon": bars(shown)})
