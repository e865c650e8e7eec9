"""Clients that upweight what the model gets wrong."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from performative._base.checks import check_counts, check_finite, check_number, given, is_one_of
from performative.families import Proportions
from performative.populations.base import AbstractPopulation
from performative.populations.rows import as_counts, as_labels, check_tables
from performative.types import (
    AbstractTable,
    ArrayLike,
    Counts,
    Loss,
    Numbers,
    RowNumbers,
    Sample,
    Scene,
    Theta,
    Unchecked,
    as_numbers,
    number,
    per_client,
)

# Numbers of a client's images that are evaluated at once (4 MB in float64; the activations of a network take more).
_NUMBERS = 1 << 19
# (x, y) or (x, y, count).
HeldOut = Unchecked[Sequence[ArrayLike]]


def as_images(value: ArrayLike) -> Any:
    """Bytes stay bytes and floats keep their precision: a copy in float64 would be up to eight times the size."""
    dtype = value.dtype if isinstance(value, (np.ndarray, jax.Array)) else None
    return value if dtype == np.uint8 or (dtype is not None and dtype.kind == "f") else as_numbers(value)


class Reweighted(AbstractPopulation[Float[Array, " C"]]):
    """Class weights that follow the class losses; the world consists of the weights.

        w_k <- exp(temperature * a_k(theta)) / sum_j exp(temperature * a_j(theta))

    A sample is a class k drawn from w, then one of the client's rows of that class. The weights persist between rounds.
    Classes that a client does not have keep weight 0. Jin et al. 2024, Section 4.3.

    Args:
        x, y: [N, m, ...] rows of numbers (for example images) and their classes 0, 1, ...: [N, m]
        temperature: a number, or one per client; 0 means static data
        count: [N] real rows of each client, if those with fewer than m are padded; None for all m
        held_out: (x, y) or (x, y, count) of other rows of the same clients, on which a_k is measured; None measures on
            the rows of x
        by: "loss": a_k is the mean loss of class k. "accuracy": the fraction of rows of class k that are classified
            correctly, i.e. whose loss is lowest under their own label. The paper allows both; with accuracy a positive
            temperature favors what is already correct, so use a negative one to upweight errors
        scale: factor on x when a row is sampled or measured, None for 1. uint8 tables stay uint8 on the device
        block: rows measured at once, None for about half a million numbers per client

    A history has the column `tv_distance`: sum_k |w_k - w'_k| / 2 from one round's weights to the next, averaged over
    the cohort. The first is the distance from the class frequencies of the rows. The constructor sorts each client's
    rows by class, so the cost of a draw does not depend on the number of rows.
    """

    references = ("jin2024performative",)

    x: Any = per_client(table=True, converter=as_images)
    y: Counts = per_client(table=True, converter=as_labels)
    temperature: Numbers = per_client()
    start: Counts = per_client(converter=as_counts)
    held: Counts = per_client(converter=as_counts)
    measured_x: Any = per_client(table=True, converter=as_images)
    measured_y: Counts | None = per_client(table=True, converter=lambda y: None if y is None else as_labels(y))
    measured: Counts | None = per_client(converter=as_counts)
    count: Counts | None = per_client(converter=as_counts)
    scale: Numbers | None = number()
    classes: int = eqx.field(static=True)  # type: ignore[misc]  # per_client() is a field without a default
    by: str = eqx.field(static=True)  # type: ignore[misc]  # as above
    block: int | None = eqx.field(static=True)  # type: ignore[misc]  # as above

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        temperature: ArrayLike,
        classes: int | None = None,
        *,
        count: ArrayLike | None = None,
        held_out: HeldOut | None = None,
        by: str = "loss",
        scale: ArrayLike | None = None,
        block: int | None = None,
    ):
        table, labels, real = _read_rows("", x, y, count)
        check_finite("Reweighted", temperature=temperature)
        if np.ndim(temperature) > 1:
            raise ValueError(
                f"Reweighted: temperature must be a number, or one per client; got shape {np.shape(temperature)}."
            )
        check_number("Reweighted", **given(scale=scale))
        if not is_one_of(by, "loss", "accuracy"):
            raise ValueError(f'Reweighted: by must be "loss" or "accuracy"; got {by!r}.')
        for name, value in given(block=block, classes=classes).items():
            check_counts(**{f"Reweighted: {name}": value})
        last = int(labels[real].max())
        self.classes = last + 1 if classes is None else int(classes)
        if last >= self.classes:
            raise ValueError(f"Reweighted: classes={classes}, but y contains class {last}; pass at least {last + 1}.")
        self.held = _count(labels, real, self.classes)
        self.start = np.cumsum(self.held, axis=1, dtype=np.int32) - self.held
        place = np.where(real, labels, self.classes)  # padding stays at the end
        if np.any(np.diff(place, axis=1) < 0):
            if isinstance(table, AbstractTable):
                raise ValueError(
                    f"Reweighted: x is a {type(table).__name__}, whose rows cannot be reordered, so they must be "
                    "sorted by class; sort each client's rows and y by y first."
                )
            order = np.argsort(place, axis=1, kind="stable")
            table = np.stack([np.asarray(rows)[o] for rows, o in zip(table, order, strict=True)])
            labels = np.take_along_axis(labels, order, axis=1)
        self.x, self.y, self.temperature, self.scale, self.by, self.block = table, labels, temperature, scale, by, block
        self.count = as_counts(count)
        self.measured_x = self.measured_y = self.measured = None
        if held_out is not None:
            self.measured_x, self.measured_y, real = _read_held_out(held_out, table, self.classes)
            self.measured = _count(self.measured_y, real, self.classes)
            without = np.argwhere((self.held > 0) & (self.measured == 0))
            if len(without):
                client, k = without[0].tolist()
                raise ValueError(
                    f"Reweighted: client {client} has {self.held[client, k]} rows of class {k} but none in held_out, "
                    "so the class cannot be measured; hold out at least one."
                )

    @property
    def held_out(self) -> tuple[Any, Any, Any] | None:
        """The rows on which classes are measured, as the constructor takes them; None if they are those of x."""
        if self.measured is None:
            return None
        return self.measured_x, self.measured_y, np.sum(np.asarray(self.measured), axis=-1, dtype=np.int32)

    @property
    def smooth(self) -> bool:
        return False

    @property
    def group_count(self) -> int:
        return self.classes

    @property
    def family(self) -> Proportions:
        return Proportions(self.classes)

    def init(self, scene: Scene) -> Float[Array, " C"]:
        held = self.held.astype(jnp.result_type(float))
        return held / jnp.sum(held)

    def deploy(self, world: Float[Array, " C"], scene: Scene) -> Float[Array, " C"]:
        x, y, count = self.x, self.y, self.held
        if self.measured is not None:
            x, y, count = self.measured_x, self.measured_y, self.measured
        measure = self._measure(scene.loss)
        every = jnp.arange(y.shape[0], dtype=jnp.int32)
        real = every < jnp.sum(count, dtype=jnp.int32)
        every = jnp.where(real, every, 0)  # row 0 replaces padding, which is never read

        def one(row: Array) -> Array:
            return jnp.asarray(measure(scene.theta, (self._scaled(x[row]), y[row]))).astype(world.dtype)

        block = self.block or max(1, _NUMBERS // int(np.prod(x.shape[1:])))
        each = jax.vmap(one)(every) if len(every) <= block else jax.lax.map(one, every, batch_size=block)
        member = real[:, None] & (y[every][:, None] == jnp.arange(self.classes, dtype=y.dtype))
        total = jnp.sum(jnp.where(member, each[:, None], 0), axis=0)
        score = self.temperature * total / jnp.maximum(count, 1).astype(total.dtype)
        weights = jax.nn.softmax(jnp.where(self.held > 0, score, -jnp.inf))
        return weights.astype(world.dtype)

    def settle(self, scene: Scene) -> Float[Array, " C"]:
        """The weights follow theta immediately: one update is enough."""
        return self.deploy(self.init(scene), scene)

    def world_metrics(self, before: Float[Array, " C"], after: Float[Array, " C"]) -> dict[str, Array]:
        return {"tv_distance": jnp.sum(jnp.abs(after - before)) / 2}

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Array:
        return jax.random.uniform(key, (*shape, 2))

    def quadrature_within(self, world: Float[Array, " C"], theta: Theta, count: int) -> tuple[Array, Array]:
        """Every row once, with probability w_k / (rows of class k): exact, and smooth in the world. Padding has 0."""
        every = jnp.arange(self.x.shape[0], dtype=jnp.int32)
        real = every < jnp.sum(self.held, dtype=jnp.int32)
        every = jnp.where(real, every, 0)
        label = self.y[every]
        held, mine = self.held[label].astype(world.dtype), world[label]
        edges = jnp.cumsum(world)
        # The middle of the interval of (0, 1) that `sample` maps to the row.
        picks_class = (edges[label] - mine / 2) / edges[-1]
        picks_row = ((every - self.start[label]).astype(world.dtype) + 0.5) / held
        return jax.lax.stop_gradient(jnp.stack([picks_class, picks_row], axis=1)), jnp.where(real, mine / held, 0)

    def group(self, noise: Array, world: Float[Array, " C"], theta: Theta) -> Array:
        return self.sample(noise, world, theta)[1]

    def sample(self, noise: Array, world: Float[Array, " C"], theta: Theta) -> tuple[Array, Array]:
        edges = jnp.cumsum(world)
        picked = jnp.sum(noise[0] * edges[-1] >= edges[:-1], dtype=jnp.int32)
        inside = jnp.floor(noise[1] * self.held[picked].astype(noise.dtype)).astype(jnp.int32)
        row = self.start[picked] + jnp.minimum(inside, self.held[picked] - 1)
        return self._scaled(self.x[row]), self.y[row]

    def _scaled(self, x: Array) -> Array:
        # The precision of a run is that of its numbers, temperature among them.
        x = x.astype(jnp.asarray(self.temperature).dtype) if jnp.issubdtype(x.dtype, jnp.integer) else x
        return x if self.scale is None else x * jnp.asarray(self.scale, x.dtype)

    def _measure(self, loss: Loss) -> Loss:
        """The contribution of a row to a_k."""
        if self.by == "loss":
            return loss
        labels = jnp.arange(self.classes, dtype=self.y.dtype)

        def right(theta: Theta, z: Sample) -> Array:
            x, y = z
            # Whatever does not depend on the label, above all the network, is computed once.
            each = jax.vmap(lambda label: loss(theta, (x, label)))(labels)
            return each[y] <= jnp.min(each)

        return right


def _read_rows(name: str, x: ArrayLike, y: ArrayLike, count: ArrayLike | None) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows, their classes and which of them are real, checked; `name` is a prefix of x and y in messages."""
    x, y, count = as_images(x), np.asarray(as_labels(y)), as_counts(count)
    if np.ndim(x) < 3 or y.shape != np.shape(x)[:2]:
        raise ValueError(
            f"Reweighted: {name}x must be [clients, rows, ...] and {name}y [clients, rows]; "
            f"got {np.shape(x)} and {y.shape}."
        )
    check_tables("Reweighted", count, **{f"{name}x": x, f"{name}y": y})
    real = np.broadcast_to(np.arange(y.shape[1]) < np.reshape(y.shape[1] if count is None else count, (-1, 1)), y.shape)
    if y.dtype.kind != "i" or y[real].min() < 0:
        found = np.unique(y[real])[:5].tolist()
        raise ValueError(f"Reweighted: {name}y must contain class labels 0, 1, ...; got {found}.")
    return x, y, real


def _read_held_out(
    held_out: HeldOut, x: Array | np.ndarray | AbstractTable, classes: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    if not isinstance(held_out, (tuple, list)) or len(held_out) not in (2, 3):
        raise ValueError(f"Reweighted: held_out must be (x, y) or (x, y, count); got {type(held_out).__name__}.")
    count = held_out[2] if len(held_out) == 3 else None
    apart, labels, real = _read_rows("held_out's ", held_out[0], held_out[1], count)
    if len(apart) != len(x) or apart.shape[2:] != x.shape[2:] or apart.dtype != x.dtype:
        raise ValueError(
            f"Reweighted: held_out's x must contain rows of the same clients, shape and dtype as x, {x.dtype} "
            f"[{len(x)}, ..., {', '.join(map(str, x.shape[2:]))}]; got {apart.dtype} {list(apart.shape)}."
        )
    last = labels[real].max()
    if last >= classes:
        raise ValueError(
            f"Reweighted: held_out's y contains class {last}, but there are {classes} classes; give classes=."
        )
    return apart, labels, real


def _count(y: np.ndarray, real: np.ndarray, classes: int) -> np.ndarray:
    """Number of real rows per client and class."""
    pairs = zip(y, real, strict=True)
    return np.stack([np.bincount(row[here], minlength=classes) for row, here in pairs]).astype(np.int32)
