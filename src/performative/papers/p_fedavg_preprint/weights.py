"""Figures 1 and 7, and Section 2.4: clients of unequal weight, and what Scheme II averages."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.optimize
from scipy import stats

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.p_fedavg.gaussian import SHARES
from performative.papers.p_fedavg.instance import SCHEMES, Study, by_step, fall, on_gaussian, square, taking_part
from performative.papers.runs import ends, quiet
from performative.theory import Moments
from performative.theory.gaussian import local_maps, weight_moments


@on_gaussian
def weighted(s: Study, weight_variance: float, k: int) -> Outcome:
    """Full participation and both schemes with unequal weights.

    Scheme II averages updates; averaging models, as the paper prints it, is also computed exactly.
    """
    p = unequal_weights(s.clients, weight_variance)
    own = replace(s, weights=p)
    runs = own.sweep({name: {"participation": taking_part(name, k)} for name in SCHEMES})
    known = {name: own.exact(scheme, k) for name, scheme in SCHEMES.items()}
    models, times = averaged(own, k), s.times(known, SHARES)
    numbers: dict[str, Any] = own.marks | {
        "fall_models": float(np.sqrt(models.mse[-1] / models.mse[len(models.mse) // 5])),
        "spread_of_time_to_a_tenth": max(t[1] for t in times.values()) / min(t[1] for t in times.values()),
        "least_time_two_to_full": float(np.min(times["Scheme II"] / times["full"])),
        "excess": excess_variance(p, k),
        "excess_drawn": _excess_drawn(p, k, s.seed),
    }
    for name, scheme in SCHEMES.items():
        expected = float(known[name].mse[s.rounds])
        numbers |= {f"square_{scheme}": square(runs[name], expected), f"exact_{scheme}": expected}
        numbers |= {
            f"fall_{scheme}": fall(runs[name]),
            f"mean_apart_{scheme}": mean(ends(runs[name]) - ends(runs["full"])),
        }
    lines = {name: s.line(moments) for name, moments in (known | {"Scheme II, models averaged": models}).items()}
    return Outcome(numbers, {"exact": lay_out(lines), "distance": by_step(runs)})


@on_gaussian
def small_steps(s: Study, weight_variance: float, large_beta: float, k: int) -> Outcome:
    """Figure 7: Scheme II with very unequal weights and small steps.

    For comparison, exactly: larger steps, and scaled objectives with both.
    """
    own = replace(s, weights=unequal_weights(s.clients, weight_variance))
    large = replace(own, beta=large_beta)
    known = {
        f"updates, beta = {s.beta:g}": own.exact("two", k),
        f"updates, beta = {large_beta:g}": large.exact("two", k),
        f"scaled objectives, beta = {s.beta:g}": averaged(own, k, scaled=True),
        f"scaled objectives, beta = {large_beta:g}": averaged(large, k, scaled=True),
    }
    names = ("updates_small", "updates_large", "scaled_small", "scaled_large")
    left = [float(np.sqrt(moments.mse[-1])) / s.way for moments in known.values()]
    run = own.sweep({"two": {"participation": pf.SchemeTwo(k)}})["two"]
    small = known[f"updates, beta = {s.beta:g}"]
    numbers: dict[str, Any] = (
        own.marks
        | {f"left_{name}": one for name, one in zip(names, left, strict=True)}
        | {
            "mean_model": (mean(ends(run))[0], float(np.sqrt(small.variance[s.rounds] / s.repeats))),
            "exact_mean_model": float(small.mean[s.rounds]),
        }
    )
    lines = {name: s.line(moments) for name, moments in known.items()}
    shown = by_step({f"updates, beta = {s.beta:g}": run})
    return Outcome(numbers, {"exact": lay_out(lines), "distance": shown})


@on_gaussian
def scaled(s: Study, weight_variance: float, k: int) -> Outcome:
    """Section 3.2: Scheme II on g_i = N p_i f_i (`Problem.scaled`), and computed by hand."""
    own = replace(s, weights=unequal_weights(s.clients, weight_variance))
    algorithm = pf.p_fedavg(s.rate, local_steps=s.local_steps, participation=pf.SchemeTwo(k))
    run = pf.run(own.problem.scaled(), algorithm, s.rounds, s.start, s.seed, s.repeats, **quiet())
    known = {"scaled objectives": averaged(own, k, scaled=True), "weights p N / K on updates": own.exact("two", k)}
    by_hand = known["scaled objectives"]
    expected = float(by_hand.mse[s.rounds])
    off = np.abs(by_hand.mean - s.stable)
    numbers: dict[str, Any] = own.marks | {
        "point_apart": abs(float(np.asarray(pf.stable_point(own.problem.scaled()))) - s.stable),
        "fall": fall(run),
        "square": square(run, expected),
        "exact_square": expected,
        "exact_fall": float(np.sqrt(by_hand.mse[-1] / by_hand.mse[len(by_hand.mse) // 5])),
        "mean_fall": float(off[-1] / off[len(off) // 5]),
    }
    lines = {name: s.line(moments) for name, moments in known.items()}
    return Outcome(numbers, {"exact": lay_out(lines), "distance": by_step({"scaled objectives": run})})


def unequal_weights(clients: int, variance: float) -> np.ndarray:
    """Weights that sum to one with exactly this variance: quantiles of a lognormal whose spread is solved for."""
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
    """`excess_variance` by Monte Carlo."""
    rng = np.random.default_rng(seed)
    kept = np.argsort(rng.uniform(size=(draws, len(p))), axis=1)[:, :k]
    return mean((p[kept].sum(axis=1) * len(p) / k - 1) ** 2)


def averaged(s: Study, k: int, scaled: bool = False) -> Moments:
    """Scheme II with averages of models, theta <- sum over sampled clients of w_i theta_i: exact moments.

    w_i = p_i N / K, as printed; or scaled: w_i = 1 / K, and client i steps along N p_i grad f_i (Section 3.2).
    E[(sum w_i u_i)^2] = pair (sum p_i u_i)^2 + sum own_i u_i^2 with u_i = A_i theta + B_i, here of whole models.
    """
    p, m, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))
    noise, factor = np.broadcast_to(s.own["scale"] ** 2, m.shape), len(p) * p if scaled else np.ones(len(p))
    share = np.full(len(p), 1 / len(p)) if scaled else p
    w, steps = weight_moments(share, "two", k), s.eta.reshape(-1, s.local_steps)
    of_client = [
        local_maps(m[i : i + 1], eps[i : i + 1], noise[i : i + 1], factor[i] * steps, "step", s.start)
        for i in range(len(p))
    ]
    A, B, S = (np.concatenate(maps, axis=1) for maps in zip(*of_client, strict=True))
    a, b, spread = A @ share, B @ share, S @ w.square
    aa, ab, bb = A**2 @ w.own, (A * B) @ w.own, B**2 @ w.own
    means, squares = [s.start], [s.start**2]
    for r in range(len(a)):
        mu, second = means[-1], squares[-1]
        means.append(a[r] * mu + b[r])
        pair = a[r] ** 2 * second + 2 * a[r] * b[r] * mu + b[r] ** 2
        squares.append(w.pair * pair + aa[r] * second + 2 * ab[r] * mu + bb[r] + spread[r])
    mean_of, second_of = np.asarray(means), np.asarray(squares)
    return Moments(mean_of, second_of - mean_of**2, second_of - 2 * s.stable * mean_of + s.stable**2)
