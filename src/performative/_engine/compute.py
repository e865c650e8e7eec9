"""How the work of a round is laid out on the machine. Results do not depend on it, up to rounding."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from performative._engine.products import AsProducts
from performative.types import Loss, Theta


class Compute(eqx.Module):
    """The layout that `run` chose; all fields are static.

    Args:
        at_once: clients that compute in parallel while the others wait; None for all. If some wait, repeats and
            settings run sequentially too
        products: convolutions as matrix products (see `AsProducts`)
        half: gradients in bfloat16; the model, the moves and all records stay in the precision of the run
    """

    at_once: int | None = eqx.field(static=True, default=None)
    products: bool = eqx.field(static=True, default=False)
    half: bool = eqx.field(static=True, default=False)

    @property
    def in_turn(self) -> int | None:
        """Number of repeats or settings that run in parallel."""
        return None if self.at_once is None else 1

    def loss(self, loss: Loss) -> Loss:
        """The same loss, laid out for this machine."""
        return AsProducts(loss) if self.products else loss

    def training_loss(self, loss: Loss) -> Loss:
        """The loss whose gradient clients follow."""
        return InHalf(self.loss(loss)) if self.half else self.loss(loss)

    def __str__(self) -> str:
        told = side_by_side(self.at_once)
        told += ", convolutions as matrix products" if self.products else ""
        return told + (", gradients in bfloat16" if self.half else "")


ALL_AT_ONCE = Compute()


def side_by_side(at_once: int | None) -> str:
    """How many clients compute in parallel, in words."""
    if at_once == 1:
        return "one client at a time"
    return "all clients at once" if at_once is None else f"{at_once} clients at once"


class InHalf(eqx.Module):
    """loss(theta, z) computed in bfloat16: 8 bits of precision, the range of float32. Its gradient is cast back."""

    inner: Loss

    def __call__(self, theta: Theta, z: PyTree) -> jax.Array:
        precise = jax.tree.leaves(theta)[0].dtype
        return self.inner(*_cast((theta, z), jnp.bfloat16)).astype(precise)


def _cast(tree: PyTree, dtype: DTypeLike) -> Any:
    def cast(leaf: PyTree) -> Any:
        return leaf.astype(dtype) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    return jax.tree.map(cast, tree)
