"""df/dtheta from differences of models and of what the data were under them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from performative.types import masked_mean


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


class Sighting(eqx.Module):
    """What a client tells a server of its reaction in one round.

    The moments of its window; the model it began with and the mean f-hat of its steps; whether its window is full.
    """

    window: Moments
    model: Float[Array, "... d"]
    parameters: Float[Array, "... m"]
    ready: Bool[Array, "..."]


class Window(eqx.Module):
    """The last H deployed models and the f-hat fitted under each: a ring, and the client's own count.

    A slot that was never written holds what the present would write, hence zero columns in both differences. Those are
    exact for the pseudo-inverse: pinv([A 0]) = [pinv(A); 0].
    """

    models: Float[Array, "H d"]
    parameters: Float[Array, "H m"]
    count: Int[Array, ""]
    last: Int[Array, ""]  # clock of the newest entry

    @staticmethod
    def empty(length: int, model: Any, parameters: Any) -> "Window":
        zero = jnp.zeros((), jnp.int32)
        return Window(
            jnp.zeros((length, model.shape[0]), model.dtype),
            jnp.zeros((length, parameters.shape[0]), parameters.dtype),
            zero,
            zero,
        )

    def forget_if(self, stale: Bool[Array, ""]) -> "Window":
        """An empty window where `stale`, else this one."""
        return eqx.tree_at(lambda w: w.count, self, jnp.where(stale, 0, self.count))

    def differences(self, model: Array, parameters: Array) -> tuple[Float[Array, "H d"], Float[Array, "H m"]]:
        """Rows theta^(t-h) - theta^t and f^(t-h) - f^t (Eq. 6, transposed); zeros where there is no entry."""
        filled = (jnp.arange(len(self.models), dtype=jnp.int32) < self.count)[:, None]
        return jnp.where(filled, self.models - model, 0), jnp.where(filled, self.parameters - parameters, 0)

    def around_mean(self) -> Moments:
        """The moments of all entries around their mean."""
        filled = jnp.arange(len(self.models), dtype=jnp.int32) < self.count
        return Moments.of(*self.differences(masked_mean(self.models, filled), masked_mean(self.parameters, filled)))

    def sighting(self, steps: Int[Array, ""]) -> Sighting:
        """The window around its newest entry, and what the last `steps` entries say."""
        length = len(self.models)
        newest = (self.count - 1) % length
        window = Moments.of(*self.differences(self.models[newest], self.parameters[newest]))
        latest = jnp.minimum(steps, jnp.minimum(self.count, length))
        age = (newest - jnp.arange(length, dtype=jnp.int32)) % length
        # The model that a round begins with owes nothing to what is sampled in it. The mean of its models does, and
        # chance in f-hat would pass for reaction.
        began = masked_mean(self.models, age == latest - 1)
        seen = masked_mean(self.parameters, age < latest)
        return Sighting(window, began, seen, self.count > length)

    def write(self, model: Array, parameters: Array, clock: Int[Array, ""]) -> "Window":
        """The window with one more entry in place of the oldest."""
        length = len(self.models)
        # By selection: mapped over clients, a write at an index is a scatter, which takes longer than all the rest.
        oldest = (jnp.arange(length, dtype=jnp.int32) == self.count % length)[:, None]
        return Window(
            jnp.where(oldest, model, self.models),
            jnp.where(oldest, parameters, self.parameters),
            self.count + 1,
            clock,
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
