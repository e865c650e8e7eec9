"""Logistic regression by Newton's method in plain NumPy, which solvers are compared with."""

import numpy as np
from scipy.special import expit


def risk(x, y, penalty, theta):
    """The mean logistic loss + penalty |theta|^2 / 2, over all rows of x [..., 2] and y [...]."""
    score = x @ theta
    return np.mean(np.logaddexp(0, score) - y * score) + 0.5 * penalty * theta @ theta


def fit(x, y, penalty, theta):
    """argmin of `risk`, steps halved until they lead down."""
    x, y = x.reshape(-1, 2), y.reshape(-1)
    for _ in range(100):
        s = expit(x @ theta)
        g = x.T @ (s - y) / len(y) + penalty * theta
        H = (x * (s * (1 - s))[:, None]).T @ x / len(y) + penalty * np.eye(2)
        step, here = np.linalg.solve(H, g), risk(x, y, penalty, theta)
        while np.linalg.norm(step) > 1e-9 and risk(x, y, penalty, theta - step) > here:
            step = step / 2
        theta = theta - step
        if np.linalg.norm(step) < 1e-13:
            break
    return theta
