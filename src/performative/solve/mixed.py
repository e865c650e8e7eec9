"""Models that keep changing: how stable is their distribution?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.arguments import checked
from performative.facts import cites
from performative.problem import Problem
from performative.solve.landscape import Landscape, View, risk_of, survey
from performative.solve.minimize import minimize
from performative.solve.roots import allowed, escaped, natural_residual
from performative.solve.sampling import check_samples
from performative.types import ArrayLike, Theta


@cites("farina2026stability")
@checked
def mixed_regret(
    problem: Problem, models: Theta, weights: ArrayLike | None = None, *, samples: int | None = None
) -> float:
    """How much better a single model would have been on the data induced by a distribution of models.

        regret = E_theta f(theta; theta) - min_theta' E_theta f(theta'; theta),      theta ~ the models by their weights

    If it is 0 or below, the distribution is stable: in hindsight no single model would have been better. No-regret play
    (`pf.no_regret`) gets there however people react, even if no single model attracts; a single stable point has regret
    0. For the squared loss and data with mean m + eps theta it is ((1 - 2 eps) Var theta + ((1 - eps) E theta - m)^2) /
    2: for eps > 1/2, models that vary have negative regret. Farina and Perdomo 2026. Worlds are those at rest under
    each model. theta' lies in the problem's domain.

    Args:
        models: [n, ...] per leaf, such as `history.theta[0]`
        weights: of the models, need not sum to one; None for equal weights
        samples: draws per client if expectations have no exact rule, None for 2048

    Example:

        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 1.5, 1.0), domain=pf.Box(-4.0, 4.0))
        print(pf.mixed_regret(problem, [-2.0]), pf.mixed_regret(problem, [-4.0, 0.0]))
    """
    with jax.enable_x64(True):
        rows = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(models)]
        if isinstance(models, (list, tuple)):
            models, rows = (whole := np.asarray(models, np.float64)), [whole]
        if not rows or any(leaf.ndim < 1 or len(leaf) != len(rows[0]) for leaf in rows) or len(rows[0]) < 1:
            raise ValueError("mixed_regret: models must have a leading axis of models, the same for all leaves.")
        share = np.ones(len(rows[0])) if weights is None else np.asarray(weights, np.float64)
        if share.shape != (len(rows[0]),) or not np.all(np.isfinite(share)) or np.any(share < 0) or not share.sum() > 0:
            raise ValueError(f"mixed_regret: weights must be {len(rows[0])} numbers >= 0, not all 0; got {weights!r}.")
        share = share / share.sum()
        each = [jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], models) for i in range(len(share))]
        land, _ = survey(problem, each[0], samples=check_samples(samples), name="models")
        points, where = np.unique(np.stack([land.flat(model) for model in each]), axis=0, return_inverse=True)
        share = np.asarray(np.bincount(np.ravel(where), share, minlength=len(points)), np.float64)
        view = _mixture(land, points, share)
        start = land.project(share @ points)
        best = minimize(land, view, start)
        if escaped(start, best) or natural_residual(land, view, best) > allowed(view, best):
            raise ValueError("mixed_regret: the risk on these data has no minimizer; set a domain on the problem.")
        return float(share @ land.risks(points) - view.value(best))


def _mixture(land: Landscape, points: np.ndarray, share: np.ndarray) -> View:
    """theta' -> sum_j w_j f(theta'; theta_j)."""
    rows = jnp.asarray(points), jnp.asarray(share)

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _gradient(land.everywhere, jnp.asarray(x), *rows)
        return float(value), np.asarray(gradient)

    def second(x: np.ndarray) -> np.ndarray | None:
        return np.asarray(_curvature(land.everywhere, jnp.asarray(x), *rows)) if land.dense else None

    return View(both, lambda gradient: gradient, second)


def _mean_risk(
    land: Landscape, x: Float[Array, " d"], points: Float[Array, "n d"], share: Float[Array, " n"]
) -> Float[Array, ""]:
    return share @ jax.lax.map(lambda point: risk_of(land, x, point), points)


@eqx.filter_jit
def _gradient(
    land: Landscape, x: Float[Array, " d"], points: Float[Array, "n d"], share: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    return jax.value_and_grad(lambda at: _mean_risk(land, at, points, share))(x)


@eqx.filter_jit
def _curvature(
    land: Landscape, x: Float[Array, " d"], points: Float[Array, "n d"], share: Float[Array, " n"]
) -> Float[Array, "d d"]:
    return jax.jacfwd(jax.grad(lambda at: _mean_risk(land, at, points, share)))(x)
