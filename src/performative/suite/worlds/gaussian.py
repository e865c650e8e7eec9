"""Means that follow the model: everything is known in closed form."""

from typing import Any

import numpy as np

from performative import losses
from performative.populations import Gaussian
from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting


def _scalar(eps: float, mean: float = 1.0, **options: Any) -> Setting:
    """One client, z ~ N(mean + eps theta, 1)."""
    problem = Problem(losses.squared, Gaussian(np.array([mean]), eps, 1.0))
    return Setting(
        problem, Budget(50, 20_000, 50), rows=200, constants=_known(abs(eps), 1.0), **options,
    )  # fmt: skip


def _known(eps: float, noise: float) -> dict[str, float]:
    return {"sensitivity": eps, "strong_convexity": 1.0, "smoothness": 1.0, "noise": noise}


@register("gaussian-contracting-v1", family="gaussian")
def contracting() -> Setting:
    """Mean estimation, z ~ N(1 + theta / 2, 1), squared loss: retraining contracts by 1/2 and converges to theta = 2,
    which is also optimal. The easiest environment: any method must solve it."""
    return _scalar(0.5)


@register("gaussian-oscillating-v1", family="gaussian")
def oscillating() -> Setting:
    """Mean estimation, z ~ N(1 - 1.5 theta, 1): full retraining overshoots further each time and diverges, while
    short steps, or averages of past data sets, converge to theta = 0.4."""
    return _scalar(-1.5)


@register("gaussian-near-one-v1", family="gaussian")
def near_one() -> Setting:
    """Mean estimation, z ~ N(1 + 0.95 theta, 1): retraining contracts by only 0.95, so fifty deployments are not
    enough without extrapolation; theta = 20."""
    return _scalar(0.95)


@register("gaussian-beyond-one-v1", family="gaussian")
def beyond_one() -> Setting:
    """Mean estimation, z ~ N(1 + 1.5 theta, 1): the stable point theta = -2 repels retraining and gradient steps alike,
    yet it minimizes the performative risk. Only a learner that anticipates the reaction gets there."""
    return _scalar(1.5)


@register("gaussian-vector-v1", family="gaussian")
def vector() -> Setting:
    """Mean estimation in ten dimensions, z ~ N(m + A theta, I), A 0.8 times an orthogonal matrix: retraining spirals
    in, and coordinates cannot be treated one by one. theta_PS = theta_PO = (I - A)^-1 m."""
    rng = np.random.default_rng(5)
    turn = 0.8 * np.linalg.qr(rng.standard_normal((10, 10)))[0]
    mean = rng.standard_normal(10)
    problem = Problem(losses.squared, Gaussian(mean[None], turn[None], 1.0))
    best = np.linalg.solve(np.eye(10) - turn, mean)
    return Setting(problem, Budget(50, 50_000, 50), rows=500, stable=best, optimal=best, constants=_known(0.8, 1.0))


@register("gaussian-federation-v1", family="gaussian")
def federation() -> Setting:
    """Ten clients, z_i ~ N(m_i + eps_i theta, 1), eps_i from -0.5 to 1.3 and m_i from 9 down to 0: people at some
    clients move against the model, at others they overreact. Retraining contracts by 0.4; the stable and the optimal
    point differ, and the stable one closes about half of the gap."""
    eps, mean = np.linspace(-0.5, 1.3, 10), np.arange(9.0, -1.0, -1.0)
    problem = Problem(losses.squared, Gaussian(mean, eps, 1.0))
    return Setting(problem, Budget(50, 20_000, 50), rows=20, constants=_known(float(np.abs(eps).mean()), 1.0))


@register("gaussian-federation-vector-v1", family="gaussian")
def federation_vector() -> Setting:
    """Twenty clients with unequal weights, five coordinates, z_i ~ N(m_i + eps_ij theta_j, s_i^2): every coordinate of
    every client has its own sensitivity eps_ij in [-0.6, 1.2], and noise levels differ across clients."""
    rng = np.random.default_rng(21)
    eps = rng.uniform(-0.6, 1.2, (20, 5))
    mean = 6.0 - 5.0 * eps + rng.normal(0.0, 0.5, (20, 5))
    weights = rng.dirichlet(np.full(20, 2.0))
    scale = np.linspace(0.5, 3.0, 20)
    problem = Problem(losses.squared, Gaussian(mean, eps, scale), weights=weights)
    known = _known(float(weights @ np.abs(eps).max(axis=1)), float(scale.max()))
    return Setting(problem, Budget(50, 100_000, 50), rows=100, constants=known)


@register("gaussian-bandit-v1", family="gaussian")
def bandit() -> Setting:
    """The federation with eps_i from -0.5 to 1.3, for a learner that sees only losses: l(theta; z) of each row under
    the deployed model, and no data. Two-point and one-point methods apply; methods that need gradients do not."""
    eps, mean = np.linspace(-0.5, 1.3, 10), np.arange(9.0, -1.0, -1.0)
    problem = Problem(losses.squared, Gaussian(mean, eps, 1.0))
    known = _known(float(np.abs(eps).mean()), 1.0)
    return Setting(problem, Budget(200, 200_000, 200), rows=50, sees="losses", constants=known, advice="pf.two_point")


@register("gaussian-retraining-harms-v1", family="gaussian")
def retraining_harms() -> Setting:
    """Ten clients, z_i ~ N(m_i + eps_i theta, 1), eps_i from -0.5 to 1.3 and m_i from 0 up to 9: the clients
    that react most have the largest means, so retraining contracts to a stable point that costs more than the model
    that is never retrained (its score is about -3). A learner must know when to stop, or anticipate the reaction."""
    eps, mean = np.linspace(-0.5, 1.3, 10), np.arange(10.0)
    problem = Problem(losses.squared, Gaussian(mean, eps, 1.0))
    known = _known(float(np.abs(eps).mean()), 1.0)
    return Setting(problem, Budget(50, 20_000, 50), rows=20, constants=known, advice="pf.pofl")
