"""Windows of the model that move from round to round."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.checks import check_finite, check_one_a_client, check_rule
from performative.sharing.partial import AbstractPartial, named_leaves, read_weigh
from performative.types import ArrayLike, Numbers, Theta, as_whole, number


class Rolling(AbstractPartial):
    """Clients carry a window of each layer that moves from round to round, so every entry is trained in turn.

        m_ie = 1  where  (e - step round) mod n < ceil(fraction_i n),      n the length of the axis

    For the entries see `AbstractPartial`. Alam et al. 2022 (FedRolex); step=0 keeps the windows at the first entries,
    as in Diao, Ding and Tarokh 2021 (HeteroFL); some client must then carry everything.

    Args:
        fraction: of each axis, a number or one per client, above 0 and at most 1
        axes: for each leaf of theta, in the order of `jax.tree.leaves`, the axis of the window, several axes, or () for
            what everybody carries (such as the output layer); None for the first axis of each. Axes of the same length
            share a window, so the columns of a layer match the rows of the next
        step: entries that windows move per round
    """

    references = ("alam2022fedrolex", "diao2021heterofl")
    ignores_data = True

    fraction: Numbers = number()
    axes: Any = eqx.field(static=True, default=None)
    step: int = eqx.field(static=True, converter=as_whole, default=1)
    weigh: str = eqx.field(static=True, default="mean")

    def __init__(self, fraction: ArrayLike, axes: Any = None, step: int = 1, weigh: str = "mean"):
        self.fraction, self.step, self.weigh = fraction, step, read_weigh("Rolling", weigh)
        check_finite("Rolling", fraction=self.fraction)
        check_rule("Rolling", "must be above 0", fraction=self.fraction)
        check_rule("Rolling", "must lie in [0, 1]", fraction=self.fraction)
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 0:
            raise ValueError(f"Rolling: step must be a whole number of entries, 0 or more; got {step!r}.")
        self.axes = None if axes is None else _read_axes(axes)

    def ready(self, weights: np.ndarray) -> "Rolling":
        check_one_a_client("Rolling: ", len(weights), fraction=self.fraction)
        return self

    def check(self, theta: Theta) -> None:
        leaves = jax.tree.leaves(theta)
        if self.axes is not None and len(self.axes) != len(leaves):
            raise ValueError(f"Rolling: axes has {len(self.axes)} entries for the {len(leaves)} leaves of theta.")
        for leaf, axes in zip(leaves, self._axes(theta), strict=True):
            if any(axis >= leaf.ndim for axis in axes):
                raise ValueError(f"Rolling: axes names axis {max(axes)} of a leaf with shape {leaf.shape}.")
            if self.weigh == "unbiased" and len(axes) > 1:
                raise ValueError(
                    'Rolling(weigh="unbiased") knows how often an entry is trained only for windows of one axis; '
                    f'axes names {axes} of a leaf with shape {leaf.shape}. Use weigh="mean".'
                )
        super().check(theta)

    def ever(self, theta: Theta) -> Iterator[tuple[str, np.ndarray]]:
        widest = float(np.max(np.asarray(self.fraction)))
        for (name, leaf), axes in zip(named_leaves(theta), self._axes(theta), strict=True):
            lengths = [leaf.shape[axis] for axis in axes]
            period = math.lcm(*(n // math.gcd(self.step, n) for n in lengths)) if leaf.size else 1
            trained = np.zeros(leaf.shape, bool)
            for round in range(period):  # windows start together, so the widest contains the others
                if trained.all():
                    break
                whole = np.ones(leaf.shape, bool)
                for axis in axes:
                    whole &= _along(_window(np, leaf.shape[axis], widest, self.step * round), axis, leaf.ndim)
                trained |= whole
            yield name, trained

    def chance(self, shared: Theta, client: Int[Array, ""]) -> PyTree:
        leaves, structure = jax.tree.flatten(shared)
        chances = []
        for leaf, axes in zip(leaves, self._axes(shared), strict=True):
            whole = jnp.ones(leaf.shape, leaf.dtype)
            for axis in axes:  # at most one
                n = leaf.shape[axis]
                # Windows start at the multiples of g: count those among the last `size` entries up to e.
                g, e = math.gcd(self.step, n), jnp.arange(n, dtype=jnp.int32)
                starts = e // g - (e - _size(jnp, n, self._own(client))) // g
                whole = whole * _along(starts.astype(leaf.dtype) * (g / n), axis, leaf.ndim)
            chances.append(whole)
        return jax.tree.unflatten(structure, chances)

    def _own(self, client: Int[Array, ""]) -> Array:
        fraction = jnp.asarray(self.fraction)
        return fraction if fraction.ndim == 0 else jnp.take(fraction, client, mode="clip")

    def mask(self, shared: Theta, client: Int[Array, ""], round: Int[Array, ""]) -> PyTree:
        mine = self._own(client)
        leaves, structure = jax.tree.flatten(shared)
        masks = []
        for leaf, axes in zip(leaves, self._axes(shared), strict=True):
            whole = jnp.ones(leaf.shape, bool)
            for axis in axes:
                n = leaf.shape[axis]
                # round mod n first: step times a large round overflows 32 bits.
                window = _window(jnp, n, mine, self.step % n * (round % n))
                whole &= _along(window, axis, leaf.ndim)
            masks.append(whole)
        return jax.tree.unflatten(structure, masks)

    def _axes(self, theta: Theta) -> tuple[tuple[int, ...], ...]:
        first = tuple((0,)[: leaf.ndim] for leaf in jax.tree.leaves(theta))
        return first if self.axes is None else self.axes


def _window(xp: Any, n: int, fraction: Any, start: Any) -> Any:
    """Which of n entries lie in the cyclic window of ceil(fraction n) entries from `start` on."""
    return (xp.arange(n, dtype=xp.int32) - start) % n < _size(xp, n, fraction)


def _size(xp: Any, n: int, fraction: Any) -> Any:
    # 0.3 of 10 must not become 4 by rounding.
    return xp.ceil(fraction * n * (1 - 1e-6)).astype(xp.int32)


def _along(window: Any, axis: int, ndim: int) -> Any:
    return window.reshape(*(-1 if i == axis else 1 for i in range(ndim)))


def _read_axes(axes: Any) -> tuple[tuple[int, ...], ...]:
    message = f"Rolling: axes must list the axis or axes of each leaf of theta, such as [1, 0, (0, 1)]; got {axes!r}."
    if not isinstance(axes, (list, tuple)):
        raise ValueError(message)
    each = [tuple(one) if isinstance(one, (list, tuple)) else (one,) for one in axes]
    for axis in itertools.chain.from_iterable(each):
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or axis < 0:
            raise ValueError(message)
    return tuple(tuple(int(axis) for axis in one) for one in each)
