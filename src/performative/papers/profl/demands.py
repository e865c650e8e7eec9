"""Pricing with dynamic demands: Figure 1a, and what a window of H models must contain."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.profl.runs import Past, Runs, away, ratio, settled
from performative.papers.runs import given, label, late, traces, word


@given(Runs)
def robust(
    s: Runs, goods: int, shares: list[float], outlier: float, farther: list[float], elsewhere: float, wide: float
) -> Outcome:
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
        for share in shares
    }
    # A tenth of the samples farther away, and a fifth in another place.
    settings |= {
        f"far {place:g}": {"algorithm": algorithms["no filter"], "problem": contaminated(shares[1], place)}
        for place in farther
    }
    others = {
        "elsewhere": contaminated(shares[-2], elsewhere),
        "wide": contaminated(shares[-2], outlier, wide),
        "by_client": contaminated(shares[-2], outlier * np.where(np.arange(s.clients) % 2, -1.0, 1.0)),
    }
    settings |= {
        f"other {name}": {"algorithm": algorithms["filter"], "problem": problem} for name, problem in others.items()
    }
    runs = s.sweep(clean, settings, np.full(goods, s.start), optimal=optimal)
    ends = {name: settled(history, optimal) / np.linalg.norm(optimal) for name, history in runs.items()}
    # How much farther from theta_PO than the same algorithm on clean data, in units of |theta_PO|.
    numbers: dict[str, Any] = {
        f"{word(name)}_excess_{label(share)}": mean(ends[f"{name} {share:g}"] - ends[f"{name} {shares[0]:g}"])
        for name in algorithms
        for share in shares[1:]
    }
    for name in others:
        numbers[f"other_{name}_excess"] = mean(ends[f"other {name}"] - ends[f"filter {shares[0]:g}"])
    few, many = (ends[f"no filter {share:g}"] for share in (shares[1], shares[-1]))
    numbers["many_over_few"] = ratio(many, few)
    numbers["far_over_near"] = ratio(ends[f"far {farther[-1]:g}"], ends[f"far {farther[0]:g}"])
    data = {}
    for name in algorithms:
        shown = {key.removeprefix(f"{name} "): run for key, run in runs.items() if key.startswith(f"{name} ")}
        data[word(name)] = traces(shown, lambda history: away(history, optimal) / np.linalg.norm(optimal))
    return Outcome(numbers, data)


@given(Runs)
def windows(s: Runs, goods: int, lengths: list[int], compared: list[int]) -> Outcome:
    """Algorithm 2 with any H, including H <= d, which our estimator rejects. Plain NumPy; f-hat is a mean of n.

    A client only needs the mean of its data and the mean of l times the score, s = mean (z - f-hat) l.
    """
    rng = np.random.default_rng(s.seed)
    demand = np.random.default_rng(0).uniform(6.0, 7.0, (s.clients, goods))
    gamma = 1.0 + 2.0 * (np.arange(s.clients) + 0.5) / s.clients
    optimal = demand.mean(axis=0) / (2.0 * gamma.mean())
    lines, ends = {}, {}
    for window in lengths:
        past: Past = []
        theta, path = np.full((s.repeats, goods), s.start), []
        for _ in range(s.rounds):
            local = np.repeat(theta[:, None], s.clients, axis=1)
            for _ in range(s.local_steps):
                level = demand - gamma[:, None] * local
                fitted = level + rng.standard_normal(level.shape) / np.sqrt(s.samples)
                # l = -theta.z: mean l s is -theta, its error normal, with the variance of (z - f)(z - f)^T theta.
                size = np.linalg.norm(local, axis=-1, keepdims=True)
                answer = -local + size * rng.standard_normal(level.shape) / np.sqrt(s.samples)
                g, past = -fitted, [*past[-window - 1 :], (local, fitted)]
                if len(past) > window + 1:
                    models, seen = (np.stack(each[-window - 1 :], axis=-1) for each in zip(*past, strict=True))
                    slope = (seen[..., :-1] - seen[..., -1:]) @ np.linalg.pinv(models[..., :-1] - models[..., -1:])
                    g = g + np.einsum("rcij,rci->rcj", slope, answer)
                local = np.clip(local - s.rate * g, -s.reach, s.reach)
            theta = local.mean(axis=1)
            path.append(np.linalg.norm(theta - optimal, axis=-1))
        lines[f"H = {window}"] = (np.arange(1, s.rounds + 1), np.stack(path, axis=1))
        ends[window] = late(lines[f"H = {window}"][1]).mean(axis=1)
    first, (one, full, more) = float(np.linalg.norm(s.start - optimal)), (ends[h] for h in compared)
    numbers: dict[str, Any] = {
        "one_over_more": ratio(one, more),
        "as_long_as_d_over_more": ratio(full, more),
        "more_over_start": mean(more / first),
    }
    return Outcome(numbers, {"distance": lay_out(lines)})
