"""Mean and covariance from one round to the next.

With c = (1, s) and client i's rows r_i a round is, given the participants and the draws,

    x' = (T + sum_i (z_i U_i + a_i V_i)) x + noise,      x = (1, s, r_1, ..., r_N)

so, given the moments of (z, a), the second moments of x close. U_i and V_i read (c, r_i) and change only s and r_i.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative.moments.client import Deviations, TrainingMap


class Law(eqx.Module):
    """Mean [D] and covariance [D, D] of (1, s, R), whose first entry is constant; or of n such distributions."""

    mean: Float[Array, "*n D"] = eqx.field(converter=jnp.asarray)
    covariance: Float[Array, "*n D D"] = eqx.field(converter=jnp.asarray)

    @property
    def second(self) -> Float[Array, "D D"]:
        return self.covariance + jnp.outer(self.mean, self.mean)


class AbstractRound(eqx.Module):
    """The effect of a round on the distribution of (1, s, R)."""

    @abstractmethod
    def advance(self, law: Law) -> Law:
        """The moments after the round."""


@eqx.filter_jit
def roll(maps: AbstractRound, count: Int[Array | np.ndarray, ""], law: Law) -> tuple[Array, Array]:
    """Means and covariances after each of the first `count` rounds of maps [R, ...]; zeros after those."""
    rounds = len(jax.tree.leaves(maps)[0])
    size = len(law.mean)

    def once(r: Array, carry: tuple[Law, Array, Array]) -> tuple[Law, Array, Array]:
        law, means, covariances = carry
        after = jax.tree.map(lambda leaf: leaf[r], maps).advance(law)
        return after, means.at[r].set(after.mean), covariances.at[r].set(after.covariance)

    start = law, jnp.zeros((rounds, size)), jnp.zeros((rounds, size, size))
    return jax.lax.fori_loop(0, count, once, start)[1:]


class RoundMap(AbstractRound):
    """A round: `common` and `rows` if nobody participates; clients' maps [N, T, ...], one for each step count.

    Args:
        effect: the server's map of (1, s, r_i, sent), with z and with a
        chance: P(tau_i = the t-th number), [N, T]
        mean: E f_i of f = (z, a), [2, N]; own: E f_i f_i^T, [2, 2, N]; covariance: Cov(f_i, f_j), None if deterministic
        paired: sum over j, l of Cov(f_ik, f_jl) U_jl, in place of `covariance` if no client has memory
    """

    common: Float[Array, "c c"]
    rows: Float[Array, "N q cq"]
    clients: TrainingMap
    effect: Float[Array, "N T 2 cq co"]
    chance: Float[Array, "N T"]
    mean: Float[Array, "2 N"]
    own: Float[Array, "2 2 N"]
    covariance: Float[Array, "2 2 N N"] | None
    paired: Float[Array, "N 2 c c"] | None = None

    def advance(self, law: Law) -> Law:
        N, q = self.rows.shape[:2]
        C = self.common.shape[0]
        S = law.second

        def of_client(i: Array, mine: TrainingMap, effect: Array, chance: Array) -> tuple[Array, Array]:
            at = jnp.concatenate([jnp.arange(C), C + i * q + jnp.arange(q)])
            mine_of, away, noise = effect_of(mine, effect, chance, S[at][:, at])
            return mine_of, noise + jnp.einsum("t,tkac,cd,tlbd->kalb", chance, away, S[at][:, at], away)

        effect, excess = jax.vmap(of_client)(jnp.arange(N), self.clients, self.effect, self.chance)
        whole = jnp.einsum("kln,nkalb->nab", self.own, excess)
        mean = jnp.einsum("kn,nkab->nab", self.mean, effect)

        common = self.common + mean[:, :C, :C].sum(axis=0)
        beside = mean[:, :C, C:]  # what clients' rows add to s
        rows = self.rows + mean[:, C:]

        def moved(M: Array) -> Array:
            """The mean map of the round, from the left."""
            top, below = M[:C], M[C:].reshape(N, q, M.shape[1])
            new = common @ top + jnp.einsum("nab,nbx->ax", beside, below)
            mine = jnp.einsum("nab,bx->nax", rows[:, :, :C], top) + jnp.einsum("nab,nbx->nax", rows[:, :, C:], below)
            return jnp.concatenate([new, mine.reshape(N * q, M.shape[1])])

        added = _added(whole, C, q)
        if self.paired is not None:
            added = added + jnp.einsum("ikac,cd,ikbd->ab", effect, S, self.paired, optimize="optimal")
        if self.covariance is not None:
            added = added + _chance(self.covariance, effect, S, C, q)
        return Law(moved(law.mean[:, None])[:, 0], moved(moved(law.covariance).T) + added)


def effect_of(
    mine: TrainingMap, effect: Float[Array, "T 2 c co"], chance: Float[Array, " T"], S: Float[Array, "c c"]
) -> tuple[Array, Array, Array]:
    """The mean effect of a client's round, with z and with a [2, c, c], and more for E c c^T = S.

    The latter are the deviation of each step count [T, 2, c, c], and the covariance of the noise of samples and channel
    [2, c, 2, c].
    """
    width = S.shape[0]
    sent, spread = jax.vmap(lambda one: sent_by(one, S))(mine)
    through = effect[..., width:]
    each = effect[..., :width] + jnp.einsum("tkao,toc->tkac", through, sent)
    mean = jnp.tensordot(chance, each, 1)
    return mean, each - mean, jnp.einsum("t,tkao,top,tlbp->kalb", chance, through, spread, through)


def sent_by(mine: TrainingMap, S: Float[Array, "c c"]) -> tuple[Array, Array]:
    """What a client sends on average [o, c], and its additional covariance [o, o], for E c c^T = S."""
    width = S.shape[0]

    def next(carry: tuple[Array, Array], A: Array, D: Deviations) -> tuple[Array, Array]:
        """g = (c, y) has E g g^T = P S P^T, plus X for y."""
        Y, X = carry
        P = jnp.concatenate([jnp.eye(width), Y])
        M = (P @ S @ P.T).at[width:, width:].add(X)
        return A[:, :width] + A[:, width:] @ Y, A[:, width:] @ X @ A[:, width:].T + D.spread(M)

    start = mine.start, jnp.zeros((mine.start.shape[0],) * 2)
    end, _ = jax.lax.scan(lambda carry, one: (next(carry, *one), None), start, (mine.step, mine.deviation))
    return next(end, mine.finish, mine.sent_deviation)


def _added(whole: Float[Array, "N x x"], C: int, q: int) -> Array:
    """Covariances of clients' own (s, r_i), which are independent of each other, in their places."""
    N = len(whole)
    top, side, rows = whole[:, :C, :C].sum(axis=0), whole[:, :C, C:], whole[:, C:, C:]
    side = jnp.moveaxis(side, 0, 1).reshape(C, N * q)
    block = jnp.zeros((N, q, N, q)).at[jnp.arange(N), :, jnp.arange(N), :].set(rows).reshape(N * q, N * q)
    return jnp.block([[top, side], [side.T, block]])


def _chance(covariance: Array, effect: Array, S: Array, C: int, q: int) -> Array:
    """The covariance added by sampling the cohort: sum over i, j, k, l of Cov(f_ik, f_jl) U_ik S U_jl^T."""
    N = len(effect)
    top, below = S[:C], S[C:].reshape(N, q, S.shape[1])
    left = jnp.einsum("nkab,bx->nkax", effect[..., :C], top) + jnp.einsum("nkab,nbx->nkax", effect[..., C:], below)
    first, rest = left[..., :C], left[..., C:].reshape(N, 2, C + q, N, q)
    U, V = effect[..., :C], effect[..., C:]

    def pairs(form: str, a: slice, b: slice) -> Array:
        out = jnp.einsum(f"klij,ikac,jlbc->{form}", covariance, first[:, :, a], U[:, :, b], optimize="optimal")
        if q:
            out += jnp.einsum(f"klij,ikajc,jlbc->{form}", covariance, rest[:, :, a], V[:, :, b], optimize="optimal")
        return out

    common, own = slice(0, C), slice(C, None)
    side = pairs("ajb", common, own).reshape(C, N * q)
    return jnp.block([[pairs("ab", common, common), side], [side.T, pairs("iajb", own, own).reshape(N * q, N * q)]])
