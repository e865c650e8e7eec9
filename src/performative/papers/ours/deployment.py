"""When does a model meet the world: after every local step, or once a round?"""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.runs import distance, ends, sweep

WHEN = ("step", "round")


def step_or_round(
    level: list[float], reaction: list[float], strong: list[float], scale: float, rate: float, local_steps: int,
    start: float, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Both on mildly reacting clients, and on clients two of which have sensitivity above 1. Moments are exact."""
    m = np.asarray(level, np.float64)
    cases = {"mild": np.asarray(reaction, np.float64), "strong": np.asarray(strong, np.float64)}
    data = {name: pf.populations.Gaussian(m, eps, scale) for name, eps in cases.items()}
    problems = {name: pf.Problem(pf.losses.squared, population) for name, population in data.items()}
    names = [(name, deploy) for name in cases for deploy in WHEN]
    settings = {(name, deploy): {"problem": problems[name], "deploy": deploy} for name, deploy in names}
    algorithm = pf.p_fedavg(rate, local_steps=local_steps)
    runs = sweep(problems["mild"], algorithm, settings, rounds, start, seed, repeats, limit=1e60)
    ways = {key: distance(run) for key, run in runs.items()}
    steps = np.full(rounds * local_steps, rate)
    exact = {
        (name, deploy): pf.theory.gaussian_moments(
            m, cases[name], scale, steps, local_steps=local_steps, start=start, deploy=deploy
        )
        for name, deploy in names
    }
    slopes = {name: 1 - eps for name, eps in cases.items()}
    stable = {name: float(m.mean() / slope.mean()) for name, slope in slopes.items()}
    point = pf.theory.quadratic_floor(m, slopes["mild"], rate, local_steps).point
    numbers: dict[str, Any] = {"step_point_exact": point}
    for name in cases:
        numbers |= {f"{name}_stable_point": stable[name], f"{name}_round_mean": mean(ends(runs[name, "round"]))}
    for deploy, settled in (("step", point), ("round", stable["mild"])):
        known, found = exact["mild", deploy], ends(runs["mild", deploy])
        # Fraction of the distance to the limit that remains after the first round.
        kept = (stable["mild"] + ways["mild", deploy][:, 1] - settled) / (start - settled)
        numbers |= {
            f"mild_{deploy}_mean": mean(found),
            f"mild_{deploy}_mean_exact": float(known.mean[-1]),
            f"mild_{deploy}_variance": mean((found - known.mean[-1]) ** 2),
            f"mild_{deploy}_variance_exact": float(known.variance[-1]),
            f"mild_{deploy}_kept": mean(kept),
        }
    runaway = ways["strong", "step"]
    numbers["strong_step_growth"] = mean(runaway[:, -1] / runaway[:, -2])
    numbers["strong_step_growth_exact"] = float(np.mean((1 - rate * slopes["strong"]) ** local_steps))
    x = np.arange(rounds + 1)

    def drawn(name: str) -> Any:
        root = {when: np.sqrt(np.mean(ways[name, when] ** 2, axis=0)) for when in WHEN}
        lines = {f"each {when}": (x, root[when]) for when in WHEN}
        return lay_out(lines | {f"each {when}, exact": (x, np.sqrt(exact[name, when].mse)) for when in WHEN})

    return Outcome(numbers, {name: drawn(name) for name in cases})
