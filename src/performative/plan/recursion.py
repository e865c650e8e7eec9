"""The exact error of P-FedAvg, round by round, where samples' gradients are linear in the model.

    client i:  delta_i = A_i u - b_i + noise_i,      u' = u + sum_i w_i delta_i,      u = theta - theta_PS

Mean and covariance of u then close: no sampling, no bound, for models of any size. In one dimension these are the
moments of `pf.theory.gaussian_moments`.
"""

import jax.numpy as jnp
import numpy as np

from performative.facts import declared
from performative.plan.near import Near
from performative.plan.settings import Setting, local_maps
from performative.problem import Problem
from performative.solve.worlds import remembers

# Numbers that are worked on at once, and operations that a recursion may take: beyond, a pilot run is sooner done.
_NUMBERS, _MOST = 1 << 22, 1 << 32


def has_moments(problem: Problem) -> bool:
    """Whether the second moments of a run are known.

    A sample's gradient must be linear in model, deployed model and sample, and its noise must not depend on the model:
    places that follow the model linearly and at once, with the squared loss or prices, and no domain.
    """
    groups, shape = declared(problem.population, "translations"), problem.population.model_shape() or ()
    moves = groups is not None and len(groups) == 1 and not remembers(problem, jnp.zeros(shape))
    return moves and bool(declared(problem.loss, "affine_gradient")) and problem.domain is None


def is_exact(problem: Problem, near: Near, setting: Setting, rounds: float) -> bool:
    """Whether the error of such a run is known, and takes less work than a pilot run."""
    if not has_moments(problem) or setting.scheme == "first" or setting.clip is not None:
        return False
    different = 1 if setting.decay is None else rounds
    work = near.size**4 * (rounds + different * near.clients) + different * setting.local_steps * near.clients
    return work <= _MOST


def errors(near: Near, setting: Setting, rounds: int, deploy: str) -> np.ndarray:
    """Root mean square of |theta - theta_PS| after each round, the start first: [rounds + 1].

        E[u' u'^T] = W X W^T + (pair - 1) V X V^T + sum_i own_i V_i X V_i^T + noise,      X = E[(u, 1) (u, 1)^T]

    V_i = (A_i, -b_i), V = sum_i p_i V_i, W = (I, 0) + V; `pair` and `own` are the moments of the round's weights.
    """
    d = near.size
    steps = setting.eta(np.arange(rounds * setting.local_steps)).reshape(rounds, -1)
    steps = steps[:1] if setting.decay is None else steps  # a constant rate: every round is alike
    X = np.outer(*[np.append(near.start, 1.0)] * 2)
    found = [np.trace(X[:d, :d])]
    block = max(1, _NUMBERS // ((d + 1) ** 4 + near.clients * (d + 1) ** 2))
    with np.errstate(over="ignore", invalid="ignore"):  # a setting that runs away does so to infinity
        for first in range(0, len(steps), block):
            mean, square, noise = _round_maps(near, setting, steps[first : first + block], deploy)
            for r in np.zeros(rounds, int) if setting.decay is None else range(len(mean)):
                u, M = mean[r] @ X[-1], (square[r] @ X.ravel()).reshape(d, d) + noise[r]
                X[:d, :d], X[:d, d], X[d, :d] = M, u, u
                found.append(np.trace(M))
    return np.sqrt(np.maximum(found, 0.0))


def _round_maps(
    near: Near, setting: Setting, steps: np.ndarray, deploy: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W [R, d, d + 1], the map of X [R, d^2, (d + 1)^2] and the noise [R, d, d] of rounds with steps [R, E]."""
    d, w = near.size, setting.moments(near.weights)
    A, b, samples, _ = local_maps(near, steps.T[:, :, None, None, None], deploy)
    V_i = np.concatenate([A, -b[..., None]], axis=-1)
    V = np.tensordot(V_i, near.weights, ((1,), (0,))).reshape(len(steps), d, d + 1)
    W = V + np.eye(d, d + 1)
    square = _twice(W, W) + (w.pair - 1.0) * _twice(V, V)
    if np.any(w.own):
        rows = V_i.reshape(len(steps), len(w.own), -1)
        own = (np.swapaxes(rows, 1, 2) * w.own) @ rows
        square = square + own.reshape(-1, d, d + 1, d, d + 1).transpose(0, 1, 3, 2, 4)
    noise = np.tensordot(samples, w.square, ((1,), (0,))).reshape(len(steps), d, d) / setting.batch
    return W, square.reshape(len(steps), d * d, (d + 1) ** 2), noise


def _twice(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The map X -> a X b^T as [R, d, d, d + 1, d + 1]."""
    return np.einsum("rja,rkb->rjkab", a, b)
