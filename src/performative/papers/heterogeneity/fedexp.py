"""FedExP: a server step that grows where clients pull in different directions."""

from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import Extrapolate, Mean, ServerOpt
from performative.papers.heterogeneity.quadratic import Parabolas, rounds_to
from performative.papers.outcome import Outcome, lay_out, over
from performative.papers.runs import models, sweep

FREE = 1e12  # a cap that is never reached
EPS = 1e-9  # where one model fits all, updates vanish and so must what is added to their squares


def interpolating(
    clients: int, samples: int, parameters: int, tau: int, rate: float, small: float, server_rates: list[float],
    rounds: int, goal: float, seed: int,
) -> Outcome:  # fmt: skip
    """Linear regression with more parameters than samples: one model fits all clients."""
    rng = np.random.default_rng(seed)
    # The largest eigenvalue of a client's Gram matrix is close to 1 with this scale.
    scale = np.sqrt(samples) / (np.sqrt(samples) + np.sqrt(parameters))
    x = (scale * rng.standard_normal((clients, samples, parameters))).astype(np.float32)
    truth = rng.standard_normal(parameters)
    problem = pf.Problem(pf.losses.ridge(0.0), pf.populations.Static(x, x.astype(np.float64) @ truth))
    common: dict[str, Any] = {"local_steps": tau, "batch": pf.Whole()}
    stretched = pf.fedavg(rate, aggregator=Extrapolate(cap=1.0, eps=EPS), **common)
    names: dict[str, dict[str, Any]] = {
        "FedAvg": {"aggregator.cap": 1.0},
        "FedExP": {"aggregator.cap": FREE},
        "FedExP, small rate": {"aggregator.cap": FREE, "rate": small},
        "SCAFFOLD": {"algorithm": pf.scaffold(rate, deploy="never", **common)},
    }
    for step in server_rates:
        adagrad = ServerOpt(Mean(), pf.optimizers.Adagrad(1e-6), step)
        names[f"FedAdagrad {step:g}"] = {"algorithm": pf.fedavg(rate, aggregator=adagrad, **common)}
    how: Any = {"dtype": "float32", "stable": truth, "risks": min(rounds, 50)}
    runs = sweep(problem, stretched, names, rounds, np.zeros(parameters), seed, **how)
    at = np.append(0, runs["FedAvg"].risk_rounds)
    first = float(np.mean((x.astype(np.float64) @ truth) ** 2) / 2)
    risk = {name: np.append(first, np.asarray(h["decoupled_risk"], np.float64)[0]) for name, h in runs.items()}
    ada = min((name for name in runs if name.startswith("FedAdagrad")), key=lambda name: risk[name][-1])
    takes = {name: at[int(n)] if (n := rounds_to(values, goal * first)) < len(at) else float("inf")
             for name, values in risk.items()}  # fmt: skip
    stretch = np.asarray(runs["FedExP"]["server_step"], np.float64)[0, 1:]
    # Until the goal: later only the part that no client sees is left, which stays.
    away = np.asarray(runs["FedExP"]["distance_to_stable"], np.float64)[0][: int(min(takes["FedExP"], rounds)) + 1]
    shown = {name: risk[name] for name in ("FedExP", "FedAvg", "SCAFFOLD", "FedExP, small rate")}
    shown["FedAdagrad, best rate"] = risk[ada]
    # The printed denominator has one client's update: with any client's in turn, or their mean, the step is at most 1.
    deltas = rng.standard_normal((200, clients, 5))
    squares = np.sum(deltas**2, axis=2)
    together = np.sum(deltas.mean(axis=1) ** 2, axis=1)
    numbers = {
        "fedexp_loss": risk["FedExP"][-1],
        "fedavg_loss": risk["FedAvg"][-1],
        "scaffold_loss": risk["SCAFFOLD"][-1],
        "fedadagrad_loss": risk[ada][-1],
        "fedexp_rounds": float(takes["FedExP"]),
        "fedavg_rounds": float(takes["FedAvg"]),
        "scaffold_rounds": float(takes["SCAFFOLD"]),
        "fedadagrad_rounds": float(takes[ada]),
        "small_rate_fedexp_rounds": float(takes["FedExP, small rate"]),
        "least_server_step": float(stretch.min()),
        "mean_server_step": float(stretch.mean()),
        "largest_growth_of_distance": float(np.max(away[1:] / away[:-1])),
        "largest_step_printed": float(np.max(pf.theory.extrapolation(squares, together, printed=True))),
        "largest_step_corrected": float(np.max(pf.theory.extrapolation(squares, together))),
    }
    return Outcome(numbers, {"loss": over(at, shown), "step": lay_out({"FedExP": (np.arange(1, rounds + 1), stretch)})})


def balanced(
    curvature: list[float], level: list[float], reaction: list[float], rate: float, tau: int, cap: float,
    start: float, rounds: int,
) -> Outcome:  # fmt: skip
    """Clients without a common optimum: FedAvg, FedExP, and FedExP with a cap on its server step."""
    ours = Parabolas.of(curvature, level, reaction)
    caps = {"FedAvg": 1.0, "FedExP": FREE, "FedExP, capped": cap}
    settings = {name: {"aggregator.cap": value} for name, value in caps.items()}
    algorithm = pf.p_fedavg(rate, local_steps=tau, aggregator=Extrapolate(cap=1.0))
    runs = sweep(ours.problem(), algorithm, settings, rounds, start, theta="all", limit=1e60)
    paths = {name: models(run)[0] for name, run in runs.items()}
    floor = pf.theory.quadratic_floor(ours.mean, ours.slope, rate, tau).point
    away = {name: np.abs(path - floor) for name, path in paths.items()}
    late = slice(rounds // 2, None)
    free = paths["FedExP"]
    handed = np.abs((free[1:] + free[:-1]) / 2 - floor)
    # Far out the updates are -R_i slope_i theta: the server's step makes theta grow by this factor a round.
    work = pf.theory.joshi2023.points.client_work(ours.slope, rate, tau) * ours.slope
    growth = abs(1.0 - np.mean(work**2) / (2.0 * np.mean(work))) if np.mean(work) > 0 else float("inf")
    finite = np.abs(free[np.isfinite(free)])
    steps = np.asarray(runs["FedExP"]["server_step"], np.float64)[0, 1:]
    numbers = {
        "settles_at": floor,
        "stable_point": ours.stable,
        "fedavg_away": float(away["FedAvg"][-1]),
        "capped_away": float(away["FedExP, capped"][-1]),
        "fedexp_typical_distance": float(np.median(away["FedExP"][late])),
        "fedexp_largest_distance": float(np.max(finite)),
        "fedexp_mean_of_two": float(np.median(handed[late])),
        "fedexp_largest_step": float(np.nanmax(steps)),
        "fedexp_growth": float(finite[-1] / finite[-2]),
        "growth_far_out": float(growth),
        "capped_rounds": rounds_to(away["FedExP, capped"], 1e-2 * abs(start - floor)),
        "fedavg_rounds": rounds_to(away["FedAvg"], 1e-2 * abs(start - floor)),
    }
    shown = {name: np.minimum(d, 1e30) for name, d in away.items()}
    return Outcome(numbers, {"distance": over(np.arange(rounds + 1), shown)})
