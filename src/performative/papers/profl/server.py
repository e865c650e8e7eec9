"""House pricing in plain NumPy: any server rule, any window. Algorithm 1, line 17, Remark 2.1, Table 3's H."""

from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.profl.house import NOISE, PENALTY, SECOND, SLOPE, best, grid, risk
from performative.papers.profl.runs import Past, Runs, ratio, slope_of
from performative.papers.runs import given, label, late


def walk(
    s: Runs, gamma: np.ndarray, *, alpha: np.ndarray | None = None, enrolled: int | None = None,
    whole: bool = True, window: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Algorithm 2 on [-reach, reach], [repeats, rounds]; without a window the gradients are exact.

    whole: whether the alpha_i of those enrolled are scaled to sum to one; False uses them as printed.
    """
    rng, clients = np.random.default_rng(s.seed), len(gamma)
    alpha = np.full(clients, 1.0 / clients) if alpha is None else alpha
    theta, path = np.full(s.repeats, s.start), []
    past: Past = []
    for _ in range(s.rounds):
        order = np.broadcast_to(np.arange(clients), (s.repeats, clients))
        chosen = order if enrolled is None else rng.permuted(order, axis=1)[:, :enrolled]
        weight = alpha[chosen] / (alpha[chosen].sum(axis=1, keepdims=True) if whole else 1.0)
        local = np.repeat(theta[:, None], chosen.shape[1], axis=1)
        for _ in range(s.local_steps):
            f = SLOPE + gamma[chosen] * local
            g, answer, slope = SECOND * (local - f) + PENALTY * local, SECOND * (f - local), gamma[chosen]
            if window is not None:
                g, answer, f = _sampled(rng, s.samples, local, f)
                past = [*past[-window - 1 :], (local, f)]
                slope = slope_of(past, window)
            local = np.clip(local - s.rate * (g + slope * answer), -s.reach, s.reach)
        theta = np.sum(weight * local, axis=1)
        path.append(theta)
    return np.stack(path, axis=1)


def _sampled(rng: np.random.Generator, n: int, theta: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, ...]:
    """First term, mean l s(z; f-hat) and f-hat, the slope by least squares, from n houses of each client."""
    x, noise = SLOPE + rng.standard_normal((*f.shape, n)), NOISE * rng.standard_normal((*f.shape, n))
    second = np.mean(x**2, axis=-1)
    fitted = f + np.mean(x * noise, axis=-1) / second
    left = noise - (fitted - f)[..., None] * x
    loss = (left + (fitted - theta)[..., None] * x) ** 2 / 2.0
    answer = np.mean(loss * x * left, axis=-1) / NOISE**2
    return (theta - fitted) * second + PENALTY * theta, answer, fitted


@given(Runs)
def rule(s: Runs, center: float, alpha: float, enrolled: int) -> Outcome:
    """Server aggregation of exact models: alpha_i as printed or rescaled to the participants; other weights."""
    gamma = grid(center, alpha, s.clients)
    optimal, unequal = best(gamma)[0], np.arange(1.0, s.clients + 1.0) / (s.clients * (s.clients + 1) / 2)
    paths = {
        "weights as printed": walk(s, gamma, enrolled=enrolled, whole=False),
        "weights that sum to one": walk(s, gamma, enrolled=enrolled),
        "all clients, unequal weights": walk(s, gamma, alpha=unequal),
    }
    first = abs(s.start - optimal)
    ends = [path[:, s.rounds // 2 :] for path in paths.values()]
    numbers: dict[str, Any] = {
        "theta_PO": optimal,
        "printed_over_start": mean(np.abs(ends[0] - optimal).mean(axis=1) / first),
        "scaled_over_start": mean(np.abs(ends[1] - optimal).mean(axis=1) / first),
        "own_over_equal_weights": float(abs(ends[2] - best(gamma, unequal)[0]).mean() / abs(ends[2] - optimal).mean()),
    }
    rounds = np.arange(1, s.rounds + 1)
    return Outcome(numbers, {"model": lay_out({name: (rounds, path) for name, path in paths.items()})})


@given(Runs)
def literal(s: Runs, center: float, alphas: list[float], lengths: list[int]) -> Outcome:
    """Table 1 with the window that Table 3 prints, and with a longer one."""
    numbers: dict[str, Any] = {}
    lines, losses = {}, {}
    for alpha in alphas:
        gamma = grid(center, alpha, s.clients)
        for window in lengths:
            loss = risk(walk(s, gamma, window=window), gamma)
            losses[window] = late(loss).mean(axis=1)
            numbers[f"loss_{label(alpha)}_window_{window}"] = mean(losses[window])
            lines[rf"$\alpha$ = {alpha:g}, H = {window}"] = (np.arange(1, s.rounds + 1), loss)
        least = best(gamma)[1]
        numbers[f"excess_{label(alpha)}"] = ratio(losses[lengths[0]] - least, losses[lengths[-1]] - least)
    return Outcome(numbers, {"loss": lay_out(lines)})
