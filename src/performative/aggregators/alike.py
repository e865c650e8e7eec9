"""Would one df/dtheta suffice for all clients? A test on their memories after a run."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.reaction import Experience

_KEPT = 1e-4  # of the widest direction of the models, squared: directions that spread less are uninformative
_ROUNDING = 1e-6  # of the variance of f-hat: smaller residuals of a fit may be rounding


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What one J for all clients of a cluster misses in the gradient's second term, and its significance.

        lost = sum_i p_i (J_i - J)^T (s_i - s),      the covariance of reactions with their cost

    Attributes:
        chance: p-value: probability of a `lost` this large if nothing is lost. An upper bound: the variance of J_i is
            overestimated if models moved more in rows of small weight, and entries of f-hat may all move together.
        off: |lost| relative to sum_i p_i |J^T s_i|
        bound: the same without cancellations, noise included: an upper bound on `off`
    """

    chance: float
    off: float
    bound: float

    @staticmethod
    def of(
        jacobian: Array | np.ndarray, known: np.ndarray, memory: PyTree, weights: Array | np.ndarray
    ) -> "Comparison":
        """Compute from the server's estimates [R, C, m, d] and clients' memory [R, N, ...], for R repeats of a run."""
        from scipy import stats

        seen = _experience(memory)
        repeats, p = len(np.asarray(known)), np.asarray(weights, np.float64)
        lost, variance, most, size = [], [], 0.0, 0.0
        for r in range(repeats):
            one = jax.tree.map(lambda leaf, r=r: np.asarray(leaf[r], np.float64), seen)
            found = _lost(one, np.asarray(jacobian[r], np.float64)[np.asarray(known[r])], p)
            if found is None:
                return Comparison(1.0, np.inf, np.inf)
            lost.append(found[0])
            variance.append(found[1])
            most, size = most + found[2], size + found[3]
        mean, spread = np.mean(lost, axis=0), np.mean(variance, axis=0) / repeats
        chance = stats.chi2.sf(mean @ np.linalg.pinv(spread, hermitian=True) @ mean, np.linalg.matrix_rank(spread))
        off = float(np.linalg.norm(mean)) * repeats
        return Comparison(float(np.nan_to_num(chance, nan=1.0)), _part(off, size), _part(most, size))


def _part(part: float, whole: float) -> float:
    return 0.0 if part == 0 else float(part / whole) if whole > 0 else np.inf


def _experience(memory: PyTree) -> Experience:
    """What clients have observed, wherever their estimator stores it."""

    def found(node: object) -> bool:
        return isinstance(node, Experience)

    return next(node for node in jax.tree.leaves(memory, is_leaf=found) if found(node))


def _lost(seen: Experience, jacobian: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float] | None:
    """`lost` of one repeat, its covariance, sum_i p_i |(J_i - J)^T (s_i - s)| and sum_i p_i |J^T s_i|."""
    values, vectors = np.linalg.eigh(seen.moments.gram)
    keep = (values > _KEPT * values[:, -1:]) & (values > 0)
    directions, rows = np.sum(keep, axis=1), 1 / seen.crowding
    told = (seen.count > 1) & (directions > 0) & (rows > directions + 1)
    if not len(jacobian) or np.sum(p[told]) == 0:
        return None
    inverse = (vectors * np.where(keep, 1 / np.where(keep, values, 1), 0)[:, None]) @ np.swapaxes(vectors, 1, 2)
    own = seen.moments.cross @ inverse
    left = seen.spread - np.sum(own * seen.moments.cross, axis=2)
    noise = np.maximum(left, _ROUNDING * seen.spread) * (rows / np.where(told, rows - directions - 1, 1))[:, None]
    apart = own[:, None] - jacobian @ (seen.moments.gram @ inverse)[:, None]  # [N, C, m, d], where the client went
    unit = np.where(noise > 0, 1 / np.where(noise > 0, noise, 1), 0)
    distance = np.einsum("ncmi,nij,ncmj,nm->nc", apart, seen.moments.gram, apart, unit)
    cluster = np.argmin(distance, axis=1)
    p = np.where(told, p, 0) / np.sum(p[told])
    answer = np.array(seen.answer)
    for c in np.unique(cluster):
        mine = cluster == c
        answer[mine] -= p[mine] @ answer[mine] / max(np.sum(p[mine]), np.finfo(float).tiny)
    each = np.einsum("nmd,nm->nd", np.take_along_axis(apart, cluster[:, None, None, None], axis=1)[:, 0], answer)
    weight = p**2 * np.sum(np.sqrt(noise) * np.abs(answer), axis=1) ** 2 / rows
    size = np.linalg.norm(np.einsum("nmd,nm->nd", jacobian[cluster], seen.answer), axis=1)
    return p @ each, np.einsum("n,nij->ij", weight, inverse), p @ np.linalg.norm(each, axis=1), p @ size
