"""The rate below which plain steps settle, compared with rounds done by hand on random quadratic worlds."""

import numpy as np
import pytest

import performative as pf
from performative._engine.settling import settling_rate

N, D = 3, 2
LARGEST = 8.0
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


def go(theta, S, weights, tau, deploy, eta):
    """From one deployment to the next, client by client, step by step. The gradient is theta - (1 + S_i deployed)."""
    deployed = np.zeros(D) if deploy == "never" else theta
    for _ in range(3 if deploy == "lazy" else 1):
        ends = []
        for s, t in zip(S, tau, strict=True):
            mine = theta
            for _ in range(t):
                mine = mine - eta * (mine - 1 - s @ (mine if deploy == "step" else deployed))
            ends.append(mine)
        theta = weights @ np.asarray(ends)
    return theta


def by_hand(*world):
    """Whether a difference dies out in 2^20 deployments; None where it has not made up its mind."""
    step = np.stack([go(e, *world) - go(np.zeros(D), *world) for e in np.eye(D)], axis=1)
    for _ in range(20):
        step = step @ step
        size = np.linalg.norm(step)
        if not 1e-60 < size < 1e60:
            break
    return None if 1e-6 < size < 1e6 else bool(size < 1)


@pytest.mark.parametrize("worlds", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_rates_that_settle(worlds, tally):
    for seed in range(worlds):
        rng, problem, S, weights, tau, deploy = world(seed)
        algorithm = pf.p_fedavg(0.1, participation=pf.LocalWork(pf.Full(), tau), deploy=DEPLOY[deploy])
        limit = settling_rate(problem, algorithm, np.zeros(D), LARGEST)
        # Below the limit all settle, just above it none does; what larger ones do is not said.
        eta = float(rng.choice([0.3, 0.8, 1.02])) * (limit or 0.05)
        said = None if limit is None or eta > LARGEST else eta < limit
        truth = by_hand(S, weights, tau, deploy, eta)
        if truth is not None:
            tally("run: a rate that settles", said, truth, world=f"seed {seed}, {deploy}, eta {eta}, limit {limit}")
