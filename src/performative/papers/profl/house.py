"""House pricing regression: Table 1, Figures 3 and 4."""

from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.profl.runs import label, models, rounds_until, settled, sweep, traces, wobble

NOISE, SLOPE, PENALTY, SECOND = 61 / 30, 5 / 3, 10 / 3, 34 / 9  # SECOND is E x^2 of x ~ N(5/3, 1)


def risk(theta: Any, gamma: np.ndarray) -> np.ndarray:
    """The performative risk of y = (5/3 + gamma_i theta) x + noise, exactly."""
    theta = np.asarray(theta, np.float64)
    miss = (1.0 - np.mean(gamma)) * theta - SLOPE
    return np.asarray((SECOND * (miss**2 + np.var(gamma) * theta**2) + NOISE**2 + PENALTY * theta**2) / 2.0)


def best(gamma: np.ndarray) -> tuple[float, float]:
    """theta_PO and its risk."""
    a = 1.0 - np.mean(gamma)
    theta = SECOND * a * SLOPE / (SECOND * (a**2 + np.var(gamma)) + PENALTY)
    return float(theta), float(risk(theta, gamma))


def stable(gamma: np.ndarray) -> float:
    """theta_PS."""
    return float(SECOND * SLOPE / (SECOND * (1.0 - np.mean(gamma)) + PENALTY))


def grid(center: float, alpha: float, clients: int) -> np.ndarray:
    """gamma_i, one a client."""
    return center - alpha + 2.0 * alpha * (np.arange(clients) + 0.5) / clients


def table(
    clients: int, alphas: list[float], center: float, printed_center: float, rate: float, local_steps: int, window: int,
    samples: int, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """PROFL on the clients, and one performative gradient for all their data in one place."""
    profl = pf.profl(rate, window, local_steps=local_steps, batch=pf.Fixed(samples))
    pg = pf.pg(rate, window, batch=pf.Fixed(samples * clients))
    settings: dict[str, dict[str, Any]] = {}
    for alpha in alphas:
        problem = pf.cases.house_pricing(alpha, clients, center)
        settings[f"PROFL {alpha:g}"] = {"algorithm": profl, "problem": problem}
        settings[f"PG {alpha:g}"] = {"algorithm": pg, "problem": problem.pooled(), "rounds": rounds * local_steps}
    start = pf.cases.house_pricing(0.0, clients, center)
    runs = sweep(start, settings, rounds, 0.0, seed, repeats)
    numbers: dict[str, float | tuple[float, float]] = {"optimum_of_text": best(-grid(printed_center, 0.0, clients))[1]}
    lines, losses = {}, {}
    for alpha in alphas:
        gamma = grid(center, alpha, clients)
        numbers[f"optimum_{label(alpha)}"] = best(gamma)[1]
        for name in ("PROFL", "PG"):
            loss = risk(models(runs[f"{name} {alpha:g}"]), gamma)
            steps = np.linspace(0, rounds * local_steps, loss.shape[1])
            kept = slice(None, None, max(1, loss.shape[1] // 300))
            lines[f"{name}, alpha {alpha:g}"] = (steps[kept], loss[:, kept] - best(gamma)[1])
            losses[name, alpha] = loss[:, -max(1, loss.shape[1] // 20) :].mean(axis=1)
            numbers[f"{name.lower()}_{label(alpha)}"] = mean(losses[name, alpha])
    for alpha in alphas:
        numbers[f"pg_excess_{label(alpha)}"] = mean(losses["PG", alpha] - losses["PROFL", alpha])
    return Outcome(numbers, {"excess": lay_out(lines)})


def vary(
    clients: int, center: float, alpha: float, pfl_rate: float, profl_rate: float, window: int, local_steps: int,
    samples: int, what: str, values: list[float], rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """PFL and PROFL while one thing changes: who takes part, how much clients differ, samples, or local work."""
    settings, targets, gammas = {}, {}, {}
    for value in values:
        spread = value if what == "alpha" else alpha
        problem = pf.cases.house_pricing(spread, clients, center)
        parts: dict[str, Any] = {
            "local_steps": int(value) if what == "local_steps" else local_steps,
            "batch": pf.Fixed(int(value) if what == "samples" else samples),
            "participation": _enrolled(value, clients) if what == "enrolment" else pf.Full(),
        }
        for name, algorithm in (
            ("PFL", pf.p_fedavg(pfl_rate, **parts)), ("PROFL", pf.profl(profl_rate, window, **parts))
        ):  # fmt: skip
            key = f"{name} {value:g}"
            work = parts["local_steps"] / local_steps  # the same local steps in all, whatever R
            settings[key] = {"algorithm": algorithm, "problem": problem, "rounds": max(20, round(rounds / work))}
            gammas[key] = grid(center, spread, clients)
            targets[key] = (stable(gammas[key]), best(gammas[key])[0])
    runs = sweep(pf.cases.house_pricing(0.0, clients, center), settings, rounds, 0.0, seed, repeats)
    return Outcome(_read(runs, targets, gammas), {"model": traces(runs)})


def _read(
    runs: dict[str, History], targets: dict[str, tuple[float, float]], gammas: dict[str, np.ndarray]
) -> dict[str, float | tuple[float, float]]:
    """Distances in units of |theta_PS - theta_PO|, so that they say which of the two it is."""
    found: dict[str, dict[str, np.ndarray]] = {"pfl": {}, "profl": {}}
    for key, history in runs.items():
        name, value = key.split()
        settling, optimal = targets[key]
        apart, own = abs(settling - optimal), settling if name == "PFL" else optimal
        quantities = {
            "distance": settled(history, own) / apart, "from_optimal": settled(history, optimal) / apart,
            "loss": risk(models(history)[:, -1], gammas[key]), "wobble": wobble(history),
            "rounds": rounds_until(history, own),
        }  # fmt: skip
        found[name.lower()] |= {f"{value.replace('.', '_')}_{kind}": rows for kind, rows in quantities.items()}
    numbers: dict[str, float | tuple[float, float]] = {
        f"{name}_{kind}": mean(rows) for name, those in found.items() for kind, rows in those.items()
    }
    plain = {name: {kind: float(np.mean(rows)) for kind, rows in those.items()} for name, those in found.items()}
    values = [key.split()[1].replace(".", "_") for key in runs if key.startswith("PFL ")]
    for name, those in plain.items():
        numbers[f"{name}_worst_distance"] = max(those[f"{v}_distance"] for v in values)
        for kind in ("rounds", "wobble"):
            first, last = those[f"{values[0]}_{kind}"], those[f"{values[-1]}_{kind}"]
            numbers[f"{name}_{kind}_first_over_last"] = first / last
            numbers[f"{name}_{kind}_last_over_first"] = last / first
    pfl, profl = plain["pfl"], plain["profl"]
    return numbers | {
        "wobble_pfl_over_profl_first": pfl[f"{values[0]}_wobble"] / profl[f"{values[0]}_wobble"],
        "pfl_least_from_optimal": min(pfl[f"{v}_from_optimal"] for v in values),
        "loss_pfl_over_profl_least": min(pfl[f"{v}_loss"] / profl[f"{v}_loss"] for v in values),
    }


def _enrolled(share: float, clients: int) -> Any:
    return pf.Full() if share >= 1 else pf.SchemeTwo(max(1, round(share * clients)))


def server_rule(
    clients: int, center: float, alpha: float, rate: float, local_steps: int, enrolled: int, rounds: int, repeats: int,
    seed: int,
) -> Outcome:  # fmt: skip
    """Algorithm 1, line 17, with part of the clients: models times alpha_i added up, against a mean of updates.

    Exact performative gradients, no sampling: what is seen is the server alone.
    """
    rng = np.random.default_rng(seed)
    gamma = grid(center, alpha, clients)
    theta_po, _ = best(gamma)
    start, lines, ends = 0.5 * theta_po, {}, {}
    for name in ("models, as printed", "updates"):
        theta, path = np.full(repeats, start), []
        for _ in range(rounds):
            chosen = np.stack([rng.permutation(clients)[:enrolled] for _ in range(repeats)])
            local, g = np.repeat(theta[:, None], enrolled, axis=1), gamma[chosen]
            for _ in range(local_steps):
                a = 1.0 - g
                local = local - rate * (SECOND * a * (a * local - SLOPE) + PENALTY * local)
            theta = local.sum(axis=1) / clients if name != "updates" else theta + (local - theta[:, None]).mean(axis=1)
            path.append(theta)
        lines[name] = (np.arange(1, rounds + 1), np.stack(path, axis=1))
        ends[name] = np.abs(np.stack(path, axis=1)[:, rounds // 2 :] - theta_po).mean(axis=1) / abs(theta_po)
    return Outcome(
        {
            "optimal_point": theta_po,
            "printed_relative_distance": mean(ends["models, as printed"]),
            "updates_relative_distance": mean(ends["updates"]),
        },
        {"model": lay_out(lines)},
    )
