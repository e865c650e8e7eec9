"""Figure 1: a scalar learned from clipped gradients, which mute the few people with large ones."""

import dataclasses
import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, thinned
from performative.papers.pcsgd.watching import (
    RANDOM_WALK,
    Runs,
    memory_numbers,
    memory_of,
    ratio,
    thirds,
    unbiased_squares,
)
from performative.papers.runs import given, models
from performative.theory import dice_model_error, dicesgd, travel


@given(Runs)
def gap(s: Runs, betas: list[float], memory_clip: float, box: float) -> Outcome:
    """PCSGD and DiceSGD from the same start, the latter with sqrt(96) times the noise and no projection."""
    settings: dict[tuple[str, float], dict[str, Any]] = {}
    for beta in betas:
        problem = pf.cases.quadratic(beta, s.p, s.a, s.b, s.rows, box=box)
        free = dataclasses.replace(problem, domain=None)
        settings["PCSGD", beta] = {"problem": problem, "algorithm": s.pcsgd()}
        settings["DiceSGD", beta] = {"problem": free, "algorithm": s.dicesgd(memory_clip)}
    numbers: dict[str, Any] = {"clip": s.clip, "random_walk": RANDOM_WALK}
    gaps, memories, squares = {}, {}, {}
    for (name, beta), history in s.sweep(settings).items():
        exact, theta = s.quadratic(beta), models(history)
        square = (theta - exact.stable) ** 2
        gaps[rf"{name}, $\beta = {beta:g}$"] = thinned(history.rounds[1:], square[:, 1:])
        key, squares[name, beta] = f"{name.lower()}_{beta:g}", square[:, -1]
        numbers |= {f"{key}_end": mean(theta[:, -1]), f"{key}_gap": mean(square[:, -1])}
        numbers |= {f"stable_{beta:g}": exact.stable, f"limit_{beta:g}": exact.pcsgd_limit(s.clip)}
        numbers |= {f"bias_{beta:g}": exact.squared_bias(s.clip)}
        if name == "DiceSGD":
            late, t = thirds(theta.shape[1])[1], history.rounds
            unbiased = unbiased_squares(exact, s.eta, s.start, math.sqrt(96) * s.noise * s.clip)
            numbers[f"{key}_times_t"] = mean((square * t)[:, late].mean(axis=1))
            numbers[f"unbiased_times_t_{beta:g}"] = float(np.mean((unbiased[t] * t)[late]))
            memories[rf"$\beta = {beta:g}$"] = thinned(*memory_of(history))
            numbers |= memory_numbers(history, beta)
    low, high = betas[0], betas[-1]
    numbers["amplified"] = ratio(squares["PCSGD", high], squares["PCSGD", low])
    numbers["amplified_exactly"] = numbers[f"bias_{high:g}"] / numbers[f"bias_{low:g}"]
    return Outcome(numbers, {"gap": lay_out(gaps), "memory": lay_out(memories)})


@given(Runs)
def memory_clip(s: Runs, memory_clips: list[float], far: float) -> Outcome:
    """DiceSGD with memory clips below and above what it needs, and from a start too far away."""
    problem = dataclasses.replace(pf.cases.quadratic(s.beta, s.p, s.a, s.b, s.rows), domain=None)
    exact, settings = s.quadratic(s.beta), {c: {"algorithm": s.dicesgd(c)} for c in memory_clips}
    # All of them from the far start as well: the same program.
    near, away = (s.sweep(settings, problem, at) for at in (s.start, far))
    numbers: dict[str, Any] = {"stable": exact.stable, "random_walk": RANDOM_WALK}
    paths, memories = {}, {}
    for value, history in near.items():
        name, theta = f"$C_2 = {value:g}$", models(history)
        paths[name], memories[name] = thinned(history.rounds[1:], theta[:, 1:]), thinned(*memory_of(history))
        numbers |= {f"end_{value:g}": mean(theta[:, -1]), f"limit_{value:g}": exact.dice_limit(s.clip, value)}
        numbers |= memory_numbers(history, value)
    most = memory_clips[-1]
    last, held = models(away[most])[:, -1], memory_of(away[most])[1]
    # M of Assumption 4.1 for this run: the largest mean of |e|^2 over the records.
    known = exact.dice_assumptions(far, math.sqrt(held.mean(axis=0).max()))
    bound = dicesgd(known, s.eta, math.sqrt(96) * s.noise * s.clip, "printed")
    allowed = dice_model_error(bound, known, s.eta)[-1]
    numbers |= {
        "share_from_afar": mean((last - exact.stable) ** 2 / allowed),
        "went": mean(far - last),
        "went_exact": travel(s.eta, s.clip, most) - s.eta[0] * most,  # the memory is empty at first
    }
    return Outcome(numbers, {"model": lay_out(paths), "memory": lay_out(memories)})
