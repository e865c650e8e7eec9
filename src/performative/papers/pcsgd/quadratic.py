"""Figure 1: a number that is learnt from clipped gradients, which silence the few who have large ones."""

import dataclasses
import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.pcsgd.watching import growth, memory_of, thinned, thirds, watched
from performative.privacy.printed import corollary_3_6_as_printed
from performative.theory import ClippedQuadratic, dice_model_error, dicesgd, travel

QUIET: dict[str, Any] = {"callbacks": [pf.callbacks.Progress(False)], "dtype": "float64"}


def gap(
    p: float, a: float, b: float, betas: list[float], clip: float, memory_clip: float, epsilon: float, rows: int,
    scale: float, offset: float, start: float, box: float, rounds: int, records: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """PCSGD and DiceSGD from one start, the second with sqrt(96) times the noise and nowhere projected."""
    noise = corollary_3_6_as_printed(epsilon, 1 / rows, rounds, rows, clip).noise_multiplier
    rate = pf.schedules.harmonic(scale, offset + 1)  # the paper's clock begins at t = 1
    plain = pf.pcsgd(rate, clip, noise)
    dice = watched(pf.dicesgd(rate, clip, memory_clip, math.sqrt(96) * noise))
    settings: dict[tuple[str, float], dict[str, Any]] = {}
    for beta in betas:
        problem = pf.cases.quadratic(beta, p, a, b, rows, box=box)
        settings["PCSGD", beta] = {"problem": problem, "algorithm": plain}
        settings["DiceSGD", beta] = {"problem": dataclasses.replace(problem, domain=None), "algorithm": dice}
    first = settings["PCSGD", betas[0]]["problem"]
    over = list(settings.values())
    swept = pf.sweep(
        first,
        plain,
        over,
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(every=rounds // records, risks=False, consensus=False),
        **QUIET,
    )

    numbers: dict[str, Any] = {"clip": clip, "noise_of_pcsgd": noise * clip}
    gaps, memories, squares = {}, {}, {}
    for (name, beta), history in zip(settings, swept.histories, strict=True):
        exact = ClippedQuadratic(p, a, b, beta)
        theta = np.asarray(history.theta, np.float64)
        square = (theta - exact.stable) ** 2
        gaps[f"{name}, beta = {beta:g}"] = thinned(history.rounds[1:], square[:, 1:])
        key = f"{name.lower()}_{beta:g}"
        numbers |= {f"{key}_end": mean(theta[:, -1]), f"stable_{beta:g}": exact.stable}
        numbers |= {f"{key}_gap": mean(square[:, -1]), f"limit_{beta:g}": exact.pcsgd_limit(clip)}
        numbers |= {f"{key}_slope": slope(history.rounds, square, offset), f"bias_{beta:g}": exact.squared_bias(clip)}
        squares[name, beta] = np.mean(square[:, -1])
        if name == "DiceSGD":
            steps, memory = memory_of(history)
            memories[f"beta = {beta:g}"] = thinned(steps, memory)
            late = memory[:, thirds(memory.shape[1])[1]].mean()
            numbers |= {f"memory_growth_{beta:g}": growth(memory), f"memory_{beta:g}": math.sqrt(late)}
    low, high = betas[0], betas[-1]
    numbers["amplified"] = squares["PCSGD", high] / squares["PCSGD", low]
    numbers["amplified_exactly"] = numbers[f"bias_{high:g}"] / numbers[f"bias_{low:g}"]
    return Outcome(numbers, {"gap": lay_out(gaps), "memory": lay_out(memories)})


def slope(steps: np.ndarray, square: np.ndarray, offset: float) -> float:
    """Slope of the mean square on logarithmic axes over the last tenth to all of the steps: -1 for O(1 / t)."""
    late = steps >= steps[-1] / 10
    return float(np.polyfit(np.log(steps[late] + offset), np.log(square[:, late].mean(axis=0)), 1)[0])


def memory_clip(
    p: float, a: float, b: float, beta: float, clip: float, memory_clips: list[float], epsilon: float, rows: int,
    scale: float, offset: float, start: float, far: float, rounds: int, records: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """DiceSGD with memory clips on both sides of what it needs, and from a start too far away."""
    problem = dataclasses.replace(pf.cases.quadratic(beta, p, a, b, rows), domain=None)
    noise = math.sqrt(96) * corollary_3_6_as_printed(epsilon, 1 / rows, rounds, rows, clip).noise_multiplier
    rate = pf.schedules.harmonic(scale, offset + 1)
    exact = ClippedQuadratic(p, a, b, beta)
    over = [{"algorithm": watched(pf.dicesgd(rate, clip, c, noise))} for c in memory_clips]
    # All of them from afar as well: the same program again.
    near, away = (
        pf.sweep(
            problem,
            over[0]["algorithm"],
            over,
            rounds,
            at,
            seed,
            repeats,
            record=pf.Record(every=rounds // records, risks=False, consensus=False),
            **QUIET,
        )
        for at in (start, far)
    )

    numbers: dict[str, Any] = {"needed": exact.memory_clip_needed(clip), "clip": clip, "stable": exact.stable}
    models, memories = {}, {}
    for value, history in zip(memory_clips, near.histories, strict=True):
        name, theta = f"C2 = {value:g}", np.asarray(history.theta, np.float64)
        steps, memory = memory_of(history)
        models[name], memories[name] = thinned(history.rounds[1:], theta[:, 1:]), thinned(steps, memory)
        late = memory[:, thirds(memory.shape[1])[1]].mean()
        numbers |= {
            f"end_{value:g}": mean(theta[:, -1]),
            f"limit_{value:g}": exact.dice_limit(clip, value),
            f"memory_growth_{value:g}": growth(memory),
            f"memory_{value:g}": math.sqrt(late),
        }
    eta = scale / (offset + 1 + np.arange(rounds))
    given = exact.dice_assumptions(far, numbers[f"memory_{memory_clips[-1]:g}"])
    bound = dicesgd(given, eta, noise * clip, "printed")
    ends = np.asarray(away.histories[-1].final, np.float64)
    numbers |= {
        "travel": travel(eta, clip, memory_clips[-1]),
        "went": mean(far - ends),
        "left": mean(np.abs(ends - exact.stable)),
        "allowed": float(np.sqrt(dice_model_error(bound, given, eta)[-1])),
        "memory_from_afar": math.sqrt(memory_of(away.histories[-1])[1][:, -1].mean()),
    }
    return Outcome(numbers, {"model": lay_out(models), "memory": lay_out(memories)})
