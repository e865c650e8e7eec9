"""A client's parametric model of its data: p(z; f), where f is the part that moves with the model.

An estimator that learns the reaction fits f to each batch and tracks how it follows theta. A family defines how f is
fitted, how the log-density changes with f (`score`), and how a sample moves with f (`displace`).
"""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from performative._base.checks import check_counts, check_finite
from performative.facts import AbstractPart
from performative.types import Batch, Numbers, is_concrete, masked_mean, number, whole

__all__ = ["AbstractFamily", "ClassLocation", "Location", "Proportions", "Slope"]


class AbstractFamily(AbstractPart):
    """A parametric view p(z; f) of one client's data, f a vector of m numbers."""

    @abstractmethod
    def fit(self, batch: Batch) -> Float[Array, " m"]:
        """f-hat, the estimate of f from a batch; NaN for entries that the batch does not determine."""

    @abstractmethod
    def score(self, batch: Batch, f: Float[Array, " m"]) -> Float[Array, "n m"]:
        """d log p(z_j; f) / d f, for each sample."""

    @abstractmethod
    def displace(self, batch: Batch, slope: PyTree) -> Float[Array, "n m"]:
        """(d z_j / d f)^T slope_j, for each sample, with slope_j = d loss / d z_j shaped like z."""


def _check_scale(owner: str, name: str, value: Numbers | None) -> None:
    if value is None:
        return
    check_finite(owner, **{name: value})
    if np.ndim(value) > 1 or 0 in np.shape(value):
        raise ValueError(f"{owner}: {name} must be one number, or one per coordinate; got shape {np.shape(value)}.")
    if is_concrete(value) and np.any(np.asarray(value) <= 0):
        raise ValueError(f"{owner}: {name} is a standard deviation and must be positive; got {value}.")


def _normal_score(
    name: str,
    rows: Float[Array, "n m"],
    mean: Float[Array, " m"],
    scale: Numbers | None,
    mask: Bool[Array, " n"] | None,
) -> Float[Array, "n m"]:
    """(z - mean) / scale^2, with the variance of the unmasked rows if `scale` is None.

    A constant column, such as an intercept, is uninformative: its score is 0.
    """
    away = rows - mean
    if scale is not None:
        if jnp.shape(scale) not in ((), mean.shape):
            raise ValueError(
                f"{name} has shape {jnp.shape(scale)}, but there are {mean.shape[0]} coordinates; pass one number, "
                "or one per coordinate."
            )
        return away / jnp.square(scale)
    variance = masked_mean(jnp.square(away), mask)
    limits = jnp.finfo(variance.dtype)
    varies = variance > jnp.square(8 * limits.eps * mean) + limits.tiny
    return jnp.where(varies, away / jnp.where(varies, variance, 1), 0)


def _rows(z: PyTree, owner: str) -> Float[Array, "n m"]:
    leaves = jax.tree.leaves(z)
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
        raise ValueError(f"{owner} needs samples that are numbers; whole-number labels do not move. Use ClassLocation.")
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


def _pair(z: PyTree, owner: str) -> tuple[Array, Any]:
    """Features [n, d] and labels [n] of samples z = (x, y), or slopes; integers have none."""
    if not (isinstance(z, tuple) and len(z) == 2):
        raise ValueError(f"{owner} needs samples (x, y); this population's have another structure.")
    x, y = z
    return x.reshape(x.shape[0], -1), y


class Location(AbstractFamily):
    """A normal distribution whose mean moves and whose variance does not.

        p(z; f) = N(f, diag(scale^2)),      f-hat = mean of z,      dz/df = 1

    `scale` is the standard deviation; None estimates it from the batch. After trimming, the batch's own is the right
    one: a known scale would be too large.
    """

    references = ()

    scale: Numbers | None = number(default=None)

    def __check_init__(self) -> None:
        _check_scale("Location", "scale", self.scale)

    def fit(self, batch: Batch) -> Array:
        return masked_mean(_rows(batch.z, "Location"), batch.mask)

    def score(self, batch: Batch, f: Array) -> Array:
        return _normal_score("Location: scale", _rows(batch.z, "Location"), f, self.scale, batch.mask)

    def displace(self, batch: Batch, slope: PyTree) -> Array:
        return _rows(slope, "Location")


class ClassLocation(AbstractFamily):
    """Features of each class are normal with a mean that moves; class proportions do not change.

        x | y = k ~ N(f_k, diag(scale_k^2)),      f-hat_k = mean of x over class k

    For samples (x, y) with y = 0, 1, ...; f concatenates the means of all classes.
    """

    references = ()

    classes: int = whole(default=2)
    scale: Numbers | None = number(default=None)

    def __check_init__(self) -> None:
        check_counts(classes=self.classes)
        _check_scale("ClassLocation", "scale", self.scale)

    def _members(self, batch: Batch) -> tuple[Array, Array]:
        x, y = _pair(batch.z, "ClassLocation")
        member = y.astype(jnp.int32)[:, None] == jnp.arange(self.classes, dtype=jnp.int32)
        if batch.mask is not None:
            member &= batch.mask[:, None]
        return x, member

    def fit(self, batch: Batch) -> Array:
        x, member = self._members(batch)

        def mean(mine: Array) -> Array:
            return jnp.where(jnp.any(mine), masked_mean(x, mine), jnp.nan)

        return jax.vmap(mean, in_axes=1)(member).reshape(-1)

    def score(self, batch: Batch, f: Array) -> Array:
        x, member = self._members(batch)
        means = f.reshape(self.classes, -1)

        def one(mine: Array, mean: Array) -> Array:
            return jnp.where(mine[:, None], _normal_score("ClassLocation: scale", x, mean, self.scale, mine), 0)

        return jax.vmap(one, in_axes=(1, 0), out_axes=1)(member, means).reshape(len(x), -1)

    def displace(self, batch: Batch, slope: PyTree) -> Array:
        _, member = self._members(batch)
        moved, _ = _pair(slope, "ClassLocation")
        return jnp.where(member[:, :, None], moved[:, None, :], 0).reshape(len(moved), -1)


class Slope(AbstractFamily):
    """A linear model of y given x whose coefficients move.

        y | x ~ N(f . x, noise^2),      f-hat = least squares without intercept,      dy/df = x

    `noise` is the standard deviation; None estimates it from the residuals.
    """

    references = ()

    noise: Numbers | None = number(default=None)

    def __check_init__(self) -> None:
        _check_scale("Slope", "noise", self.noise)

    def fit(self, batch: Batch) -> Array:
        x, y = _pair(batch.z, "Slope")
        gram = masked_mean(x[:, :, None] * x[:, None, :], batch.mask)
        cross = masked_mean(x * y[:, None], batch.mask)
        if x.shape[1] == 1:
            return cross / jnp.maximum(gram[0], jnp.finfo(x.dtype).tiny)
        # A tiny ridge keeps the solve finite if too few samples are left.
        floor = 10 * jnp.finfo(x.dtype).eps * jnp.trace(gram) + jnp.finfo(x.dtype).tiny
        return jnp.linalg.solve(gram + floor * jnp.eye(x.shape[1], dtype=x.dtype), cross)

    def score(self, batch: Batch, f: Array) -> Array:
        x, y = _pair(batch.z, "Slope")
        residual = (y - jnp.sum(x * f, axis=1))[:, None]
        return _normal_score("Slope: noise", residual, jnp.zeros((1,), residual.dtype), self.noise, batch.mask) * x

    def displace(self, batch: Batch, slope: PyTree) -> Array:
        x, _ = _pair(batch.z, "Slope")
        return slope[1][:, None] * x


class Proportions(AbstractFamily):
    """Groups whose shares move while the data within each group do not.

        p(z, k; f) = f_k p_k(z),      f-hat_k = share of group k in the batch,      d log p / d f_k = 1{group = k} / f_k

    The population identifies the group of each sample. There is no pathwise form: shares change who is sampled, not the
    samples.
    """

    references = ()

    groups: int = whole()

    def __check_init__(self) -> None:
        check_counts(groups=self.groups)

    def _members(self, batch: Batch) -> Array:
        if batch.group is None:
            raise ValueError("Proportions needs a population with groups, such as Mixture; this one has none.")
        return batch.group.astype(jnp.int32)[:, None] == jnp.arange(self.groups, dtype=jnp.int32)

    def fit(self, batch: Batch) -> Array:
        return masked_mean(self._members(batch).astype(jnp.result_type(float)), batch.mask)

    def score(self, batch: Batch, f: Array) -> Array:
        member = self._members(batch)
        least = 0.5 / len(member)  # less than one sample: such a group has no score
        return jnp.where(member, 1 / jnp.maximum(f, least), 0)

    def displace(self, batch: Batch, slope: PyTree) -> Array:
        raise ValueError('Proportions has no pathwise form: shares change who is sampled. Use term="score".')
