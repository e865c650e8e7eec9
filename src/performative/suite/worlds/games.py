"""Several learners whose people see all models: a method plays for all of them and is scored on their total risk."""

import numpy as np

from performative.cases import competing_banks, linear_game
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting


@register("game-linear-v1", family="games")
def linear() -> Setting:
    """Four sellers whose demand falls with their own price and rises with the others', E z = b + M p, loss
    -p_i z_i + p_i^2 / 2. The stable point is (I - M)^-1 b; the social optimum, (I - M - M^T)^-1 b, is out of reach for
    sellers who each retrain on their own demand."""
    rng = np.random.default_rng(3)
    b = rng.uniform(2.0, 4.0, 4)
    M = rng.uniform(0.0, 0.15, (4, 4)) * (1 - np.eye(4)) - np.diag(rng.uniform(0.4, 0.8, 4))
    eye = np.eye(4)
    return Setting(
        linear_game(b, M), Budget(60, 40_000, 60), rows=100, start=np.full(4, 1.0),
        stable=np.linalg.solve(eye - M, b), optimal=np.linalg.solve(eye - M - M.T, b),
        constants={
            "sensitivity": float(np.linalg.norm(M, 2)), "strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0,
        },
        advice="pf.multi_agent_pp",
    )  # fmt: skip


@register("game-banks-v1", family="games")
def banks() -> Setting:
    """Two banks that score applicants of two kinds, who go where they are scored best and manipulate their features.
    If applicants are selective, each bank ends up serving one kind, which is also best for both together
    (Ginart et al. 2021; Dean et al. 2022). Points are computed numerically."""
    start = np.array([[0.6, 0.2, 0.0], [0.2, 0.6, 0.0]])
    return Setting(
        competing_banks(sharpness=1.0), Budget(60, 40_000, 60), rows=100, start=start,
        constants={"sensitivity": 0.1, "strong_convexity": 0.02}, advice="pf.multi_agent_pp",
    )  # fmt: skip
