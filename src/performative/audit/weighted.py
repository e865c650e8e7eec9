"""Moments of weighted rows."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Weighted:
    """Sums of rows weighted by w = 1 / propensity, by client and deployment, d = z - origin.

    Attributes:
        client, deployment: [c]; origin: [c, q]
        weight: [c] sum w; square: sum w^2; first: [c, q] sum w d; second: [c, q, q] sum w d d'
        doubled: [c, q] sum w^2 d; doubled_squares: [c, q] sum w^2 d^2
    """

    clients: tuple[str, ...]
    client: np.ndarray
    deployment: np.ndarray
    origin: np.ndarray
    weight: np.ndarray
    square: np.ndarray
    first: np.ndarray
    second: np.ndarray
    doubled: np.ndarray
    doubled_squares: np.ndarray

    def moved(self, origin: np.ndarray) -> "Weighted":
        """The same sums about another origin [c, q]."""
        s = origin - self.origin
        w, v = self.weight[:, None], self.square[:, None]
        cross = s[:, :, None] * self.first[:, None, :]
        second = self.second - cross - np.swapaxes(cross, 1, 2) + w[:, :, None] * s[:, :, None] * s[:, None, :]
        return dataclasses.replace(
            self, origin=origin, first=self.first - w * s, second=second, doubled=self.doubled - v * s,
            doubled_squares=self.doubled_squares - 2 * s * self.doubled + v * s**2,
        )  # fmt: skip

    def dense(self, clients: tuple[str, ...], deployments: int) -> "Weighted":
        """One cell per client and deployment, in the given order of clients; zeros for cells without rows."""
        place = np.array([clients.index(name) for name in self.clients], np.int64)
        at = place[self.client] * deployments + self.deployment
        cells = len(clients) * deployments
        made = {}
        for name in ("origin", "weight", "square", "first", "second", "doubled", "doubled_squares"):
            value = getattr(self, name)
            made[name] = np.zeros((cells, *value.shape[1:]))
            made[name][at] = value
        everything = np.arange(cells)
        return Weighted(clients, everything // deployments, everything % deployments, **made)


def merge_weighted(a: Weighted, b: Weighted, deployments: int) -> Weighted:
    """The sums of both."""
    clients = tuple(sorted({*a.clients, *b.clients}))
    one, two = a.dense(clients, deployments), b.dense(clients, deployments)
    origin = np.where(one.weight[:, None] > 0, one.origin, two.origin)
    one, two = one.moved(origin), two.moved(origin)
    names = ("weight", "square", "first", "second", "doubled", "doubled_squares")
    return dataclasses.replace(one, **{name: getattr(one, name) + getattr(two, name) for name in names})
