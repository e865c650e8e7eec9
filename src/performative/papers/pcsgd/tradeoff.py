"""Figure 1, second and third panels: the remaining bias with the step of Corollary 3.7 and the clip of 3.8."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.pcsgd.watching import ratio
from performative.papers.runs import ends, sweep
from performative.privacy.printed import corollary_3_6_as_printed
from performative.theory import ClippedQuadratic, optimal_clip_limit, optimal_step, printed_noise_share

STEPS = ("optimal step", "shift ignored")


def tradeoff(
    p: float, a: float, b: float, betas: list[float], epsilons: list[float], shown_betas: list[float],
    shown_epsilons: list[float], clip: float, rows: int, start: float, box: float, horizon: int, rounds: int,
    repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """PCSGD with constant steps, shift-aware or not, at the printed clip and at the corollary's own.

    Runs take `rounds` iterations; exact values are after `horizon`, the paper's T, regardless of `rounds`.
    """
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}
    exact: dict[tuple[Any, ...], float] = {}
    expected: dict[tuple[Any, ...], float] = {}
    clips = []
    for beta in betas:
        problem = pf.cases.quadratic(beta, p, a, b, rows, box=box)
        q = ClippedQuadratic(p, a, b, beta)
        given = q.assumptions(box, start)
        for eps in epsilons:
            share = printed_noise_share(eps, 1 / rows, rows)
            own = optimal_clip_limit(given, share, 4.0, printed=True).clip
            # Even on the smallest set containing theta_PS, that single point, G is (1 - p) a b.
            alone = dataclasses.replace(given, G=(1 - p) * a * b)
            clips.append(optimal_clip_limit(alone, share, 4.0, printed=True).clip)
            for which, c in (("2.32", clip), ("c*", own)):
                # Ignoring the shift, mu replaces mu~; everything else is unchanged.
                ignorant = dataclasses.replace(given, beta=0.0)
                for name, known in zip(STEPS, (given, ignorant), strict=True):
                    key = (beta, eps, which, name)
                    for T, into in ((horizon, exact), (rounds, expected)):
                        noise = corollary_3_6_as_printed(eps, 1 / rows, T, rows, c)
                        step = float(optimal_step(known, c, T, noise.sigma, printed=True).step or 0.0)
                        into[key] = mean_square(q, start, step, c, noise.sigma, T)
                    settings[key] = {"problem": problem, "algorithm": pf.pcsgd(step, c, noise.noise_multiplier)}
    first = next(iter(settings.values()))
    runs = sweep(first["problem"], first["algorithm"], settings, rounds, start, seed, repeats, every=rounds)
    found = {key: (ends(run) - ClippedQuadratic(p, a, b, key[0]).stable) ** 2 for key, run in runs.items()}

    shown = list(itertools.product(shown_betas, shown_epsilons))
    gains = [mean(found[*at, "2.32", STEPS[1]] - found[*at, "2.32", STEPS[0]]) for at in shown]
    off = {key: (square.mean() / expected[key], mean(square)[1] / expected[key]) for key, square in found.items()}
    tuned = {at: exact[*at, "2.32", STEPS[0]] for at in shown}
    low, high = shown_betas[0], shown_betas[-1]
    small, large = min(shown_epsilons), max(shown_epsilons)
    grown = [ratio(found[high, eps, "2.32", STEPS[0]], found[low, eps, "2.32", STEPS[0]]) for eps in shown_epsilons]
    numbers: dict[str, Any] = {
        "least_gain": min(gains, key=lambda gain: gain[0] - 2 * gain[1]),
        "least_gain_at_own_clip": min(exact[*at, "c*", STEPS[1]] / exact[*at, "c*", STEPS[0]] - 1 for at in shown),
        "growth_with_beta": min(grown, key=lambda growth: growth[0] - 2 * growth[1]),
        "growth_with_privacy": min(tuned[beta, small] / tuned[beta, large] for beta in shown_betas),
        "least_clip_of_the_formula": min(clips),
        "measured_over_exact": max(off.values(), key=lambda one: abs(one[0] - 1) / one[1]),
    }

    def by(place: int, which: str, values: list[float], others: list[float], label: str) -> dict[str, Any]:
        lines = {}
        for other, name in itertools.product(others, STEPS):
            keys = [(other, v) if place else (v, other) for v in values]
            lines[f"${label} = {other:g}$, {name}"] = (values, np.stack([found[*k, which, name] for k in keys], 1))
        return lines

    data = {
        "by_epsilon": lay_out(by(1, "2.32", epsilons, shown_betas, r"\beta")),
        "by_beta": lay_out(by(0, "2.32", betas, shown_epsilons, r"\epsilon")),
        "by_beta_own_clip": lay_out(by(0, "c*", betas, shown_epsilons, r"\epsilon")),
    }
    return Outcome(numbers, data)


def mean_square(q: ClippedQuadratic, start: float, step: float, clip: float, sigma: float, rounds: int) -> float:
    """E |theta_T - theta_PS|^2 of PCSGD with a constant step, by the exact recursion of mean and mean square.

    Far away every gradient is clipped and the model moves in a straight line; later the majority is not clipped, and
    the minority always is (or never, at a large clip). Exact except at the transition, which the rest of the run
    forgets. The boundary of the box is never reached.
    """
    m, p, ab = q.mu_tilde, q.p, q.a * q.b
    walk = max(0, math.ceil((start - clip / m) / (step * clip)))
    middle = start - walk * step * clip
    square = middle**2 + walk * (step * sigma) ** 2
    if clip < ab + m * min(q.stable, q.pcsgd_limit(clip)):  # the minority is clipped
        rows = [
            [1.0, 0.0, 0.0],
            [-step * p * clip, 1 - step * (1 - p) * m, 0.0],
            [step**2 * (sigma**2 + p * clip**2), -2 * p * step * clip, (1 - p) * (1 - step * m) ** 2 + p],
        ]
    elif clip >= ab + m * start:  # nobody is
        keep = 1 - step * m
        rows = [
            [1.0, 0.0, 0.0],
            [-step * p * ab, keep, 0.0],
            [step**2 * (sigma**2 + p * ab**2), -2 * p * step * ab * keep, keep**2],
        ]
    else:
        raise ValueError(f"clip={clip} is active on only part of the trajectory: there is no closed recursion.")
    _, middle, square = np.linalg.matrix_power(np.asarray(rows), rounds - walk) @ [1.0, middle, square]
    return float(square - 2 * middle * q.stable + q.stable**2)
