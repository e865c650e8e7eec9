"""The variance of a mean of recorded models if each round is a linear map with noise: exact, round by round.

client i:  delta_i = A_i u - b_i + noise_i,      u' = u + sum_i w_i delta_i,      u = theta - theta_PS
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Draws(NamedTuple):
    """Second moments of a round's weights, as in `pf.participation` (`WeightMoments`)."""

    pair: Float[Array, ""]
    own: Float[Array, " N"]
    square: Float[Array, " N"]


class Local(NamedTuple):
    """Clients' gradients near a point: pull + H u + C (deployed - point), noise of one step; [N, d], [N, d, d]."""

    pull: Array
    H: Array
    C: Array
    noise: Array


class Average(NamedTuple):
    """A mean of recorded models: W u_0 + c on average, its covariance, and the mean covariance of one model.

    B is the derivative of c with respect to the point at which the pulls are evaluated.
    """

    W: Float[Array, "d d"]
    c: Float[Array, " d"]
    B: Float[Array, "d d"]
    covariance: Float[Array, "d d"]
    single: Float[Array, "d d"]


class _Carry(NamedTuple):
    P: Array  # u_t on average is P u_0 + q
    q: Array
    Q: Array  # its derivative with respect to the point of the pulls
    S: Array  # covariance of u_t
    D: Array  # covariance of u_t with the sum of kept models
    V: Array  # covariance of that sum
    P_sum: Array
    q_sum: Array
    Q_sum: Array
    S_sum: Array


@eqx.filter_jit
def averages(
    near: Local, start: Float[Array, "R d"], weights: Float[Array, " N"], eta: Float[Array, "T E"],
    kept: Bool[Array, " T"], draws: Draws, greedy: bool,
) -> Average:  # fmt: skip
    """For each repeat, from u_0 = start [R, d]; leaves of `near` lead with R. `kept` marks the rounds to average.

    `greedy`: each local model is deployed immediately; otherwise the model at the start of the round is.
    """
    pair, own, square = draws

    def one(near: Local, start: Array) -> Average:
        d = len(start)
        eye = jnp.eye(d)
        zero = jnp.zeros((d, d))
        apart = near.H + near.C
        apart = apart - jnp.einsum("i,ijk->jk", weights, apart)

        def step(carry: _Carry, now: tuple[Array, Array]) -> tuple[_Carry, None]:
            steps, keep = now
            A, total, noise = _local(near, steps, greedy)
            b = jnp.einsum("ijk,ik->ij", total, near.pull)
            M, shift = eye + jnp.einsum("i,ijk->jk", weights, A), -(weights @ b)
            u = carry.P @ start + carry.q
            move = jnp.einsum("ijk,k->ij", A, u) - b
            seen = move[:, :, None] * move[:, None, :] + A @ carry.S @ jnp.swapaxes(A, 1, 2)
            average, slope = weights @ move, M - eye
            both = jnp.outer(average, average) + slope @ carry.S @ slope.T
            added = jnp.einsum("i,ijk->jk", square, noise) + (pair - 1.0) * both + jnp.einsum("i,ijk->jk", own, seen)
            P, q, S, D = M @ carry.P, M @ carry.q + shift, M @ carry.S @ M.T + added, M @ carry.D
            Q = M @ carry.Q - jnp.einsum("i,ijk->jk", weights, total @ apart)
            k = keep.astype(S.dtype)
            V = carry.V + k * (D + D.T + S)
            sums = (carry.P_sum + k * P, carry.q_sum + k * q, carry.Q_sum + k * Q, carry.S_sum + k * S)
            return _Carry(P, q, Q, S, D + k * S, V, *sums), None

        none = jnp.zeros(d)
        first = _Carry(eye, none, zero, zero, zero, zero, zero, none, zero, zero)
        last = jax.lax.scan(step, first, (eta, kept))[0]
        n = jnp.sum(kept).astype(start.dtype)
        return Average(last.P_sum / n, last.q_sum / n, last.Q_sum / n, last.V / n**2, last.S_sum / n)

    return jax.vmap(one)(near, start)


def _local(near: Local, steps: Float[Array, " E"], greedy: bool) -> tuple[Array, Array, Array]:
    """A_i, the factor of the pulls, and the covariance of the noise, after the local steps of one round."""
    N, d = near.pull.shape
    eye = jnp.eye(d)
    own = near.H + near.C if greedy else near.H

    def step(carry: tuple[Array, Array, Array], eta: Array) -> tuple[tuple[Array, Array, Array], None]:
        power, total, noise = carry
        keep = eye - eta * own
        noise = keep @ noise @ jnp.swapaxes(keep, 1, 2) + eta**2 * near.noise
        return (keep @ power, keep @ total + eta * eye, noise), None

    zero = jnp.zeros((N, d, d))
    power, total, noise = jax.lax.scan(step, (jnp.broadcast_to(eye, (N, d, d)), zero, zero), steps)[0]
    A = power - eye - (0.0 if greedy else total @ near.C)
    return A, total, noise
