"""Figures 1 and 7, and Section 2.4: clients of unequal weight, and what Scheme II averages."""

import numpy as np
import scipy.optimize
from scipy import stats

import performative as pf
from performative.papers.outcome import Outcome, curves, lay_out, mean
from performative.papers.p_fedavg.instance import (
    QUIET,
    clients_of,
    exact,
    gaussian,
    harmonic_steps,
    square,
    steps_to,
    thinned,
)
from performative.theory import Moments
from performative.theory.gaussian import local_maps, weight_moments

HOWS = {"full": "full", "Scheme I": "one", "Scheme II": "two"}


def weighted(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    weight_variance: float, beta: float, gamma: float, local_steps: int, k: int, drawn: list[str], start: float,
    rounds: int, long_rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Full participation and both schemes with unequal weights; equal ones beside, exactly.

    Scheme II averages updates; averaging models, as the paper prints it, is known exactly too.
    """
    spread = (mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    p = unequal_weights(clients, weight_variance)
    problem, equal = gaussian(clients, *spread, p), gaussian(clients, *spread)
    parts = {"full": pf.Full(), "Scheme I": pf.SchemeOne(k), "Scheme II": pf.SchemeTwo(k)}
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=local_steps)
    settings = [{"participation": parts[name]} for name in drawn]
    swept = pf.sweep(
        problem,
        algorithm,
        settings,
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    way, eta = abs(start - mean_m / (1 - sensitivity)), harmonic_steps(beta, gamma, long_rounds, local_steps)
    t = np.arange(long_rounds + 1) * local_steps
    numbers: dict[str, float | tuple[float, float]] = {}
    lines, known = {}, {}
    for name, scheme in HOWS.items():
        how = {"scheme": scheme, "k": None if scheme == "full" else k}
        known[name] = exact(problem, eta, local_steps, start, **how)
        lines[name] = thinned(t, known[name])
        numbers[f"rms_{scheme}"] = float(np.sqrt(known[name].mse[-1]))
        numbers[f"rms_equal_{scheme}"] = float(np.sqrt(exact(equal, eta, local_steps, start, **how).mse[-1]))
        numbers[f"steps_{scheme}"] = steps_to(known[name], way / 10, local_steps)
    for name, history in zip(drawn, swept.histories, strict=True):
        expected = float(known[name].mse[rounds])
        numbers[f"square_{HOWS[name]}"] = square(history["distance_to_stable"][:, -1], expected)
        numbers[f"exact_{HOWS[name]}"] = expected
    models = models_averaged(problem, eta, local_steps, start, k)
    lines["Scheme II, models averaged"] = thinned(t, models)
    steps = [float(numbers[f"steps_{scheme}"]) for scheme in HOWS.values()]  # type: ignore[arg-type]  # plain numbers
    numbers |= {
        "rms_models": float(np.sqrt(models.mse[-1])),
        "mean_of_models_apart": float(np.max(np.abs(models.mean - known["full"].mean))),
        "spread_of_time_to_a_tenth": max(steps) / min(steps),
        "excess": excess_variance(p, k),
        "excess_drawn": _excess_drawn(p, k, seed),
    }
    return Outcome(
        numbers,
        {
            "exact": lay_out(lines),
            "distance": curves(dict(zip(drawn, swept.histories, strict=True)), "distance_to_stable", "step"),
        },
    )


def small_steps(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    weight_variance: float, beta: float, large_beta: float, gamma: float, local_steps: int, k: int, start: float,
    rounds: int, long_rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figure 7: Scheme II (updates averaged) with very unequal weights and small steps.

    Beside it, exactly: equal weights with the same steps, and the same weights with larger steps.
    """
    spread = (mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    problem = gaussian(clients, *spread, unequal_weights(clients, weight_variance))
    cases = {
        "unequal_small": (problem, beta),
        "equal_small": (gaussian(clients, *spread), beta),
        "unequal_large": (problem, large_beta),
    }
    stable, t = mean_m / (1 - sensitivity), np.arange(long_rounds + 1) * local_steps
    numbers: dict[str, float | tuple[float, float]] = {"two_beta_kappa": 2 * beta * (1 - sensitivity)}
    known, lines = {}, {}
    for name, (which, size) in cases.items():
        eta = harmonic_steps(size, gamma, long_rounds, local_steps)
        known[name] = exact(which, eta, local_steps, start, scheme="two", k=k)
        weights, _ = name.split("_")
        lines[f"{weights} weights, beta = {size:g}"] = thinned(t, known[name])
        numbers[f"left_{name}"] = float(np.sqrt(known[name].mse[-1])) / abs(start - stable)
    numbers["unequal_over_equal"] = numbers["left_unequal_small"] / numbers["left_equal_small"]  # type: ignore[operator]  # plain numbers
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=local_steps, participation=pf.SchemeTwo(k))
    history = pf.run(
        problem,
        algorithm,
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(risks=False, theta="last", consensus=False),
        **QUIET,
    )
    error = float(np.sqrt(known["unequal_small"].variance[rounds] / repeats))
    numbers["mean_model"] = mean(history.final)[0], error
    numbers["exact_mean_model"] = float(known["unequal_small"].mean[rounds])
    label = f"unequal weights, beta = {beta:g}"
    return Outcome(
        numbers,
        {"exact": lay_out(lines), "distance": curves({label: history}, "distance_to_stable", "step")},
    )


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


def models_averaged(problem: pf.Problem, eta: np.ndarray, local_steps: int, start: float, k: int) -> Moments:
    """Scheme II as printed, theta <- sum over the drawn of p_i N / K theta_i: exact moments.

    E[(sum w_i u_i)^2] = pair (sum p_i u_i)^2 + sum own_i u_i^2 with u_i = A_i theta + B_i, here of whole models.
    """
    own = clients_of(problem)
    p, m, eps = own["weights"], own["mean"], own["sensitivity"]
    noise = np.broadcast_to(own["scale"] ** 2, m.shape)
    w = weight_moments(p, "two", k)
    A, B, S = local_maps(m, eps, noise, eta.reshape(-1, local_steps), "step", start)
    a, b, s = A @ p, B @ p, S @ w.square
    aa, ab, bb = A**2 @ w.own, (A * B) @ w.own, B**2 @ w.own
    means, squares = [start], [start**2]
    for r in range(len(a)):
        mu, second = means[-1], squares[-1]
        means.append(a[r] * mu + b[r])
        pair = a[r] ** 2 * second + 2 * a[r] * b[r] * mu + b[r] ** 2
        squares.append(w.pair * pair + aa[r] * second + 2 * ab[r] * mu + bb[r] + s[r])
    mean_of, second_of = np.asarray(means), np.asarray(squares)
    stable = float(p @ m) / (1 - float(p @ eps))
    return Moments(mean_of, second_of - mean_of**2, second_of - 2 * stable * mean_of + stable**2)
