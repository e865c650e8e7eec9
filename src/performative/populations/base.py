"""The population slot: how client i's data react to a deployed model."""

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from performative._base.client_axis import count_clients
from performative._deprecated import take_scenes
from performative.facts import AbstractPart, Uncertified, declared
from performative.families import AbstractFamily
from performative.populations.linear import Translation
from performative.populations.nodes import draw_key
from performative.populations.rows import table_nodes
from performative.populations.settling import settled
from performative.types import ArrayLike, Batch, Loss, Noise, RowNumbers, Sample, Scene, Theta, World


class AbstractPopulation(AbstractPart, Generic[World]):
    """D_i(theta), written for ONE client as a pushforward of randomness that does not depend on theta.

        u ~ draw,      z = sample(u, world, theta)

    Only `sample` is required: without `draw`, u is a key. If a client's data depend on past models, the `world` is that
    memory: `init` creates it, `deploy` updates it. Mark fields that differ between clients with `per_client()`.

    Args:
        features_stay: whether samples are (x, y) and theta moves only y
        exact_family: whether `family` is the distribution of the data itself, so f captures all of their reaction
    """

    features_stay: ClassVar[bool] = False
    exact_family: ClassVar[bool] = False

    @property
    def level_field(self) -> str | None:
        """The field with the location of the data, which drift moves; None if there is none."""
        return None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_scenes(cls)

    @property
    def clients(self) -> int:
        """N. Only meaningful for the whole population."""
        return count_clients(self)

    @property
    def capacity(self) -> int | None:
        """Rows in the largest client's table, None if samples are unlimited."""
        return None

    @property
    def rows(self) -> Any:
        """Rows in this client's table (may be traced), None if samples are unlimited."""
        return self.capacity

    def equal_rows(self) -> tuple[int, ...] | None:
        """The distinct numbers of rows in clients' tables, if every row is equally likely to be drawn.

        () if there is no table and every sample is a new person, None if neither is known.
        """
        return None

    def translations(self) -> list[Translation] | None:
        """The groups of samples that theta translates, if that is its only effect once the data have settled.

        None if theta does more (it changes proportions or scales), or that is unknown. Called on the whole population.
        """
        return None

    def trails(self) -> "tuple[np.ndarray, AbstractPopulation] | None":
        """If the data depend only on lagged ("felt") models: their speeds, and the population that reacts to them.

            felt <- felt + speed (theta - felt),      Z ~ a mixture, with fixed shares, of data under felt models

        The inner population must itself be memoryless. None if the memory is different, or unknown. Called on the whole
        population.
        """
        return None

    @property
    def path_of_level(self) -> Any:
        """The path along which the level of the data drifts on its own; None if it does not."""
        return None

    @property
    def moves_level_alone(self) -> bool:
        """Whether that drift is the only effect of time on the data."""
        return False

    @property
    def reads_time(self) -> bool:
        """Whether its people, or those of an inner population, change over time."""
        return any(part.reads_time for part in _populations_in(self))

    @property
    def reads_models(self) -> bool:
        """Whether its people, or those of an inner population, react to models other than their own."""
        return any(part.reads_models for part in _populations_in(self))

    @property
    def player_count(self) -> int | None:
        """The number of models it requires; None for any number."""
        return next((count for part in _populations_in(self) if (count := part.player_count) is not None), None)

    def at(self, time: ArrayLike) -> "AbstractPopulation":
        """The same people at a fixed time: a population that does not depend on time."""
        if not self.reads_time:
            return self
        inside = _inside(self)
        stopped = jax.tree.map(
            lambda part: part.at(time) if is_population(part) else part, list(inside.values()), is_leaf=is_population
        )
        return eqx.tree_at(lambda whole: [getattr(whole, name) for name in inside], self, stopped)

    @property
    def infinite_variance(self) -> bool:
        """Whether samples are known to have infinite variance."""
        return False

    def model_shape(self) -> tuple[int, ...] | None:
        """Shape of theta if the data determine it; None if any model works."""
        return None

    def init(self, scene: Scene) -> World:
        """A client's world at the start, when `scene.theta` is the first model deployed."""
        return None  # type: ignore[return-value] # Memory is None if nothing is remembered

    def deploy(self, world: World, scene: Scene) -> World:
        """The world after one more period under `scene.theta`."""
        return world

    def world_metrics(self, before: World, after: World) -> dict[str, Array]:
        """Metrics, by name, of how a client's world moved in a round; a history records their mean over the cohort."""
        return {}

    def settle(self, scene: Scene) -> World:
        """The fixed point of the world under a constant scene: deploy(world, scene) = world.

        By default `deploy` is iterated until the world converges; it is NaN if it does not. Override this if the limit
        is known.
        """
        return settled(lambda world: self.deploy(world, scene), self.init(scene))

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        """Randomness for samples of the given shape. Only the shape of `theta` is used; `rows` fixes table rows."""
        return jax.random.split(key, shape)

    @property
    def group_count(self) -> int | None:
        """The number of distinguishable groups of people (or classes), None for one."""
        return None

    def group(self, noise: Noise, world: World, theta: Theta) -> Int[Array, ""] | None:
        """The group (0, 1, ...) of the sample, None if the population has no groups."""
        return None

    @property
    def smooth(self) -> bool:
        """Whether samples are differentiable in theta. False if theta changes the probabilities of who is sampled: then
        the derivative of `sample` misses the reaction."""
        return True

    @property
    def family(self) -> AbstractFamily | None:
        """A client's model p(z; f(theta)), for estimators that learn how f moves. None if unknown."""
        return None

    @property
    def clean(self) -> "AbstractPopulation":
        """The same people without outliers."""
        return self

    @abstractmethod
    def sample(self, noise: Noise, world: World, theta: Theta) -> Sample:
        """One sample z of the client's data under the deployed model theta."""

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Float[Array, " n"]]:
        """Randomness and weights such that sum_j w_j g(sample(u_j)) equals or approximates E[g(Z)].

        By default `count` fixed draws, the same ones each time (common random numbers). A rule that ignores `count` is
        considered exact; one that draws takes its key from `nodes.draw_key(count)`, so its error can be measured on
        other draws. A `nodes.Polynomial` in place of `count` requests a rule that is exact up to its degree: pass it on
        to `standard_nodes`.
        """
        noise = self.draw(draw_key(count), (count,), theta)
        return noise, jnp.full((count,), 1.0 / count)

    def quadrature_within(self, world: World, theta: Theta, count: int) -> tuple[Noise, Float[Array, " n"]]:
        """The same for a given world. Override it if the probabilities, not the samples, depend on the world."""
        return self.quadrature(theta, count)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        """theta_PS in closed form, None if none is known. Called on the whole population."""
        return None

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        """theta_PO in closed form, None if none is known. Called on the whole population."""
        return None


def is_population(node: object) -> bool:
    return isinstance(node, AbstractPopulation)


def _populations_in(population: AbstractPopulation) -> list[Any]:
    parts = jax.tree.leaves(list(_inside(population).values()), is_leaf=is_population)
    return [part for part in parts if is_population(part)]


def _inside(population: AbstractPopulation) -> dict[str, Any]:
    """The fields that contain populations: one, or several in a list."""
    fields = {field.name: getattr(population, field.name) for field in dataclasses.fields(population)}
    return {
        name: value
        for name, value in fields.items()
        if any(map(is_population, jax.tree.leaves(value, is_leaf=is_population)))
    }


class AbstractRows(AbstractPopulation[World]):
    """Data in clients' tables, each real row being equally likely to be drawn."""

    if TYPE_CHECKING:  # a field of the subclasses; as an AbstractVar a checker would treat it as their first argument

        @property
        def count(self) -> Any: ...

    @property
    @abstractmethod
    def capacity(self) -> int: ...

    @property
    def rows(self) -> Any:
        return self.capacity if self.count is None else self.count

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        return jax.random.randint(key, shape, 0, self.rows, jnp.int32) if rows is None else rows

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        return table_nodes(self.capacity, self.rows)


def real_rows(population: AbstractRows) -> tuple[int, ...]:
    """`equal_rows` of a class that draws real rows uniformly; such a class declares it itself."""
    return tuple(np.unique(np.asarray(population.rows, int)).tolist())


def new_people(population: AbstractPopulation) -> tuple[int, ...]:
    """`equal_rows` of a class whose every sample is a new person; such a class declares it itself."""
    return ()


def equal_rows_of(population: AbstractPopulation) -> tuple[int, ...]:
    """The `equal_rows` that a population's own class declares, for a wrapper that draws only from it."""
    found = declared(population, "equal_rows")
    if found is None:
        raise Uncertified(f"how {type(population).__name__} picks people is not known to the accountant")
    return found


def collect(
    population: AbstractPopulation, noise: Noise, mask: Bool[Array, " n"] | None, world: PyTree, theta: Theta
) -> Batch:
    """The samples of one client's randomness (leading axis n) under the deployed model theta."""
    z = jax.vmap(lambda u: population.sample(u, world, theta))(noise)
    group = jax.vmap(lambda u: population.group(u, world, theta))(noise)
    return Batch(z, noise, mask, group)
