"""How long should a server wait: for everybody, for the first, or not at all?"""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, over
from performative.papers.runs import late, models, quiet

# Fraction of slow clients, and number of points on the time axis.
_SLOW, _POINTS = 0.1, 120
# Steps around the stability limit, as a fraction of it.
_AROUND = np.linspace(0.98, 1.02, 17)


def waiting(
    clients: int, spread: float, reaction: list[float], noise: float, slow: float, k: int, buffer: int, working: int,
    rate: float, goal: float, start: float, time: float, repeats: int, stale: list[int], moves: int, seed: int,
) -> Outcome:  # fmt: skip
    """Four waiting policies with a tenth of the clients slow, and the largest stable steps on stale models."""
    rng = np.random.default_rng(seed)
    lags = np.arange(clients) < _SLOW * clients
    level, eps = spread * rng.standard_normal(clients) + lags, rng.uniform(reaction[0], reaction[1], clients)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(level, eps, noise))
    latency = pf.participation.Exponential(np.where(lags, slow, 1.0))
    # Each with a lower bound on the time of one server update.
    ways: dict[str, tuple[Any, float]] = {
        "synchronous": (pf.Asynchronous(clients, latency=latency), slow),
        "first K": (pf.FirstK(k, latency), k / clients),
        "buffer, all training": (pf.Asynchronous(buffer, latency=latency, limit=20 * clients), buffer / clients),
        "buffer, few training": (pf.Asynchronous(buffer, working, latency, limit=20 * clients), buffer / working),
    }
    grid = np.geomspace(time / 5000, time, _POINTS)
    away, heard, where = {}, {}, {}
    for name, (part, least) in ways.items():
        run = pf.run(
            problem, pf.p_fedavg(rate, participation=part), int(time / least), start, seed, repeats,
            clock=pf.Clock(compute=0.0), **quiet(theta="all"),
        )  # fmt: skip
        at = [np.searchsorted(times, grid, side="right") - 1 for times in run["time"]]
        path = np.stack([one[index] for one, index in zip(models(run), at, strict=True)])
        away[name], where[name] = path - _stable(level, eps), late(path).mean(axis=1)
        assert run.participation is not None
        heard[name] = run.participation[:, lags].sum(axis=1) / run.participation.sum(axis=1) / _SLOW
    stable, fast = _stable(level, eps), _stable(level[~lags], eps[~lags])
    takes = {name: _since(grid, np.abs(path), goal * abs(start - stable)) for name, path in away.items()}
    borders = {tau: _border(tau, float(eps.mean()), moves) for tau in stale}
    exact = {tau: pf.theory.largest_stale_step(0.0, tau) for tau in stale}
    errors = [abs(borders[tau] / exact[tau] - 1) for tau in stale]
    numbers: dict[str, Any] = {
        "time_synchronous": mean(takes["synchronous"]),
        "time_first": mean(takes["first K"]),
        "time_buffer": mean(takes["buffer, all training"]),
        "time_buffer_few": mean(takes["buffer, few training"]),
        "stable_point": stable,
        "stable_point_of_fast": fast,
        "moved_to_the_fast": mean(np.sign(fast - stable) * (where["buffer, all training"] - stable)),
        "heard_first": mean(heard["first K"]),
        "heard_all_at_work": mean(heard["buffer, all training"]),
        "heard_few_at_work": mean(heard["buffer, few training"]),
        "largest_error_of_border": (max(errors), float(_AROUND[1] - _AROUND[0])),
    }
    root = {name: np.sqrt(np.mean(path**2, axis=0)) for name, path in away.items()}
    marks = {"runs": list(borders.values()), "closed form": list(exact.values())}
    drawn = lay_out({name: (np.asarray(stale, float), values) for name, values in marks.items()})
    return Outcome(numbers, {"way": over(grid, root), "borders": drawn})


def _stable(level: np.ndarray, eps: np.ndarray) -> float:
    return float(level.mean() / (1 - eps.mean()))


def _since(grid: np.ndarray, away: np.ndarray, below: float) -> np.ndarray:
    """The last time each repeat was outside."""
    outside = away > below
    last = outside.shape[1] - 1 - np.argmax(outside[:, ::-1], axis=1)
    return grid[np.where(outside.any(axis=1), last, 0)]


def _border(tau: int, eps: float, moves: int) -> float:
    """The largest eta (1 - eps) that converges, from runs with steps around the theoretical limit."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(tau + 1), eps, 0.0))
    border = pf.theory.largest_stale_step(eps, tau)
    settings = [{"rate": float(share * border)} for share in _AROUND]
    algorithm = pf.p_fedavg(border, participation=pf.Asynchronous(1), deploy="round")
    swept = pf.sweep(problem, algorithm, settings, moves, 1.0, **quiet(theta="all", limit=1e100))
    paths, part = [np.abs(models(run)[0]) for run in swept.histories], moves // 10
    grows = np.asarray([len(path) <= moves or path[-part:].max() > path[part : 2 * part].max() for path in paths])
    first = int(np.argmax(grows)) if grows.any() else len(_AROUND) - 1
    return float(_AROUND[max(first, 1) - 1 : first + 1].mean() * border * (1 - eps))
