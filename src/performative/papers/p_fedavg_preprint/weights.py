"""Figures 1 and 7, and Section 2.4: clients of unequal weight, and what Scheme II averages."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.optimize
from scipy import stats

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.p_fedavg.instance import SCHEMES, Study, by_step, on_gaussian, square, taking_part
from performative.papers.runs import quiet
from performative.theory import Moments
from performative.theory.gaussian import local_maps, weight_moments


@on_gaussian
def weighted(s: Study, weight_variance: float, k: int, drawn: list[str]) -> Outcome:
    """Full participation and both schemes with unequal weights; equal ones beside, exactly.

    Scheme II averages updates; averaging models, as the paper prints it, is known exactly too.
    """
    p = unequal_weights(s.clients, weight_variance)
    own = replace(s, weights=p)
    runs = own.sweep({name: {"participation": taking_part(name, k)} for name in drawn})
    known = {name: own.exact(scheme, k) for name, scheme in SCHEMES.items()}
    models = models_averaged(own, k)
    steps = {scheme: s.steps_to(known[name], s.way / 10) for name, scheme in SCHEMES.items()}
    numbers: dict[str, Any] = {
        "rms_models": float(np.sqrt(models.mse[-1])),
        "mean_of_models_apart": float(np.max(np.abs(models.mean - known["full"].mean))),
        "spread_of_time_to_a_tenth": max(steps.values()) / min(steps.values()),
        "excess": excess_variance(p, k),
        "excess_drawn": _excess_drawn(p, k, s.seed),
    }
    for name, scheme in SCHEMES.items():
        numbers[f"rms_{scheme}"] = float(np.sqrt(known[name].mse[-1]))
        numbers[f"rms_equal_{scheme}"] = float(np.sqrt(s.exact(scheme, k).mse[-1]))
        numbers[f"steps_{scheme}"] = steps[scheme]
    for name, run in runs.items():
        expected = float(known[name].mse[s.rounds])
        numbers |= {f"square_{SCHEMES[name]}": square(run, expected), f"exact_{SCHEMES[name]}": expected}
    lines = {name: s.line(moments) for name, moments in (known | {"Scheme II, models averaged": models}).items()}
    return Outcome(numbers, {"exact": lay_out(lines), "distance": by_step(runs)})


@on_gaussian
def small_steps(s: Study, weight_variance: float, large_beta: float, k: int) -> Outcome:
    """Figure 7: Scheme II (updates averaged) with very unequal weights and small steps.

    Beside it, exactly: equal weights with the same steps, and the same weights with larger steps.
    """
    own = replace(s, weights=unequal_weights(s.clients, weight_variance))
    cases = {"unequal_small": own, "equal_small": s, "unequal_large": replace(own, beta=large_beta)}
    known = {name: one.exact("two", k) for name, one in cases.items()}
    left = {f"left_{name}": float(np.sqrt(moments.mse[-1])) / s.way for name, moments in known.items()}
    algorithm = pf.p_fedavg(s.rate, local_steps=s.local_steps, participation=pf.SchemeTwo(k))
    run = pf.run(own.problem, algorithm, s.rounds, s.start, s.seed, s.repeats, **quiet())
    small = known["unequal_small"]
    numbers: dict[str, Any] = left | {
        "two_beta_kappa": 2 * s.beta * (1 - s.sensitivity),
        "unequal_over_equal": left["left_unequal_small"] / left["left_equal_small"],
        "mean_model": (mean(run.final)[0], float(np.sqrt(small.variance[s.rounds] / s.repeats))),
        "exact_mean_model": float(small.mean[s.rounds]),
    }
    lines = {f"{name.split('_')[0]} weights, beta = {one.beta:g}": s.line(known[name]) for name, one in cases.items()}
    shown = by_step({f"unequal weights, beta = {s.beta:g}": run})
    return Outcome(numbers, {"exact": lay_out(lines), "distance": shown})


def unequal_weights(clients: int, variance: float) -> np.ndarray:
    """Weights that sum to one with exactly this variance: quantiles of a lognormal, whose spread is solved for."""
    z = stats.norm.ppf((np.arange(clients) + 0.5) / clients)

    def weights(spread: float) -> np.ndarray:
        p = np.exp(spread * z)
        return p / p.sum()

    return weights(scipy.optimize.brentq(lambda spread: weights(spread).var() - variance, 1e-6, 20.0))


def excess_variance(p: np.ndarray, k: int) -> float:
    """Variance of the sum of a round's weights under Scheme II: (N - K)(N sum p^2 - 1) / (K (N - 1))."""
    clients = len(p)
    return float((clients - k) * (clients * np.sum(p**2) - 1) / (k * (clients - 1)))


def _excess_drawn(p: np.ndarray, k: int, seed: int, draws: int = 20000) -> tuple[float, float]:
    """The same by drawing."""
    rng = np.random.default_rng(seed)
    kept = np.argsort(rng.uniform(size=(draws, len(p))), axis=1)[:, :k]
    return mean((p[kept].sum(axis=1) * len(p) / k - 1) ** 2)


def models_averaged(s: Study, k: int) -> Moments:
    """Scheme II as printed, theta <- sum over the drawn of p_i N / K theta_i: exact moments.

    E[(sum w_i u_i)^2] = pair (sum p_i u_i)^2 + sum own_i u_i^2 with u_i = A_i theta + B_i, here of whole models.
    """
    p, m, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))
    noise = np.broadcast_to(s.own["scale"] ** 2, m.shape)
    w = weight_moments(p, "two", k)
    A, B, S = local_maps(m, eps, noise, s.eta.reshape(-1, s.local_steps), "step", s.start)
    a, b, spread = A @ p, B @ p, S @ w.square
    aa, ab, bb = A**2 @ w.own, (A * B) @ w.own, B**2 @ w.own
    means, squares = [s.start], [s.start**2]
    for r in range(len(a)):
        mu, second = means[-1], squares[-1]
        means.append(a[r] * mu + b[r])
        pair = a[r] ** 2 * second + 2 * a[r] * b[r] * mu + b[r] ** 2
        squares.append(w.pair * pair + aa[r] * second + 2 * ab[r] * mu + bb[r] + spread[r])
    mean_of, second_of = np.asarray(means), np.asarray(squares)
    stable = float(p @ m) / (1 - float(p @ eps))
    return Moments(mean_of, second_of - mean_of**2, second_of - 2 * stable * mean_of + stable**2)
