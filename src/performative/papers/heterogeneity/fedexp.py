"""FedExP: a server step size that grows when clients pull in different directions."""

from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import Extrapolate, Mean, ServerOpt
from performative.papers.heterogeneity.quadratic import Parabolas, rounds_to
from performative.papers.outcome import Outcome, lay_out, mean, over
from performative.papers.runs import models, sweep

FREE = 1e12  # a cap that is never reached
EPS = 1e-9  # when one model fits all, updates vanish, so what is added to their squares must vanish too


def interpolating(
    clients: int, samples: int, parameters: int, tau: int, rates: list[float], server_rates: list[float], rounds: int,
    goal: float, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Linear regression with more parameters than samples: one model fits all clients. Each repeat draws its own data.

    Every method is evaluated at the mean of its last two models, as FedExP's authors do: rounds until F of that mean
    stays below `goal` times its initial value (all rounds if never), each at its best rate.
    """
    # The largest eigenvalue of a client's Gram matrix is close to 1 with this scale.
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(parameters)
    scale = np.sqrt(samples) / (np.sqrt(samples) + np.sqrt(parameters))
    common: dict[str, Any] = {"local_steps": tau, "batch": pf.Whole()}
    stretched = pf.fedavg(rates[0], aggregator=Extrapolate(cap=1.0, eps=EPS), **common)
    adagrad = pf.fedavg(rates[0], aggregator=ServerOpt(Mean(), pf.optimizers.Adagrad(1e-6), server_rates[0]), **common)
    names: dict[Any, dict[str, Any]] = {}
    tables = {}
    for r in range(repeats):
        x = (scale * rng.standard_normal((clients, samples, parameters))).astype(np.float32)
        tables[r] = x.reshape(-1, parameters).astype(np.float64)
        own = {"problem": pf.Problem(pf.losses.ridge(0.0), pf.populations.Static(x, x.astype(np.float64) @ truth))}
        for rate in rates:
            names["FedAvg", rate, r] = {"aggregator.cap": 1.0, "rate": rate, **own}
            names["FedExP", rate, r] = {"aggregator.cap": FREE, "rate": rate, **own}
            names["SCAFFOLD", rate, r] = {"algorithm": pf.scaffold(rate, deploy="never", **common), **own}
            for step in server_rates:
                of = {"algorithm": adagrad, "rate": rate, "aggregator.rate": step, **own}
                names["FedAdagrad", (rate, step), r] = of
    how: Any = {"dtype": "float32", "theta": "all", "stable": truth}
    runs = sweep(names["FedAvg", rates[0], 0]["problem"], stretched, names, rounds, np.zeros(parameters), **how)
    risk, takes = {}, {}
    for (name, rate, r), run in runs.items():
        path = np.asarray(run.theta, np.float64)[0] - truth
        handed = np.concatenate([path[:1], (path[1:] + path[:-1]) / 2])
        risk[name, rate, r] = np.mean((tables[r] @ handed.T) ** 2, axis=0) / 2
        takes[name, rate, r] = min(rounds_to(risk[name, rate, r], goal * risk[name, rate, r][0]), float(rounds))

    def taken(name: str, rate: Any) -> np.ndarray:
        return np.asarray([takes[name, rate, r] for r in range(repeats)])

    tried = {name: [rate for other, rate, r in names if other == name and r == 0] for name, _, _ in names}
    best = {name: min(of, key=lambda rate: taken(name, rate).mean()) for name, of in tried.items()}
    ours = taken("FedExP", best["FedExP"])
    steps, growth = [], []
    for r in range(repeats):
        run, until = runs["FedExP", best["FedExP"], r], int(ours[r])
        steps.append(np.asarray(run["server_step"], np.float64)[0, 1 : until + 1])
        # Until the goal: after that only the component that no client sees remains, and it stays.
        away = np.linalg.norm(np.asarray(run.theta, np.float64)[0, : until + 1] - truth, axis=1)
        growth.append(np.max(away[1:] / away[:-1]))
    numbers: dict[str, Any] = {
        f"saved_over_{name.lower()}": mean(taken(name, best[name]) - ours) for name in tried if name != "FedExP"
    }
    numbers |= {
        "saved_at_small_rate": mean(taken("FedAvg", rates[1]) - taken("FedExP", rates[0])),
        "least_server_step": min(float(one.min()) for one in steps),
        "largest_growth_of_distance": float(max(growth)),
    }
    at = np.arange(rounds + 1)
    shown = {name: np.stack([risk[name, rate, r] for r in range(repeats)]) for name, rate in best.items()}
    by_rate = {
        name: np.stack([taken(name, rate) for rate in rates], axis=1) for name in ("FedExP", "FedAvg", "SCAFFOLD")
    }
    stretch = np.asarray(runs["FedExP", best["FedExP"], 0]["server_step"], np.float64)[0, 1:]
    data = {"loss": over(at, shown), "by_rate": over(rates, by_rate)}
    return Outcome(numbers, data | {"step": lay_out({"FedExP": (at[1:], stretch)})})


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
    # Far out the updates are -R_i slope_i theta: the server step multiplies theta by this factor per round.
    work = pf.theory.joshi2023.points.client_work(ours.slope, rate, tau) * ours.slope
    growth = abs(1.0 - np.mean(work**2) / (2.0 * np.mean(work))) if np.mean(work) > 0 else float("inf")
    finite = np.abs(free[np.isfinite(free)])
    numbers = {
        "fedavg_away": float(away["FedAvg"][-1]),
        "capped_away": float(away["FedExP, capped"][-1]),
        "fedexp_typical_distance": float(np.median(away["FedExP"][late])),
        "fedexp_largest_distance": float(np.max(finite)),
        "fedexp_mean_of_two": float(np.median(handed[late])),
        "fedexp_growth": float(finite[-1] / finite[-2]),
        "growth_far_out": float(growth),
        "capped_rounds": rounds_to(away["FedExP, capped"], 1e-2 * abs(start - floor)),
        "fedavg_rounds": rounds_to(away["FedAvg"], 1e-2 * abs(start - floor)),
    }
    shown = {name: np.minimum(d, 1e30) for name, d in away.items()}
    return Outcome(numbers, {"distance": over(np.arange(rounds + 1), shown)})
