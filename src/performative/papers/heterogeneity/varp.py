"""Partial participation: its variance, and FedVARP and ClusterFedVARP, which remember who is not there."""

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.aggregators import ClusterVarp, Mean, Varp
from performative.papers.heterogeneity.quadratic import Parabolas
from performative.papers.outcome import Outcome, curves, mean, over
from performative.papers.runs import ends, power, sweep
from performative.theory.joshi2023.points import client_work


def two_kinds(clients: int, levels: list[float], curvatures: list[float], reactions: list[float], within: float,
              seed: int) -> tuple[Parabolas, np.ndarray]:  # fmt: skip
    """Clients of two kinds, alike within and far apart from each other; and the kind of each."""
    rng = np.random.default_rng(seed)
    kind = np.arange(clients) % 2
    noise = 1.0 + within * rng.standard_normal((3, clients))
    h, s, r = (np.asarray(values)[kind] * by for values, by in zip((curvatures, levels, reactions), noise, strict=True))
    return Parabolas(h, s, r, np.full(clients, 1.0 / clients)), kind


def participation(
    clients: int, levels: list[float], curvatures: list[float], reactions: list[float], within: float, k: int,
    rate: float, tau: int, start: float, rounds: int, repeats: int, steps: list[float], seed: int,
) -> Outcome:  # fmt: skip
    """FedAvg with k clients a round, FedVARP, and ClusterFedVARP with clusters of like and of unlike clients."""
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
    members = {"FedAvg": None, "FedVARP": np.arange(clients), "ClusterFedVARP, alike": kind}
    members["ClusterFedVARP, unlike"] = unlike
    stays = {name: _moments(ours, rate, tau, k, member, start, 20000)[1] for name, member in members.items()}
    settled = _moments(ours, rate, tau, k, None, start, 20000)[0]
    squares = {name: ours.gradient(theta) ** 2 for name, theta in final.items()}
    drift = pf.theory.quadratic_floor(ours.mean, ours.slope, rate, tau).drift
    # Orders, from exact second moments at small steps.
    by_step = [_moments(ours, eta, tau, k, None, settled, 40 * round(1 / eta))[1] for eta in steps]
    by_share = np.asarray([_moments(ours, steps[-1], tau, j, None, settled, 40 * round(1 / steps[-1]))[1]
                           / pf.theory.participation_variance(clients, j) for j in range(1, clients)])  # fmt: skip
    stored = {name: _numbers(part, clients) for name, part in parts.items()}
    largest = {name: largest_server_step(ours, rate, tau, k, members[name]) for name in ("FedAvg", "FedVARP")}
    numbers: dict[str, Any] = {
        "fedavg_variance": mean((final["FedAvg"] - settled) ** 2),
        "fedavg_variance_exact": stays["FedAvg"],
        "fedvarp_share": float(final["FedVARP"].var()) / stays["FedAvg"],
        "fedvarp_exact_share": stays["FedVARP"] / stays["FedAvg"],
        "cluster_share": stays["ClusterFedVARP, alike"] / stays["FedAvg"],
        "cluster_share_measured": mean((final["ClusterFedVARP, alike"] - settled) ** 2)[0] / stays["FedAvg"],
        "unlike_share": stays["ClusterFedVARP, unlike"] / stays["FedAvg"],
        "fedvarp_error": float(np.median(squares["FedVARP"])),
        "fedvarp_error_over_drift": float(np.median(squares["FedVARP"])) / drift,
        "drift_of_full_participation": drift,
        "fedavg_error": mean(squares["FedAvg"]),
        "participation_over_drift": float(np.mean(squares["FedAvg"]) - drift) / drift,
        "exponent_of_step": power(steps, by_step),
        "spread_over_shares": float(by_share.max() / by_share.min()),
        "stored_fedvarp": stored["FedVARP"],
        "stored_cluster": stored["ClusterFedVARP, alike"],
        "largest_server_step_fedavg": largest["FedAvg"],
        "largest_server_step_fedvarp": largest["FedVARP"],
        "amplified_variance": stays["FedAvg"] / _moments(_still(ours), rate, tau, k, None, start, 20000)[1],
    }
    stays_by_step = over(steps, {"FedAvg, exact": by_step})
    return Outcome(numbers, {"distance": curves(runs, "distance_to_stable"), "stays": stays_by_step})


def tuned(clients: int, participants: int, taus: list[int], rounds: list[int]) -> Outcome:
    """The slide's terms at eta = sqrt(M / (tau T)), with sigma = sigma_g = L = 1."""
    given = pf.theory.FederatedAssumptions(1.0, 1.0, 1.0, 1.0, clients)

    def terms(tau: int, T: int) -> pf.theory.Bound:
        eta = float(np.sqrt(participants / (tau * T)))
        return pf.theory.fedavg(given, eta, tau, T, participants, printed=True)

    few, many = (terms(tau, rounds[-1]) for tau in taus)
    grown = [terms(taus[0], T) for T in rounds]
    slopes = {
        name: float(np.diff(np.log([getattr(t, name) for t in grown[-2:]]))[0] / np.diff(np.log(rounds[-2:]))[0])
        for name in ("noise", "participation", "drift")
    }
    lines = {name: [getattr(t, name) for t in grown] for name in ("noise", "participation", "drift")}
    numbers: dict[str, Any] = {
        "participation_over_noise": grown[-1].participation / grown[-1].noise,
        "participation_over_drift": grown[-1].participation / grown[-1].drift,
        "participation_exponent": slopes["participation"],
        "noise_exponent": slopes["noise"],
        "drift_exponent": slopes["drift"],
        "drift_ratio_of_local_steps": many.drift / few.drift,
        "expected_ratio": (taus[1] - 1) / (taus[0] - 1),
        "participation_ratio_of_local_steps": many.participation / few.participation,
        "root_ratio_of_local_steps": float(np.sqrt(taus[1] / taus[0])),
    }
    return Outcome(numbers, {"terms": over(rounds, lines)})


def _still(clients: Parabolas) -> Parabolas:
    """The same clients with data as the stable model made them: they no longer react."""
    return replace(
        clients, level=clients.level + clients.reaction * clients.stable, reaction=np.zeros_like(clients.reaction)
    )


def _numbers(part: Any, clients: int) -> float:
    """How many numbers of the model's size the server keeps, beside their mean."""
    memory = part.init(jnp.zeros(()), clients, {})
    kept = memory.last if hasattr(memory, "last") else memory
    return float(sum(np.size(leaf) for leaf in jax.tree.leaves(kept)))


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
    """Mean and variance of theta after so many rounds, exactly."""
    T = _maps(clients, rate, tau, k, member)
    size = round(np.sqrt(len(T)))
    first = np.zeros(size)
    first[:2] = 1.0, start
    after = (np.linalg.matrix_power(T, rounds) @ np.kron(first, first)).reshape(size, size)
    return float(after[0, 1]), float(max(0.0, after[1, 1] - after[0, 1] ** 2))


def largest_server_step(clients: Parabolas, rate: float, tau: int, k: int, member: np.ndarray | None) -> float:
    """The largest step of the server at which second moments stay bounded, by bisection on how they grow."""
    pull = float(clients.weights @ (client_work(clients.slope, rate, tau) * clients.slope))
    low, high = 0.0, 4.0 / pull
    for _ in range(20):
        middle = (low + high) / 2
        # The eigenvalue 1 belongs to the constant; all others must lie inside the unit circle.
        growth = np.max(np.abs(np.linalg.eigvals(_maps(clients, rate, tau, k, member, middle))))
        low, high = (middle, high) if growth < 1 + 1e-9 else (low, middle)
    return low
