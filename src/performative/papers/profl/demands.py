"""Pricing with dynamic demands: Figure 1a, and what a window of H models must hold."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.profl.runs import away, label, late, settled, sweep, traces


def robust(
    clients: int, goods: int, shares: list[float], outlier: float, elsewhere: list[float], wide: float, rate: float,
    local_steps: int, window: int, samples: int, start: float, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """The performative gradient on contaminated data: plain, with the filter, and with the filter as printed."""
    clean = pf.cases.pricing_demands(clients, goods, seed=seed)
    optimal = np.asarray(pf.optimal_point(clean))

    def contaminated(share: float, location: Any, scale: float = 1.0) -> pf.Problem:
        place = np.broadcast_to(np.asarray(location, float).reshape(-1, 1), (clients, goods))
        odd = pf.populations.Outliers(np.array(place), np.full((clients, goods), scale))
        mixed = pf.populations.Contaminated(clean.population, np.full(clients, share), odd)
        return pf.Problem(clean.loss, mixed)

    common: dict[str, Any] = {"local_steps": local_steps, "batch": pf.Fixed(samples)}
    # Eq. 5 as printed: the spread of clean data is known, and there is no baseline.
    plain = pf.estimators.Performative(window, family=pf.families.Location(1.0), baseline=False)
    printed = pf.estimators.Filtered(pf.estimators.Performative(window), rule="printed")
    algorithms = {
        "no filter": pf.p_fedavg(rate, estimator=plain, **common),
        "filter": pf.profl(rate, window, **common),
        "printed filter": pf.p_fedavg(rate, estimator=printed, **common),
    }
    settings = {
        f"{name} {share:g}": {"algorithm": algorithm, "problem": contaminated(share, outlier)}
        for name, algorithm in algorithms.items()
        for share in (shares if name != "printed filter" else (shares[1], shares[-1]))
    }
    others = {
        **{f"at {place:g}": contaminated(shares[-2], place) for place in elsewhere},
        "wide": contaminated(shares[-2], outlier, wide),
        "by client": contaminated(shares[-2], outlier * np.where(np.arange(clients) % 2, -1.0, 1.0)),
    }
    for name, problem in others.items():
        settings[f"other {name}"] = {"algorithm": algorithms["filter"], "problem": problem}
    runs = sweep(
        clean, settings, rounds, np.full(goods, start), seed, repeats, record=pf.Record(optimal=optimal, risks=False)
    )
    ends = {name: settled(history, optimal) for name, history in runs.items()}
    numbers: dict[str, float | tuple[float, float]] = {
        f"{name.replace(' ', '_')}_{label(share)}": mean(ends[f"{name} {share:g}"])
        for name in algorithms
        for share in shares
        if f"{name} {share:g}" in ends
    }
    worst = max(float(ends[f"other {name}"].mean()) for name in others)
    numbers["other_contaminations_worst"] = worst
    first = float(np.linalg.norm(start - optimal))
    numbers["start_distance"], numbers["half_of_start_distance"] = first, first / 2.0
    numbers["optimal_norm"] = float(np.linalg.norm(optimal))
    # How much further than on clean data: "almost the same" is a fiftieth of |theta_PO|.
    for share in shares[1:]:
        for name in ("filter", "no filter"):
            further = ends[f"{name} {share:g}"] - ends[f"{name} {shares[0]:g}"]
            numbers[f"{name.replace(' ', '_')}_excess_{label(share)}"] = mean(further / np.linalg.norm(optimal))
    more = worst - float(ends[f"filter {shares[0]:g}"].mean())
    numbers["other_contaminations_excess"] = more / float(np.linalg.norm(optimal))
    data = {}
    for name in algorithms:
        shown = {key.removeprefix(f"{name} "): run for key, run in runs.items() if key.startswith(f"{name} ")}
        data[name.replace(" ", "_")] = traces(shown, lambda history: np.minimum(away(history, optimal), 100.0))
    return Outcome(numbers, data)


def windows(
    clients: int, goods: int, lengths: list[int], rate: float, local_steps: int, samples: int, start: float,
    rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Algorithm 2 with any H, also H <= d, which our own estimator refuses. Plain NumPy; f-hat is a mean of n.

    What a client needs of its data is their mean and the mean of l times the score, s = mean (z - f-hat) l.
    """
    rng = np.random.default_rng(seed)
    demand = np.random.default_rng(0).uniform(6.0, 7.0, (clients, goods))
    gamma = 1.0 + 2.0 * (np.arange(clients) + 0.5) / clients
    optimal = demand.mean(axis=0) / (2.0 * gamma.mean())
    lines, ends = {}, {}
    for window in lengths:
        past: list[tuple[np.ndarray, np.ndarray]] = []
        theta, path = np.full((repeats, goods), start), []
        for _ in range(rounds):
            local = np.repeat(theta[:, None], clients, axis=1)
            for _ in range(local_steps):
                level = demand - gamma[:, None] * local
                fitted = level + rng.standard_normal(level.shape) / np.sqrt(samples)
                # l = -theta.z: mean l s is -theta, its error normal, with the variance of (z - f)(z - f)^T theta.
                size = np.linalg.norm(local, axis=-1, keepdims=True)
                error = size * rng.standard_normal(level.shape) / np.sqrt(samples)
                answer = -local + error
                g = -fitted
                if len(past) > window:
                    differences = np.stack([old - local for old, _ in past[-window:]], axis=-1)
                    changes = np.stack([old - fitted for _, old in past[-window:]], axis=-1)
                    slope = changes @ np.linalg.pinv(differences)
                    g = g + np.einsum("rcij,rci->rcj", slope, answer)
                past.append((local, fitted))
                local = local - rate * np.nan_to_num(g, nan=0.0, posinf=0.0, neginf=0.0)
                local = np.clip(local, -1e6, 1e6)
            past = past[-(max(lengths) + 2) :]
            theta = local.mean(axis=1)
            path.append(np.linalg.norm(theta - optimal, axis=-1))
        away_from = np.stack(path, axis=1)
        lines[f"H = {window}"] = (np.arange(1, rounds + 1), away_from)
        ends[window] = late(away_from).mean(axis=1)
    numbers: dict[str, float | tuple[float, float]] = {f"distance_{h}": mean(found) for h, found in ends.items()}
    numbers["stable_to_optimal"] = float(np.linalg.norm(optimal))  # theta_PS = 2 theta_PO
    first = float(np.linalg.norm(start - optimal))
    numbers["start_distance"], numbers["half_of_start_distance"] = first, first / 2.0
    return Outcome(numbers, {"distance": lay_out(lines)})
