"""Clients at work: who finishes next, and who takes their places."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative._base.sampling import distinct


class InFlight(eqx.Module):
    """C places, each with a client at work. Places lie in blocks, of which the earliest finish is kept.

    Args:
        now: when the last buffer was full
        start: the round whose model each place works on
        finish: when it will be done, [blocks, C / blocks]; never where a block is not full
        earliest: the first finish of each block
        order: all clients; the one at place c is order[c], those from C on are idle. None where it is c
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
        """Clients at these places start on the model of `round`.

        Places must depend on all that was read of `start`: then the compiler knows that it can be changed in place.
        """
        width = self.finish.shape[1]
        # Later than now, be it by the least that a number can tell: else places with nothing to do would never yield.
        finish = jnp.maximum(finish, jnp.nextafter(now, jnp.asarray(jnp.inf, now.dtype)))
        rows = self.finish.at[places // width, places % width].set(finish)
        earliest = self.earliest.at[places // width].set(jnp.min(rows[places // width], axis=1))
        return InFlight(now, self.start.at[places].set(round, mode="drop"), rows, earliest, order)


def nobody_yet(places: int, clients: int, in_order: bool = False) -> InFlight:
    """Before anybody has started; with `in_order` the client at place c is c."""
    width = math.isqrt(places)
    blocks, dtype = -(-places // width), jnp.result_type(float)
    finish = jnp.full((blocks * width,), jnp.inf, dtype).at[:places].set(0).reshape(blocks, width)
    order = None if in_order else jnp.arange(clients, dtype=jnp.int32)
    zero = jnp.zeros((), dtype)
    return InFlight(zero, jnp.zeros((places,), jnp.int32), finish, jnp.zeros((blocks,), dtype), order)


def replaced(key: PRNGKeyArray, flight: InFlight, places: Int[Array, " B"]) -> tuple[Array, Array, Any]:
    """Who finished at these places, who starts there, and `order` after that.

    Those who start are drawn from all who are idle, those who just finished included; every set is equally likely, and
    the cost is that of the places. Where everybody works they start again.
    """
    order = flight.order
    if order is None:
        return places, places, None
    if order.shape == flight.start.shape:
        return order[places], order[places], order
    count, working = places.shape[0], flight.start.shape[0]
    drawn = distinct(key, count, order.shape[0] - working + count)
    # Of the pool, the first rows are those who finished; the others are idle, behind all places.
    here = jnp.where(drawn < count, places[jnp.minimum(drawn, count - 1)], working + drawn - count)
    stays = jnp.zeros((count,), bool).at[jnp.where(drawn < count, drawn, count)].set(True, mode="drop")
    # As many come from the idle as go there: the k-th of the one takes the place of the k-th of the other.
    goes = places[jnp.argsort(stays, stable=True)]
    comes = here[jnp.argsort(drawn < count, stable=True)]
    swaps = jnp.arange(count) < jnp.sum(~stays)
    # One look and one change, which the compiler can make in place.
    finished, starts, rests = jnp.split(order[jnp.concatenate([places, here, goes])], 3)
    idle = jnp.where(swaps & (finished[0] >= 0), comes, order.shape[0])
    to, who = jnp.concatenate([places, idle]), jnp.concatenate([starts, rests])
    return finished, starts, order.at[to].set(who, mode="drop")
