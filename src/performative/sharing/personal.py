"""Personal models: separate, partial, regularized towards the shared one, or mixed with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.checks import check_finite, check_rule
from performative.sharing.base import AbstractSharing
from performative.types import Loss, Numbers, Sample, Theta, Unchecked, number


class PerClient(AbstractSharing):
    """One model per client, trained locally; nothing is shared."""

    references = ()
    ignores_data = True
    has_shared = False

    def keep(self, theta: Theta) -> Theta:
        return theta

    def local(self, shared: Theta, own: Theta, client: Int[Array, ""] | None) -> Theta:
        return own

    def send(self, moved: Theta, shared: Theta, own: Theta, client: Int[Array, ""] | None) -> Theta:
        # Zero; NaN if training became non-finite, so the client is dropped.
        return jax.tree.map(lambda leaf: leaf - leaf, moved)

    def kept(self, local: Theta, own: Theta) -> Theta:
        return local


class Heads(AbstractSharing):
    """A shared body with a personal head per client: `mask` is True for the client's entries.

    `mask` is a tree like theta of booleans or boolean arrays, such as {"head": True, "body": False}. Arivazhagan et al.
    2019; Collins et al. 2021.
    """

    references = ("collins2021exploiting",)
    ignores_data = True
    has_shared = False

    mask: Unchecked[PyTree]

    def __check_init__(self) -> None:
        for leaf in jax.tree.leaves(self.mask):
            if np.asarray(leaf).dtype != bool:
                raise ValueError(f"Heads: mask must contain True and False, in a tree like theta; got {leaf!r}.")
        if not jax.tree.leaves(self.mask):
            raise ValueError(f"Heads: mask must be a tree like theta; got {self.mask!r}.")

    def _pick(self, own: Theta, shared: Theta) -> Any:
        return jax.tree.map(lambda mine, a, b: jnp.where(mine, a, b), self.mask, own, shared)

    def keep(self, theta: Theta) -> Theta:
        return theta

    def local(self, shared: Theta, own: Theta, client: Int[Array, ""] | None) -> Theta:
        return self._pick(own, shared)

    def send(self, moved: Theta, shared: Theta, own: Theta, client: Int[Array, ""] | None) -> Theta:
        return self._pick(jax.tree.map(jnp.zeros_like, moved), moved)

    def kept(self, local: Theta, own: Theta) -> Theta:
        return local

    def check(self, theta: Theta) -> None:
        try:
            shapes = jax.tree.map(lambda mine, leaf: np.broadcast_shapes(np.shape(mine), leaf.shape), self.mask, theta)
            fits = jax.tree.map(lambda leaf: leaf.shape, theta) == shapes
        except ValueError:
            fits = False
        if not fits:
            got = jax.tree.structure(self.mask)
            raise ValueError(f"Heads: mask must be a tree like theta, {jax.tree.structure(theta)}; got {got}.")


class Both(NamedTuple):
    """The shared model as the client trains it, and the client's own."""

    shared: Any
    own: Any


class _TwoModels(AbstractSharing):
    """The client trains the shared model and a personal one on the same data."""

    trains_one = False

    def keep(self, theta: Theta) -> Theta:
        return theta

    def local(self, shared: Theta, own: Theta, client: Int[Array, ""] | None) -> Both:
        return Both(shared, own)

    def meet(self, local: Both) -> Theta:
        return local.own

    def loss(self, loss: Loss) -> Loss:
        def both(local: Both, z: Sample) -> Array:
            return loss(local.shared, z) + loss(local.own, z)

        return both

    def each(self, function: Callable[[Theta], Theta], local: Both) -> Both:
        return Both(function(local.shared), function(local.own))

    def send(self, moved: Both, shared: Theta, own: Theta, client: Int[Array, ""] | None) -> Theta:
        return moved.shared

    def kept(self, local: Both, own: Theta) -> Theta:
        return local.own


def _toward(model: Theta, other: Theta, strength: Array) -> Any:
    """argmin_v |v - model|^2 + strength |v - other|^2: a proximal step, stable for any strength."""
    return jax.tree.map(lambda a, b: a + (strength / (1 + strength)).astype(a.dtype) * (b - a), model, other)


class Ditto(_TwoModels):
    """A personal model per client, regularized towards the shared one.

        v_i:  min f_i(v_i) + pull |v_i - theta|^2 / 2,      theta:  min sum_i p_i f_i(theta),   data from D_i(v_i)

    With pull = `strength`. Gaussian data with the squared loss settle at

        v_i = (m_i + pull theta) / (1 - eps_i + pull),      theta = sum_i p_i (m_i + eps_i v_i)

    pull 0 is local training; a very large pull is P-FedAvg that deploys each round's model. Li et al. 2021.
    """

    references = ("li2021ditto",)
    ignores_data = True

    strength: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        check_finite("Ditto", strength=self.strength)
        check_rule("Ditto", "must not be negative", strength=self.strength)

    def pull(self, local: Both, shared: Theta, rate: Array) -> Both:
        return Both(local.shared, _toward(local.own, shared, rate * self.strength))


class PFedMe(_TwoModels):
    """A personal model per client, regularized towards the shared one, which is fitted to them (Moreau envelopes).

        v_i:  min f_i(v_i) + pull |v_i - theta|^2 / 2,      theta:  min sum_i p_i pull |v_i - theta|^2 / 2

    Gaussian data with the squared loss settle at v_i as with `Ditto`, and

        theta = sum_i p_i m_i / (1 - eps_i + pull) / sum_i p_i (1 - eps_i) / (1 - eps_i + pull)

    Dinh, Tran and Nguyen 2020.
    """

    references = ("dinh2020personalized",)
    ignores_data = True

    strength: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        check_finite("PFedMe", strength=self.strength)
        check_rule("PFedMe", "must be above 0", strength=self.strength)

    def loss(self, loss: Loss) -> Loss:
        def own(local: Both, z: Sample) -> Array:
            return loss(local.own, z)

        return own

    def pull(self, local: Both, shared: Theta, rate: Array) -> Both:
        strength = rate * self.strength
        own = _toward(local.own, local.shared, strength)
        return Both(_toward(local.shared, own, strength), own)


class Interpolated(_TwoModels):
    """People see a mix of the client's own model and the shared one.

        meet = share v_i + (1 - share) theta,      v_i descends the loss of the mix, theta that of its own

    share 0 is one model for all, 1 local training. Deng, Kamani and Mahdavi 2020 (APFL).
    """

    references = ("deng2020adaptive",)
    ignores_data = True

    share: Numbers = number(default=0.5)

    def __check_init__(self) -> None:
        check_finite("Interpolated", share=self.share)
        check_rule("Interpolated", "must lie in [0, 1]", share=self.share)

    def meet(self, local: Both) -> Theta:
        return jax.tree.map(lambda a, b: b + self.share * (a - b), local.own, local.shared)

    def loss(self, loss: Loss) -> Loss:
        def both(local: Both, z: Sample) -> Array:
            mixed = self.meet(Both(jax.lax.stop_gradient(local.shared), local.own))
            return loss(local.shared, z) + loss(mixed, z)

        return both
