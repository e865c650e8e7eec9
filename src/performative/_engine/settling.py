"""The largest rate at which plain steps converge, from the linearization of a round near a point."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from performative._engine.prepare import on_device
from performative._engine.risk import client_risks
from performative.algorithm import Algorithm
from performative.facts import declared
from performative.problem import Problem
from performative.types import Theta

# Limit on the numbers in the clients' second derivatives: beyond, they are not computed.
_NUMBERS = 1 << 20
_NODES = 256
# A rate is halved this many times before no rate at all is assumed to converge; this many are tried between two of
# these, and below them; the last interval is bisected this many times.
_HALVINGS, _BETWEEN, _BELOW, _BISECTIONS = 40, 8, 8, 16


def settling_rate(problem: Problem, algorithm: Algorithm, point: Theta, rate: float) -> float | None:
    """The rate, up to `rate`, below which plain local steps converge in expectation near `point`.

        theta - eta (A_i theta + B_i deployed),   A_i, B_i: the derivatives of client i's gradient by theta, by deployed
        R(eta) = sum_i p_i R_i(eta),   R_i: tau_i such steps as a map of theta;   rho(R(eta)) < 1

    0 if no rate does, as when data follow the model faster than it learns; None if that cannot be determined: personal
    models, other estimators, aggregators or channels, work that varies between rounds, or too many parameters. Batches
    are ignored: small ones need smaller rates.
    """
    plain = (algorithm.estimator, algorithm.aggregator, algorithm.channel)
    work = algorithm.participation
    # None if they vary between rounds, or if participation or weights depend on the model.
    follows = work.measures_losses or work.requires_loss
    steps = None if follows else work.steps_of(problem.clients, algorithm.local_steps)
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(point))
    told = all(declared(part, "is_plain") for part in plain)
    told = told and algorithm.deploy.is_regular and algorithm.sharing.is_one
    if not told or steps is None or problem.clients * size**2 > _NUMBERS:
        return None
    with jax.enable_x64(True):
        at = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), point)
        A, B = (np.asarray(part) for part in _derivatives(on_device(problem, jnp.float64), at))
    if not (np.all(np.isfinite(A)) and np.all(np.isfinite(B))):
        return None
    weights = np.asarray(problem.client_weights, np.float64)

    def settles(eta: float) -> bool:
        return bool(np.max(np.abs(np.linalg.eigvals(_round(eta, A, B, weights, steps, algorithm)))) < 1)

    # Some rates above a diverging one may converge: what counts is the first that does not.
    low = float(rate) / 2
    for _ in range(_HALVINGS):
        below = low * 2.0 ** -np.arange(0, _BELOW / 2, 0.5)
        failed = [eta for eta in below if not settles(eta)]
        if not failed:
            break
        low = failed[-1] / 2
    else:
        return 0.0
    if low < rate / 2**_HALVINGS:
        return 0.0
    above = np.geomspace(low, min(4 * low, rate), 2 * _BETWEEN + 1)[1:]
    high = next((eta for eta in above if not settles(eta)), None)
    if high is None:
        return float(above[-1])
    low = max([low, *above[above < high]])
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if settles(middle) else (low, middle)
    return float(low)


@eqx.filter_jit
def _derivatives(problem: Problem, point: Theta) -> tuple[Float[Array, "N d d"], Float[Array, "N d d"]]:
    flat, back = ravel_pytree(point)

    def gradients(theta: Array, deployed: Array) -> Array:
        return jax.jacrev(lambda x: client_risks(problem, back(x), back(deployed), nodes=_NODES))(theta)

    return jax.jacfwd(gradients, argnums=(0, 1))(flat, flat)


def _round(
    eta: float, A: np.ndarray, B: np.ndarray, weights: np.ndarray, steps: np.ndarray, algorithm: Algorithm
) -> Float[np.ndarray, "d d"]:
    """R: the map of the model over the rounds between two deployments (one round, unless deployment is lazy)."""
    eye = np.eye(A.shape[1])
    if algorithm.deploy.each_step:
        M = eye - eta * (A + B)
        return np.tensordot(weights, np.stack([np.linalg.matrix_power(m, t) for m, t in zip(M, steps, strict=True)]), 1)
    own, reaction = np.zeros_like(eye), np.zeros_like(eye)
    for p, a, b, t in zip(weights, A, B, steps, strict=True):
        M, total, power = eye - eta * a, np.zeros_like(eye), eye
        for _ in range(int(t)):
            total, power = total + power, power @ M
        own, reaction = own + p * power, reaction - p * eta * total @ b
    if algorithm.deploy.period == 0:
        return own
    out = eye
    for _ in range(algorithm.deploy.period):
        out = own @ out + reaction
    return out
