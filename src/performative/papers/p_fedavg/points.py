"""The assumptions, the stable point, its stability, and the distance to the optimum: Section 2, numerically."""

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative._engine.risk import client_risks
from performative.papers.outcome import Outcome, lay_out
from performative.papers.p_fedavg.instance import Study, on_gaussian
from performative.theory import Assumptions, gaussian_points, proposition_2_8, proposition_2_9


def example(slopes: list[float], scale: float, thetas: list[float], draws: int, seed: int) -> Outcome:
    """Example 2.7: two clients of equal weight with data N(theta / 2, .) and N(-theta / 2, .), squared loss."""
    eps, at = np.asarray(slopes), np.asarray(thetas)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, eps, scale))
    with jax.enable_x64(True):
        gradient = jax.jacobian(lambda theta, at: client_risks(problem, theta, at))
        each = np.asarray([gradient(jnp.asarray(theta), jnp.asarray(theta)) for theta in thetas])
        risks = np.asarray([client_risks(problem, jnp.asarray(theta), jnp.asarray(theta)) for theta in thetas])
    whole = each.mean(axis=1)
    # The loss is half the square of its gradient.
    printed = np.array([0.25, 2.25]) * at[:, None] ** 2 + scale**2
    numbers = {
        "slope_one": float(each[-1, 0] / at[-1]),
        "slope_both": float(whole[-1] / at[-1]),
        "gap_over_assumption": float(np.max((whole[:, None] - each) ** 2 / (0.25 * (1 + at[:, None] ** 2)))),
        "second_moment_off": float(np.max(np.abs(2 * risks / printed - 1))),
        "stable_point": float(np.asarray(pf.stable_point(problem))),
    }
    return Outcome(numbers | _bounded_gradients(draws, seed))


def _bounded_gradients(draws: int, seed: int) -> dict[str, float]:
    """l = sqrt(1 + (theta - z)^2) with z ~ N(m_i + eps_i theta, 1): |grad l| <= G = 1 for every theta, L = 1.

    Lemma 2.4 and the two implications of (3), largest left over right side at random models near and far.
    """
    rng = np.random.default_rng(seed)
    m, eps = rng.normal(size=4), rng.uniform(0.1, 2.0, size=4)
    nodes, share = np.polynomial.hermite_e.hermegauss(100)

    def moments(theta: float, deployed: float) -> tuple[np.ndarray, np.ndarray]:
        """E grad l and E |grad l|^2 of each client."""
        u = theta - (m + eps * deployed)[:, None] - nodes
        slope = u / np.sqrt(1 + u**2)
        return slope @ share / share.sum(), slope**2 @ share / share.sum()

    worst = np.zeros(3)
    for _ in range(draws):
        models = rng.normal(size=2) * 10 ** rng.uniform(-2, 2)
        others = models + rng.normal(size=2) * 10 ** rng.uniform(-2, 1)
        reach = abs(models[0] - others[0]) + eps * abs(models[1] - others[1])
        moved = np.abs(moments(*models)[0] - moments(*others)[0])
        mean, square = moments(models[0], models[0])
        apart = np.max((mean.mean() - mean) ** 2)
        worst = np.maximum(worst, [np.max(moved / reach), np.max(square - mean**2), apart / 4])
    return dict(zip(("moved_over_lemma", "variance_over_g", "gap_over_g"), map(float, worst), strict=True))


def stability(
    mean_m: float, spread: list[float], below: float, above: float, start: float, deployments: int, mixed: list[float]
) -> Outcome:
    """Proposition 2.8 on its instance: eps_i = eps_bar + spread, with eps_bar below, at and above mu / L = 1."""
    shifts = np.asarray(spread)
    m = np.full(len(shifts), mean_m)

    def retrain(eps: np.ndarray, theta: float, times: int = deployments) -> np.ndarray:
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(m[: len(eps)], eps, 1.0))
        return np.asarray(pf.repeated_risk_minimization(problem, theta=theta, deployments=times), np.float64)

    calm, other = retrain(below + shifts, start), retrain(below + shifts, -start)
    few, apart = np.asarray(mixed), gaussian_points(m, above + shifts).stable
    given = Assumptions.of_gaussian(m, below + shifts, 1.0, start=start)
    drifts = [np.abs(np.diff(retrain(1.0 + shifts, theta))) for theta in (-100.0, start, 100.0)]
    numbers = {
        "contraction": float(np.max(np.abs(np.diff(calm - other)[:5] / (calm - other)[:5] + 1))),
        "contraction_bound": proposition_2_8(given).factor,
        "end_below": float(abs(calm[-1] - gaussian_points(m, below + shifts).stable)),
        "least_last_step_at_one": float(min(steps[-1] / steps[0] for steps in drifts)),
        # How far one deployment moves a model: the step is zero only at a stable point.
        "least_move_above": min(float(abs(np.diff(retrain(above + shifts, t, 1))[0])) for t in (apart, start, 100.0)),
        "end_mixed": float(abs(retrain(few, start)[-1] - gaussian_points(m[: len(few)], few).stable)),
    }
    return Outcome(numbers)


@on_gaussian
def optimum(s: Study, draws: int) -> Outcome:
    """Proposition 2.9: on the paper's own example, and with a loss that is Lipschitz in z.

    The latter is l = mu theta^2 / 2 - theta z with z = m - eps theta: theta_PS = m / (mu + eps),
    theta_PO = m / (mu + 2 eps), and at theta_PO the loss is |theta_PO|-Lipschitz in z.
    """
    p, m_of, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))

    def risk(theta: float) -> float:
        return float(p @ ((1 - eps) * theta - m_of) ** 2 / 2 + s.scale**2 / 2)

    ratios = []
    for mu, m, reaction in np.random.default_rng(s.seed).uniform(0.1, 3.0, (draws, 3)):
        stable, best = m / (mu + reaction), m / (mu + 2 * reaction)
        given = Assumptions(float(mu), 5.0, 0.0, 0.0, float(reaction), float(reaction), 1.0, Lz=float(best))
        ratios.append(abs(stable - best) / proposition_2_9(given).total)
    found = float(np.asarray(pf.optimal_point(s.problem)))
    lines = {"risk": (np.linspace(-20, 120, 141), np.array([risk(theta) for theta in np.linspace(-20, 120, 141)]))}
    numbers = {
        "theta_PS": s.stable,
        "theta_PO": s.optimal,
        "solver_off": abs(found - s.optimal),
        "gap_over_stable": abs(s.stable - found) / abs(s.stable),
        "risk_stable_over_optimal": risk(s.stable) / risk(found),
        "largest_gap_over_bound": float(np.max(ratios)),
    }
    return Outcome(numbers, {"risk": lay_out(lines)})
