"""A learning problem: a loss, clients whose data react, their weights, and the domain of theta."""

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from performative._base.arguments import spelt
from performative._base.checks import check_fields, check_finite
from performative._base.describe import short, shown
from performative._base.notebook import card
from performative._deprecated import old_keywords
from performative.domains import AbstractDomain
from performative.losses import Logistic
from performative.populations import AbstractPopulation, Strategic
from performative.populations.pooled import Pooled
from performative.populations.rows import check_own_tables, labels_in
from performative.populations.scaled import Scaled, ScaledLoss
from performative.tables.frames import Columns, read_frame
from performative.tables.scaling import Standardize
from performative.types import ArrayLike, Loss, Numbers, Unchecked, as_numbers, as_words, is_concrete

__all__ = ["Problem"]

SCALED_BY_ROWS = "features are scaled by the means and standard deviations of these same rows"


class Problem(eqx.Module):
    """min over theta of sum_i p_i E_{Z ~ D_i(theta)} l(theta; Z), where the data react to the deployed model.

    Args:
        loss: l(theta; z) of ONE sample
        population: D_i, all clients in one object
        weights: p_i, None for equal weights
        domain: constraint set of theta, None for no constraint
        from_data: in words, what was computed from these people's rows, such as feature scales: no noise protects it,
            and `pf.privacy.guarantee` reports it
    """

    loss: Loss
    population: AbstractPopulation
    weights: Unchecked[Numbers | None] = eqx.field(converter=as_numbers, default=None)
    domain: AbstractDomain | None = None
    columns: Columns | None = eqx.field(static=True, default=None)
    from_data: tuple[str, ...] = eqx.field(static=True, converter=as_words, default=())

    def __repr__(self) -> str:
        return shown(self)

    def _repr_html_(self) -> str:
        facts = [("loss", short(self.loss)), ("population", short(self.population)), ("clients", self.clients)]
        facts += [] if self.columns is None else [("parameters", ", ".join(self.columns.names))]
        facts += [] if self.domain is None else [("domain", short(self.domain))]
        return card("Problem: data that respond to the deployed model", facts)

    def __check_init__(self) -> None:
        if not callable(self.loss):
            raise ValueError(f"loss must be a function l(theta, z) of one sample; got {self.loss!r}.")
        if isinstance(self.loss, type):
            name = self.loss.__name__
            raise ValueError(f"loss must be a function l(theta, z) of one sample; got the class {name}: use {name}().")
        if not isinstance(self.population, AbstractPopulation):
            raise ValueError(
                "population must be a pf.populations.AbstractPopulation with a `sample(noise, world, theta)` method; "
                f"got {type(self.population).__name__}."
            )
        if self.population.clients < 1:
            raise ValueError(f"population: {type(self.population).__name__} has no clients; pass at least one.")
        if self.domain is not None and not isinstance(self.domain, AbstractDomain):
            raise ValueError(f"domain must be pf.Box(lo, hi), pf.Ball(radius) or None; got {self.domain!r}.")
        shape = self.population.model_shape()
        if self.domain is not None and shape is not None:
            self.domain.check(shape)
        for part in (self.loss, self.population, self.domain):
            check_fields(part)
        for population in _inside(self.population):
            check_own_tables(population)
            _check_labels(self.loss, population)
        if self.weights is not None and is_concrete(self.weights):
            _check_weights(np.asarray(self.weights), self.population.clients)

    @property
    def clients(self) -> int:
        """N."""
        return self.population.clients

    @property
    def client_weights(self) -> Float[Array, " N"] | np.ndarray:
        """p_i as an array."""
        if self.weights is None:
            return np.full(self.clients, 1.0 / self.clients)
        return self.weights

    def at(self, time: ArrayLike) -> "Problem":
        """The problem at that simulated time; unchanged if nothing depends on time."""
        if not self.population.reads_time:
            return self
        leaves = jax.tree.leaves((self.population, time))
        if any(isinstance(leaf, jax.Array) for leaf in leaves):
            return dataclasses.replace(self, population=self.population.at(time))
        check_finite("at", time=time)
        if np.ndim(time):
            raise ValueError(f"at: time must be one number; got shape {np.shape(time)}.")
        with jax.enable_x64(True):  # numbers stay on the host, without loss of precision
            population = self.population.at(np.asarray(time, np.float64))
            population = jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, population)
        return dataclasses.replace(self, population=population)

    def pooled(self) -> "Problem":
        """The same data as a single client: what a central learner sees, not knowing which client people belong to."""
        everyone = Pooled(self.population, self.client_weights)
        return Problem(self.loss, everyone, domain=self.domain, columns=self.columns, from_data=self.from_data)

    def scaled(self) -> "Problem":
        """Equal weights for clients that step along g_i = N p_i f_i: the same f, hence the same points.

            f = sum_i p_i f_i = (1/N) sum_i g_i

        Scheme II (`pf.SchemeTwo`) on it is the algorithm for unequal p_i of Jin et al. 2024, Section 3.2: a round's
        weights are 1/K each and sum to one. The heaviest client's steps are N max_i p_i times larger.
        """
        population = Scaled(self.population, self.clients * np.asarray(self.client_weights))
        return Problem(
            ScaledLoss(self.loss), population, domain=self.domain, columns=self.columns, from_data=self.from_data
        )

    @classmethod
    @old_keywords
    @spelt
    def from_frame(
        cls,
        frame: Any,
        *,
        label: str,
        client: str | None = None,
        positive: Hashable = None,
        strategic: Unchecked[Sequence[str] | None] = None,
        strength: ArrayLike | Mapping[Hashable, float] = 1.0,
        penalty: ArrayLike | None = None,
        standardize: Unchecked[Standardize] = True,
        intercept: bool = True,
    ) -> "Problem":
        """A strategic logistic problem from a table: one row per person.

        Args:
            frame: a table of pandas, polars, pyarrow, DuckDB or Ibis, a Hugging Face `Dataset`, or {client: table},
                such as the partitions of Flower Datasets
            label: column of two classes, 0 and 1
            client: column with the client of each row, None for a single client; the weights are the clients' shares of
                rows
            positive: the class that becomes 1 if labels are not 0 and 1; people change features to lower theta.x, so it
                is the class they try to avoid (a fitted model's `classes_` are interpreted accordingly)
            strategic: columns that people can change in response to the model (names), None for all features
            strength: how far they go, per unit of the model: a number, or {client: number}
            penalty: L2, None for 1 / (number of rows); the intercept is never penalized
            standardize: True scales features to mean 0 and variance 1 over these rows, "robust" by median and
                quartiles, for data with outliers; neither is covered by a privacy guarantee. {feature: (mean, standard
                deviation)} uses scales known independently of the data; False leaves features unchanged. A fitted
                scikit-learn model as `theta` keeps its scores
            intercept: append a column of ones
        """
        tables = read_frame(frame, client, label, strategic, strength, standardize, intercept, positive)
        rows = int(np.sum(tables.count))
        return cls(
            loss=Logistic(
                1.0 / rows if penalty is None else penalty,
                intercept=len(tables.columns.names) - 1 if intercept else None,
            ),
            population=Strategic(tables.x, tables.y, tables.strength, features=tables.movable, count=tables.count),
            weights=tables.count / rows,
            columns=tables.columns,
            from_data=(SCALED_BY_ROWS,) if standardize is True or standardize == "robust" else (),
        )


def _inside(population: AbstractPopulation) -> Iterator[AbstractPopulation]:
    """A population and all populations inside it."""
    yield population
    parts = jax.tree.leaves(population, is_leaf=lambda n: n is not population and isinstance(n, AbstractPopulation))
    for part in parts:
        if isinstance(part, AbstractPopulation):
            yield from _inside(part)


def _check_labels(loss: Loss, population: AbstractPopulation) -> None:
    """The logistic loss expects 0 and 1; other codings would train silently."""
    found = labels_in(population) if isinstance(loss, Logistic) else None
    if found is not None and not np.all(np.isin(found, (0, 1))):
        raise ValueError(f"the logistic loss needs labels 0 and 1; the population's y contains {found[:5].tolist()}.")


def _check_weights(weights: np.ndarray, clients: int) -> None:
    if weights.shape != (clients,):
        raise ValueError(f"weights must contain one p_i for each of the {clients} clients; got shape {weights.shape}.")
    check_finite("Problem", weights=weights)
    if np.any(weights < 0):
        raise ValueError(f"weights must not be negative; weights[{int(np.argmin(weights))}] = {weights.min():g}.")
    if abs(weights.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"weights must sum to one; they sum to {weights.sum():.6g}. "
            "Use weights / weights.sum(), or None for equal weights."
        )
