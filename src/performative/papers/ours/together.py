"""Private, robust and optimal at once, and what each part contributes."""

from typing import Any

import numpy as np
from scipy.optimize import brentq

import performative as pf
from performative.aggregators import Mean, Nova
from performative.channels import ClippedNoise
from performative.estimators import Filtered, Minibatch, Performative
from performative.papers.outcome import Outcome, bars, curves, mean
from performative.papers.runs import sweep, word
from performative.privacy.attack.trials import gaussian_delta

OPEN = 1e6  # a clip that nothing reaches


def private_robust_optimal(
    clients: int, contamination: float, outlier: float, window: int, samples: int, local_steps: int, rate: float,
    clip: float, noise: float, delta: float, steps: list[int], unequal: bool, rounds: int,
    repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """One price for clients whose demand falls with it; a fraction of the samples is contaminated.

    The filter removes outliers, the performative gradient targets the optimal point, and every update is clipped and
    noised. Each is ablated in turn. Then (if `unequal`) with unequal local work, under a plain mean and under FedNova,
    without noise so the limit point itself is visible.
    """
    clean = pf.cases.pricing_demands(clients, 1, 0.0, seed=seed)
    problem = pf.cases.pricing_demands(clients, 1, contamination, outlier, seed)
    stable, optimal = (np.asarray(point, np.float64) for point in (pf.stable_point(clean), pf.optimal_point(clean)))
    private, bare = ClippedNoise(clip, noise), ClippedNoise(OPEN, 0.0)
    whole: Any = {"estimator": Filtered(Performative(window)), "channel": private}
    # Clients that react more do more work: gamma_i rises with i.
    work = pf.LocalWork(pf.Full(), np.sort(np.resize(steps, clients)))
    names: dict[str, dict[str, Any]] = {
        "all three": whole,
        "not private": whole | {"channel": bare},
        "not robust": whole | {"estimator": Performative(window)},
        "not optimal": whole | {"estimator": Filtered(Minibatch())},
    }
    if unequal:
        names["unequal work"] = whole | {"local_steps": 1, "participation": work, "channel": bare}
        names["unequal work, FedNova"] = names["unequal work"] | {"aggregator": Nova()}
    algorithm = pf.p_fedavg(rate, local_steps=local_steps, batch=pf.Fixed(samples), aggregator=Mean())
    how: Any = {"stable": stable, "optimal": optimal, "dtype": "float32"}
    runs = sweep(problem, algorithm, names, rounds, None, seed, repeats, **how)
    # The last quarter of the rounds: a single distance would be a single draw of the noise.
    away = {name: _late(history["distance_to_optimal"]) for name, history in runs.items()}
    full = pf.p_fedavg(rate, local_steps=local_steps, batch=pf.Fixed(samples), **whole)
    mu = 2 / noise * np.sqrt(rounds)  # replacing a client changes the sum by up to two clips, every round
    gamma = np.asarray(clean.population.sensitivity, np.float64).ravel()  # type: ignore[attr-defined]  # it is Pricing
    keep = float(np.mean((1 - 2 * rate * gamma) ** local_steps))
    spread = noise * clip / clients / np.sqrt(1 - keep**2)
    # What the other parts gain, less what privacy costs, with common random numbers.
    price = away["all three"] - away["not private"]
    margins = [mean(away[f"not {part}"] - away["all three"] - price) for part in ("robust", "optimal")]
    numbers: dict[str, Any] = {
        "stable_from_optimal": float(np.linalg.norm(stable - optimal)),
        "epsilon": pf.privacy.guarantee(problem, full).spent(rounds, delta).epsilon,
        "epsilon_exact": brentq(lambda eps: gaussian_delta(eps, mu) - delta, 0, 100),
        "noise_alone": float(spread * np.sqrt(2 / np.pi)),
        "least_margin": min(margins, key=lambda margin: margin[0] - 2 * margin[1]),
        **{word(name): mean(values) for name, values in away.items()},
    }
    return Outcome(numbers, {"distance": curves(runs, "distance_to_optimal"), "ends": bars(away)})


def _late(values: Any) -> np.ndarray:
    """One mean per repeat."""
    path = np.asarray(values, np.float64)
    return path[:, -max(1, path.shape[1] // 4) :].mean(axis=1)
