"""Groups of people who come and go."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from performative import losses
from performative.facts import Uncertified, declared
from performative.families import Proportions
from performative.populations.base import AbstractPopulation, equal_rows_of
from performative.populations.gaussian import AbstractLocation
from performative.populations.linear import Translation, by_client, mixed
from performative.populations.nodes import in_turn
from performative.populations.shares import AbstractShare, Linear, pick
from performative.types import ArrayLike, Loss, Noise, RowNumbers, Sample, Scene, Theta

# The worlds of the groups, in order; then what people know about other models, if their shares depend on it.
Worlds = tuple[PyTree, ...]


def _as_tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Mixture(AbstractPopulation[Worlds]):
    """Groups whose shares respond to the model (contribution dynamics).

        D_i(theta) = sum_k nu_{i,k}(theta) D_{i,k}(theta)

    `groups` is a tuple of K populations with samples of the same structure and shape, which may react themselves;
    `share` gives nu: a module of `populations.shares`, or your own `AbstractShare`. One uniform number picks the group,
    so a sample jumps when theta moves the shares: its derivative misses that (`smooth` is False), but the expectations
    of `quadrature` do not. `family` sees only the shares, not the reactions of the groups. Zheng et al. 2024, Section
    5, contribution dynamics. With `negative_revenue`, a number theta, two groups with fixed normal demands a_0, a_1 and
    `Linear` shares, the mean demand is A + B theta: theta_PS = -A / B and, if B < 0, theta_PO = -A / (2 B). None if
    theta_PS would lie outside the simplex, or if the clients' B_i have different signs.
    """

    references = ("zheng2024profl",)

    groups: tuple[AbstractPopulation, ...] = eqx.field(converter=_as_tuple)
    share: AbstractShare

    @property
    def reads_models(self) -> bool:
        return self.share.reads_models or any(group.reads_models for group in self.groups)

    def __check_init__(self) -> None:
        if not isinstance(self.groups, tuple) or not self.groups:
            raise ValueError(f"Mixture: groups must be a tuple of populations; got {self.groups!r}.")
        for k, group in enumerate(self.groups):
            if not isinstance(group, AbstractPopulation):
                raise ValueError(f"Mixture: groups must be populations; groups[{k}] is {group!r}.")
        if not isinstance(self.share, AbstractShare):
            raise ValueError(
                "Mixture: share must be a share such as pf.populations.shares.Linear(level, slope); "
                f"got {self.share!r}."
            )
        if self.share.groups != len(self.groups):
            raise ValueError(f"Mixture: share is for {self.share.groups} groups, but groups has {len(self.groups)}.")
        shapes = {k: shape for k, group in enumerate(self.groups) if (shape := group.model_shape()) is not None}
        if len(set(shapes.values())) > 1:
            listed = ", ".join(f"groups[{k}] {shape}" for k, shape in shapes.items())
            raise ValueError(f"Mixture: groups need a theta of the same shape, but they take {listed}.")
        _ = self.clients

    def equal_rows(self) -> tuple[int, ...]:
        if any(equal_rows_of(group) for group in self.groups):
            raise Uncertified("Mixture picks a group first, so rows of its tables are not equally likely")
        return ()

    def translations(self) -> list[Translation] | None:
        fixed = declared(self.share, "fixed")
        if fixed is None:
            return None
        shares = [np.broadcast_to(np.asarray(share, np.float64), self.clients) for share in fixed]
        return mixed(shares, [declared(group, "translations") for group in self.groups])

    @property
    def smooth(self) -> bool:
        return not self.share.reacts and all(group.smooth for group in self.groups)

    @property
    def group_count(self) -> int:
        return len(self.groups)

    @property
    def family(self) -> Proportions | None:
        return Proportions(len(self.groups)) if self.share.reacts else None

    def model_shape(self) -> tuple[int, ...] | None:
        return next((shape for group in self.groups if (shape := group.model_shape()) is not None), None)

    def init(self, scene: Scene) -> Worlds:
        return (*(group.init(scene) for group in self.groups), *self._elsewhere(scene))

    def deploy(self, world: Worlds, scene: Scene) -> Worlds:
        return (*(group.deploy(own, scene) for group, own in self._pairs(world)), *self._elsewhere(scene))

    def settle(self, scene: Scene) -> Worlds:
        return (*(group.settle(scene) for group in self.groups), *self._elsewhere(scene))

    def _elsewhere(self, scene: Scene) -> Worlds:
        """What people know about other models, last in the world; empty if they ignore them."""
        return (self.share.remember(scene),) if self.share.reads_models else ()

    def _pairs(self, world: Worlds) -> Any:
        return zip(self.groups, world[: len(self.groups)], strict=True)

    def _share(self, world: Worlds, theta: Theta) -> Array:
        return self.share.beside(theta, world[-1]) if self.share.reads_models else self.share(theta)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        first, *keys = jax.random.split(key, len(self.groups) + 1)
        pairs = zip(self.groups, keys, strict=True)
        return jax.random.uniform(first, shape), tuple(group.draw(own, shape, theta) for group, own in pairs)

    def sample(self, noise: Noise, world: Worlds, theta: Theta) -> Sample:
        _, each = noise
        samples = [g.sample(u, own, theta) for (g, own), u in zip(self._pairs(world), each, strict=True)]
        looks = [jax.tree.map(lambda z: f"{jnp.result_type(z)}{list(jnp.shape(z))}", sample) for sample in samples]
        for k, look in enumerate(looks):
            if look != looks[0]:
                raise ValueError(
                    f"Mixture: groups need samples of the same structure and shape; those of groups[{k}] are {look}, "
                    "those "
                    f"of groups[0] {looks[0]}."
                )
        picked = self.group(noise, world, theta)
        chosen = samples[0]
        for k, other in enumerate(samples[1:], start=1):
            chosen = jax.tree.map(lambda z, new, k=k: jnp.where(picked == k, new, z), chosen, other)
        return chosen

    def group(self, noise: Noise, world: Worlds, theta: Theta) -> Array:
        return pick(noise[0], self._share(world, theta))

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self._weigh([group.quadrature(theta, count) for group in self.groups], self.share(theta))

    def quadrature_within(self, world: Worlds, theta: Theta, count: int) -> tuple[Noise, Array]:
        each = [group.quadrature_within(own, theta, count) for group, own in self._pairs(world)]
        return self._weigh(each, self._share(world, theta))

    def _weigh(self, each: list[tuple[Noise, Array]], share: Array) -> tuple[Noise, Array]:
        """Every group's nodes in turn, weighted by its share: exact if theirs are, and smooth in theta."""
        which = jnp.concatenate([jnp.full(weight.shape, -1.0 - k) for k, (_, weight) in enumerate(each)])
        weights = [share[k].astype(weight.dtype) * weight for k, (_, weight) in enumerate(each)]
        return (which, in_turn(each)), jnp.concatenate(weights)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        line = self._mean_demand(loss, weights)
        return None if line is None else np.asarray(-line[0] / line[1])

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        # If demand falls, revenue theta (A + B theta) is positive only between 0 and theta_PS: the maximum there is
        # global. Shares at both ends lie in the simplex, hence also in between.
        line = self._mean_demand(loss, weights)
        return None if line is None or line[1] > 0 else np.asarray(-line[0] / (2 * line[1]))

    def _mean_demand(self, loss: Loss, weights: ArrayLike) -> tuple[float, float] | None:
        """A and B of the mean demand A + B theta, None if it is not linear between 0 and theta_PS."""
        share = self.share
        if loss is not losses.negative_revenue or not isinstance(share, Linear) or len(self.groups) != 2:
            return None
        fixed = [g for g in self.groups if isinstance(g, AbstractLocation) and not np.any(np.asarray(g.slope))]
        if len(fixed) != 2 or self.model_shape() != () or np.ndim(share.slope.entries[0]) > 1:
            return None
        clients, p = self.clients, np.asarray(weights, np.float64)
        mean, level, slope = (
            np.stack([by_client(entry, clients, ()) for entry in entries])
            for entries in ([g.level for g in fixed], share.level.entries, share.slope.entries)
        )
        own = np.sum(slope * mean, axis=0)
        A, B = float(np.sum(p * np.sum(level * mean, axis=0))), float(np.sum(p * own))
        if abs(B) < 1e-12 or np.any(own * B < 0):
            return None
        ends = np.stack([level, level - slope * A / B])
        return (A, B) if np.all((ends >= 0) & (ends <= 1)) else None
