"""Clients in training: who finishes next, and who replaces them."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative._base.sampling import distinct


class InFlight(eqx.Module):
    """C places, each with a client in training. Places lie in blocks; the earliest finish of each block is kept.

    Args:
        now: when the last buffer was full
        start: the round whose model each place trains on
        finish: when it will be done, [blocks, C / blocks]; infinity for padding
        earliest: the first finish of each block
        order: all clients; the one at place c is order[c], those from C on are idle. None if order[c] = c
    """

    now: Float[Array, ""]
    start: Int[Array, " C"]
    finish: Float[Array, "blocks width"]
    earliest: Float[Array, " blocks"]
    order: Int[Array, " N"] | None

    def first(self, count: int) -> tuple[Float[Array, " B"], Int[Array, " B"]]:
        """The `count` places that finish first, in order, and when they do.

        They lie in the `count` blocks that finish first, so the cost is that of those blocks.
        """
        blocks, width = self.finish.shape
        _, among = jax.lax.top_k(-self.earliest, min(count, blocks))
        times, at = jax.lax.top_k(-self.finish[among].reshape(-1), count)
        return -times, (among[at // width] * width + at % width).astype(jnp.int32)

    def restart(
        self, places: Int[Array, " B"], round: Int[Array, ""], now: Float[Array, ""], finish: Float[Array, " B"],
        order: Int[Array, " N"] | None,
    ) -> "InFlight":  # fmt: skip
        """Start the clients at these places on the model of `round`.

        Places must depend on everything that was read from `start`, so the compiler can update it in place.
        """
        width = self.finish.shape[1]
        # Strictly later than now, if only by one ulp: otherwise places with zero work would never yield.
        finish = jnp.maximum(finish, jnp.nextafter(now, jnp.asarray(jnp.inf, now.dtype)))
        rows = self.finish.at[places // width, places % width].set(finish)
        earliest = self.earliest.at[places // width].set(jnp.min(rows[places // width], axis=1))
        return InFlight(now, self.start.at[places].set(round, mode="drop"), rows, earliest, order)


def nobody_yet(places: int, clients: int, in_order: bool = False) -> InFlight:
    """The initial memory, before anybody has started; with `in_order` the client at place c is c."""
    width = math.isqrt(places)
    blocks, dtype = -(-places // width), jnp.result_type(float)
    finish = jnp.full((blocks * width,), jnp.inf, dtype).at[:places].set(0).reshape(blocks, width)
    order = None if in_order else jnp.arange(clients, dtype=jnp.int32)
    zero = jnp.zeros((), dtype)
    return InFlight(zero, jnp.zeros((places,), jnp.int32), finish, jnp.zeros((blocks,), dtype), order)


def replaced(key: PRNGKeyArray, flight: InFlight, places: Int[Array, " B"]) -> tuple[Array, Array, Any]:
    """Who finished at these places, who starts there, and `order` after that.

    Those who start are drawn from all idle clients, including those who just finished; every set is equally likely, and
    the cost is proportional to the places. If everybody is training, they restart.
    """
    order = flight.order
    if order is None:
        return places, places, None
    if order.shape == flight.start.shape:
        return order[places], order[places], order
    count, working = places.shape[0], flight.start.shape[0]
    drawn = distinct(key, count, order.shape[0] - working + count)
    # The first rows of the pool are those who finished; the others are idle, stored after all places.
    here = jnp.where(drawn < count, places[jnp.minimum(drawn, count - 1)], working + drawn - count)
    stays = jnp.zeros((count,), bool).at[jnp.where(drawn < count, drawn, count)].set(True, mode="drop")
    # As many clients leave the idle pool as enter it: the k-th of one swaps with the k-th of the other.
    goes = places[jnp.argsort(stays, stable=True)]
    comes = here[jnp.argsort(drawn < count, stable=True)]
    swaps = jnp.arange(count) < jnp.sum(~stays)
    # One read and one write, which the compiler can do in place.
    finished, starts, rests = jnp.split(order[jnp.concatenate([places, here, goes])], 3)
    idle = jnp.where(swaps & (finished[0] >= 0), comes, order.shape[0])
    to, who = jnp.concatenate([places, idle]), jnp.concatenate([starts, rests])
    return finished, starts, order.at[to].set(who, mode="drop")
