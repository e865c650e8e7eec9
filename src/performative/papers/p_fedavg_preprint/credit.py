"""Figures 5 and 8 to 11: credit scores with batches of several sizes."""

from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, curves, lay_out, thinned
from performative.papers.p_fedavg.credit import Field, Runs, field, solve
from performative.papers.runs import distance, ends, given, word


@given(Runs)
def batches(run: Runs, start: str, drawn: list[str], sizes: list[int], long_rounds: int) -> Outcome:
    """Batch sizes, from the static minimizer or from the stable point itself.

    Beside the runs: noisy steps linearized at the stable point, everyone present, for `long_rounds`.
    """
    problem, static, stable = solve("paper")
    at = static if start == "static" else stable
    found = run.simulate(problem, at, stable, drawn, sizes)
    numbers: dict[str, Any] = {"gap": float(np.linalg.norm(static - stable))}
    late, losses = {}, {}
    for (name, n), history in found.items():
        line = np.sqrt(np.mean(distance(history) ** 2, axis=0))
        numbers[f"rms_{word(name)}_{n}"] = float(line[-1])
        losses[name, n] = float(np.mean([field(problem, end).risk for end in ends(history)]))
        late[name, n] = float(np.sqrt(np.mean(line[len(line) // 2 :] ** 2)))
    last, middle = max(sizes), sorted(sizes)[len(sizes) // 2]
    numbers["spread_of_loss"] = max(losses.values()) / min(losses.values()) - 1
    if "Scheme I" in drawn:
        numbers["one_over_full"] = late["Scheme I", last] / late["full", last]
        numbers["loss_one_over_full"] = losses["Scheme I", last] / losses["full", last]
        if "Scheme II" in drawn:
            # Over all batch sizes: the mean of a ratio needs fewer runs than that of a distance.
            ratios = [late["Scheme II", n] / late["Scheme I", n] for n in sizes]
            numbers["two_over_one"] = float(np.exp(np.mean(np.log(ratios))))
    known, lines = field(problem, stable), {}
    for n in sizes:
        square, spread = _linearized(known, n, run, long_rounds * run.local_steps, at - stable)
        rms, now = np.sqrt(square), min(run.rounds * run.local_steps, len(square) - 1)
        lines[f"batch {n}"] = thinned(np.arange(len(rms)) / run.local_steps, rms)
        numbers[f"return_{n}"] = float(rms[-1] / np.max(rms))
        numbers[f"peak_{n}"] = float(np.argmax(rms) / (len(rms) - 1))
        measured = np.mean(distance(found["full", n])[:, -1] ** 2)
        numbers[f"square_{n}"] = float(measured), float(spread[now] / np.sqrt(run.repeats))
        numbers[f"linear_square_{n}"] = float(square[now])
    numbers["return_1_over_16"] = numbers["return_1"] / numbers["return_16"]
    data = {
        "sizes": curves({f"batch {n}": found["full", n] for n in sizes}, "distance_to_stable"),
        "schemes": curves({name: found[name, middle] for name in drawn}, "distance_to_stable"),
        "linearized": lay_out(lines),
    }
    return Outcome(numbers, data)


def _linearized(at: Field, size: int, run: Runs, steps: int, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E |theta_t - theta_PS|^2 and the standard deviation of |theta_t - theta_PS|^2, [steps + 1].

        d <- (I - eta H) d,     P <- (I - eta H) P (I - eta H)^T + eta^2 C / n,     E |.|^2 = |d|^2 + tr P

    The normal part has variance 2 tr P^2 + 4 d^T P d.
    """
    d, P, eye = offset, np.zeros_like(at.noise), np.eye(len(offset))
    square, spread = [float(d @ d)], [0.0]
    for t in range(steps):
        eta = run.beta / (t + run.gamma)
        keep = eye - eta * at.slope
        d, P = keep @ d, keep @ P @ keep.T + eta**2 * at.noise / size
        square.append(float(d @ d + np.trace(P)))
        spread.append(float(np.sqrt(2 * np.sum(P * P) + 4 * d @ P @ d)))
    return np.asarray(square), np.asarray(spread)
