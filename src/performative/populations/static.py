"""Data that stay as they are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative.populations.base import AbstractPopulation
from performative.populations.rows import as_counts, as_labels, check_tables, table_nodes
from performative.types import Counts, Noise, Numbers, RowNumbers, Theta, per_client


class Static(AbstractPopulation[None]):
    """A row of the client's table, drawn evenly, whatever is deployed: the ordinary federation.

        z = (x_ij, y_ij),      j ~ Unif([m_i])

    `x` [N, m, ...], `y` [N, m] labels or targets; clients with fewer than m rows are padded and `count` [N] says how
    many are real (`pf.partition.tables` makes all three). Any model fits, a network too.
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

    @property
    def rows(self) -> Any:
        return self.capacity if self.count is None else self.count

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        return jax.random.randint(key, shape, 0, self.rows, jnp.int32) if rows is None else rows

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        return self.x[noise], self.y[noise]

    def quadrature(self, theta: Theta, count: int) -> tuple[Array, Array]:
        return table_nodes(self.capacity, self.rows)
