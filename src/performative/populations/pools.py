"""People who react with a delay: pools that respond to models lagging behind the deployed one."""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from performative._base.checks import check_finite, check_rule
from performative.facts import declared
from performative.populations.base import AbstractPopulation, equal_rows_of
from performative.populations.columns import as_columns, check_columns, check_sum
from performative.populations.linear import Translation
from performative.populations.shares import pick
from performative.populations.wrappers import AbstractWrapper, check_inside
from performative.types import (
    ArrayLike,
    Loss,
    Noise,
    Numbers,
    RowNumbers,
    Sample,
    Scene,
    Theta,
    World,
    is_concrete,
    per_client,
)

# For each pool, the model that it feels and the world of `inner` under it.
Felt = tuple[tuple[Theta, PyTree], ...]


class AbstractTrailing(AbstractWrapper[Felt]):
    """Pools of people, each of which responds to a model that lags behind the deployed one.

    felt_ij <- felt_ij + speed_ij (theta - felt_ij),      Z_i ~ sum_j share_ij D_i(felt_ij)
    """

    @property
    @abstractmethod
    def pools(self) -> tuple[tuple[Any, Any], ...]:
        """(share_ij, speed_ij) for each pool j; the share of a single pool is not read."""

    def init(self, scene: Scene) -> Felt:
        return tuple((scene.theta, self.inner.init(scene)) for _ in self.pools)

    def deploy(self, world: Felt, scene: Scene) -> Felt:
        def spell(speed: Any, felt: Theta, inside: PyTree) -> tuple[Theta, PyTree]:
            felt = jax.tree.map(lambda old, new: old + speed * (new - old), felt, scene.theta)
            return felt, self.inner.deploy(inside, scene.meeting(felt))

        return tuple(spell(speed, *own) for (_, speed), own in zip(self.pools, world, strict=True))

    def world_metrics(self, before: Felt, after: Felt) -> dict[str, Array]:
        each = [self.inner.world_metrics(old[1], new[1]) for old, new in zip(before, after, strict=True)]
        if len(each) == 1:
            return each[0]
        shares = [share for share, _ in self.pools]
        return {name: sum(s * one[name] for s, one in zip(shares, each, strict=True)) for name in each[0]}

    def settle(self, scene: Scene) -> Felt:
        def rest(speed: Any) -> Theta:
            return jax.tree.map(lambda new: jnp.where(speed <= 0, jnp.nan, new), scene.theta)

        return tuple((rest(speed), self.inner.settle(scene)) for _, speed in self.pools)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        if len(self.pools) == 1:
            return self.inner.draw(key, shape, theta, rows)
        first, rest = jax.random.split(key)
        return jax.random.uniform(first, shape), self.inner.draw(rest, shape, theta, rows)

    def sample(self, noise: Noise, world: Felt, theta: Theta) -> Sample:
        own, picked = self._read(noise)
        return _take(picked, [self.inner.sample(own, inside, felt) for felt, inside in world])

    def group(self, noise: Noise, world: Felt, theta: Theta) -> Int[Array, ""] | None:
        own, picked = self._read(noise)
        return _take(picked, [self.inner.group(own, inside, felt) for felt, inside in world])

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self._weigh([self.inner.quadrature(theta, count)] * len(self.pools))

    def quadrature_within(self, world: Felt, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self._weigh([self.inner.quadrature_within(inside, felt, count) for felt, inside in world])

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self.inner.stable_point(loss, weights) if self._reacts() else None

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self.inner.optimal_point(loss, weights) if self._reacts() else None

    def _reacts(self) -> bool:
        return all(not is_concrete(speed) or bool(np.all(np.asarray(speed) > 0)) for _, speed in self.pools)

    def _read(self, noise: Noise) -> tuple[Noise, Int[Array, ""] | None]:
        """The inner randomness, and the pool that it is for; None if there is only one."""
        if len(self.pools) == 1:
            return noise, None
        which, own = noise
        return own, pick(which, jnp.stack([share for share, _ in self.pools]))

    def _weigh(self, each: list[tuple[Noise, Array]]) -> tuple[Noise, Array]:
        """Every pool's nodes in turn, weighted by its share: exact if they are."""
        if len(each) == 1:
            return each[0]
        # A `which` below 0 selects pool -1 - which directly.
        which = jnp.concatenate([jnp.full(weight.shape, -1.0 - j) for j, (_, weight) in enumerate(each)])
        own = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(noise for noise, _ in each))
        shares = [share.astype(weight.dtype) * weight for (share, _), (_, weight) in zip(self.pools, each, strict=True)]
        return (which, own), jnp.concatenate(shares)


def _take(picked: Array | None, each: list[Any]) -> Any:
    """The entry of the picked pool."""
    chosen = each[0]
    for j, other in enumerate(each[1:], start=1):
        chosen = jax.tree.map(lambda old, new, j=j: jnp.where(picked == j, new, old), chosen, other)
    return chosen


class Sluggish(AbstractTrailing):
    """People who react with a delay: data respond to a model that lags behind the deployed one. `Pools` with one pool.

        felt <- felt + speed_i (theta - felt),      Z_i ~ D_i(felt)

    Speed 1 means no memory. The fixed points of retraining do not depend on the speed, but whether and how fast it
    converges may: with one speed s, a new model every k periods, the squared loss and a mean m + eps felt, each
    retraining multiplies the error by (1-s)^k + eps (1 - (1-s)^k). People of speed 0 respond to the first model
    forever: their data do not depend on the deployed model, so there are no stable or optimal points, and runs have no
    performative risk. Brown, Hod and Kalemaj 2022 call such worlds stateful.
    """

    references = ("brown2022stateful",)

    inner: AbstractPopulation[World]
    speed: Numbers = per_client()

    def __check_init__(self) -> None:
        check_inside("Sluggish", inner=self.inner)
        check_finite("Sluggish", speed=self.speed)
        check_rule("Sluggish", "must lie in [0, 1]", speed=self.speed)
        _ = self.clients

    @property
    def pools(self) -> tuple[tuple[Any, Any], ...]:
        return ((1.0, self.speed),)

    def equal_rows(self) -> tuple[int, ...]:
        return equal_rows_of(self.inner)

    def translations(self) -> list[Translation] | None:
        return declared(self.inner, "translations")

    def trails(self) -> tuple[np.ndarray, AbstractPopulation]:
        return np.ravel(np.asarray(self.speed, np.float64)), self.inner


class Pools(AbstractTrailing):
    """A world with several time scales: pools of people who react at different speeds.

        felt_ij <- felt_ij + speed_ij (theta - felt_ij),      Z_i ~ sum_j share_ij D_i(felt_ij)

    `share` and `speed` have one entry per pool, [K] or [N, K]; shares sum to one, speeds lie in [0, 1]. The pool of a
    sample does not depend on the model: each comes from pool j with probability share_ij. The squared loss and a mean
    m_i + eps_i felt_i, with a new model each period, give the linear map

        felt_ij' = felt_ij + speed_ij (theta - felt_ij),      theta' = sum_ij p_i (m_i + eps_i share_ij felt_ij')

    With speed 0 there are no stable or optimal points; see `Sluggish`. Brown, Hod and Kalemaj 2022.
    """

    references = ("brown2022stateful",)
    # Data of several pools are a mixture of inner's distributions.
    exact_family = False

    inner: AbstractPopulation[World]
    share: Any = per_client(converter=as_columns)
    speed: Any = per_client(converter=as_columns)

    def __check_init__(self) -> None:
        check_inside("Pools", inner=self.inner)
        check_columns("Pools", share=self.share, speed=self.speed)
        for name, value in (("share", self.share), ("speed", self.speed)):
            if np.ndim(value.entries[0]) > 1:
                raise ValueError(f"Pools: {name} must be [K] or [N, K]; it has one axis too many.")
            for entry in value.entries:
                check_rule("Pools", "must lie in [0, 1]", **{name: entry})
        if len(self.share.entries) != len(self.speed.entries):
            counts = f"{len(self.share.entries)} and {len(self.speed.entries)}"
            raise ValueError(f"Pools: share and speed need one entry for each pool; they have {counts}.")
        check_sum("Pools", "share", self.share, 1.0)
        _ = self.clients

    @property
    def pools(self) -> tuple[tuple[Any, Any], ...]:
        return tuple(zip(self.share.entries, self.speed.entries, strict=True))

    def equal_rows(self) -> tuple[int, ...]:
        return equal_rows_of(self.inner)

    def translations(self) -> list[Translation] | None:
        return declared(self.inner, "translations")

    def trails(self) -> tuple[np.ndarray, AbstractPopulation]:
        return np.concatenate([np.ravel(np.asarray(speed, np.float64)) for speed in self.speed.entries]), self.inner
