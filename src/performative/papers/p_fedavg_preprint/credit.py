"""Figures 5 and 8 to 11: credit scores with batches of several sizes."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from performative.history import History
from performative.papers.outcome import Outcome, curves, lay_out, mean, thinned
from performative.papers.p_fedavg.credit import Field, Runs, Whole, field, solve
from performative.papers.p_fedavg.instance import SCHEMES, ratio
from performative.papers.runs import distance, given, late, word


@given(Runs)
def batches(run: Runs, start: str, effects: list[str], sizes: list[int], long_rounds: int) -> Outcome:
    """Batch sizes up to whole tables, from the static minimizer or from the stable point itself.

    In addition: noisy steps linearized at the stable point, full participation, for `long_rounds`.
    """
    numbers: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for effect in effects:
        problem, static, stable = solve(effect)
        at = static if start == "static" else stable
        found = run.simulate(problem, at, stable, run.drawn(sizes))
        # With whole tables and full participation nothing is random: one run suffices.
        rows = Whole(int(np.max(problem.population.rows)))
        whole = run.simulate(problem, at, stable, {"whole": {"batch": rows}}, repeats=1)["whole"]
        way, known, lines = float(np.linalg.norm(static - stable)), field(problem, stable), {}
        numbers[f"gap_{effect}"] = way
        for name in SCHEMES:
            key = f"{word(name)}_{effect}"
            for few, many in itertools.pairwise(sizes):
                numbers[f"batch_{many}_over_{few}_{key}"] = _rms(found[name, many], found[name, few])
            numbers[f"whole_over_{sizes[-1]}_{key}"] = _rms(whole, found[name, sizes[-1]])
            numbers[f"over_full_{key}"] = _rms(found[name, 16], found["full", 16], share=0.5)
        numbers[f"two_over_one_{effect}"] = _rms(found["Scheme II", 16], found["Scheme I", 16], share=0.5)
        still, noise, spread_of = _linearized(known, run, long_rounds * run.local_steps, at - stable)
        for n in sizes:
            square = still + noise / n
            rms, now = np.sqrt(square), min(run.rounds * run.local_steps, len(square) - 1)
            line = distance(found["full", n])
            lines[f"batch {n}"] = thinned(np.arange(len(rms)) / run.local_steps, rms)
            end, error = mean(line[:, -1])
            numbers |= {f"end_{n}_{effect}": (end, error), f"left_{n}_{effect}": (end / way, error / way)}
            numbers[f"return_{n}_{effect}"] = float(rms[-1] / np.max(rms))
            numbers[f"late_{n}_{effect}"] = ratio(line[:, -1] ** 2, line[:, line.shape[1] // 3] ** 2)
            error = float(np.sqrt(spread_of(n, now) / run.repeats))
            numbers[f"square_{n}_{effect}"] = float(np.mean(line[:, -1] ** 2)), error
            numbers[f"linear_square_{n}_{effect}"] = float(square[now])
        shown = {f"batch {n}": found["full", n] for n in sizes} | {"whole tables": whole}
        data |= {f"sizes_{effect}": curves(shown, "distance_to_stable"), f"linearized_{effect}": lay_out(lines)}
        data[f"schemes_{effect}"] = curves({name: found[name, 4] for name in SCHEMES}, "distance_to_stable")
    return Outcome(numbers, data)


def _rms(top: History, bottom: History, share: float = 0.0) -> tuple[float, float]:
    """Ratio of root mean square distances over the last `share` of the rounds (0: the end), with its standard error."""
    top_of, bottom_of = (np.mean(late(distance(one), share) ** 2, axis=1) for one in (top, bottom))
    if len(top_of) != len(bottom_of):
        top_of = np.full(len(bottom_of), top_of.mean())
    found, error = ratio(top_of, bottom_of)
    return found**0.5, error / (2 * found**0.5)


def _linearized(
    at: Field, run: Runs, steps: int, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Callable[[int, int], float]]:
    """E |theta_t - theta_PS|^2 = |d_t|^2 + tr P_t / n: both terms, [steps + 1], and its variance by n and t.

        d <- (I - eta H) d,     P <- (I - eta H) P (I - eta H)^T + eta^2 C

    The normal part has variance 2 tr P^2 / n^2 + 4 d^T P d / n.
    """
    d, P, eye = offset, np.zeros_like(at.noise), np.eye(len(offset))
    found = [(d @ d, 0.0, 0.0, 0.0)]
    for t in range(steps):
        eta = run.beta / (t + run.gamma)
        keep = eye - eta * at.slope
        d, P = keep @ d, keep @ P @ keep.T + eta**2 * at.noise
        found.append((d @ d, np.trace(P), 2 * np.sum(P * P), 4 * d @ P @ d))
    still, noise, pairs, cross = np.asarray(found).T
    return still, noise, lambda n, t: float(pairs[t] / n**2 + cross[t] / n)
