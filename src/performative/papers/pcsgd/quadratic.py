"""Figure 1: a number that is learnt from clipped gradients, which silence the few who have large ones."""

import dataclasses
import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, thinned
from performative.papers.pcsgd.watching import Runs, memory_numbers, memory_of
from performative.papers.runs import ends, given, models, power
from performative.theory import dice_model_error, dicesgd, travel


@given(Runs)
def gap(s: Runs, betas: list[float], memory_clip: float, box: float) -> Outcome:
    """PCSGD and DiceSGD from one start, the second with sqrt(96) times the noise and nowhere projected."""
    settings: dict[tuple[str, float], dict[str, Any]] = {}
    for beta in betas:
        problem = pf.cases.quadratic(beta, s.p, s.a, s.b, s.rows, box=box)
        free = dataclasses.replace(problem, domain=None)
        settings["PCSGD", beta] = {"problem": problem, "algorithm": s.pcsgd()}
        settings["DiceSGD", beta] = {"problem": free, "algorithm": s.dicesgd(memory_clip)}
    numbers: dict[str, Any] = {"clip": s.clip, "noise_of_pcsgd": s.noise * s.clip}
    gaps, memories, squares = {}, {}, {}
    for (name, beta), history in s.sweep(settings).items():
        exact, theta = s.quadratic(beta), models(history)
        square = (theta - exact.stable) ** 2
        gaps[f"{name}, beta = {beta:g}"] = thinned(history.rounds[1:], square[:, 1:])
        key = f"{name.lower()}_{beta:g}"
        numbers |= {f"{key}_end": mean(theta[:, -1]), f"stable_{beta:g}": exact.stable}
        numbers |= {f"{key}_gap": mean(square[:, -1]), f"limit_{beta:g}": exact.pcsgd_limit(s.clip)}
        numbers |= {
            f"{key}_slope": slope(history.rounds, square, s.offset),
            f"bias_{beta:g}": exact.squared_bias(s.clip),
        }
        squares[name, beta] = np.mean(square[:, -1])
        if name == "DiceSGD":
            memories[f"beta = {beta:g}"] = thinned(*memory_of(history))
            numbers |= memory_numbers(history, beta)
    low, high = betas[0], betas[-1]
    numbers["amplified"] = squares["PCSGD", high] / squares["PCSGD", low]
    numbers["amplified_exactly"] = numbers[f"bias_{high:g}"] / numbers[f"bias_{low:g}"]
    return Outcome(numbers, {"gap": lay_out(gaps), "memory": lay_out(memories)})


def slope(steps: np.ndarray, square: np.ndarray, offset: float) -> float:
    """Slope of the mean square on logarithmic axes over the last tenth to all of the steps: -1 for O(1 / t)."""
    tail = steps >= steps[-1] / 10
    return power(steps[tail] + offset, square[:, tail].mean(axis=0))


@given(Runs)
def memory_clip(s: Runs, memory_clips: list[float], far: float) -> Outcome:
    """DiceSGD with memory clips on both sides of what it needs, and from a start too far away."""
    problem = dataclasses.replace(pf.cases.quadratic(s.beta, s.p, s.a, s.b, s.rows), domain=None)
    exact, settings = s.quadratic(s.beta), {c: {"algorithm": s.dicesgd(c)} for c in memory_clips}
    # All of them from afar as well: the same program again.
    near, away = (s.sweep(settings, problem, at) for at in (s.start, far))
    numbers: dict[str, Any] = {"needed": exact.memory_clip_needed(s.clip), "clip": s.clip, "stable": exact.stable}
    paths, memories = {}, {}
    for value, history in near.items():
        name, theta = f"C2 = {value:g}", models(history)
        paths[name], memories[name] = thinned(history.rounds[1:], theta[:, 1:]), thinned(*memory_of(history))
        numbers |= {f"end_{value:g}": mean(theta[:, -1]), f"limit_{value:g}": exact.dice_limit(s.clip, value)}
        numbers |= memory_numbers(history, value)
    most, last = memory_clips[-1], ends(away[memory_clips[-1]])
    known = exact.dice_assumptions(far, numbers[f"memory_{most:g}"])
    bound = dicesgd(known, s.eta, math.sqrt(96) * s.noise * s.clip, "printed")
    numbers |= {
        "travel": travel(s.eta, s.clip, most),
        "went": mean(far - last),
        "left": mean(np.abs(last - exact.stable)),
        "allowed": float(np.sqrt(dice_model_error(bound, known, s.eta)[-1])),
        "memory_from_afar": math.sqrt(memory_of(away[most])[1][:, -1].mean()),
    }
    return Outcome(numbers, {"model": lay_out(paths), "memory": lay_out(memories)})
