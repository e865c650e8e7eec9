"""Pricing with dynamic contribution: Figures 1b, 1c and 2."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.profl.runs import label, late, models, sweep, traces

DEMAND = (1.0, 3.0)  # of the two groups, as in `pf.cases.pricing_contribution`


def budgets(clients: int) -> np.ndarray:
    """1 / gamma_i, gamma_i on the midpoint grid of [0.09, 0.11]."""
    return 1.0 / (0.09 + 0.02 * (np.arange(clients) + 0.5) / clients)


def mean_demand(theta: Any, clients: int) -> np.ndarray:
    """The mean over clients, exactly."""
    theta = np.asarray(theta, np.float64)[..., None]
    left = [np.maximum(budgets(clients) - theta * mu, 0.0) for mu in DEMAND]
    return np.asarray(np.mean((left[0] * DEMAND[0] + left[1] * DEMAND[1]) / (left[0] + left[1]), axis=-1))


def revenue_loss(theta: Any, clients: int) -> np.ndarray:
    """The performative risk, exactly: minus the price times the mean demand."""
    return np.asarray(-np.asarray(theta, np.float64) * mean_demand(theta, clients))


def best_price(clients: int) -> float:
    """theta_PO."""
    from scipy import optimize

    found = optimize.minimize_scalar(
        lambda t: float(revenue_loss(t, clients)), bounds=(0.0, 3.0), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x)


def server_side(
    clients: int, samples: int, rate: float, window: int, local_steps: int, memory: int, start: float, rounds: int,
    repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """df/dtheta learnt by every client for itself, or by the server from all of them."""
    problem = pf.cases.pricing_contribution(clients)
    optimal = best_price(clients)
    common: dict[str, Any] = {"local_steps": local_steps, "batch": pf.Fixed(samples)}
    settings = {
        "local": {"algorithm": pf.pofl(rate, window, **common)},
        "server": {
            "algorithm": pf.pofl(
                rate, window, aggregator=pf.aggregators.PooledJacobian(memory=memory, alike=True), **common
            )
        },
    }
    runs = sweep(problem, settings, rounds, start, seed, repeats, record=pf.Record(optimal=optimal, risks=False))
    floor = float(revenue_loss(optimal, clients))
    paths = {name: revenue_loss(models(history), clients) for name, history in runs.items()}
    losses = {name: late(values).mean(axis=1) for name, values in paths.items()}
    return Outcome(
        {
            "saved_over_the_run": mean((paths["local"] - paths["server"]).mean(axis=1)),
            "local_loss": mean(losses["local"]),
            "server_loss": mean(losses["server"]),
            "optimal_loss": floor,
            "local_excess": mean(losses["local"] - floor),
            "server_excess": mean(losses["server"] - floor),
            "saved_at_the_end": mean(losses["local"] - losses["server"]),
        },
        {"loss": traces(runs, lambda history: revenue_loss(models(history), clients))},
    )


def adaptive(
    clients: int, samples: int, rate: float, window: int, local_steps: int, tolerances: list[float], loose: float,
    start: float, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """As many samples as a tolerance asks for, at the tolerances of the text and at one that binds."""
    problem = pf.cases.pricing_contribution(clients)
    optimal = best_price(clients)
    inner = pf.estimators.Performative(window)
    common: dict[str, Any] = {"local_steps": local_steps, "batch": pf.Fixed(samples)}

    def sized(tolerance: float) -> Any:
        return pf.p_fedavg(rate, estimator=pf.estimators.AdaptiveSize(inner, tolerance=tolerance), **common)

    # A tolerance that nothing meets draws all samples at every step: the run without adaptation.
    named = {"all samples": 1e-12, **{f"tolerance {t:g}": t for t in (*tolerances, loose)}}
    settings = {name: {"algorithm": sized(tolerance)} for name, tolerance in named.items()}
    runs = sweep(problem, settings, rounds, start, seed, repeats, record=pf.Record(optimal=optimal, risks=False))
    losses = {name: late(revenue_loss(models(history), clients)).mean(axis=1) for name, history in runs.items()}
    most = rounds * local_steps * clients * samples
    drawn = {name: np.asarray(history["samples"], np.float64)[:, -1] / most for name, history in runs.items()}
    numbers: dict[str, float | tuple[float, float]] = {"loss_all": mean(losses["all samples"])}
    for name, tolerance in named.items():
        mark = "all" if name == "all samples" else f"tolerance_{label(tolerance)}"
        numbers[f"share_drawn_{mark}"] = mean(drawn[name])
        numbers[f"loss_difference_{mark}"] = mean(np.abs(losses[name] - losses["all samples"]))
    return Outcome(numbers, {
        "loss": traces(runs, lambda history: revenue_loss(models(history), clients)),
        "samples": traces(runs, lambda history: np.asarray(history["samples"], np.float64) / (clients * samples)),
    })  # fmt: skip


def vary(
    clients: int, samples: int, rate: float, window: int, local_steps: int, what: str, values: list[float],
    start: float, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """The performative gradient in contribution pricing while n, eta or H changes; first value against last.

    Plain NumPy: what a client needs of its n samples is how many come from each group and the two groups' means, which
    are drawn as such (binomial, normal). So n costs nothing.
    """
    optimal = best_price(clients)
    paths = {}
    for value in values:
        given = {"samples": samples, "rate": rate, "window": window} | {what: value}
        paths[f"{what} {value:g}"] = _walk(
            clients, int(given["samples"]), given["rate"], int(given["window"]), local_steps, start, rounds, repeats,
            seed,
        )  # fmt: skip
    numbers: dict[str, float | tuple[float, float]] = {"optimal_point": optimal}
    ends, calm, speed = [], [], []
    for name, path in paths.items():
        gap = np.abs(path - optimal)
        near = gap <= abs(start - optimal) / np.e
        ends.append(late(gap).mean(axis=1))
        calm.append(np.diff(late(path), axis=1).std(axis=1))
        speed.append(np.where(near.any(axis=1), np.argmax(near, axis=1), rounds).astype(float))
        mark = label(float(name.split()[1]))
        numbers[f"distance_{mark}"], numbers[f"wobble_{mark}"] = mean(ends[-1]), mean(calm[-1])
        numbers[f"rounds_{mark}"], numbers[f"offset_{mark}"] = mean(speed[-1]), mean(late(path).mean(axis=1) - optimal)
    numbers["wobble_first_over_last"] = float(calm[0].mean() / calm[-1].mean())
    numbers["rounds_first_over_last"] = float(speed[0].mean() / max(1.0, speed[-1].mean()))
    numbers["distance_last_over_first"] = float(ends[-1].mean() / ends[0].mean())
    kept = np.unique(np.linspace(0, rounds, 250).round().astype(int))
    return Outcome(numbers, {"model": lay_out({name: (kept, path[:, kept]) for name, path in paths.items()})})


def _walk(
    clients: int, samples: int, rate: float, window: int, local_steps: int, start: float, rounds: int, repeats: int,
    seed: int,
) -> np.ndarray:  # fmt: skip
    """Algorithm 2 with everyone present, [repeats, rounds + 1]."""
    rng, budget = np.random.default_rng(seed), budgets(clients)
    theta = np.full(repeats, start)
    local = np.repeat(theta[:, None], clients, axis=1)
    path, past, seen = [theta], np.zeros((window + 1, repeats, clients)), np.zeros((window + 1, repeats, clients))
    for step in range(rounds * local_steps):
        left = [np.maximum(budget - local * mu, 0.0) for mu in DEMAND]
        count = rng.binomial(samples, left[0] / (left[0] + left[1]))
        share = count / samples
        means = [
            mu + 0.5 * rng.standard_normal(local.shape) / np.sqrt(np.maximum(of, 1))
            for mu, of in zip(DEMAND, (count, samples - count), strict=True)
        ]
        g = -(share * means[0] + (1.0 - share) * means[1])
        if step > window:  # H past models, the present one and the one that has left the window
            rows = np.arange(step - window, step) % (window + 1)
            apart, change = past[rows] - local, seen[rows] - share
            slope = np.sum(apart * change, axis=0) / np.sum(apart**2, axis=0)
            g = g - slope * local * (means[0] - means[1])
        past[step % (window + 1)], seen[step % (window + 1)] = local, share
        local = np.clip(local - rate * g, 0.0, 3.0)
        if step % local_steps == local_steps - 1:
            theta = local.mean(axis=1)
            local = np.repeat(theta[:, None], clients, axis=1)
            path.append(theta)
    return np.stack(path, axis=1)


def no_interior_point(clients: int, rate: float, start: float, steps: int) -> Outcome:
    """Retraining where all demands are positive, without noise: theta <- theta + eta times the mean demand."""
    prices, path = np.linspace(0.0, 3.0, 301), [start]
    for _ in range(steps):
        path.append(min(3.0, path[-1] + rate * float(mean_demand(path[-1], clients))))
    kept, demand = np.unique(np.linspace(0, steps, 300).round().astype(int)), mean_demand(prices, clients)
    return Outcome(
        {
            "least_mean_demand": float(demand.min()), "final_price": path[-1], "highest_price": 3.0,
            "optimal_price": best_price(clients),
        },
        {
            "price": lay_out({"retraining": (kept, np.asarray(path)[None, kept])}),
            "demand": lay_out({"mean demand": (prices, demand[None])}),
        },
    )  # fmt: skip
