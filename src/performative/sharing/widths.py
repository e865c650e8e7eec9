"""Fixed parts of the model for each client."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative.sharing.partial import AbstractPartial, named_leaves, read_weigh
from performative.types import ArrayLike, Theta, Unchecked, as_array, is_concrete


class Widths(AbstractPartial):
    """Clients carry fixed parts of the model: `masks` selects the entries.

    `masks` is a tree of booleans like theta with an additional leading axis: one row per client, or per kind of client,
    with `kind` giving that of client i. For the entries see `AbstractPartial`. Diao, Ding and Tarokh 2021 (HeteroFL):
    there the masks are nested, the first entries of each layer, as with `Rolling(fraction, step=0)`.
    """

    references = ("diao2021heterofl",)
    ignores_data = True

    masks: Unchecked[PyTree]
    kind: Unchecked[Any] = None
    weigh: str = eqx.field(static=True, default="mean")

    def __init__(self, masks: PyTree, kind: ArrayLike | None = None, weigh: str = "mean"):
        self.weigh = read_weigh("Widths", weigh)
        self.masks = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf), masks)
        self.kind = kind if kind is None or isinstance(kind, jax.Array) else as_array(kind)
        leaves = jax.tree.leaves(self.masks)
        for leaf in leaves:
            if leaf.dtype != bool or leaf.ndim < 1:
                raise ValueError(
                    f"Widths: masks must contain True and False, with one row per client or kind; got {leaf!r}."
                )
        if len({len(leaf) for leaf in leaves}) != 1:
            found = sorted({len(leaf) for leaf in leaves}) or "no leaf"
            raise ValueError(f"Widths: masks need the same number of rows in each leaf; they have {found}.")
        kinds = self.kind
        if kinds is None:
            return
        if kinds.ndim != 1 or kinds.dtype.kind not in "iu":
            raise ValueError(f"Widths: kind must contain one number 0, 1, ... per client; got {kind!r}.")
        if is_concrete(kinds) and np.any((np.asarray(kinds) < 0) | (np.asarray(kinds) >= len(leaves[0]))):
            raise ValueError(f"Widths: kind must lie in 0..{len(leaves[0]) - 1}, the rows of masks; got {kind!r}.")

    def ready(self, weights: np.ndarray) -> "Widths":
        rows = len(jax.tree.leaves(self.masks)[0]) if self.kind is None else len(self.kind)
        if rows != len(weights):
            what = "masks has" if self.kind is None else "kind has"
            raise ValueError(f"Widths: {what} {rows} rows for {len(weights)} clients; pass one per client.")
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
        for (name, leaf), mask in zip(named_leaves(theta), masks, strict=True):
            yield name, np.broadcast_to(np.any(np.asarray(mask)[used], axis=0), leaf.shape)

    def chance(self, shared: Theta, client: Int[Array, ""]) -> PyTree:
        mask = self.mask(shared, client, jnp.zeros((), jnp.int32))
        return jax.tree.map(lambda mine, leaf: mine.astype(leaf.dtype), mask, shared)

    def mask(self, shared: Theta, client: Int[Array, ""], round: Int[Array, ""]) -> PyTree:
        row = client if self.kind is None else jnp.take(jnp.asarray(self.kind, jnp.int32), client, mode="clip")

        def pick(mask: Array, leaf: Array) -> Array:
            return jnp.broadcast_to(jnp.take(jnp.asarray(mask), row, axis=0, mode="clip"), leaf.shape)

        return jax.tree.map(pick, self.masks, shared)
