"""The population slot: how does client i's data react to a deployed model?"""

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
    """D_i(theta), written for ONE client as a pushforward of randomness that does not know theta.

        u ~ draw,      z = sample(u, world, theta)

    Only `sample` is required: without `draw`, u is a key. Where a client's data remember past models, the `world`
    is that memory: `init` makes it, `deploy` moves it. Mark fields that differ between clients with `per_client()`.

    Args:
        features_stay: whether samples are (x, y), of which theta moves y alone
        exact_family: whether `family` is the law of the data itself, so that f holds all of their reaction
    """

    features_stay: ClassVar[bool] = False
    exact_family: ClassVar[bool] = False

    @property
    def level_field(self) -> str | None:
        """The field that says where the data lie, for drift to move; None where there is none."""
        return None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_scenes(cls)

    @property
    def clients(self) -> int:
        """N. Meaningful on the whole population only."""
        return count_clients(self)

    @property
    def capacity(self) -> int | None:
        """Rows in the largest client's table, None where samples are unlimited."""
        return None

    @property
    def rows(self) -> Any:
        """Rows in this client's table (may be traced), None where samples are unlimited."""
        return self.capacity

    def equal_rows(self) -> tuple[int, ...] | None:
        """How many rows clients' tables have (each number once), every row as likely to be drawn as any other.

        () where there is no table and every sample is a new person, None where neither is known.
        """
        return None

    def translations(self) -> list[Translation] | None:
        """The groups of samples that theta moves as a whole, where that is all that it does once the data have settled.

        None where theta does more (it moves shares, or stretches), or that is not known. Of the whole population.
        """
        return None

    def trails(self) -> "tuple[np.ndarray, AbstractPopulation] | None":
        """Where its data remember felt models only: the speeds at which those follow the deployed one, and who feels.

            felt <- felt + speed (theta - felt),      Z ~ a mixture, with fixed shares, of data under felt models

        The population that feels must remember nothing itself for that to be all. None where the memory is another, or
        not known. Of the whole population.
        """
        return None

    @property
    def path_of_level(self) -> Any:
        """The path along which the level of its data moves by itself; None where it does not."""
        return None

    @property
    def moves_level_alone(self) -> bool:
        """Whether that is all that time does to its data."""
        return False

    @property
    def reads_time(self) -> bool:
        """Whether its people, or those of a population inside, change as time goes by."""
        return any(part.reads_time for part in _populations_in(self))

    @property
    def reads_models(self) -> bool:
        """Whether its people, or those of a population inside, react to other models than the one that they meet."""
        return any(part.reads_models for part in _populations_in(self))

    @property
    def player_count(self) -> int | None:
        """How many models it is made for; None where any number will do."""
        return next((count for part in _populations_in(self) if (count := part.player_count) is not None), None)

    def at(self, time: ArrayLike) -> "AbstractPopulation":
        """The same people with the clock stopped: a population that does not read the time."""
        if not self.reads_time:
            return self
        inside = _inside(self)
        stopped = jax.tree.map(
            lambda part: part.at(time) if is_population(part) else part, list(inside.values()), is_leaf=is_population
        )
        return eqx.tree_at(lambda whole: [getattr(whole, name) for name in inside], self, stopped)

    @property
    def infinite_variance(self) -> bool:
        """Whether samples are known to have no variance."""
        return False

    def model_shape(self) -> tuple[int, ...] | None:
        """Shape of theta where the data settle it; None where any model will do."""
        return None

    def init(self, scene: Scene) -> World:
        """A client's world at the start, when `scene.theta` is the first model deployed."""
        return None  # type: ignore[return-value]  # Memory is None where nothing is remembered

    def deploy(self, world: World, scene: Scene) -> World:
        """The world after one more spell under `scene.theta`."""
        return world

    def world_metrics(self, before: World, after: World) -> dict[str, Array]:
        """What a history should tell of how a client's world moved in a round, by name: its mean over the cohort."""
        return {}

    def settle(self, scene: Scene) -> World:
        """The world that the scene would bring about if it stayed so for good: deploy(world, scene) = world.

        By default `deploy` is repeated until the world is at rest; it is NaN where that does not come about. Override
        it where the limit is known.
        """
        return settled(lambda world: self.deploy(world, scene), self.init(scene))

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        """Randomness for samples of the given shape. `theta` is there for its shape, `rows` fixes table rows."""
        return jax.random.split(key, shape)

    @property
    def group_count(self) -> int | None:
        """How many groups of people (or classes) there are that one can tell apart, None for one."""
        return None

    def group(self, noise: Noise, world: World, theta: Theta) -> Int[Array, ""] | None:
        """Which group (0, 1, ...) that sample comes from, None where the population has no groups."""
        return None

    @property
    def smooth(self) -> bool:
        """Whether a sample moves with theta by itself. False where theta moves the chances of who is sampled:
        then the derivative of `sample` misses the reaction."""
        return True

    @property
    def family(self) -> AbstractFamily | None:
        """What a client takes p(z; f(theta)) to be, for estimators that learn how f moves. None where unknown."""
        return None

    @property
    def clean(self) -> "AbstractPopulation":
        """The same people without outliers."""
        return self

    @abstractmethod
    def sample(self, noise: Noise, world: World, theta: Theta) -> Sample:
        """One sample z of the client's data under the deployed model theta."""

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Float[Array, " n"]]:
        """Randomness and weights such that sum_j w_j g(sample(u_j)) is, or comes close to, E[g(Z)].

        By default `count` fixed draws, the same ones each time (common random numbers). A rule that takes no account
        of `count` counts as exact; one that draws takes its key from `nodes.draw_key(count)`, so that its error can be
        measured on other draws. A `nodes.Polynomial` in the place of `count` asks for a rule that is exact up to its
        degree: hand it on to `standard_nodes`.
        """
        noise = self.draw(draw_key(count), (count,), theta)
        return noise, jnp.full((count,), 1.0 / count)

    def quadrature_within(self, world: World, theta: Theta, count: int) -> tuple[Noise, Float[Array, " n"]]:
        """The same for a given world. Override it where the chances, not the samples, depend on the world."""
        return self.quadrature(theta, count)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        """theta_PS in closed form, None where none is known. Called on the whole population."""
        return None

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        """theta_PO in closed form, None where none is known. Called on the whole population."""
        return None


def is_population(node: object) -> bool:
    return isinstance(node, AbstractPopulation)


def _populations_in(population: AbstractPopulation) -> list[Any]:
    parts = jax.tree.leaves(list(_inside(population).values()), is_leaf=is_population)
    return [part for part in parts if is_population(part)]


def _inside(population: AbstractPopulation) -> dict[str, Any]:
    """The fields that hold populations: one, or several in a list."""
    fields = {field.name: getattr(population, field.name) for field in dataclasses.fields(population)}
    return {
        name: value
        for name, value in fields.items()
        if any(map(is_population, jax.tree.leaves(value, is_leaf=is_population)))
    }


class AbstractRows(AbstractPopulation[World]):
    """Data in clients' tables, of which each real row is as likely to be drawn as any other."""

    if TYPE_CHECKING:  # a field of the classes below; as an AbstractVar it would be their first argument to a checker

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
    """`equal_rows` of a class that draws so: a class declares it itself."""
    return tuple(np.unique(np.asarray(population.rows, int)).tolist())


def new_people(population: AbstractPopulation) -> tuple[int, ...]:
    """`equal_rows` of a class whose every sample is a new person: a class declares it itself."""
    return ()


def equal_rows_of(population: AbstractPopulation) -> tuple[int, ...]:
    """What a population's own class declares of `equal_rows`, for one that draws from it alone."""
    found = declared(population, "equal_rows")
    if found is None:
        raise Uncertified(f"how {type(population).__name__} picks people is not known to the accountant")
    return found


def collect(
    population: AbstractPopulation, noise: Noise, mask: Bool[Array, " n"] | None, world: PyTree, theta: Theta
) -> Batch:
    """The samples that one client's randomness (leading axis n) gives under the deployed model theta."""
    z = jax.vmap(lambda u: population.sample(u, world, theta))(noise)
    group = jax.vmap(lambda u: population.group(u, world, theta))(noise)
    return Batch(z, noise, mask, group)
