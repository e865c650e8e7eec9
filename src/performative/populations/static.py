"""Data that do not react."""

from typing import Any

import numpy as np
from jaxtyping import Array

from performative.populations.base import AbstractRows
from performative.populations.rows import as_counts, as_labels, check_tables
from performative.types import Counts, Numbers, Theta, per_client


class Static(AbstractRows[None]):
    """A row of the client's table, drawn uniformly, whatever is deployed: standard federated learning.

        z = (x_ij, y_ij),      j ~ Unif([m_i])

    `x` [N, m, ...], `y` [N, m] labels or targets; clients with fewer than m rows are padded and `count` [N] is the
    number of real rows (`pf.partition.tables` returns all three). Any model works, including networks.
    """

    references = ()

    x: Numbers = per_client(table=True)
    y: Any = per_client(table=True, converter=as_labels)
    count: Counts | None = per_client(default=None, converter=as_counts)

    def __check_init__(self) -> None:
        if np.ndim(self.x) < 2 or np.shape(self.y) != np.shape(self.x)[:2]:
            raise ValueError(
                f"Static: x must be [clients, rows, ...] and y [clients, rows]; got {np.shape(self.x)} and "
                f"{np.shape(self.y)}."
            )
        check_tables("Static", self.count, x=self.x, y=self.y)
        _ = self.clients

    @property
    def capacity(self) -> int:
        return self.y.shape[-1]

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        return self.x[noise], self.y[noise]
