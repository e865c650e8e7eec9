"""Sensitivities eps_i that are known without sampling."""

import numpy as np

from performative.facts import declared
from performative.populations import AbstractPopulation
from performative.populations.linear import Translation


def known_sensitivity(population: AbstractPopulation) -> np.ndarray | None:
    """eps_i of Assumption 2.3, [N], if the data are groups that move without changing shape; else None.

        W_1(D_i(theta), D_i(theta')) = |M_i (theta - theta')|,      eps_i = |M_i|_2,      M_i = sum_k share_ik M_ik

    W_1 is at least the distance of the means, and at most the cost of moving every sample with its group: |M_i|_2 <=
    eps_i <= sum_k share_ik |M_ik|_2. If both agree (one group, or groups that move the same way), that is eps_i for all
    models; otherwise None: estimate it.
    """
    parts: list[Translation] | None = declared(population, "translations")
    if parts is None:
        return None
    lower = _norm(_add(parts))
    upper = sum((share * _norm(follows) for share, follows in parts), np.zeros(len(lower)))
    return lower if np.allclose(lower, upper, rtol=1e-9, atol=1e-12) else None


def _add(parts: list[Translation]) -> np.ndarray:
    """sum_k share_k M_k, broadcast if another part has more axes."""
    widest = max((follows for _, follows in parts), key=lambda m: m.ndim)
    total = np.zeros(widest.shape)
    for share, follows in parts:
        if widest.ndim == 3 and follows.ndim < 3:
            follows = follows.reshape(len(follows), -1)[..., None] * np.eye(*widest.shape[1:])
        elif follows.ndim < widest.ndim:
            follows = follows.reshape(-1, *(1,) * (widest.ndim - 1))
        total = total + share.reshape(-1, *(1,) * (widest.ndim - 1)) * follows
    return total


def _norm(follows: np.ndarray) -> np.ndarray:
    """The most the data move per unit of theta, [N]."""
    if follows.ndim == 1:
        return np.abs(follows)
    if follows.ndim == 2:
        return np.max(np.abs(follows), axis=1)
    return np.linalg.norm(follows, 2, axis=(1, 2))
