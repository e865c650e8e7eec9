"""Data that do not depend on the model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_finite, check_rule, is_one_of, nearest
from performative.populations.base import AbstractPopulation, new_people
from performative.populations.linear import Translation, check_shapes, moved, widest
from performative.populations.nodes import draw_key, standard_nodes
from performative.types import Numbers, RowNumbers, Theta, per_client

_LAWS = ("normal", "uniform", "laplace", "cauchy", "student3")


class Outliers(AbstractPopulation[None]):
    """Samples of theta's shape that do not react: the Q_i of `Contaminated`.

        Z_i = location_i + scale_i U,      U ~ law, independent coordinates

    Args:
        law: "normal" (variance 1), "uniform" on (-1, 1), "laplace" (density exp(-|u|) / 2), "cauchy", or "student3" (t
            with three degrees of freedom).
        location: A number, [N] or [N, d]; `scale` likewise.

    All distributions are symmetric; "cauchy" has no mean and "student3" no third moment, so risks may be infinite. For
    a different distribution per client, put several into a `Mixture` with shares `Constant(rows of 0 and 1)`.
    """

    references = ()
    equal_rows = new_people

    location: Numbers = per_client()
    scale: Numbers = per_client()
    law: str = eqx.field(static=True, default="normal")

    def __check_init__(self) -> None:
        if not is_one_of(self.law, *_LAWS):
            raise ValueError(f"Outliers: there is no law {self.law!r}.{nearest(str(self.law), _LAWS)}")
        fields = {"location": self.location, "scale": self.scale}
        check_finite("Outliers", **fields)
        check_rule("Outliers", "must not be negative", scale=self.scale)
        check_shapes("Outliers", self._shape(), fields)
        _ = self.clients

    def translations(self) -> list[Translation]:
        return moved(0.0, self.clients)

    @property
    def infinite_variance(self) -> bool:
        return self.law == "cauchy"

    def _shape(self) -> tuple[int, ...]:
        return widest(np.shape(self.location)[1:], np.shape(self.scale)[1:])

    def model_shape(self) -> tuple[int, ...] | None:
        # One number per client fits models of any shape.
        return self._shape() or None

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Array:
        theta = jnp.asarray(theta)
        full, dtype = (*shape, *theta.shape), theta.dtype
        flat = (int(np.prod(full)),)
        if self.law == "uniform":
            drawn = jax.random.uniform(key, flat, dtype, -1.0, 1.0)
        elif self.law == "student3":
            # N / sqrt(chi^2_3 / 3), chi^2_3 a sum of three squares: jax.random.t would loop until it accepts.
            four = jax.random.normal(key, (4, *flat), dtype)
            drawn = four[0] / jnp.sqrt(jnp.mean(jnp.square(four[1:]), axis=0))
        else:
            drawn = getattr(jax.random, self.law)(key, flat, dtype)
        return drawn.reshape(full)

    def sample(self, noise: Array, world: None, theta: Theta) -> Array:
        return self.location + self.scale * noise

    def quadrature(self, theta: Theta, count: int) -> tuple[Array, Array]:
        """Exact for the normal distribution; for the others fixed antithetic draws, so means are exact."""
        if self.law == "normal":
            return standard_nodes(jnp.shape(theta), count)
        half = self.draw(draw_key(count), (max(count // 2, 1),), theta)
        return jnp.concatenate([half, -half]), jnp.full((2 * len(half),), 0.5 / len(half))
