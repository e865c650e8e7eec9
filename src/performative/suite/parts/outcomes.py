"""Outcomes that react to the score, and clicks that follow exposure: features are fixed, labels move."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_finite
from performative.losses import inner
from performative.populations.base import AbstractPopulation, AbstractRows
from performative.populations.rows import as_counts, check_tables, table_nodes
from performative.types import Counts, Noise, Numbers, RowNumbers, Theta, per_client


class Labels(AbstractRows[None]):
    """Labels that react to the score.

        x = x_ij, j ~ Unif,      P(y = 1) = sigmoid(truth_i . x + reaction_i theta . x)

    A positive reaction fulfills the prediction, a negative one defeats it. `x` [N, m, d], `truth` [N, d], `reaction` a
    number or [N].
    """

    references = ()
    features_stay = True

    x: Numbers = per_client(table=True)
    truth: Numbers = per_client()
    reaction: Numbers = per_client()
    count: Counts | None = per_client(default=None, converter=as_counts)

    def __check_init__(self) -> None:
        check_tables("Labels", self.count, x=self.x)
        check_finite("Labels", truth=self.truth, reaction=self.reaction)
        _ = self.clients

    @property
    def capacity(self) -> int:
        return self.x.shape[-2]

    @property
    def smooth(self) -> bool:
        return False

    def model_shape(self) -> tuple[int, ...]:
        return (self.x.shape[-1],)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        first, second = jax.random.split(key)
        return super().draw(first, shape, theta, rows), jax.random.uniform(second, shape)

    def _chance(self, row: Array, theta: Theta) -> Array:
        x = self.x[row]
        return jax.nn.sigmoid(inner(self.truth, x) + self.reaction * inner(theta, x))

    def sample(self, noise: Noise, world: None, theta: Theta) -> tuple[Array, Array]:
        row, which = noise
        return self.x[row], (which < self._chance(row, theta)).astype(jnp.int32)

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        """Each row with either label, weighted by its probability: exact, and smooth in theta."""
        row, weight = table_nodes(self.capacity, self.rows)
        chance = jax.vmap(lambda one: self._chance(one, theta))(row)
        # -1 lies below any probability, so the label is 1; 2 lies above, so it is 0.
        which = jnp.concatenate([jnp.full(row.shape, -1.0), jnp.full(row.shape, 2.0)])
        weights = jnp.concatenate([weight.astype(chance.dtype) * c for c in (chance, 1 - chance)])
        return (jnp.concatenate([row, row]), which), weights


class Targets(AbstractRows[None]):
    """Outcomes that shift with their predictions.

        z = (x_ij, y_ij + reaction_i theta . x_ij)

    With the ridge loss, S = sum p_i E x x^T and R the same with reaction_i as a factor:
    (S - R + penalty) theta_PS = sum p_i E x y.
    """

    references = ()
    features_stay = True

    x: Numbers = per_client(table=True)
    y: Numbers = per_client(table=True)
    reaction: Numbers = per_client()
    count: Counts | None = per_client(default=None, converter=as_counts)

    def __check_init__(self) -> None:
        check_tables("Targets", self.count, x=self.x, y=self.y)
        check_finite("Targets", reaction=self.reaction)
        _ = self.clients

    @property
    def capacity(self) -> int:
        return self.x.shape[-2]

    def model_shape(self) -> tuple[int, ...]:
        return (self.x.shape[-1],)

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        x = self.x[noise]
        return x, self.y[noise] + self.reaction * inner(theta, x)


class Clicks(AbstractPopulation[None]):
    """Items shown according to their scores, and clicked more often the more they are shown.

        k ~ e = softmax(sharpness theta),   P(click) = sigmoid(taste_ik + fashion_i e_k),   z = (one-hot of k, click)

    `taste` [N, K]; `fashion` a number or [N]; `sharpness` a number or [N].
    """

    references = ()

    taste: Numbers = per_client()
    fashion: Numbers = per_client()
    sharpness: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Clicks", taste=self.taste, fashion=self.fashion, sharpness=self.sharpness)
        if np.ndim(self.taste) != 2:
            raise ValueError(f"Clicks: taste must be [clients, items]; got shape {np.shape(self.taste)}.")

    @property
    def smooth(self) -> bool:
        return False

    def model_shape(self) -> tuple[int, ...]:
        return (self.taste.shape[-1],)

    def _chances(self, theta: Theta) -> tuple[Array, Array]:
        shown = jax.nn.softmax(self.sharpness * theta)
        return shown, jax.nn.sigmoid(self.taste + self.fashion * shown)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        return jax.random.uniform(key, (*shape, 2), jnp.asarray(theta).dtype)

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        shown, clicked = self._chances(theta)
        edges = jnp.cumsum(shown)
        drawn = jnp.sum(noise[0] * edges[-1] >= edges[:-1], dtype=jnp.int32)
        item = jnp.where(noise[0] < 0, (-1 - noise[0]).astype(jnp.int32), drawn)
        return jax.nn.one_hot(item, shown.shape[0], dtype=shown.dtype), (noise[1] < clicked[item]).astype(jnp.int32)

    def quadrature(self, theta: Theta, count: int) -> tuple[Array, Array]:
        """Each item, clicked and not: exact, and smooth in theta."""
        shown, clicked = self._chances(theta)
        item = -1.0 - jnp.arange(shown.shape[0], dtype=shown.dtype)  # negative noise encodes the item itself
        nodes = [jnp.stack([item, jnp.full(item.shape, which, item.dtype)], axis=1) for which in (-1.0, 2.0)]
        return jnp.concatenate(nodes), jnp.concatenate([shown * clicked, shown * (1 - clicked)])
