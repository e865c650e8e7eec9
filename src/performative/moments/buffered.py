"""Rounds of asynchronous clients with memoryless waiting times: who comes next does not depend on who came before.

Client i works on the numbers c = (1, s) of the round in which it started. For each age l that still counts, we keep

    c_il = [i began l rounds ago] (1, s_{t - l})

With z_i = 1 if i is in the buffer, and given everything else, a round is linear in c = (1, s) and all c_il:

    c'    = T c + sum_i z_i sum_l w(l) a_i V_i sent_il,      sent_il linear in c_il, and noise
    c_i0' = z_i c',      c_il' = (1 - z_i) c_i,l-1

so second moments close, given the moments of up to four z at a time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.messages import coded
from performative._engine.setup import Setup
from performative.facts import declared
from performative.moments.client import TrainingMap
from performative.moments.facts import MOST_MEMORY, no_law
from performative.moments.listed import MOST
from performative.moments.recursion import AbstractRound, Law, sent_by


class Race(eqx.Module):
    """Who comes first, repeatedly: buffers' probabilities [M], members [M, N], their a_i [N], weights of ages w."""

    chance: Float[Array, " M"]
    present: Float[Array, "M N"]
    weight: Float[Array, " N"]
    discount: Float[Array, " L"]

    @property
    def ages(self) -> int:
        """L, the number of ages that count: 0, 1, ..., L - 1."""
        return len(self.discount)

    def begin(self, s: Float[Array, " p"]) -> Float[Array, "N q"]:
        """All clients start from the first model."""
        c = jnp.concatenate([jnp.ones(1), s])
        rows = jnp.zeros((self.present.shape[1], self.ages, len(c))).at[:, 0].set(c)
        return rows.reshape(len(rows), -1)


def read_race(setup: Setup, discount: np.ndarray) -> Race:
    """Read a participation that lists all its cohorts, with weights w(0), w(1), ... of their ages."""
    participation, weights = setup.algorithm.participation, np.asarray(setup.weights, np.float64)
    count = declared(participation, "cohort_count", weights, 0)
    if count is None:
        raise ValueError(no_law(participation))
    if count > MOST:
        raise ValueError(coded(
            "not-affine",
            f"moments: a buffer can be filled in {count:,.0f} ways, which are enumerated; at most {MOST:,} "
            "are supported. Use fewer clients, a buffer of 1, or pf.run.",
        ))  # fmt: skip
    rows = list(declared(participation, "cohorts", weights, 0))
    present, scale = np.zeros((len(rows), len(weights))), np.zeros(len(weights))
    for k, (_, ids, a) in enumerate(rows):
        present[k, ids], scale[ids] = 1.0, a
    chance = jnp.asarray([chance for chance, *_ in rows])
    return Race(chance, jnp.asarray(present), jnp.asarray(scale), jnp.asarray(discount, jnp.float64))


def check_race(race: Race, width: int, common: int) -> None:
    """Raise if clients have memory, or the state does not fit."""
    if width:
        raise ValueError(coded(
            "not-affine",
            "moments: participation=Asynchronous with parts that keep memory per client: that memory "
            "depends on the age of the client's model; use pf.run.",
        ))  # fmt: skip
    count = race.present.shape[1] * race.ages * common
    if count > MOST_MEMORY:
        raise ValueError(coded(
            "not-affine",
            f"moments: {race.present.shape[1]:,} clients with models of {race.ages:,} ages need {count:,} numbers, "
            f"but at most {MOST_MEMORY:,} are supported. Use a smaller limit= in pf.Asynchronous, or pf.run.",
        ))  # fmt: skip


def check_added(adds_up: bool) -> None:
    """Raise if the server does more with an update than add it with its weight."""
    if not adds_up:
        text = "moments: participation=Asynchronous with an aggregator that does not sum updates; use pf.run."
        raise ValueError(coded("not-affine", text))


class BufferedRound(AbstractRound):
    """`common` if nobody comes; clients' maps [N, L, T, ...], V [N, C, o], probabilities of step counts [N, T]."""

    race: Race
    common: Float[Array, "c c"]
    clients: TrainingMap
    through: Float[Array, "N c o"]
    chance: Float[Array, "N T"]

    def advance(self, law: Law) -> Law:
        race, C = self.race, self.common.shape[0]
        N, L = race.present.shape[1], race.ages
        S = law.second
        own = S[C:, C:].reshape(N, L, C, N, L, C)
        factor = race.weight[:, None] * race.discount  # w(l) a_i

        def of_age(mine: TrainingMap, chance: Array, V: Array, M: Array, a: Array) -> tuple[Array, Array]:
            """The mean effect of client i on c_il [c, c], and the covariance of the noise it adds."""
            sent, spread = jax.vmap(lambda one: sent_by(one, M))(mine)
            each = jnp.einsum("co,tod->tcd", V, sent)
            mean = jnp.tensordot(chance, each, 1)
            away = each - mean
            noise = jnp.einsum("t,co,top,dp->cd", chance, V, spread, V, optimize="optimal")
            return a * mean, a**2 * (noise + jnp.einsum("t,tab,bc,tdc->ad", chance, away, M, away))

        diagonal = jnp.einsum("iaciad->iacd", own)
        of_client = jax.vmap(of_age, (0, None, None, 0, 0))
        H, noise = jax.vmap(of_client)(self.clients, self.chance, self.through, diagonal, factor)
        noise = noise.sum(axis=1)

        def left(X: Array) -> Array:
            """(T, H_1, ..., H_N) X, [N + 1, C, x]."""
            rows = X[C:].reshape(N, L, C, X.shape[1])
            return jnp.concatenate([(self.common @ X[:C])[None], jnp.einsum("ilcd,ildx->icx", H, rows)])

        F = left(S)
        pairs = left(jnp.moveaxis(F, 2, 0).reshape(len(S), -1)).reshape(N + 1, C, N + 1, C)
        z = race.present
        one = jnp.concatenate([jnp.ones((len(z), 1)), z], axis=1)  # (1, z), [M, N + 1]
        # Given the buffer: c', and its second moments.
        c = one @ left(law.mean[:, None])[..., 0]
        square = jnp.einsum("mi,mj,iajb->mab", one, one, pairs, optimize="optimal") + jnp.tensordot(z, noise, 1)

        later = law.mean[C:].reshape(N, L, C)[:, :-1]
        mean = jnp.concatenate([
            race.chance @ c,
            jnp.concatenate([
                jnp.einsum("m,mi,mc->ic", race.chance, z, c)[:, None],
                jnp.einsum("m,mi->i", race.chance, 1.0 - z)[:, None, None] * later,
            ], axis=1).ravel(),
        ])  # fmt: skip

        # New with new, new with old, old with old.
        new = jnp.einsum("m,mi,mj,mab->iajb", race.chance, one, one, square, optimize="optimal")
        stay = jnp.einsum("m,mi,mj,mk->ijk", race.chance, one, 1.0 - z, one, optimize="optimal")
        before = F[..., C:].reshape(N + 1, C, N, L, C)[:, :, :, :-1]
        mixed = jnp.einsum("ijk,kajlb->iajlb", stay, before, optimize="optimal")
        both = jnp.einsum("m,mi,mj->ij", race.chance, 1.0 - z, 1.0 - z)
        old = both[:, None, None, :, None, None] * own[:, :-1, :, :, :-1]

        side = jnp.concatenate([new[0, :, 1:, None], mixed[0]], axis=2).reshape(C, -1)
        above = jnp.concatenate([new[1:, None, :, 1:, None], mixed[1:, None]], axis=4)
        below = jnp.concatenate([jnp.transpose(mixed[1:], (2, 3, 4, 0, 1))[..., None, :], old], axis=4)
        rows = jnp.concatenate([above, below], axis=1).reshape(N * L * C, N * L * C)
        second = jnp.block([[new[0, :, 0], side], [side.T, rows]])
        return Law(mean, second - jnp.outer(mean, mean))
