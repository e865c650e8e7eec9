"""Rounds whose clients' effects do not add up (FedNova over a cohort): enumerate every possible cohort."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from performative._base.messages import coded
from performative._engine.setup import Setup
from performative.facts import declared
from performative.moments.client import TrainingMap, affine, close_with, extended
from performative.moments.facts import no_law
from performative.moments.layout import Layout
from performative.moments.recursion import AbstractRound, Law, sent_by
from performative.types import Cohort, State

# Largest number of cohorts of a round, step counts included, that are enumerated.
MOST = 4_096


class Cohorts(eqx.Module):
    """All cohorts of a round, padded: probability [M], client [M, K], weight, presence, index of the step count."""

    chance: Float[Array, " M"]
    ids: Int[Array, "M K"]
    weight: Float[Array, "M K"]
    active: Bool[Array, "M K"]
    work: Int[Array, "M K"]


class ListedRound(AbstractRound):
    """Clients' maps [N, T, ...] and, for each cohort, the server's map of (1, s, R) and of what each row sent."""

    clients: TrainingMap
    cohorts: Cohorts
    own: Float[Array, "M D D"]
    sent: Float[Array, "M K D o"]
    common: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def advance(self, law: Law) -> Law:
        """Over all cohorts, E[A x x^T A^T] and the covariance of what their clients sent."""
        N, S, D = self.clients.start.shape[0], law.second, len(law.mean)

        def of_client(i: Array, mine: TrainingMap) -> tuple[Array, Array]:
            at = _places(i, self.common, self.width)
            return jax.vmap(lambda one: sent_by(one, S[at][:, at]))(mine)

        sent, spread = jax.vmap(of_client)(jnp.arange(N), self.clients)

        def one(total: tuple[Array, Array], row: Any) -> tuple[tuple[Array, Array], None]:
            cohorts, own, through = row
            who = jnp.minimum(cohorts.ids, N - 1)

            def widened(i: Array, part: Array) -> Array:
                return jnp.zeros((D, D)).at[:, _places(i, self.common, self.width)].set(part)

            A = own + jnp.sum(
                jax.vmap(widened)(who, jnp.einsum("kdo,koc->kdc", through, sent[who, cohorts.work])), axis=0
            )
            moved = A @ law.mean
            added = jnp.einsum("kdo,kop,kep->de", through, spread[who, cohorts.work], through)
            square = A @ law.covariance @ A.T + jnp.outer(moved, moved) + added
            return (total[0] + cohorts.chance * moved, total[1] + cohorts.chance * square), None

        zero = (jnp.zeros(D), jnp.zeros((D, D)))
        (mean, second), _ = jax.lax.scan(one, zero, (self.cohorts, self.own, self.sent))
        return Law(mean, second - jnp.outer(mean, mean))


def list_all(setup: Setup, period: int, work: np.ndarray) -> Cohorts:
    """The cohorts of each round of a period, [P, ...]; padding cohorts have probability 0."""
    each = [list_cohorts(setup, round, work) for round in range(period)]
    most, widest = (max(one.ids.shape[axis] for one in each) for axis in (0, 1))

    def filled(one: Cohorts) -> Cohorts:
        missing = most - one.ids.shape[0], widest - one.ids.shape[1]
        pad = ((0, missing[0]), (0, missing[1]))
        return Cohorts(
            jnp.pad(one.chance, pad[:1]), jnp.pad(one.ids, pad, constant_values=len(setup.weights)),
            *(jnp.pad(leaf, pad) for leaf in (one.weight, one.active, one.work)),
        )  # fmt: skip

    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(filled, each))


def list_cohorts(setup: Setup, round: int, work: np.ndarray) -> Cohorts:
    """Every cohort of a round with every step count that its clients may have."""
    participation, weights = setup.algorithm.participation, np.asarray(setup.weights, np.float64)
    name, clients = type(participation).__name__, len(weights)
    count = declared(participation, "cohort_count", weights, round)
    if count is None:
        raise ValueError(no_law(participation))
    rows: list[tuple[float, Any, Any, Any]] = []
    if count <= MOST:
        for chance, ids, weight in declared(participation, "cohorts", weights, round):
            ways = [np.flatnonzero(work[i]) for i in ids]
            for each in itertools.product(*ways):
                rows.append(
                    (chance * float(np.prod([work[i, t] for i, t in zip(ids, each, strict=True)])), ids, weight, each)
                )
                if len(rows) > MOST:
                    break
    if not 0 < len(rows) <= MOST:
        aggregator = type(setup.algorithm.aggregator).__name__
        raise ValueError(coded(
            "not-affine",
            f"moments: with aggregator={aggregator} a client's contribution depends on who else participates, so every "
            f"cohort is enumerated: {name} has {count:,.0f} of them, times the numbers of local steps that "
            f"their clients may take, but at most {MOST:,} are supported; use fewer clients, pf.Full(), or pf.run.",
        ))  # fmt: skip
    widest = max(len(ids) for _, ids, _, _ in rows)

    def filled(values: Any, empty: Any) -> list[Any]:
        return [*values, *[empty] * (widest - len(values))]

    return Cohorts(
        jnp.asarray([chance for chance, *_ in rows]),
        jnp.asarray([filled(ids, clients) for _, ids, _, _ in rows], jnp.int32),
        jnp.asarray([filled(weight, 0.0) for _, _, weight, _ in rows]),
        jnp.asarray([filled([True] * len(ids), False) for _, ids, _, _ in rows], bool),
        jnp.asarray([filled(each, 0) for *_, each in rows], jnp.int32),
    )


def closings(
    setup: Setup, layout: Layout, rest: State, at: tuple[Array, Array], cohorts: Cohorts, steps: Array | None,
    forms: Any, sent: Float[Array, "N T o"],
) -> tuple[Array, Array]:  # fmt: skip
    """What the server does in each cohort's round: to (1, s, R) [M, D, D], and with what each row sent [M, K, D, o]."""
    (s0, R0), clients = at, layout.clients

    def one(ids: Array, weight: Array, active: Array, work: Array) -> tuple[Array, Array]:
        who = jnp.minimum(ids, clients - 1)
        mine = jax.tree.map(lambda leaf: leaf[who, work], forms)
        o0 = sent[who, work]
        cohort = Cohort(ids, weight, active, None if steps is None else steps[work])

        def close(s: Array, r: Array, o: Array) -> Array:
            state = layout.join(s, r.reshape(R0.shape), rest)
            s, R, _ = layout.split(close_with(setup, state, cohort, mine, o.reshape(o0.shape)))
            return extended(s, R.ravel())

        whole = affine(close, s0, R0.ravel(), o0.ravel())
        D = 1 + len(s0) + R0.size
        rows = whole[:, D:].reshape(D, *o0.shape)
        return whole[:, :D], jnp.moveaxis(rows, 1, 0)

    return jax.lax.map(lambda row: one(*row), (cohorts.ids, cohorts.weight, cohorts.active, cohorts.work))


def _places(i: Array, common: int, width: int) -> Array:
    """Indices of (1, s, r_i) in (1, s, R)."""
    shared, own = (jnp.arange(count, dtype=i.dtype) for count in (common, width))
    return jnp.concatenate([shared, common + i * width + own])
