"""The rate below which plain steps settle, compared with rounds done by hand on random quadratic worlds."""

import numpy as np
import pytest

import performative as pf
from performative.engine.settling import settling_rate

N, D = 3, 2
DEPLOY = {"step": "step", "round": "round", "never": "never", "lazy": pf.Every(3)}


def world(seed):
    """N(m_i + S_i theta, 0) with the squared loss: every round is a linear map, and noise is left out."""
    rng = np.random.default_rng(seed)
    S = rng.normal(0, rng.uniform(0.1, 0.8), (N, D, D))
    weights = rng.dirichlet(np.ones(N))
    tau = rng.integers(1, 5, N)
    deploy = list(DEPLOY)[rng.integers(len(DEPLOY))]
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.ones((N, D)), S, 1.0), weights=weights)
    return rng, problem, S, weights, tau, deploy


def by_hand(S, weights, tau, deploy, eta, rounds=600):
    """Whether theta stays near, client by client and step by step. The gradient is theta - (1 + S_i deployed)."""
    theta = deployed = np.asarray([1.0, -2.0])
    period = {"step": 1, "round": 1, "never": 0, "lazy": 3}[deploy]
    for r in range(rounds):
        if r == 0 or (period and r % period == 0):
            deployed = theta
        ends = []
        for s, t in zip(S, tau, strict=True):
            mine = theta
            for _ in range(t):
                mine = mine - eta * (mine - 1 - s @ (mine if deploy == "step" else deployed))
            ends.append(mine)
        theta = weights @ np.asarray(ends)
        if np.linalg.norm(theta) > 1e12:
            return False
    return bool(np.linalg.norm(theta) < 1e4)


@pytest.mark.parametrize("worlds", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_rates_that_settle(worlds, tally):
    for seed in range(worlds):
        rng, problem, S, weights, tau, deploy = world(seed)
        algorithm = pf.p_fedavg(0.1, participation=pf.LocalWork(pf.Full(), tau), deploy=DEPLOY[deploy])
        limit = settling_rate(problem, algorithm, np.zeros(D), 8.0)
        # Not too near to the limit, where it takes for ever to tell.
        eta = float(rng.choice([0.3, 0.8, 1.2, 2.5])) * (limit or 0.05)
        said = None if limit is None else eta < limit
        tally("run: a rate that settles", said, by_hand(S, weights, tau, deploy, eta), world=f"seed {seed}, eta {eta}")
