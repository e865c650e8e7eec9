"""A search that deploys the model that could still be the best."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative._base.checks import check_finite, check_number, check_rule
from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import weighted_sum
from performative.types import Cohort, Numbers, Theta, Upload, number


class Bounds(eqx.Module):
    """Lower and upper bounds on the performative risk of each model."""

    lower: Float[Array, " G"]
    upper: Float[Array, " G"]


class ConfidenceBounds(AbstractAggregator[Bounds]):
    """Deploy the listed model with the smallest lower bound on its performative risk.

        |PR(theta_g) - DPR(theta, theta_g)| <= slope |theta_g - theta| + error
        lower_g = max over deployments of DPR(theta, theta_g) - slope |theta_g - theta| - error,      upper_g likewise
        theta <- argmin_g lower_g

    DPR(theta, theta_g) is the loss of theta_g on the data induced by theta, the deployed model, averaged over clients:
    one deployment is informative about all models. slope = L_z eps: the Lipschitz constant of the loss in z (on a
    bounded domain) times the sensitivity of the data. If it is valid, the best model is never ruled out, and if the
    search stays at one model, that is the best listed one up to 2 error. `history["bound_gap"]` is by how much the
    best listed model can be below the smallest upper bound, before the round. Jagadeesan, Zrnic and
    Mendler-Duenner 2022. It needs the estimator `ModelRisks`, and deploy="round": the global model must be the one that
    people saw.

    Args:
        models: theta_1 .. theta_G, [G, ...]
        slope: L_z eps
        error: how far the mean loss of a round's samples may be from its expectation, for all models at once

    Example:

        import performative as pf

        print(pf.aggregators.ConfidenceBounds(models=[0.0, 0.5, 1.0], slope=2.0))
    """

    references = ("jagadeesan2022regret",)
    ignores_data = True

    models: Numbers = number()
    slope: Numbers = number()
    error: Numbers = number(default=0.0)

    def __check_init__(self) -> None:
        check_finite("ConfidenceBounds", models=self.models)
        if np.ndim(self.models) < 1 or np.shape(self.models)[0] < 1:
            raise ValueError(f"ConfidenceBounds: models must be [G, ...]; got shape {np.shape(self.models)}.")
        check_number("ConfidenceBounds", slope=self.slope, error=self.error)
        check_rule("ConfidenceBounds", "must not be negative", slope=self.slope, error=self.error)

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Bounds:
        if "risks" not in extra or extra["risks"].shape != np.shape(self.models)[:1]:
            raise ValueError(
                "ConfidenceBounds needs the loss of each model; use it with the estimator "
                "pf.estimators.ModelRisks(models) of the same models."
            )
        far = jnp.full(np.shape(self.models)[:1], jnp.inf, extra["risks"].dtype)
        return Bounds(-far, far)

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Bounds
    ) -> tuple[Theta, Bounds]:
        after = self._seen(theta, upload, cohort, memory)
        (leaf,), back = jax.tree.flatten(theta)
        best = jnp.asarray(self.models, leaf.dtype)[jnp.argmin(after.lower)]
        some = jnp.sum(cohort.weight) > 0
        return jax.tree.unflatten(back, [jnp.where(some, best - leaf, 0)]), after

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Bounds) -> dict[str, Array]:
        return {"bound_gap": jnp.min(memory.upper) - jnp.min(memory.lower)}

    def _seen(self, theta: Theta, upload: Upload, cohort: Cohort, memory: Bounds) -> Bounds:
        """The bounds after one more deployment."""
        leaf = jax.tree.leaves(theta)[0]
        total = jnp.sum(cohort.weight)
        share = cohort.weight / jnp.where(total > 0, total, 1)
        risks = weighted_sum(upload.extra["risks"], share, cohort.active)
        apart = (jnp.asarray(self.models, leaf.dtype) - leaf).reshape(risks.shape[0], -1)
        room = jnp.asarray(self.slope, risks.dtype) * jnp.linalg.norm(apart, axis=1).astype(risks.dtype)
        room = jnp.where(
            total > 0, room + jnp.asarray(self.error, risks.dtype), jnp.inf
        )  # no client took part: no information
        return Bounds(jnp.maximum(memory.lower, risks - room), jnp.minimum(memory.upper, risks + room))
