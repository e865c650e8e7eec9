"""Where the stable point is, whether it attracts, and how far the optimum lies: Section 2, by numbers."""

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative._engine.risk import client_risks
from performative.papers.outcome import Outcome
from performative.papers.p_fedavg.instance import Study, on_gaussian
from performative.theory import Assumptions, gaussian_points, proposition_2_8, proposition_2_9


def example(slopes: list[float], scale: float, thetas: list[float]) -> Outcome:
    """Example 2.7: two clients of equal weight with data N(theta / 2, .) and N(-theta / 2, .), squared loss."""
    eps = np.asarray(slopes)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, eps, scale))
    constants = Assumptions.of_gaussian(0.0, eps, scale, start=1.0)
    worst = 0.0
    with jax.enable_x64(True):
        gradient = jax.jacobian(lambda theta, at: client_risks(problem, theta, at))
        each = np.asarray([gradient(jnp.asarray(theta), jnp.asarray(theta)) for theta in thetas])
    whole = each.mean(axis=1)
    for theta, clients, mean in zip(thetas, each, whole, strict=True):
        worst = max(worst, float(np.max((mean - clients) ** 2) / (0.25 * (1 + theta**2))))
    far = float(max(thetas))
    numbers = {
        "slope_one": float(each[-1, 0] / thetas[-1]),
        "slope_two": float(each[-1, 1] / thetas[-1]),
        "slope_both": float(whole[-1] / thetas[-1]),
        "worst_of_assumption_2_6": worst,
        "varsigma": constants.varsigma,
        "second_moment_over_square": (float(each[thetas.index(far), 0]) ** 2 + scale**2) / far**2,
        "stable_point": float(np.asarray(pf.stable_point(problem))),
    }
    return Outcome(numbers)


def stability(
    mean_m: float, spread: list[float], below: float, above: float, start: float, deployments: int, mixed: list[float]
) -> Outcome:
    """Proposition 2.8 on its own instance: eps_i = eps_bar + spread, with eps_bar below, at and above mu / L = 1."""
    shifts = np.asarray(spread)
    m = np.full(len(shifts), mean_m)

    def retrain(eps: np.ndarray, theta: float) -> np.ndarray:
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(m[: len(eps)], eps, 1.0))
        return np.asarray(pf.repeated_risk_minimization(problem, theta=theta, deployments=deployments), np.float64)

    calm, other = retrain(below + shifts, start), retrain(below + shifts, -start)
    slope = float(np.max(np.abs(np.diff(calm - other)[:5] / (calm - other)[:5] + 1)))
    stable = gaussian_points(m, above + shifts).stable
    at_one = gaussian_points(m, 1.0 + shifts)
    few = np.asarray(mixed)
    found = gaussian_points(m[: len(few)], few)
    given = Assumptions.of_gaussian(m, below + shifts, 1.0, start=start)
    numbers = {
        "contraction": slope,
        "contraction_bound": proposition_2_8(given).factor,
        "end_below": float(abs(calm[-1] - gaussian_points(m, below + shifts).stable)),
        "end_above": float(abs(retrain(above + shifts, start)[-1] - stable)),
        "start_above": abs(start - stable),
        "end_above_from_stable": float(abs(retrain(above + shifts, stable)[-1] - stable)),
        "stable_points_above": float(np.isfinite(stable)),
        "stable_points_at_one": float(np.isfinite(at_one.stable)),
        "clients_without": float(np.sum(few >= 1)),
        "end_mixed": float(abs(retrain(few, start)[-1] - found.stable)),
    }
    return Outcome(numbers)


@on_gaussian
def optimum(s: Study, draws: int) -> Outcome:
    """Proposition 2.9: on the paper's own example, and where the loss is Lipschitz in z.

    The latter is l = mu theta^2 / 2 - theta z with z = m - eps theta: theta_PS = m / (mu + eps),
    theta_PO = m / (mu + 2 eps), and at theta_PO the loss is |theta_PO|-Lipschitz in z.
    """
    p, m_of, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))
    points = gaussian_points(m_of, eps, p)

    def risk(theta: float) -> float:
        return float(p @ ((1 - eps) * theta - m_of) ** 2 / 2 + s.scale**2 / 2)

    ratios = []
    for mu, m, reaction in np.random.default_rng(s.seed).uniform(0.1, 3.0, (draws, 3)):
        stable, best = m / (mu + reaction), m / (mu + 2 * reaction)
        given = Assumptions(float(mu), 5.0, 0.0, 0.0, float(reaction), float(reaction), 1.0, Lz=float(best))
        ratios.append(abs(stable - best) / proposition_2_9(given).total)
    numbers = {
        "stable_point": points.stable,
        "optimal_point": points.optimal,
        "optimal_point_found": float(np.asarray(pf.optimal_point(s.problem))),
        "gap_over_stable": points.distance / abs(points.stable),
        "risk_stable_over_optimal": risk(points.stable) / risk(points.optimal),
        "largest_gap_over_bound": float(np.max(ratios)),
    }
    return Outcome(numbers)
