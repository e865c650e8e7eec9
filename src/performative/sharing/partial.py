"""Models of different size: clients that carry a part of the shared one."""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._base.checks import check_finite, check_one_a_client, check_rule, is_one_of
from performative.sharing.base import AbstractSharing, Tally
from performative.types import ArrayLike, Cohort, Loss, Numbers, Sample, Theta, Unchecked, as_whole, is_concrete, number


def _masked(mask: PyTree, tree: PyTree) -> Any:
    return jax.tree.map(lambda mine, leaf: jnp.where(mine, leaf, jnp.zeros_like(leaf)), mask, tree)


class _Carried(AbstractSharing):
    """What one client has in one round: the shared model where `mask` is True, zeros elsewhere."""

    mask: PyTree

    def local(self, shared: Theta, own: None, client: Int[Array, ""] | None) -> Theta:
        return _masked(self.mask, shared)

    def loss(self, loss: Loss) -> Loss:
        def part(local: Theta, z: Sample) -> Array:
            return loss(_masked(self.mask, local), z)

        return part

    def pull(self, local: Theta, shared: Theta, rate: Array) -> Theta:
        return _masked(self.mask, local)  # noise and momentum end at the mask, too

    def each(self, function: Callable[[Theta], Theta], local: Theta) -> Theta:
        return _masked(self.mask, function(local))

    def send(self, moved: Theta, shared: Theta, own: None, client: Int[Array, ""] | None) -> Theta:
        return _masked(self.mask, moved)


class AbstractPartial(AbstractSharing):
    """Client i carries the entries e with m_ie = 1; its people meet these, and 0 in the place of the others.

        weigh="mean"        theta_e <- theta_e + (sum_j a_j) sum_i a_i m_ie delta_ie / sum_i a_i m_ie
        weigh="unbiased"    theta_e <- theta_e + sum_i a_i m_ie delta_ie / (q_ie sum_{j: q_je > 0} p_j)

    The first is the papers': an entry moves by the mean over those of the cohort that carry it, and stays where none
    does. Clients that carry much count for more, as they are alone with an entry in some rounds. The second divides by
    the share q_ie of rounds in which client i carries entry e: over rounds and cohorts each entry moves by the weighted
    mean over all who ever train it, by rare and longer steps (a window of 1/20 needs rates that are 20 times as small).
    `history.trained` counts how often each entry was trained.
    """

    counts_entries = True
    weigh: eqx.AbstractVar[str]

    @abstractmethod
    def mask(self, shared: Theta, client: Int[Array, ""], round: Int[Array, ""]) -> PyTree:
        """m_i in a round, a tree like theta of truth values."""

    @abstractmethod
    def chance(self, shared: Theta, client: Int[Array, ""]) -> PyTree:
        """q_i, the share of rounds in which the client carries each entry."""

    @abstractmethod
    def ever(self, theta: Theta) -> Iterator[tuple[str, np.ndarray]]:
        """For each leaf its name and which entries are ever trained."""

    def of(self, shared: Theta, client: Int[Array, ""] | None, round: Int[Array, ""]) -> AbstractSharing:
        return self if client is None else _Carried(self.mask(shared, client, round))

    def tally(self, shared: Theta, weights: Float[Array, " N"]) -> Tally:
        trained = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), shared)
        if self.weigh == "mean":
            return Tally(trained)

        def add(carried: PyTree, one: tuple[Array, Array]) -> tuple[PyTree, None]:
            client, p = one
            chance = self.chance(shared, client)
            return jax.tree.map(lambda sum, q: sum + jnp.where(q > 0, p, 0).astype(sum.dtype), carried, chance), None

        everyone = jnp.arange(weights.shape[0], dtype=jnp.int32), weights
        return Tally(trained, jax.lax.scan(add, jax.tree.map(jnp.zeros_like, shared), everyone)[0])

    def balance(
        self, sent: PyTree, shared: Theta, cohort: Cohort, round: Int[Array, ""], tally: Tally | None
    ) -> PyTree:
        masks, total = self._rows(shared, cohort, round), jnp.sum(cohort.weight)
        if self.weigh == "unbiased":
            assert tally is not None
            chances = jax.vmap(lambda client: self.chance(shared, client))(cohort.ids)

            def divide(mask: Array, rows: Array, chance: Array, carried: Array) -> Array:
                scale = jnp.where(mask, chance, 1).astype(rows.dtype) * carried.astype(rows.dtype)
                return jnp.where(mask, rows, 0) / jnp.where(mask, scale, 1)

            return jax.tree.map(divide, masks, sent, chances, tally.carried)

        def mean(mask: Array, rows: Array) -> Array:
            carried = jnp.tensordot(cohort.weight, mask.astype(cohort.weight.dtype), axes=1, precision="highest")
            factor = jnp.where(carried > 0, total / jnp.where(carried > 0, carried, 1), 0)
            return jnp.where(mask, rows, 0) * factor.astype(rows.dtype)

        return jax.tree.map(mean, masks, sent)

    def tallied(self, tally: Tally | None, shared: Theta, cohort: Cohort, round: Int[Array, ""]) -> Tally:
        assert tally is not None

        def add(so_far: Array, mask: Array) -> Array:
            here = cohort.present.reshape(-1, *(1,) * (mask.ndim - 1))
            return so_far + jnp.sum(mask & here, axis=0, dtype=so_far.dtype)

        return Tally(jax.tree.map(add, tally.trained, self._rows(shared, cohort, round)), tally.carried)

    def _rows(self, shared: Theta, cohort: Cohort, round: Int[Array, ""]) -> PyTree:
        return jax.vmap(lambda client: self.mask(shared, client, round))(cohort.ids)

    def check(self, theta: Theta) -> None:
        owner = type(self).__name__
        for name, trained in self.ever(theta):
            if not np.all(trained):
                index = [int(i) for i in np.argwhere(~trained)[0]]
                where = f"{name}{index}" if index else name
                raise ValueError(
                    f"{owner}: entry {where} of theta is trained by no client, in no round ({int(np.sum(~trained))} of "
                    f"{trained.size} entries of {name} are not). Give it to a client, or leave it out of the model."
                )


class Widths(AbstractPartial):
    """Clients carry parts of the model that stay the same: `masks` says which entries.

    `masks` is a tree like theta of truth values with one axis more in front: a row for each client, or for each kind of
    client with `kind` saying which one client i is. For the entries see `AbstractPartial`. Diao, Ding and Tarokh 2021
    (HeteroFL): there the masks are nested, the first entries of each layer; `Rolling(fraction, step=0)` makes such.
    """

    references = ("diao2021heterofl",)
    ignores_data = True

    masks: Unchecked[PyTree]
    kind: Unchecked[Any] = None
    weigh: str = eqx.field(static=True, default="mean")

    def __init__(self, masks: PyTree, kind: ArrayLike | None = None, weigh: str = "mean"):
        self.weigh = _read_weigh("Widths", weigh)
        self.masks = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf), masks)
        self.kind = kind if kind is None or isinstance(kind, jax.Array) else np.asarray(kind)
        leaves = jax.tree.leaves(self.masks)
        for leaf in leaves:
            if leaf.dtype != bool or leaf.ndim < 1:
                raise ValueError(
                    f"Widths: masks must hold True and False, with a row for each client or kind; got {leaf!r}."
                )
        if len({len(leaf) for leaf in leaves}) != 1:
            found = sorted({len(leaf) for leaf in leaves}) or "no leaf"
            raise ValueError(f"Widths: masks need as many rows in each leaf; they have {found}.")
        kinds = self.kind
        if kinds is None:
            return
        if kinds.ndim != 1 or kinds.dtype.kind not in "iu":
            raise ValueError(f"Widths: kind must hold one number 0, 1, ... a client; got {kind!r}.")
        if is_concrete(kinds) and np.any((np.asarray(kinds) < 0) | (np.asarray(kinds) >= len(leaves[0]))):
            raise ValueError(f"Widths: kind must lie in 0..{len(leaves[0]) - 1}, the rows of masks; got {kind!r}.")

    def ready(self, weights: np.ndarray) -> "Widths":
        rows = len(jax.tree.leaves(self.masks)[0]) if self.kind is None else len(self.kind)
        if rows != len(weights):
            what = "masks has" if self.kind is None else "kind has"
            raise ValueError(f"Widths: {what} {rows} rows for {len(weights)} clients; give one a client.")
        return self

    def check(self, theta: Theta) -> None:
        try:
            shapes = jax.tree.map(lambda m, leaf: np.broadcast_shapes(m.shape[1:], leaf.shape), self.masks, theta)
            fits = jax.tree.map(lambda leaf: leaf.shape, theta) == shapes
        except ValueError:
            fits = False
        if not fits:
            got = jax.tree.map(lambda m: list(m.shape[1:]), self.masks)
            want = jax.tree.map(lambda leaf: list(leaf.shape), theta)
            raise ValueError(f"Widths: each row of masks must be shaped like theta, {want}; got {got}.")
        super().check(theta)

    def ever(self, theta: Theta) -> Iterator[tuple[str, np.ndarray]]:
        masks = jax.tree.leaves(self.masks)
        used = np.arange(len(masks[0])) if self.kind is None else np.unique(self.kind)
        for (name, leaf), mask in zip(_named(theta), masks, strict=True):
            yield name, np.broadcast_to(np.any(np.asarray(mask)[used], axis=0), leaf.shape)

    def chance(self, shared: Theta, client: Int[Array, ""]) -> PyTree:
        mask = self.mask(shared, client, jnp.zeros((), jnp.int32))
        return jax.tree.map(lambda mine, leaf: mine.astype(leaf.dtype), mask, shared)

    def mask(self, shared: Theta, client: Int[Array, ""], round: Int[Array, ""]) -> PyTree:
        row = client if self.kind is None else jnp.take(jnp.asarray(self.kind, jnp.int32), client, mode="clip")

        def pick(mask: Array, leaf: Array) -> Array:
            return jnp.broadcast_to(jnp.take(jnp.asarray(mask), row, axis=0, mode="clip"), leaf.shape)

        return jax.tree.map(pick, self.masks, shared)


class Rolling(AbstractPartial):
    """Clients carry a window of each layer that moves on from round to round, so that all of it is trained in turn.

        m_ie = 1  where  (e - step round) mod n < ceil(fraction_i n),      n the length of the axis

    For the entries see `AbstractPartial`. Alam et al. 2022 (FedRolex); step=0 leaves the windows at the first entries,
    as Diao, Ding and Tarokh 2021 do (HeteroFL), and somebody must then carry everything.

    Args:
        fraction: of each axis, a number or one a client, above 0 and at most 1
        axes: for each leaf of theta, in the order of `jax.tree.leaves`, the axis that the window is taken of, several,
            or () for what everybody carries (the output layer, say); None for the first axis of each. Axes of one
            length have one window, so that the columns of a layer are the rows of the next
        step: entries that windows move on by a round
    """

    references = ("alam2022fedrolex", "diao2021heterofl")
    ignores_data = True

    fraction: Numbers = number()
    axes: Any = eqx.field(static=True, default=None)
    step: int = eqx.field(static=True, converter=as_whole, default=1)
    weigh: str = eqx.field(static=True, default="mean")

    def __init__(self, fraction: ArrayLike, axes: Any = None, step: int = 1, weigh: str = "mean"):
        self.fraction, self.step, self.weigh = fraction, step, _read_weigh("Rolling", weigh)
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
                    'Rolling(weigh="unbiased") knows how often an entry is trained where windows are of one axis; axes '
                    f'names {axes} of a leaf with shape {leaf.shape}. Use weigh="mean".'
                )
        super().check(theta)

    def ever(self, theta: Theta) -> Iterator[tuple[str, np.ndarray]]:
        widest = float(np.max(np.asarray(self.fraction)))
        for (name, leaf), axes in zip(_named(theta), self._axes(theta), strict=True):
            lengths = [leaf.shape[axis] for axis in axes]
            period = math.lcm(*(n // math.gcd(self.step, n) for n in lengths)) if leaf.size else 1
            trained = np.zeros(leaf.shape, bool)
            for round in range(period):  # windows start together, so that the widest holds the others
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
            for axis in axes:  # one at most
                n = leaf.shape[axis]
                # Windows start at the multiples of g: so many of these lie among the last `size` entries up to e.
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
                # round mod n first: step times a large round is no 32-bit number.
                window = _window(jnp, n, mine, self.step % n * (round % n))
                whole &= _along(window, axis, leaf.ndim)
            masks.append(whole)
        return jax.tree.unflatten(structure, masks)

    def _axes(self, theta: Theta) -> tuple[tuple[int, ...], ...]:
        first = tuple((0,)[: leaf.ndim] for leaf in jax.tree.leaves(theta))
        return first if self.axes is None else self.axes


def _window(xp: Any, n: int, fraction: Any, start: Any) -> Any:
    """Which of n entries lie in the window of ceil(fraction n) from `start` on, around the end."""
    return (xp.arange(n, dtype=xp.int32) - start) % n < _size(xp, n, fraction)


def _size(xp: Any, n: int, fraction: Any) -> Any:
    # 0.3 of 10 must not become 4 by rounding.
    return xp.ceil(fraction * n * (1 - 1e-6)).astype(xp.int32)


def _along(window: Any, axis: int, ndim: int) -> Any:
    return window.reshape(*(-1 if i == axis else 1 for i in range(ndim)))


def _read_weigh(owner: str, weigh: str) -> str:
    if not is_one_of(weigh, "mean", "unbiased"):
        raise ValueError(f'{owner}: weigh must be "mean" or "unbiased"; got {weigh!r}.')
    return weigh


def _read_axes(axes: Any) -> tuple[tuple[int, ...], ...]:
    message = f"Rolling: axes must list the axis or axes of each leaf of theta, such as [1, 0, (0, 1)]; got {axes!r}."
    if not isinstance(axes, (list, tuple)):
        raise ValueError(message)
    each = [tuple(one) if isinstance(one, (list, tuple)) else (one,) for one in axes]
    for axis in itertools.chain.from_iterable(each):
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or axis < 0:
            raise ValueError(message)
    return tuple(tuple(int(axis) for axis in one) for one in each)


def _named(theta: Theta) -> list[tuple[str, Any]]:
    """Leaves with their names, "theta" where there is one only."""
    found = jax.tree_util.tree_leaves_with_path(theta)
    return [(jax.tree_util.keystr(path) or "theta", leaf) for path, leaf in found]
