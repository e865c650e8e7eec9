"""Sensitivities eps_i that a population tells without a draw."""

from typing import Any

import numpy as np

from performative.populations import (
    Classes,
    Contaminated,
    Database,
    Gaussian,
    Mixture,
    Outliers,
    Pricing,
    Sluggish,
    Strategic,
)
from performative.populations.pooled import Pooled
from performative.populations.shares import Constant
from performative.populations.shifts import sensitivity_of

# A group of samples that move together: its share of client i's data, [N], and how they follow theta: a number [N],
# by coordinate [N, d], or a linear map [N, d, k].
_Part = tuple[np.ndarray, np.ndarray]


def known_sensitivity(population: Any) -> np.ndarray | None:
    """eps_i of Assumption 2.3, [N], where the data are groups that move without changing shape; else None.

        W_1(D_i(theta), D_i(theta')) = |M_i (theta - theta')|,      eps_i = |M_i|_2,      M_i = sum_k share_ik M_ik

    W_1 is at least the distance of the means, and at most the cost of moving every sample with its group:
    |M_i|_2 <= eps_i <= sum_k share_ik |M_ik|_2. Where both agree (one group, or groups that move the same way), that
    is eps_i for all models; where they do not, None: estimate it.
    """
    parts = _parts(population)
    if parts is None:
        return None
    lower = _norm(_add(parts))
    upper = sum((share * _norm(follows) for share, follows in parts), np.zeros(len(lower)))
    return lower if np.allclose(lower, upper, rtol=1e-9, atol=1e-12) else None


def _parts(population: Any) -> list[_Part] | None:
    """The groups of samples that move together, None where that is not all that theta does."""
    clients = population.clients
    whole = np.ones(clients)
    # Exact types: what a subclass does with its samples is not known.
    kind: Any = type(population)
    if kind in (Gaussian, Pricing):
        return [(whole, _by_client(population.slope, clients))]
    if kind is Outliers:
        return [(whole, np.zeros(clients))]
    if kind is Database:
        slope = sensitivity_of(population.shift)
        return None if slope is None else [(whole, _by_client(slope, clients))]
    if kind is Strategic:
        return _strategic(population)
    if kind is Classes:
        moves = np.broadcast_to(np.asarray(population.sensitivity, np.float64), (clients, population.classes))
        return [(np.asarray(population.share, np.float64)[:, k], -moves[:, k]) for k in range(population.classes)]
    if kind is Sluggish:
        return _parts(population.inner)  # once the data have settled
    if kind is Contaminated:
        fraction = np.broadcast_to(np.asarray(population.fraction, np.float64), clients)
        return _mix([1.0 - fraction, fraction], [population.inner, population.outlier])
    if kind is Mixture and type(population.share) is Constant:
        shares = [np.broadcast_to(np.asarray(e, np.float64), clients) for e in population.share.share.entries]
        return _mix(shares, list(population.groups))
    if kind is Pooled:
        return _pooled(population)
    return None


def _strategic(population: Strategic) -> list[_Part] | None:
    """x - strength_{i,y} theta on the columns that people can change; the labels stay."""
    if population.response != "linear":
        return None  # how far people go depends on |theta|
    clients, strength = population.clients, np.asarray(population.strength, np.float64)
    if population.features is not None and not population.features:
        return [(np.ones(clients), np.zeros(clients))]
    if strength.ndim < 2:
        return [(np.ones(clients), -np.broadcast_to(strength, clients))]
    y = np.asarray(population.y)
    real = np.arange(y.shape[1]) < np.reshape(np.broadcast_to(population.rows, clients), (-1, 1))
    ones = np.sum(real & (y > 0), axis=1) / np.sum(real, axis=1)
    return [(1.0 - ones, -strength[:, 0]), (ones, -strength[:, 1])]


def _mix(shares: list[np.ndarray], populations: list[Any]) -> list[_Part] | None:
    out: list[_Part] = []
    for share, population in zip(shares, populations, strict=True):
        inside = _parts(population)
        if inside is None:
            return None
        # A part that all clients share counts one client: spread it.
        out += [(share * own, np.broadcast_to(m, (len(share), *m.shape[1:]))) for own, m in inside]
    return out


def _pooled(population: Pooled) -> list[_Part] | None:
    inside = _parts(population.inner)
    if inside is None:
        return None
    p = np.asarray(population.weights, np.float64)
    return [(p[i : i + 1] * own[i], follows[i : i + 1]) for own, follows in inside for i in range(len(p))]


def _by_client(value: Any, clients: int) -> np.ndarray:
    """A number spelled out as [N]; with a row a client as it is."""
    value = np.asarray(value, np.float64)
    return np.broadcast_to(value, clients) if value.ndim == 0 else value


def _add(parts: list[_Part]) -> np.ndarray:
    """sum_k share_k M_k, numbers and coordinates widened where another part has more axes."""
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
    """How far the data move per unit of theta at most, [N]."""
    if follows.ndim == 1:
        return np.abs(follows)
    if follows.ndim == 2:
        return np.max(np.abs(follows), axis=1)
    return np.linalg.norm(follows, 2, axis=(1, 2))
