"""Pricing with dynamic demands: Figure 1a, and what a window of H models must hold."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.profl.runs import Runs, away, settled
from performative.papers.runs import given, label, late, traces, word


@given(Runs)
def robust(s: Runs, goods: int, shares: list[float], outlier: float, elsewhere: list[float], wide: float) -> Outcome:
    """The performative gradient on contaminated data: plain, with the filter, and with the filter as printed."""
    clean = pf.cases.pricing_demands(s.clients, goods, seed=s.seed)
    optimal = np.asarray(pf.optimal_point(clean))

    def contaminated(share: float, location: Any, scale: float = 1.0) -> pf.Problem:
        place = np.broadcast_to(np.asarray(location, float).reshape(-1, 1), (s.clients, goods))
        odd = pf.populations.Outliers(np.array(place), np.full((s.clients, goods), scale))
        return pf.Problem(clean.loss, pf.populations.Contaminated(clean.population, np.full(s.clients, share), odd))

    # Eq. 5 as printed: the spread of clean data is known, and there is no baseline.
    plain = pf.estimators.Performative(s.window, family=pf.families.Location(1.0), baseline=False)
    printed = pf.estimators.Filtered(pf.estimators.Performative(s.window), rule="printed")
    algorithms = {
        "no filter": pf.p_fedavg(s.rate, estimator=plain, **s.common),
        "filter": s.both["PROFL"],
        "printed filter": pf.p_fedavg(s.rate, estimator=printed, **s.common),
    }
    settings = {
        f"{name} {share:g}": {"algorithm": algorithm, "problem": contaminated(share, outlier)}
        for name, algorithm in algorithms.items()
        for share in (shares if name != "printed filter" else (shares[1], shares[-1]))
    }
    others = {
        **{f"at {place:g}": contaminated(shares[-2], place) for place in elsewhere},
        "wide": contaminated(shares[-2], outlier, wide),
        "by client": contaminated(shares[-2], outlier * np.where(np.arange(s.clients) % 2, -1.0, 1.0)),
    }
    for name, problem in others.items():
        settings[f"other {name}"] = {"algorithm": algorithms["filter"], "problem": problem}
    runs = s.sweep(clean, settings, np.full(goods, s.start), optimal=optimal)
    ends = {name: settled(history, optimal) for name, history in runs.items()}
    numbers: dict[str, Any] = {
        f"{word(name)}_{label(share)}": mean(ends[f"{name} {share:g}"])
        for name in algorithms
        for share in shares
        if f"{name} {share:g}" in ends
    }
    worst = max(float(ends[f"other {name}"].mean()) for name in others)
    numbers["other_contaminations_worst"] = worst
    first = float(np.linalg.norm(s.start - optimal))
    numbers["start_distance"], numbers["half_of_start_distance"] = first, first / 2.0
    numbers["optimal_norm"] = float(np.linalg.norm(optimal))
    # How much further than on clean data: "almost the same" is a fiftieth of |theta_PO|.
    for share in shares[1:]:
        for name in ("filter", "no filter"):
            further = ends[f"{name} {share:g}"] - ends[f"{name} {shares[0]:g}"]
            numbers[f"{word(name)}_excess_{label(share)}"] = mean(further / np.linalg.norm(optimal))
    more = worst - float(ends[f"filter {shares[0]:g}"].mean())
    numbers["other_contaminations_excess"] = more / float(np.linalg.norm(optimal))
    data = {}
    for name in algorithms:
        shown = {key.removeprefix(f"{name} "): run for key, run in runs.items() if key.startswith(f"{name} ")}
        data[word(name)] = traces(shown, lambda history: np.minimum(away(history, optimal), 100.0))
    return Outcome(numbers, data)


@given(Runs)
def windows(s: Runs, goods: int, lengths: list[int]) -> Outcome:
    """Algorithm 2 with any H, also H <= d, which our own estimator refuses. Plain NumPy; f-hat is a mean of n.

    What a client needs of its data is their mean and the mean of l times the score, s = mean (z - f-hat) l.
    """
    rng = np.random.default_rng(s.seed)
    demand = np.random.default_rng(0).uniform(6.0, 7.0, (s.clients, goods))
    gamma = 1.0 + 2.0 * (np.arange(s.clients) + 0.5) / s.clients
    optimal = demand.mean(axis=0) / (2.0 * gamma.mean())
    lines, ends = {}, {}
    for window in lengths:
        past: list[tuple[np.ndarray, np.ndarray]] = []
        theta, path = np.full((s.repeats, goods), s.start), []
        for _ in range(s.rounds):
            local = np.repeat(theta[:, None], s.clients, axis=1)
            for _ in range(s.local_steps):
                level = demand - gamma[:, None] * local
                fitted = level + rng.standard_normal(level.shape) / np.sqrt(s.samples)
                # l = -theta.z: mean l s is -theta, its error normal, with the variance of (z - f)(z - f)^T theta.
                size = np.linalg.norm(local, axis=-1, keepdims=True)
                error = size * rng.standard_normal(level.shape) / np.sqrt(s.samples)
                answer = -local + error
                g = -fitted
                if len(past) > window:
                    differences = np.stack([old - local for old, _ in past[-window:]], axis=-1)
                    changes = np.stack([old - fitted for _, old in past[-window:]], axis=-1)
                    slope = changes @ np.linalg.pinv(differences)
                    g = g + np.einsum("rcij,rci->rcj", slope, answer)
                past.append((local, fitted))
                local = local - s.rate * np.nan_to_num(g, nan=0.0, posinf=0.0, neginf=0.0)
                local = np.clip(local, -1e6, 1e6)
            past = past[-(max(lengths) + 2) :]
            theta = local.mean(axis=1)
            path.append(np.linalg.norm(theta - optimal, axis=-1))
        away_from = np.stack(path, axis=1)
        lines[f"H = {window}"] = (np.arange(1, s.rounds + 1), away_from)
        ends[window] = late(away_from).mean(axis=1)
    numbers: dict[str, Any] = {f"distance_{h}": mean(found) for h, found in ends.items()}
    numbers["stable_to_optimal"] = float(np.linalg.norm(optimal))  # theta_PS = 2 theta_PO
    first = float(np.linalg.norm(s.start - optimal))
    numbers["start_distance"], numbers["half_of_start_distance"] = first, first / 2.0
    return Outcome(numbers, {"distance": lay_out(lines)})
