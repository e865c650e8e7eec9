"""House pricing regression: Table 1, Figures 3 and 4, and the benefit of clustering clients."""

from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import Outcome, lay_out, mean, thinned
from performative.papers.profl.runs import Runs, nearer, ratio, rounds_until, wobble
from performative.papers.runs import given, label, late, models, traces

NOISE, SLOPE, PENALTY, SECOND = 61 / 30, 5 / 3, 10 / 3, 34 / 9  # SECOND is E x^2 of x ~ N(5/3, 1)


def risk(theta: Any, gamma: np.ndarray, alpha: np.ndarray | None = None) -> np.ndarray:
    """The performative risk of y = (5/3 + gamma_i theta) x + noise, exactly."""
    theta, middle = np.asarray(theta, np.float64), np.average(gamma, weights=alpha)
    miss, differ = (1.0 - middle) * theta - SLOPE, np.average((gamma - middle) ** 2, weights=alpha)
    return np.asarray((SECOND * (miss**2 + differ * theta**2) + NOISE**2 + PENALTY * theta**2) / 2.0)


def best(gamma: np.ndarray, alpha: np.ndarray | None = None) -> tuple[float, float]:
    """theta_PO and its risk."""
    a = 1.0 - np.average(gamma, weights=alpha)
    theta = SECOND * a * SLOPE / (SECOND * np.average((1.0 - gamma) ** 2, weights=alpha) + PENALTY)
    return float(theta), float(risk(theta, gamma, alpha))


def stable(gamma: np.ndarray) -> float:
    """theta_PS."""
    return float(SECOND * SLOPE / (SECOND * (1.0 - np.mean(gamma)) + PENALTY))


def grid(center: float, alpha: float, clients: int) -> np.ndarray:
    """gamma_i, one per client."""
    return center - alpha + 2.0 * alpha * (np.arange(clients) + 0.5) / clients


@given(Runs)
def table(s: Runs, alphas: list[float], center: float, printed_center: float) -> Outcome:
    """PROFL on the clients, and one performative gradient on the pooled data."""
    pg = pf.pg(s.rate, s.window, batch=pf.Fixed(s.samples * s.clients))
    settings: dict[str, dict[str, Any]] = {}
    for alpha in alphas:
        problem = s.within(pf.cases.house_pricing(alpha, s.clients, center))
        settings[f"PROFL {alpha:g}"] = {"algorithm": s.both["PROFL"], "problem": problem}
        settings[f"PG {alpha:g}"] = {"algorithm": pg, "problem": problem.pooled(), "rounds": s.rounds * s.local_steps}
    runs = s.sweep(pf.cases.house_pricing(0.0, s.clients, center), settings, 0.0)
    numbers: dict[str, Any] = {"optimum_of_text": best(-grid(printed_center, 0.0, s.clients))[1]}
    lines, losses = {}, {}
    for alpha in alphas:
        gamma = grid(center, alpha, s.clients)
        for name in ("PROFL", "PG"):
            loss = risk(models(runs[f"{name} {alpha:g}"]), gamma)
            steps = np.linspace(0, s.rounds * s.local_steps, loss.shape[1])
            lines[rf"{name}, $\alpha$ = {alpha:g}"] = thinned(steps, loss - best(gamma)[1])
            losses[name, alpha] = loss[:, -max(1, loss.shape[1] // 20) :].mean(axis=1)
            numbers[f"{name.lower()}_{label(alpha)}"] = mean(losses[name, alpha])
        numbers[f"pg_excess_{label(alpha)}"] = mean(losses["PG", alpha] - losses["PROFL", alpha])
    numbers["optimum"] = best(grid(center, 0.0, s.clients))[1]
    for name in ("PROFL", "PG"):
        numbers[f"{name.lower()}_grows"] = mean(losses[name, alphas[-1]] - losses[name, alphas[0]])
    return Outcome(numbers, {"excess": lay_out(lines)})


@given(Runs)
def vary(
    s: Runs, center: float, alpha: float, pfl_rate: float, profl_rate: float, what: str, values: list[float]
) -> Outcome:
    """PFL and PROFL as one factor varies: participation, heterogeneity, sample size, or local work."""
    settings, gammas = {}, {}
    for value in values:
        differ = value if what == "alpha" else alpha
        problem = pf.cases.house_pricing(differ, s.clients, center)
        parts: dict[str, Any] = {
            "local_steps": int(value) if what == "local_steps" else s.local_steps,
            "batch": pf.Fixed(int(value) if what == "samples" else s.samples),
            "participation": _enrolled(value, s.clients) if what == "enrolment" else pf.Full(),
        }
        for name, algorithm in (
            ("PFL", pf.p_fedavg(pfl_rate, **parts)), ("PROFL", pf.profl(profl_rate, s.window, **parts))
        ):  # fmt: skip
            work = parts["local_steps"] / s.local_steps  # the same total number of local steps for every R
            how = {"algorithm": algorithm, "problem": problem, "rounds": max(20, round(s.rounds / work))}
            settings[f"{name} {value:g}"], gammas[f"{name} {value:g}"] = how, grid(center, differ, s.clients)
    runs = s.sweep(pf.cases.house_pricing(0.0, s.clients, center), settings, 0.0)
    numbers = _read(runs, gammas) | {"theta_PS": stable(grid(center, alpha, s.clients))}
    return Outcome(numbers | {"theta_PO": best(gammas[f"PFL {values[0]:g}"])[0]}, {"model": traces(runs)})


def _read(runs: dict[str, History], gammas: dict[str, np.ndarray]) -> dict[str, Any]:
    """Where each run settles, which point it belongs to, and the last setting against the first."""
    found: dict[str, dict[str, list[Any]]] = {"PFL": {}, "PROFL": {}}
    for key, history in runs.items():
        name = key.split()[0]
        settling, optimal = stable(gammas[key]), best(gammas[key])[0]
        own, other = (settling, optimal) if name == "PFL" else (optimal, settling)
        quantities = {
            "own": nearer(history, own, other), "loss": late(risk(models(history), gammas[key])).mean(axis=1),
            "wobble": wobble(history), "rounds": rounds_until(history, own),
            "distance": late(np.abs(models(history) - own)).mean(axis=1),
        }  # fmt: skip
        for kind, value in quantities.items():
            found[name].setdefault(kind, []).append(value)
    numbers: dict[str, Any] = {}
    for name, those in found.items():
        numbers[f"{name.lower()}_own_over_other"] = max(those["own"])
        for kind in ("rounds", "wobble", "distance"):
            numbers[f"{name.lower()}_{kind}_last_over_first"] = ratio(those[kind][-1], those[kind][0])
    pfl, profl = found["PFL"], found["PROFL"]
    # The largest ratio of PROFL's loss to PFL's; which of the two oscillates, in the first setting.
    numbers["loss_profl_over_pfl"] = max(map(ratio, profl["loss"], pfl["loss"]))
    return numbers | {"wobble_profl_over_pfl": ratio(profl["wobble"][0], pfl["wobble"][0])}


def _enrolled(share: float, clients: int) -> Any:
    return pf.Full() if share >= 1 else pf.SchemeTwo(max(1, round(share * clients)))


@given(Runs)
def clusters(s: Runs, kinds: list[float]) -> Outcome:
    """df/dtheta learned by each client, by the server for all, or by the server for each of two kinds of clients."""
    gamma = np.repeat(kinds, s.clients // len(kinds))
    houses = pf.populations.Regression(
        features_mean=np.full(len(gamma), 5 / 3), features_cov=1.0, slope=SLOPE, sensitivity=-gamma, noise=NOISE
    )
    pools = {"one for all": 1, f"{len(kinds)} clusters": len(kinds)}
    settings = {"each client": pf.pofl(s.rate, s.window, **s.common)} | {
        name: pf.pofl(s.rate, s.window, aggregator=pf.aggregators.PooledJacobian(alike=True, clusters=many), **s.common)
        for name, many in pools.items()
    }
    runs = s.sweep(pf.Problem(pf.losses.ridge(PENALTY), houses), settings)
    losses = {name: risk(models(run), gamma) for name, run in runs.items()}
    local, one, several = losses.values()
    numbers: dict[str, Any] = {
        "optimal_loss": best(gamma)[1],
        "saved_by_clusters": mean((local - several).mean(axis=1)),
        "saved_over_one_for_all": mean(late(one - several).mean(axis=1)),
    }
    return Outcome(numbers, {"loss": traces(runs, lambda history: risk(models(history), gamma))})
