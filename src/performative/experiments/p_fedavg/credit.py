"""Credit scores that borrowers react to: three schemes on a real table, with several batch sizes and both strengths.

The data come through `pf.data`: from PERFORMATIVE_DATA, the cache or a download; where none has them, its error says so.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.batches import AbstractBatch
from performative.experiments.outcome import Outcome, curves, mean
from performative.history import History
from performative.scoreboard.bench import performative_risk
from performative.types import number, whole

PARTS = {"full": pf.Full, "Scheme I": pf.SchemeOne, "Scheme II": pf.SchemeTwo}
QUIET = {"progress": False, "record_theta": "last", "consensus": False}


class FirstOf(AbstractBatch):
    """n of n_max independent samples count: sizes differ in a number only, so that one program serves them all."""

    n: Any = number()
    n_max: int = whole()

    def expected(self, population: Any) -> Any:
        return self.n

    def draw(self, key, standing_key, population, theta, steps, memory):
        counts = jnp.broadcast_to(jnp.arange(self.n_max) < self.n, (steps, self.n_max))
        return population.draw(key, (steps, self.n_max), theta), counts


def solve(effect: str) -> tuple[pf.Problem, np.ndarray, np.ndarray]:
    """The problem, the minimiser on data before any reaction, and the stable point.

    Retraining is a contraction here (0.55 for the strong effect), so that few deployments reach the stable point.
    """
    problem, _ = pf.cases.strategic_credit("p_fedavg", effect)
    shape = problem.population.model_shape()
    path = np.asarray(pf.repeated_risk_minimization(problem, np.zeros(shape), 25 if effect == "strong" else 4))
    return problem, path[1], path[-1]


def simulate(
    problem: pf.Problem, start: np.ndarray, stable: np.ndarray, sizes: list[int], beta: float, gamma: float,
    local_steps: int, k: int, rounds: int, every: int, points: int, repeats: int, seed: int,
) -> dict[tuple[str, int], History]:  # fmt: skip
    """All three schemes with all batch sizes: one program a scheme."""
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=local_steps)
    settings = {
        (name, n): {"participation": part() if part is pf.Full else part(k), "batch": FirstOf(n, max(sizes))}
        for name, part in PARTS.items()
        for n in sizes
    }
    swept = pf.sweep(
        problem, algorithm, list(settings.values()), rounds, start, seed, repeats,
        stable=stable, optimal=stable, every=every, risk=points, **QUIET,
    )  # fmt: skip
    return dict(zip(settings, swept.histories, strict=True))


def schemes(
    effects: list[str], batch: int, beta: float, gamma: float, local_steps: int, k: int, rounds: int, every: int,
    points: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figure 2c, 2d: from the static minimiser, as printed and with a strong reaction."""
    numbers: dict[str, float | tuple[float, float]] = {}
    data = {}
    for effect in effects:
        problem, static, stable = solve(effect)
        found = simulate(
            problem, static, stable, [batch], beta, gamma, local_steps, k, rounds, every, points, repeats, seed
        )
        runs = {name: history for (name, _), history in found.items()}
        way = stable - static
        numbers[f"gap_{effect}"] = float(np.linalg.norm(way))
        numbers[f"loss_static_{effect}"] = performative_risk(problem, static)
        numbers[f"loss_stable_{effect}"] = performative_risk(problem, stable)
        losses = []
        for name, history in runs.items():
            word = f"{_word(name)}_{effect}"
            numbers[f"distance_{word}"] = mean(history["distance_to_stable"][:, -1])
            numbers[f"loss_{word}"] = mean(history["performative_risk"][:, -1])
            losses.append(float(np.mean(history["performative_risk"][:, -1])))
            # Where the runs end on the line from static (0) to stable (1).
            numbers[f"place_{word}"] = mean((np.asarray(history.final, np.float64) - static) @ way / (way @ way))
        numbers[f"spread_of_loss_{effect}"] = max(losses) / min(losses) - 1
        data[f"distance_{effect}"] = curves(runs, "distance_to_stable")
        data[f"loss_{effect}"] = curves(runs, "performative_risk")
    return Outcome(numbers, data)


def batches(
    start: str, sizes: list[int], beta: float, gamma: float, local_steps: int, k: int, rounds: int, every: int,
    points: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figures 5 and 8 to 11 of the preprint: batch sizes, from the static minimiser or from the stable point itself."""
    problem, static, stable = solve("paper")
    at = static if start == "static" else stable
    found = simulate(problem, at, stable, sizes, beta, gamma, local_steps, k, rounds, every, points, repeats, seed)
    numbers: dict[str, float | tuple[float, float]] = {"gap": float(np.linalg.norm(static - stable))}
    data, late, losses = {}, {}, {}
    for name in PARTS:
        word, runs = _word(name), {n: found[name, n] for n in sizes}
        for n, run in runs.items():
            line = np.sqrt(np.mean(np.asarray(run["distance_to_stable"], np.float64) ** 2, axis=0))
            numbers[f"rms_{word}_{n}"] = float(line[-1])
            numbers[f"return_{word}_{n}"] = float(line[-1] / np.max(line))
            losses[word, n] = float(np.mean(run["performative_risk"][:, -1]))
            late[word, n] = float(np.sqrt(np.mean(line[len(line) // 2 :] ** 2)))
        data[word] = curves({f"batch {n}": run for n, run in runs.items()}, "distance_to_stable")
    # Of all batch sizes, over the later half of the rounds: the mean of a ratio needs fewer runs than that of a distance.
    ratios = {w: [late[w, n] / late[other, n] for n in sizes] for w, other in _PAIRS.items()}
    last = max(sizes)
    numbers |= {
        "two_over_one": float(np.exp(np.mean(np.log(ratios["scheme_ii"])))),
        "one_over_full": ratios["scheme_i"][-1],
        "loss_one_over_full": losses["scheme_i", last] / losses["full", last],
        "spread_of_loss": max(losses.values()) / min(losses.values()) - 1,
    }
    return Outcome(numbers, data)


# A scheme, and the one that it is held against.
_PAIRS = {"scheme_ii": "scheme_i", "scheme_i": "full"}


def _word(name: str) -> str:
    return name.lower().replace(" ", "_")
