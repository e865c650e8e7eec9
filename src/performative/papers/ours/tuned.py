"""How far are the released steps from the best ones, and whom to sample when some clients react more than others?"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, thinned
from performative.papers.p_fedavg.instance import Study, on_gaussian
from performative.papers.runs import distance, quiet

# Initial constant step for the search on the paper's problem.
_CONSTANT = 0.01


@on_gaussian
def choices(
    s: Study, k: int, other_steps: list[int], few_rounds: int, groups: list[int], reaction: list[float], level: float,
    noise: float, step: float, drawn: int, settle: int,
) -> Outcome:  # fmt: skip
    """Steps of the paper's Gaussian problem against the best; then sampling probabilities under unequal reactions."""
    steps, lines = _steps(s, k, other_steps)
    chances, bars = _groups(s, groups, reaction, level, noise, step, drawn, settle)
    numbers = steps | _any_schedule(s, few_rounds) | _paper_chances(s, k, step) | chances
    return Outcome(numbers, {"error": lay_out(lines), "gain": bars})


def _steps(s: Study, k: int, other_steps: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scheme I after the same rounds: the released steps, the best constant, harmonic and free ones, and other E."""
    part: Any = {"participation": pf.SchemeOne(k)}
    how: Any = {"cost": "final", "rounds": s.rounds, "theta": s.start, "starts": 1}
    released = pf.p_fedavg(s.rate, local_steps=s.local_steps, **part)
    harmonic = pf.tune(s.problem, released, ["rate"], **how)
    level = pf.tune(s.problem, pf.p_fedavg(_CONSTANT, local_steps=s.local_steps, **part), ["rate"], **how)
    free = pf.tune(s.problem, harmonic.algorithm, ["rate"], schedule="steps", **how)
    u = s.beta * (1 - s.sensitivity)
    numbers: dict[str, Any] = {
        "released": harmonic.before, "best_harmonic": harmonic.after, "best_constant": level.after,
        "best_of_all": free.after, "released_over_harmonic": harmonic.ratio,
        "released_over_all": harmonic.before / free.after, "harmonic_over_all": harmonic.after / free.after,
        "constant_over_all": level.after / free.after, "best_scale": harmonic.values["rate.scale"],
        "best_offset": harmonic.values["rate.offset"],
        # In the limit of many steps the error is proportional to 1/t, smallest for the scale 1 / (1 - eps).
        "released_over_best_in_the_limit": s.limit("one", k) / _scaled(s).limit("one", k),
        "limit_in_closed_form": u**2 / (2 * u - 1),
    }  # fmt: skip
    others = pf.tune(s.problem, harmonic.algorithm, {"rate": None, "local_steps": other_steps}, **how)
    by_count = [harmonic.after, *(after for _, after in others.tried)]
    numbers["worst_count_over_best"] = max(by_count) / min(by_count)
    named = {
        "as released": released, "best constant": level.algorithm, "best harmonic": harmonic.algorithm,
        "best of all": free.algorithm,
    }  # fmt: skip
    errors = {name: pf.moments(s.problem, one, s.rounds, s.start).mse_stable for name, one in named.items()}
    t = np.arange(s.rounds + 1) * s.local_steps
    return numbers, {name: thinned(t, np.sqrt(np.asarray(error))) for name, error in errors.items()}


def _scaled(s: Study) -> Study:
    """The study with the asymptotically best scale."""
    return dataclasses.replace(s, beta=1 / (1 - s.sensitivity))


def _any_schedule(s: Study, rounds: int) -> dict[str, Any]:
    """Full participation, E = 1: the best of all schedules is harmonic, with 1 / MSE_R = 1 / MSE_0 + R c^2 / s^2."""
    how: Any = {"cost": "final", "rounds": rounds, "theta": s.start, "starts": 1}
    first = pf.tune(s.problem, pf.p_fedavg(s.rate), ["rate"], **how)
    free = pf.tune(s.problem, first.algorithm, ["rate"], schedule="steps", **how)
    c, p = 1 - s.sensitivity, s.own["weights"]
    noise = float(p**2 @ np.broadcast_to(s.own["scale"] ** 2, p.shape))
    least = 1 / (1 / s.way**2 + rounds * c**2 / noise)
    return {"all_schedules_over_closed_form": free.after / least, "harmonic_over_closed_form": first.after / least}


def _paper_chances(s: Study, k: int, step: float) -> dict[str, Any]:
    """The paper's clients at a constant step: the best probabilities, by gradient and in closed form."""
    p = s.own["weights"]
    known = best_chances(s.own["mean"], s.own["sensitivity"], s.own["scale"], p, step / 10, s.local_steps, k)
    who = pf.participation.Weighted(k, p)
    recipe = pf.p_fedavg(step / 10, local_steps=s.local_steps, participation=who)
    found = pf.tune(s.problem, recipe, ["participation.chance"], theta=s.start, starts=1)
    return {
        "paper_gain": found.ratio,
        "paper_chances_off": float(np.abs(found.values["participation.chance"] / known.chance - 1).max()),
        "paper_error_off": abs(found.after / known.error - 1),
    }


def _groups(
    s: Study, groups: list[int], reaction: list[float], level: float, noise: float, step: float, k: int, settle: int
) -> tuple[dict[str, Any], Any]:
    """Some clients react more than the others; the long-run error by which clients the server samples."""
    N, p = s.clients, np.full(s.clients, 1 / s.clients)
    gains: dict[str, list[float]] = {"best chances": [], "by sensitivity": [], "no noise, short steps": []}
    off = []
    for count in groups:
        eps = np.where(np.arange(N) < count, reaction[1], reaction[0])
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.full(N, level), eps, noise))
        recipe = pf.p_fedavg(step, participation=pf.participation.Weighted(k, p))
        found = pf.tune(problem, recipe, ["participation.chance"], starts=1)
        known = best_chances(np.full(N, level), eps, noise, p, step, 1, k)
        off.append(float(np.abs(found.values["participation.chance"] / known.chance - 1).max()))
        other = pf.p_fedavg(step, participation=pf.participation.Weighted(k, eps))
        loud = pf.moments(problem, other, 1).stationary
        assert loud is not None and loud.mse_stable is not None
        share = count / N
        gains["best chances"].append(found.ratio)
        gains["by sensitivity"].append(found.before / loud.mse_stable)
        gains["no noise, short steps"].append(1 / (4 * share * (1 - share)))
        if count == groups[0]:
            asked = {"best": (found.algorithm, found.after), "all alike": (recipe, found.before)}
            few = {name: _measured(problem, one, settle, s.repeats, s.seed) for name, (one, _) in asked.items()}
    numbers: dict[str, Any] = {
        "gain_few": gains["best chances"][0], "gain_half": gains["best chances"][-1],
        "worst_by_sensitivity": min(gains["by sensitivity"]), "chances_off": max(off),
    }  # fmt: skip
    for name, (value, error) in few.items():
        exact, key = asked[name][1], name.replace(" ", "_")
        numbers |= {f"run_{key}": (value, error), f"run_over_exact_{key}": (value / exact, error / exact)}
    x = np.asarray(groups) / N
    return numbers, lay_out({name: (x, values) for name, values in gains.items()})


def _measured(problem: pf.Problem, recipe: pf.Algorithm, rounds: int, repeats: int, seed: int) -> tuple[float, float]:
    """The squared distance after many rounds, from runs."""
    start = float(np.asarray(pf.stable_point(problem)))
    return mean(distance(pf.run(problem, recipe, rounds, start, seed, repeats, **quiet()))[:, -1] ** 2)


class Chances(NamedTuple):
    """The best q, and E|theta - theta_PS|^2 with it."""

    chance: np.ndarray
    error: float


def best_chances(m: np.ndarray, eps: np.ndarray, scale: Any, p: np.ndarray, eta: float, E: int, k: int) -> Chances:
    """The probabilities of `Weighted` with the smallest long-run error, on N(m_i + eps_i theta, scale_i^2).

    An update is delta_i = b_i - a_i e + xi_i with e = theta - E theta, so one round gives

        v' = (1 - 2 C) v + sum_i p_i^2 E delta_i^2 / (K q_i) + (1 - 1/K) (C^2 v + sum_i p_i^2 E xi_i^2),   C = p.a

    and at stationarity dv/dq = 0 iff the sum does not change with q at that v: the mean of theta does not depend on q.
    Hence q_i ~ p_i (E delta_i^2)^(1/2) under the stationary distribution, and v solves one scalar equation whose right
    side is concave in v.
    """
    alpha = 1 - eps
    powers = (1 - eta * alpha) ** np.arange(E)[:, None]
    g, xi = eta * powers.sum(axis=0), (eta * scale) ** 2 * (powers**2).sum(axis=0)
    a = g * alpha
    C = float(p @ a)
    middle = float(p @ (g * m)) / C
    b = g * m - a * middle
    v = 0.0
    for _ in range(10_000):
        root = np.sqrt(b**2 + a**2 * v + xi)
        rest = (1 - 1 / k) * float(p**2 @ xi)
        v, last = (float(p @ root) ** 2 / k + rest) / (2 * C - (1 - 1 / k) * C**2), v
        if abs(v - last) <= 1e-15 * v:
            break
    q = p * np.sqrt(b**2 + a**2 * v + xi)
    stable = float(p @ m) / float(1 - p @ eps)
    return Chances(q / q.sum(), v + (middle - stable) ** 2)
