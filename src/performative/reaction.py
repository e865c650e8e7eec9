"""df/dtheta from differences of models and of what the data were under them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Moments(eqx.Module):
    """What a finite difference needs of a window: sums over its rows, which add up over clients.

    gram = dtheta^T dtheta,      cross = df^T dtheta,      df/dtheta = cross pinv(gram)
    """

    gram: Float[Array, "... d d"]
    cross: Float[Array, "... m d"]

    @staticmethod
    def of(models: Float[Array, "H d"], parameters: Float[Array, "H m"]) -> "Moments":
        gram = jnp.matmul(models.T, models, precision="highest")
        return Moments(gram, jnp.matmul(parameters.T, models, precision="highest"))

    def jacobian(self, rtol: Any) -> tuple[Float[Array, "m d"], Float[Array, ""]]:
        """df/dtheta by the pseudo-inverse, and the least singular value of dtheta that was kept.

        Directions in which the models spread less than `rtol` times the widest are left out: there the difference of
        two noisy f-hat is divided by next to nothing. Nothing moved, nothing known: then it is 0.
        """
        # The decomposition waits for both sums. Begun earlier, beside other work, it takes several times as long.
        values, vectors = jnp.linalg.eigh(self.gram + 0 * self.cross[0, 0])
        widest = values[-1]
        # Below this the eigenvalues are rounding, whatever rtol asks for.
        rounding = 4 * len(values) * float(jnp.finfo(values.dtype).eps)
        floor = jnp.maximum(jnp.square(jnp.asarray(rtol, values.dtype)), rounding)
        keep = (values > floor * widest) & (widest > 0)
        inverse = jnp.where(keep, 1 / jnp.where(keep, values, 1), 0)
        pinv = jnp.matmul(vectors * inverse, vectors.T, precision="highest")
        least = jnp.min(jnp.where(keep, values, jnp.inf))
        return jnp.matmul(self.cross, pinv, precision="highest"), jnp.sqrt(jnp.where(widest > 0, least, 0))

    def misfit(self, jacobian: Float[Array, "m d"]) -> Float[Array, ""]:
        """|df - dtheta jacobian^T|^2 over the window, up to a number that is the same for every jacobian."""
        return jnp.sum(jnp.matmul(jacobian, self.gram, precision="highest") * jacobian) - 2 * jnp.sum(
            self.cross * jacobian
        )


class SharedReaction(eqx.Module):
    """What a server says of df/dtheta: one estimate a cluster of clients, and which of them are known yet."""

    jacobian: Float[Array, "C m d"]
    known: Bool[Array, " C"]

    def choose(self, moments: Moments) -> tuple[Float[Array, "m d"], Bool[Array, ""]]:
        """The one that fits a client's own window best, and whether there is any."""
        misfit = jax.vmap(moments.misfit)(self.jacobian)
        best = jnp.argmin(jnp.where(self.known, misfit, jnp.inf))
        return self.jacobian[best], jnp.any(self.known)
