"""House pricing regression: Table 1, Figures 3 and 4."""

from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import Outcome, lay_out, mean, thinned
from performative.papers.profl.runs import Runs, rounds_until, settled, wobble
from performative.papers.runs import given, label, models, traces

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


@given(Runs)
def table(s: Runs, alphas: list[float], center: float, printed_center: float) -> Outcome:
    """PROFL on the clients, and one performative gradient for all their data in one place."""
    pg = pf.pg(s.rate, s.window, batch=pf.Fixed(s.samples * s.clients))
    settings: dict[str, dict[str, Any]] = {}
    for alpha in alphas:
        problem = pf.cases.house_pricing(alpha, s.clients, center)
        settings[f"PROFL {alpha:g}"] = {"algorithm": s.both["PROFL"], "problem": problem}
        settings[f"PG {alpha:g}"] = {"algorithm": pg, "problem": problem.pooled(), "rounds": s.rounds * s.local_steps}
    runs = s.sweep(pf.cases.house_pricing(0.0, s.clients, center), settings, 0.0)
    numbers: dict[str, Any] = {"optimum_of_text": best(-grid(printed_center, 0.0, s.clients))[1]}
    lines, losses = {}, {}
    for alpha in alphas:
        gamma = grid(center, alpha, s.clients)
        numbers[f"optimum_{label(alpha)}"] = best(gamma)[1]
        for name in ("PROFL", "PG"):
            loss = risk(models(runs[f"{name} {alpha:g}"]), gamma)
            steps = np.linspace(0, s.rounds * s.local_steps, loss.shape[1])
            lines[f"{name}, alpha {alpha:g}"] = thinned(steps, loss - best(gamma)[1])
            losses[name, alpha] = loss[:, -max(1, loss.shape[1] // 20) :].mean(axis=1)
            numbers[f"{name.lower()}_{label(alpha)}"] = mean(losses[name, alpha])
    for alpha in alphas:
        numbers[f"pg_excess_{label(alpha)}"] = mean(losses["PG", alpha] - losses["PROFL", alpha])
    return Outcome(numbers, {"excess": lay_out(lines)})


@given(Runs)
def vary(
    s: Runs, center: float, alpha: float, pfl_rate: float, profl_rate: float, what: str, values: list[float]
) -> Outcome:
    """PFL and PROFL while one thing changes: who takes part, how much clients differ, samples, or local work."""
    settings, targets, gammas = {}, {}, {}
    for value in values:
        spread = value if what == "alpha" else alpha
        problem = pf.cases.house_pricing(spread, s.clients, center)
        parts: dict[str, Any] = {
            "local_steps": int(value) if what == "local_steps" else s.local_steps,
            "batch": pf.Fixed(int(value) if what == "samples" else s.samples),
            "participation": _enrolled(value, s.clients) if what == "enrolment" else pf.Full(),
        }
        for name, algorithm in (
            ("PFL", pf.p_fedavg(pfl_rate, **parts)), ("PROFL", pf.profl(profl_rate, s.window, **parts))
        ):  # fmt: skip
            key = f"{name} {value:g}"
            work = parts["local_steps"] / s.local_steps  # the same local steps in all, whatever R
            settings[key] = {"algorithm": algorithm, "problem": problem, "rounds": max(20, round(s.rounds / work))}
            gammas[key] = grid(center, spread, s.clients)
            targets[key] = (stable(gammas[key]), best(gammas[key])[0])
    runs = s.sweep(pf.cases.house_pricing(0.0, s.clients, center), settings, 0.0)
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
    numbers: dict[str, Any] = {
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


@given(Runs)
def server_rule(s: Runs, center: float, alpha: float, enrolled: int) -> Outcome:
    """Algorithm 1, line 17, with part of the clients: models times alpha_i added up, against a mean of updates.

    Exact performative gradients, no sampling: what is seen is the server alone.
    """
    rng = np.random.default_rng(s.seed)
    gamma = grid(center, alpha, s.clients)
    theta_po, _ = best(gamma)
    start, lines, ends = 0.5 * theta_po, {}, {}
    for name in ("models, as printed", "updates"):
        theta, path = np.full(s.repeats, start), []
        for _ in range(s.rounds):
            chosen = np.stack([rng.permutation(s.clients)[:enrolled] for _ in range(s.repeats)])
            local, g = np.repeat(theta[:, None], enrolled, axis=1), gamma[chosen]
            for _ in range(s.local_steps):
                a = 1.0 - g
                local = local - s.rate * (SECOND * a * (a * local - SLOPE) + PENALTY * local)
            moved = theta + (local - theta[:, None]).mean(axis=1)
            theta = moved if name == "updates" else local.sum(axis=1) / s.clients
            path.append(theta)
        lines[name] = (np.arange(1, s.rounds + 1), np.stack(path, axis=1))
        ends[name] = np.abs(lines[name][1][:, s.rounds // 2 :] - theta_po).mean(axis=1) / abs(theta_po)
    numbers: dict[str, Any] = {
        "optimal_point": theta_po,
        "printed_relative_distance": mean(ends["models, as printed"]),
        "updates_relative_distance": mean(ends["updates"]),
    }
    return Outcome(numbers, {"model": lay_out(lines)})
