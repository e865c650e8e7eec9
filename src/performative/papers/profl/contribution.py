"""Pricing with dynamic contribution: Figures 1b, 1c and 2."""

import dataclasses
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, thinned
from performative.papers.profl.runs import Past, Runs, ratio, slope_of, stays_below
from performative.papers.runs import given, label, late, models, traces

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


@given(Runs)
def server_side(s: Runs, memory: int) -> Outcome:
    """df/dtheta learned by each client on its own, or by the server from all of them."""
    problem, optimal = pf.cases.pricing_contribution(s.clients), best_price(s.clients)
    pooled = pf.aggregators.PooledJacobian(memory=memory, alike=True)
    settings = {
        "local": pf.pofl(s.rate, s.window, **s.common),
        "server": pf.pofl(s.rate, s.window, aggregator=pooled, **s.common),
    }
    runs = s.sweep(problem, settings, optimal=optimal)
    paths = {name: revenue_loss(models(history), s.clients) for name, history in runs.items()}
    losses = {name: late(values).mean(axis=1) for name, values in paths.items()}
    floor = float(revenue_loss(optimal, s.clients))
    numbers: dict[str, Any] = {
        "optimal_loss": floor,
        "saved_over_the_run": mean((paths["local"] - paths["server"]).mean(axis=1)),
        "saved_at_the_end": mean(losses["local"] - losses["server"]),
        "server_excess_over_first": ratio(losses["server"] - floor, paths["server"][:, 0] - floor),
    }
    return Outcome(numbers, {"loss": traces(runs, lambda history: revenue_loss(models(history), s.clients))})


@given(Runs)
def adaptive(s: Runs, tolerances: list[float], loose: float) -> Outcome:
    """Adaptive sample sizes at the tolerances of the text and at one that binds."""
    inner = pf.estimators.Performative(s.window)
    # A tolerance that is never met draws all samples at every step: no adaptation.
    named = {"all samples": 1e-12, **{f"tolerance {t:g}": t for t in (*tolerances, loose)}}
    sized = {name: pf.estimators.AdaptiveSize(inner, tolerance=t) for name, t in named.items()}
    settings = {name: pf.p_fedavg(s.rate, estimator=one, **s.common) for name, one in sized.items()}
    runs = s.sweep(pf.cases.pricing_contribution(s.clients), settings, optimal=best_price(s.clients))
    losses = {name: late(revenue_loss(models(history), s.clients)).mean(axis=1) for name, history in runs.items()}
    most = s.rounds * s.local_steps * s.clients * s.samples
    drawn = {name: np.asarray(history["samples"], np.float64)[:, -1] / most for name, history in runs.items()}
    numbers: dict[str, Any] = {"optimal_loss": float(revenue_loss(best_price(s.clients), s.clients))}
    for name, tolerance in list(named.items())[1:]:
        numbers[f"share_drawn_{label(tolerance)}"] = mean(drawn[name])
        numbers[f"loss_difference_{label(tolerance)}"] = mean(losses[name] - losses["all samples"])
    return Outcome(numbers, {
        "loss": traces(runs, lambda history: revenue_loss(models(history), s.clients)),
        "samples": traces(runs, lambda history: np.asarray(history["samples"], np.float64) / (s.clients * s.samples)),
    })  # fmt: skip


@given(Runs)
def vary(s: Runs, what: str, values: list[float]) -> Outcome:
    """The performative gradient in contribution pricing as n, eta or H varies; first value against last.

    Plain NumPy: of its n samples a client only needs the group counts and the two group means, which are drawn directly
    (binomial, normal), so n costs nothing.
    """
    optimal, whole = best_price(s.clients), ("samples", "window")
    changes: dict[str, Any] = {f"{what} {v:g}": {what: int(v) if what in whole else v} for v in values}
    paths = {name: _walk(dataclasses.replace(s, **change)) for name, change in changes.items()}
    gaps = [np.abs(path - optimal) for path in paths.values()]
    ends = [late(gap).mean(axis=1) for gap in gaps]
    calm = [np.diff(late(path), axis=1).std(axis=1) for path in paths.values()]
    speed = [stays_below(np.arange(s.rounds + 1), gap, abs(s.start - optimal) / np.e) for gap in gaps]
    numbers: dict[str, Any] = {
        "theta_PO": optimal,
        "distance_last_over_first": ratio(ends[-1], ends[0]),
        "wobble_last_over_first": ratio(calm[-1], calm[0]),
        "rounds_last_over_first": ratio(speed[-1], speed[0]),
    }
    lines = {name: thinned(np.arange(s.rounds + 1), path) for name, path in paths.items()}
    return Outcome(numbers, {"model": lay_out(lines)})


def _walk(s: Runs) -> np.ndarray:
    """Algorithm 2 with full participation, [repeats, rounds + 1]."""
    rng, budget, theta = np.random.default_rng(s.seed), budgets(s.clients), np.full(s.repeats, s.start)
    local, path = np.repeat(theta[:, None], s.clients, axis=1), [theta]
    past: Past = []
    for step in range(s.rounds * s.local_steps):
        left = [np.maximum(budget - local * mu, 0.0) for mu in DEMAND]
        count = rng.binomial(s.samples, left[0] / (left[0] + left[1]))
        share = count / s.samples
        means = [
            mu + 0.5 * rng.standard_normal(local.shape) / np.sqrt(np.maximum(of, 1))
            for mu, of in zip(DEMAND, (count, s.samples - count), strict=True)
        ]
        past = [*past[-s.window - 1 :], (local, share)]
        g = -(share * means[0] + (1.0 - share) * means[1]) - slope_of(past, s.window) * local * (means[0] - means[1])
        local = np.clip(local - s.rate * g, 0.0, 3.0)
        if step % s.local_steps == s.local_steps - 1:
            theta = local.mean(axis=1)
            local = np.repeat(theta[:, None], s.clients, axis=1)
            path.append(theta)
    return np.stack(path, axis=1)


def no_interior_point(clients: int, rate: float, start: float, steps: int) -> Outcome:
    """Retraining with positive demands, without noise: theta <- theta + eta times the mean demand."""
    prices, path = np.linspace(0.0, 3.0, 301), [start]
    for _ in range(steps):
        path.append(min(3.0, path[-1] + rate * float(mean_demand(path[-1], clients))))
    numbers: dict[str, Any] = {"final_price": path[-1], "highest_price": 3.0, "theta_PO": best_price(clients)}
    lines = lay_out({"retraining": thinned(np.arange(steps + 1), path)})
    demand = lay_out({"mean demand": (prices, mean_demand(prices, clients))})
    return Outcome(numbers, {"price": lines, "demand": demand})
