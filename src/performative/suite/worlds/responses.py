"""People whose best response is not linear."""

import numpy as np

from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.parts.best_response import BestResponse, ScoreLoss, network_score, quadratic_score
from performative.suite.registry import register
from performative.suite.setting import Setting


def _rings(clients: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two rings of people around the origin, the outer one labeled 1; each client has its own offset."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (clients, rows))
    angle = rng.uniform(0.0, 2 * np.pi, (clients, rows))
    radius = np.where(y == 1, 1.8, 0.8) + 0.25 * rng.standard_normal((clients, rows))
    x = radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return x + 0.2 * rng.standard_normal((clients, 1, 2)), y


@register("response-quadratic-v1", family="responses")
def quadratic() -> Setting:
    """Four clients whose people lie on two rings; the score is quadratic in x, so people with a high score move
    inward along their local gradient: five gradient steps on score plus squared distance. The loss is convex in theta
    at fixed data; the reaction is not linear."""
    x, y = _rings(4, 150, 17)
    people = BestResponse(quadratic_score, x, y, np.array([0.05, 0.1, 0.15, 0.2]))
    problem = Problem(ScoreLoss(quadratic_score, 0.05), people)
    known = {"strong_convexity": 0.05}
    return Setting(problem, Budget(40, 40_000, 40), rows=50, start=np.zeros(6), constants=known, starts=2)


@register("response-network-v1", family="responses")
def network() -> Setting:
    """The two rings, scored by a network of four hidden units: neither the risk at fixed data nor the performative
    risk is convex, and people follow the local gradient of the network. Points are local: those found from the
    start."""
    x, y = _rings(4, 100, 18)
    start = 0.7 * np.random.default_rng(4).standard_normal(17)
    problem = Problem(ScoreLoss(network_score, 0.02), BestResponse(network_score, x, y, 0.1))
    return Setting(problem, Budget(40, 40_000, 40), rows=50, start=start, constants={}, starts=0)
