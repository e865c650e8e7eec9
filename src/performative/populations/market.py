"""Demand that depends on everybody's prices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_finite, check_rule
from performative.families import Location
from performative.populations.base import AbstractPopulation, new_people
from performative.populations.linear import react
from performative.populations.nodes import standard_nodes
from performative.types import Numbers, RowNumbers, Scene, Theta, per_client

# The contribution of others' prices to demand, and its slope in the seller's own price.
World = tuple[Array, Array]


class Market(AbstractPopulation[World]):
    """Demand that depends on the prices of all sellers.

        Z_i ~ N(demand_i + sum_j coupling_ij theta_j, scale_i^2),      theta_j the price of seller j

    Client i is the market of one seller: seller i, or the one that `pf.Game(players=...)` assigns. `demand` is [N] for
    one price, [N, d] for d of them; `coupling` [N, players], [N, players, d] by coordinate, or [N, players, d, d];
    `scale` a number or one per client. People face their seller's price and see the others': the world stores the
    others' contribution to demand. If one model is deployed for all, it is every price.

    With the loss -theta_i z_i + penalty theta_i^2 / 2 (`losses.revenue(penalty)`) and b = demand, M = coupling:

        stable (penalty I - M)^-1 b,   Nash (penalty I - M - diag M)^-1 b,   social (penalty I - M - M^T)^-1 b

    Narang et al. 2023; Piliouras and Yu 2023.
    """

    references = ("narang2023multiplayer", "piliouras2023multiagent")
    exact_family = True
    equal_rows = new_people
    level_field = "demand"
    reads_models = True

    demand: Numbers = per_client()
    coupling: Numbers = per_client()
    scale: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Market", demand=self.demand, coupling=self.coupling, scale=self.scale)
        check_rule("Market", "is a standard deviation and must be >= 0", scale=self.scale)
        shape = self.model_shape()
        fits = [(), shape, shape + shape]
        got = np.shape(self.coupling)
        if np.ndim(self.demand) < 1 or len(got) < 2 or got[2:] not in fits[: None if shape else 1]:
            wanted = "[N, players]" if not shape else "[N, players], [N, players, d] or [N, players, d, d]"
            raise ValueError(
                f"Market: coupling must be {wanted} for a demand of shape {np.shape(self.demand)}, one row per "
                f"client and one column per seller; got shape {got}."
            )
        if np.ndim(self.scale) > 1:
            raise ValueError(f"Market: scale must be a number or one per client; got shape {np.shape(self.scale)}.")
        _ = self.clients

    @property
    def player_count(self) -> int:
        return np.shape(self.coupling)[1]

    @property
    def family(self) -> Location:
        return Location()

    def model_shape(self) -> tuple[int, ...]:
        return np.shape(self.demand)[1:]

    def init(self, scene: Scene) -> World:
        coupling = jnp.asarray(self.coupling)
        if scene.models is None:  # every price is scene.theta
            own = jnp.sum(coupling, axis=0)
            return jnp.zeros_like(scene.theta), own
        players = jnp.shape(scene.models)[0]
        if players != coupling.shape[0]:
            raise ValueError(
                f"Market: coupling has a column for each of {coupling.shape[0]} sellers; the number of deployed models "
                f"is {players}. Give each seller a model, as pf.Game(problem, players=...) does."
            )
        prices, other = scene.others(lambda price: price)
        each = jax.vmap(react)(coupling, prices)
        others = jnp.sum(jnp.where(other.reshape(-1, *(1,) * (each.ndim - 1)), each, 0), axis=0)
        return others, coupling[scene.player]

    def deploy(self, world: World, scene: Scene) -> World:
        return self.init(scene)

    def settle(self, scene: Scene) -> World:
        return self.init(scene)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Array:
        theta = jnp.asarray(theta)
        full = (*shape, *theta.shape)
        return jax.random.normal(key, (int(np.prod(full)),), theta.dtype).reshape(full)

    def sample(self, noise: Array, world: World, theta: Theta) -> Array:
        others, own = world
        return self.demand + others + react(own, theta) + self.scale * noise

    def quadrature(self, theta: Theta, count: int) -> tuple[Any, Array]:
        return standard_nodes(jnp.shape(theta), count)
