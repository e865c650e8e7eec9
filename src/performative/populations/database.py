"""A fixed table whose rows move with the deployed model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative import losses
from performative._base.checks import check_finite, check_rule, given
from performative.families import Location
from performative.partition import pad_tables
from performative.populations.base import AbstractRows, real_rows
from performative.populations.gaussian import Gaussian
from performative.populations.linear import Translation, moved
from performative.populations.nodes import standard_nodes, with_batch
from performative.populations.rows import as_counts, check_tables, table_nodes
from performative.populations.shifts import AbstractShift, sensitivity_of
from performative.types import (
    ArrayLike,
    Counts,
    Loss,
    Noise,
    Numbers,
    RowNumbers,
    Theta,
    Unchecked,
    as_numbers,
    per_client,
)

# Minimum number of draws for the noise of each row in three or more dimensions.
_NOISE_NODES = 16


class Database(AbstractRows[None]):
    """One row of the client's table, moved by the model.

        Z = z_ij + s_i(theta) + noise_i xi,      j ~ Unif([m_i]),      xi ~ N(0, I)

    `z` is one client's rows [m] of numbers, or one table per client: [N, m], [N, m, d], or a list of tables of
    different lengths, which is padded; `count` [N] is the number of real rows. `shift` is a module of
    `populations.shifts`, or your own `AbstractShift`; None for static data. `noise` is a standard deviation, a number
    or [N]; None for no noise. With the squared or the `quadratic` loss and a linear shift, theta_PS and theta_PO are
    known in closed form. Li, Yemini and Wai 2024, Eq. (3). Differs from the paper: s_i is the client's, not the row's,
    and its randomness is normal.
    """

    references = ("li2024clipped",)
    equal_rows = real_rows

    z: Numbers = per_client(table=True)
    shift: AbstractShift | None  # type: ignore[misc]  # per_client() is a field without a default
    noise: Numbers | None = per_client()
    count: Counts | None = per_client(converter=as_counts)
    row_axes: int = eqx.field(static=True, init=False)

    def __init__(
        self,
        z: ArrayLike,
        shift: Unchecked[AbstractShift | None] = None,
        noise: ArrayLike | None = None,
        count: ArrayLike | None = None,
    ):
        if isinstance(z, (list, tuple)) and len({np.shape(table)[:1] for table in z}) > 1:
            if count is not None:
                raise ValueError(
                    "Database: z is a list of tables of different lengths, which determine count; leave it out."
                )
            if any(np.ndim(table) < 1 or np.shape(table)[1:] != np.shape(z[0])[1:] for table in z):
                shapes = [np.shape(table) for table in z[:5]]
                raise ValueError(f"Database: the tables of z need rows of the same shape; got {shapes}.")
            z, count = pad_tables([np.asarray(as_numbers(table)) for table in z])
        rows = as_numbers(z)
        self.z = rows[None] if np.ndim(rows) == 1 else rows
        self.row_axes = max(np.ndim(self.z) - 2, 0)
        self.shift = shift
        self.noise = as_numbers(noise)
        self.count = as_counts(count)

    def __check_init__(self) -> None:
        if np.ndim(self.z) < 2 or 0 in np.shape(self.z):
            raise ValueError(f"Database: z must be [rows], [clients, rows] or longer; got shape {np.shape(self.z)}.")
        check_tables("Database", self.count, z=self.z)
        check_finite("Database", **given(noise=self.noise))
        if self.shift is not None and not isinstance(self.shift, AbstractShift):
            raise ValueError(
                "Database: shift must be a shift such as pf.populations.shifts.Linear(sensitivity), or None; "
                f"got {self.shift!r}."
            )
        check_rule("Database", "is a standard deviation and must be >= 0", noise=self.noise)
        if self.noise is not None and np.ndim(self.noise) > 1:
            raise ValueError(f"Database: noise must be a number or one per client; got shape {np.shape(self.noise)}.")
        _ = self.clients

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        # Counted from the end: one client's slice has no axis of clients.
        return self.z.shape[self.z.ndim - self.row_axes :]

    @property
    def capacity(self) -> int:
        return self.z.shape[self.z.ndim - self.row_axes - 1]

    def translations(self) -> list[Translation] | None:
        slope = sensitivity_of(self.shift)
        return None if slope is None else moved(slope, self.clients)

    @property
    def family(self) -> Location:
        return Location()

    def model_shape(self) -> tuple[int, ...] | None:
        return None if self.shift is None else self.shift.model_shape(self.row_shape)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        key_rows, key_noise = jax.random.split(key)
        if rows is None:
            rows = jax.random.randint(key_rows, shape, 0, self.rows, jnp.int32)
        if self.noise is None:
            return rows
        return rows, jax.random.normal(key_noise, (*shape, *self.row_shape), self.z.dtype)

    def sample(self, noise: Noise, world: None, theta: Theta) -> Array:
        row, xi = (noise, None) if self.noise is None else noise
        z = self.z[row]
        if self.shift is not None:
            shift = self.shift(theta)
            if jnp.broadcast_shapes(shift.shape, z.shape) != z.shape:
                raise ValueError(f"Database: shift returns shape {shift.shape} for rows of z of shape {z.shape}.")
            z = z + shift
        return z if xi is None else z + self.noise * xi

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        every, weight = table_nodes(self.capacity, self.rows)
        if self.noise is None:
            return every, weight
        each = max(_NOISE_NODES, count // self.capacity)
        xi, chance = standard_nodes(self.row_shape, with_batch(each, count))
        noise = jnp.repeat(every, len(chance)), jnp.tile(xi, (len(every), *(1,) * (xi.ndim - 1)))
        return noise, jnp.outer(weight, chance.astype(weight.dtype)).reshape(-1)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        like = self._normal(loss)
        return None if like is None else like.stable_point(losses.squared, weights)

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        like = self._normal(loss)
        return None if like is None else like.optimal_point(losses.squared, weights)

    def _normal(self, loss: Loss) -> Gaussian | None:
        """Normal data whose squared loss has the same stable and optimal points: only the means of the rows matter."""
        slope = sensitivity_of(self.shift)
        if slope is None or self.row_axes > 1 or (np.ndim(slope) == 3 and slope.shape[1] != slope.shape[2]):
            return None
        factor = _factor(loss)
        if factor is None:
            return None
        real = np.arange(self.capacity) < np.reshape(np.asarray(self.rows), (-1, 1))
        real = real.reshape(*real.shape, *(1,) * self.row_axes)
        mean = np.sum(np.where(real, np.asarray(self.z, np.float64), 0), axis=1) / real.sum(axis=1)
        return Gaussian(factor * mean, factor * np.asarray(slope, np.float64), 0.0)


def _factor(loss: Loss) -> float | None:
    """k if the loss is |theta - k z|^2 / 2, None for other losses."""
    if isinstance(loss, losses.Quadratic):
        return -float(loss.scale)
    return 1.0 if loss is losses.squared else None
