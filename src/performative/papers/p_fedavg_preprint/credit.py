"""Figures 5 and 8 to 11: credit scores with batches of several sizes."""

import numpy as np

from performative.papers.outcome import Outcome, curves, lay_out
from performative.papers.p_fedavg.credit import Field, field, simulate, solve


def batches(
    start: str, drawn: list[str], sizes: list[int], beta: float, gamma: float, local_steps: int, k: int, rounds: int,
    long_rounds: int, every: int, points: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Batch sizes, from the static minimizer or from the stable point itself.

    Beside the runs: noisy steps linearized at the stable point, everyone present, for `long_rounds`.
    """
    problem, static, stable = solve("paper")
    at = static if start == "static" else stable
    found = simulate(
        problem, at, stable, drawn, sizes, beta, gamma, local_steps, k, rounds, every, points, repeats, seed
    )
    numbers: dict[str, float | tuple[float, float]] = {"gap": float(np.linalg.norm(static - stable))}
    late, losses = {}, {}
    for (name, n), run in found.items():
        word = f"{name.lower().replace(' ', '_')}_{n}"
        line = np.sqrt(np.mean(np.asarray(run["distance_to_stable"], np.float64) ** 2, axis=0))
        numbers[f"rms_{word}"] = float(line[-1])
        losses[name, n] = float(np.mean([field(problem, end).risk for end in np.asarray(run.final, np.float64)]))
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
        square, spread = _linearized(known, n, beta, gamma, long_rounds * local_steps, at - stable)
        rms, now = np.sqrt(square), min(rounds * local_steps, len(square) - 1)
        kept = np.arange(0, len(rms), max(1, len(rms) // 200))
        lines[f"batch {n}"] = (kept / local_steps, rms[kept])
        numbers[f"return_{n}"] = float(rms[-1] / np.max(rms))
        numbers[f"peak_{n}"] = float(np.argmax(rms) / (len(rms) - 1))
        measured = np.mean(np.asarray(found["full", n]["distance_to_stable"][:, -1], np.float64) ** 2)
        numbers[f"square_{n}"] = float(measured), float(spread[now] / np.sqrt(repeats))
        numbers[f"linear_square_{n}"] = float(square[now])
    numbers["return_1_over_16"] = numbers["return_1"] / numbers["return_16"]  # type: ignore[operator]  # plain numbers
    return Outcome(
        numbers,
        {
            "sizes": curves({f"batch {n}": found["full", n] for n in sizes}, "distance_to_stable"),
            "schemes": curves({name: found[name, middle] for name in drawn}, "distance_to_stable"),
            "linearized": lay_out(lines),
        },
    )


def _linearized(
    at: Field, size: int, beta: float, gamma: float, steps: int, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E |theta_t - theta_PS|^2 and the standard deviation of |theta_t - theta_PS|^2, [steps + 1].

        d <- (I - eta H) d,     P <- (I - eta H) P (I - eta H)^T + eta^2 C / n,     E |.|^2 = |d|^2 + tr P

    The normal part has variance 2 tr P^2 + 4 d^T P d.
    """
    d, P, eye = offset, np.zeros_like(at.noise), np.eye(len(offset))
    square, spread = [float(d @ d)], [0.0]
    for t in range(steps):
        eta = beta / (t + gamma)
        keep = eye - eta * at.slope
        d, P = keep @ d, keep @ P @ keep.T + eta**2 * at.noise / size
        square.append(float(d @ d + np.trace(P)))
        spread.append(float(np.sqrt(2 * np.sum(P * P) + 4 * d @ P @ d)))
    return np.asarray(square), np.asarray(spread)
