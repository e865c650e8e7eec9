"""Section 3.3: strategic borrowers and a lender as a game. Best responses are found by search, not assumed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

import performative as pf
from performative._base.client_axis import take_clients
from performative.papers.outcome import Outcome, over


def strategic(clients: int, rows: int, strength: list[float], penalty: float, moves: int, seed: int) -> Outcome:
    """One feature x, which its owner changes to maximize -theta x - (x - x_bar)^2 / (2 strength_i).

    The lender minimizes a logistic loss. Leader and followers are optimized by search; the result is compared with the
    library's stable and optimal points.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (clients, rows))
    x_bar = rng.normal(size=(clients, rows)) + 2.0 * y - 1.0
    eps = np.asarray(strength)[:, None]
    population = pf.populations.Strategic(x_bar[..., None], y, np.asarray(strength))
    problem = pf.Problem(pf.losses.logistic(penalty), population)
    stable, optimal = (np.asarray(point(problem)).item() for point in (pf.stable_point, pf.optimal_point))

    def utility(x: np.ndarray, theta: float) -> np.ndarray:
        return -theta * x - (x - x_bar) ** 2 / (2 * eps)

    def response(theta: float, h: float = 1e-3) -> np.ndarray:
        """Bisection on the slope of the utility, which is a parabola: differences are exact."""
        low, high = x_bar - 100.0, x_bar + 100.0
        for _ in range(80):
            middle = (low + high) / 2
            rises = utility(middle + h, theta) > utility(middle - h, theta)
            low, high = np.where(rises, middle, low), np.where(rises, high, middle)
        return middle

    def risk(theta: float, x: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0, theta * x) - y * theta * x) + penalty * theta**2 / 2)

    def best(function: Any) -> float:
        return float(minimize_scalar(function, bracket=(-1.0, 1.0), tol=1e-12).x)

    path = [0.0]
    for _ in range(moves):
        seen = response(path[-1])
        path.append(best(lambda theta, x=seen: risk(theta, x)))
    leader, there = best(lambda theta: risk(theta, response(theta))), _reacted(population, stable)
    numbers = {
        "theta_PS": stable,
        "theta_PO": optimal,
        "dynamics_off": abs(path[-1] - stable),
        "leader_off": abs(leader - optimal),
        "follower_gain": float(np.max(utility(response(stable), stable) - utility(there, stable))),
        "lender_gain": risk(stable, there) - risk(best(lambda theta: risk(theta, there)), there),
        "leader_over_stable": risk(leader, response(leader)) / risk(stable, there),
    }
    return Outcome(numbers, {"models": over(np.arange(len(path)), {"best responses": path})})


def _reacted(population: Any, theta: float) -> np.ndarray:
    """The rows after the library's reaction, [clients, rows]."""
    with jax.enable_x64(True):
        everyone, model = jax.tree.map(jnp.asarray, population), jnp.asarray([theta])

        def rows(client: jax.Array) -> jax.Array:
            mine = take_clients(everyone, client)[0]
            nodes, _ = mine.quadrature(model, 0)
            return jax.vmap(lambda node: mine.sample(node, None, model)[0][0])(nodes)

        return np.stack([rows(client) for client in jnp.arange(population.clients)])
