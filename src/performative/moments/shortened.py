"""Rounds of clients without memory: what does not depend on the distribution is precomputed."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from performative.moments.recursion import AbstractRound, Law, RoundMap, effect_of


class AdditiveRound(AbstractRound):
    """A round with noise independent of the model: E x -> A E x, and with S = E x x^T

        covariance -> A covariance A^T + noise + sum_m left_m S right_m^T

    The sum, over random cohorts and step counts, is stored as `pairs`, a matrix on S, if that is smaller; None if
    nothing is random.
    """

    mean: Float[Array, "c c"]
    noise: Float[Array, "c c"]
    left: Float[Array, "c m c"] | None
    right: Float[Array, "m c c"] | None
    pairs: Float[Array, "c c c c"] | None

    def advance(self, law: Law) -> Law:
        S, C = law.second, len(law.mean)
        added = self.noise * S[0, 0]
        if self.pairs is not None:
            added = added + (self.pairs.reshape(C * C, C * C) @ S.ravel()).reshape(C, C)
        if self.left is not None and self.right is not None:
            added = added + (self.left.reshape(-1, C) @ S).reshape(C, -1) @ self.right.reshape(-1, C)
        return Law(self.mean @ law.mean, self.mean @ law.covariance @ self.mean.T + added)


def shortened(whole: RoundMap) -> AbstractRound:
    """The same round. With U_ik what client i does to the model, f_i = (z_i, a_i):

    sum over i, k of U_ik S (sum over j, l of Cov(f_ik, f_jl) U_jl)^T
    """
    width = whole.common.shape[0]
    one = jnp.zeros((width, width)).at[0, 0].set(1.0)

    effect, away, noise = jax.vmap(effect_of, (0, 0, 0, None))(whole.clients, whole.effect, whole.chance, one)
    paired = None
    if whole.covariance is not None:
        paired = jnp.einsum("klij,jlbc->ikbc", whole.covariance, effect, optimize="optimal")
    if whole.clients.deviation.added is None or whole.clients.sent_deviation.added is None:
        return dataclasses.replace(whole, covariance=None, paired=paired)
    # Random step counts, then random cohorts.
    sums = []
    if whole.chance.shape[1] > 1:
        sums.append((away, jnp.einsum("kln,nt,ntlbc->ntkbc", whole.own, whole.chance, away)))
    if paired is not None:
        sums.append((effect, paired))
    return AdditiveRound(
        whole.common + jnp.einsum("kn,nkab->ab", whole.mean, effect),
        jnp.einsum("kln,nkalb->ab", whole.own, noise),
        *_added_up([tuple(side.reshape(-1, width, width) for side in both) for both in sums]),
    )


def _added_up(sums: list[tuple[Array, ...]]) -> tuple[Array | None, Array | None, Array | None]:
    """Left, right and pairs of an `AdditiveRound`, from factors [m, c, c] of each sum."""
    if not sums:
        return None, None, None
    left, right = (jnp.concatenate([both[side] for both in sums]) for side in (0, 1))
    m, width = left.shape[:2]
    if width**2 <= 2 * m:
        return None, None, jnp.einsum("mac,mbd->abcd", left, right)
    return jnp.moveaxis(left, 0, 1), jnp.moveaxis(right, 2, 1), None
