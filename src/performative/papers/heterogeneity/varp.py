"""Partial participation: its variance, and FedVARP and ClusterFedVARP, which remember absent clients."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import ClusterVarp, Mean, Varp
from performative.papers.heterogeneity.quadratic import Parabolas, continued, order
from performative.papers.outcome import Outcome, curves, mean, over
from performative.papers.runs import ends, sweep
from performative.theory.joshi2023.points import client_work


def two_kinds(clients: int, levels: list[float], curvatures: list[float], reactions: list[float], within: float,
              seed: int) -> tuple[Parabolas, np.ndarray]:  # fmt: skip
    """Clients of two kinds, similar within a kind and far apart between kinds; and the kind of each."""
    rng = np.random.default_rng(seed)
    kind = np.arange(clients) % 2
    noise = 1.0 + within * rng.standard_normal((3, clients))
    h, s, r = (np.asarray(values)[kind] * by for values, by in zip((curvatures, levels, reactions), noise, strict=True))
    return Parabolas(h, s, r, np.full(clients, 1.0 / clients)), kind


def participation(
    clients: int, levels: list[float], curvatures: list[float], reactions: list[float], within: float, k: int,
    rate: float, tau: int, start: float, rounds: int, repeats: int, steps: list[float], seed: int,
) -> Outcome:  # fmt: skip
    """FedAvg with k clients per round, FedVARP, and ClusterFedVARP with clusters of similar and dissimilar clients."""
    ours, kind = two_kinds(clients, levels, curvatures, reactions, within, seed)
    unlike = np.arange(clients) // (clients // 2)
    parts = {
        "FedAvg": Mean(),
        "FedVARP": Varp(),
        "ClusterFedVARP, alike": ClusterVarp(kind),
        "ClusterFedVARP, unlike": ClusterVarp(unlike),
    }
    algorithm = pf.p_fedavg(rate, local_steps=tau, participation=pf.SchemeTwo(k))
    settings = {name: {"aggregator": part} for name, part in parts.items()}
    runs = sweep(ours.problem(), algorithm, settings, rounds, start, seed, repeats)
    final = {name: ends(run) for name, run in runs.items()}
    members = dict(zip(parts, (None, np.arange(clients), kind, unlike), strict=True))
    settled, still = _moments(ours, rate, tau, k, None, start, 20000)
    stays = {name: _moments(ours, rate, tau, k, member, start, 20000)[1] for name, member in members.items()}
    apart = {name: (theta - settled) ** 2 for name, theta in final.items()}
    squares = {name: ours.gradient(theta) ** 2 for name, theta in final.items()}
    drift = pf.theory.quadratic_floor(ours.mean, ours.slope, rate, tau).drift

    # Orders, from exact second moments at small steps.
    def stationary(eta: float, taken: int) -> float:
        return _moments(ours, eta, tau, taken, None, settled, 40 * round(1 / eta))[1]

    curve = float(ours.weights @ ours.slope) ** 2
    by_step = [curve * stationary(eta, k) for eta in steps]
    drifts = [pf.theory.quadratic_floor(ours.mean, ours.slope, eta, tau).drift for eta in steps]
    by_share = [[stationary(eta, taken) / pf.theory.participation_variance(clients, taken) for eta in steps]
                for taken in range(1, clients)]  # fmt: skip
    # Extrapolated to step 0, where only the sampling matters: 1 if the factor explains everything.
    even = [continued(steps, np.divide(row, by_share[0])) for row in by_share[1:]]
    worst = max(even, key=lambda one: abs(one[0] - 1) / one[1])
    largest = {name: largest_server_step(ours, rate, tau, k, members[name]) for name in ("FedAvg", "FedVARP")}
    slopes = {"participation": order(steps, by_step), "drift": order(steps, drifts)}
    numbers: dict[str, Any] = {
        "fedavg_variance": mean(apart["FedAvg"]),
        "fedavg_variance_exact": still,
        "fedvarp_share": float(final["FedVARP"].var()) / still,
        "cluster_share": stays["ClusterFedVARP, alike"] / still,
        "unlike_share": stays["ClusterFedVARP, unlike"] / still,
        "cluster_saves": mean(apart["FedAvg"] - apart["ClusterFedVARP, alike"]),
        "unlike_costs": mean(apart["ClusterFedVARP, unlike"] - apart["FedAvg"]),
        "fedvarp_error_over_drift": float(np.median(squares["FedVARP"])) / drift,
        "participation_over_drift": mean(squares["FedAvg"] / drift - 1),
        "exponent_of_step": slopes["participation"],
        "exponent_of_drift": slopes["drift"],
        "least_even_share": worst,
        "largest_server_step_fedavg": largest["FedAvg"],
        "largest_server_step_fedvarp": largest["FedVARP"],
        "amplified_variance": still / _moments(_still(ours), rate, tau, k, None, start, 20000)[1],
    }
    lines = {"participation": by_step, "client drift": drifts}
    return Outcome(numbers, {"distance": curves(runs, "distance_to_stable"), "terms": over(steps, lines)})


def tuned(
    clients: int, levels: list[float], curvatures: list[float], within: float, k: int, taus: list[int], start: float,
    horizons: list[int], checked: int, noise: float, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Exact |grad F|^2 of the last model at eta = sqrt(k / (tau T)): from sampling k clients, and from drift.

        E |grad F(x_T)|^2 = lambda^2 (Var x_T + (E x_T - x*)^2),      lambda the mean curvature

    The first part is the partial-participation error; the second, for large T, the drift. `checked` rounds are also
    simulated.
    """
    ours, _ = two_kinds(clients, levels, curvatures, [0.0, 0.0], within, seed)
    curve = float(ours.weights @ ours.slope) ** 2

    def parts(tau: int, T: int) -> tuple[float, float]:
        center, variance = _moments(ours, float(np.sqrt(k / (tau * T))), tau, k, None, start, T)
        return curve * variance, curve * (center - ours.stable) ** 2

    found = {tau: np.asarray([parts(tau, T) for T in horizons]).T for tau in taus}
    low, high = taus[0], taus[-1]
    drawn, drift = found[low]
    rate = float(np.sqrt(k / (low * checked)))
    algorithm = pf.p_fedavg(rate, local_steps=low, participation=pf.SchemeTwo(k))
    # Identical clients with noise: nothing else varies.
    alike = Parabolas.of(*(np.full(clients, one.mean()) for one in (ours.curvature, ours.level, ours.reaction)))
    noisy: dict[str, Any] = {"problem": alike.problem(noise), "participation": pf.SchemeTwo(k)}
    settings: dict[str, dict[str, Any]] = {
        "": {"rate": rate},
        "few": noisy,
        "all": noisy | {"participation": pf.Full()},
    }
    runs = sweep(ours.problem(), algorithm, settings, checked, start, seed, repeats)
    few, everyone = (mean((ends(runs[name]) - alike.stable) ** 2) for name in ("few", "all"))
    ratio = few[0] / everyone[0]
    shorter = 1 / np.sqrt(horizons)  # the expansion variable
    by_tau = (np.log(found[high][0]) - np.log(found[low][0])) / np.log(high / low)
    numbers: dict[str, Any] = {
        "participation_exponent": _halved(order(shorter, drawn)),
        "drift_exponent": _halved(order(shorter, drift)),
        "participation_exponent_of_tau": continued(shorter[-2:], by_tau[-2:]),
        "participation_over_drift": float(drawn[-1] / drift[-1]),
        "noise_ratio": (ratio, ratio * float(np.hypot(few[1] / few[0], everyone[1] / everyone[0]))),
        "participants_ratio": clients / k,
        "run": mean(ours.gradient(ends(runs[""])) ** 2),
        "run_exact": float(sum(parts(low, checked))),
    }
    terms = {f"participation, $\\tau = {tau}$": found[tau][0] for tau in taus}
    terms |= {f"drift, $\\tau = {tau}$": found[tau][1] for tau in taus}
    return Outcome(numbers, {"terms": over(horizons, terms)})


def _halved(slope: tuple[float, float]) -> tuple[float, float]:
    """Convert an exponent of 1 / sqrt(T) to one of T."""
    return -slope[0] / 2, slope[1] / 2


def _still(clients: Parabolas) -> Parabolas:
    """The same clients with their data frozen at the stable point: they no longer react."""
    return replace(
        clients, level=clients.level + clients.reaction * clients.stable, reaction=np.zeros_like(clients.reaction)
    )


def _maps(
    clients: Parabolas, rate: float, tau: int, k: int, member: np.ndarray | None, server: float = 1.0
) -> np.ndarray:
    """E[M x M] of one round, s -> M s with s = (1, theta, memories), over all sets of k clients."""
    work = client_work(clients.slope, rate, tau)
    a, b, p, N = -work * clients.slope, work * clients.mean, clients.weights, len(clients.level)
    C = 0 if member is None else int(member.max()) + 1
    total, sets = np.zeros(((2 + C) ** 2,) * 2), list(itertools.combinations(range(N), k))
    for chosen in sets:
        M = np.eye(2 + C)
        for i in chosen:
            M[1, 0] += p[i] * N / k * b[i]
            M[1, 1] += p[i] * N / k * a[i]
            if member is not None:
                M[1, 2 + member[i]] -= p[i] * N / k
        if member is not None:
            for i in range(N):
                M[1, 2 + member[i]] += p[i]
            for c in range(C):
                here = [i for i in chosen if member[i] == c]
                if here:
                    M[2 + c] = 0
                    M[2 + c, :2] = np.mean(b[here]), np.mean(a[here])
        M[1] = server * M[1] + (1 - server) * np.eye(2 + C)[1]
        total += np.kron(M, M)
    return total / len(sets)


def _moments(
    clients: Parabolas, rate: float, tau: int, k: int, member: np.ndarray | None, start: float, rounds: int
) -> tuple[float, float]:
    """Exact mean and variance of theta after that many rounds."""
    T = _maps(clients, rate, tau, k, member)
    size = round(np.sqrt(len(T)))
    first = np.zeros(size)
    first[:2] = 1.0, start
    after = (np.linalg.matrix_power(T, rounds) @ np.kron(first, first)).reshape(size, size)
    return float(after[0, 1]), float(max(0.0, after[1, 1] - after[0, 1] ** 2))


def largest_server_step(clients: Parabolas, rate: float, tau: int, k: int, member: np.ndarray | None) -> float:
    """The largest server step at which second moments stay bounded, by bisection on their growth."""
    pull = float(clients.weights @ (client_work(clients.slope, rate, tau) * clients.slope))
    low, high = 0.0, 4.0 / pull
    for _ in range(20):
        middle = (low + high) / 2
        # The eigenvalue 1 belongs to the constant; all others must lie inside the unit circle.
        growth = np.max(np.abs(np.linalg.eigvals(_maps(clients, rate, tau, k, member, middle))))
        low, high = (middle, high) if growth < 1 + 1e-9 else (low, middle)
    return low
