"""Estimate df/dtheta from differences between models and between the data under them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from performative.types import ArrayLike

Shaped = Array | jax.ShapeDtypeStruct


class Moments(eqx.Module):
    """The sums over a window's rows that a finite difference needs.

    gram = dtheta^T dtheta,      cross = df^T dtheta,      df/dtheta = cross pinv(gram)
    """

    gram: Float[Array, "... d d"]
    cross: Float[Array, "... m d"]

    @staticmethod
    def of(models: Float[Array, "H d"], parameters: Float[Array, "H m"]) -> "Moments":
        gram = jnp.matmul(models.T, models, precision="highest")
        return Moments(gram, jnp.matmul(parameters.T, models, precision="highest"))

    def jacobian(self, rtol: ArrayLike) -> tuple[Float[Array, "m d"], Float[Array, ""]]:
        """df/dtheta by the pseudo-inverse, and the smallest singular value of dtheta that was kept.

        Directions in which the models spread less than `rtol` times the widest are dropped: there the difference of
        two noisy f-hat is divided by almost zero. If no model moved, the result is 0.
        """
        # The decomposition waits for both sums. Started earlier, in parallel with other work, it takes several times as
        # long.
        pinv, reach = _invert(self.gram + 0 * self.cross[0, 0], rtol)
        return jnp.matmul(self.cross, pinv, precision="highest"), reach


def _invert(gram: Float[Array, "d d"], rtol: ArrayLike) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
    """The pseudo-inverse of dtheta^T dtheta, and the smallest singular value of dtheta that was kept."""
    if len(gram) == 1:  # decomposing a 1 x 1 matrix costs far more than the rest
        pinv = jnp.where(gram > 0, 1 / jnp.where(gram > 0, gram, 1), 0)
        return pinv, jnp.sqrt(jnp.maximum(gram[0, 0], 0))
    values, vectors = jnp.linalg.eigh(gram)
    widest = values[-1]
    # Below this the eigenvalues are rounding errors, whatever rtol is.
    rounding = 4 * len(values) * float(jnp.finfo(values.dtype).eps)
    floor = jnp.maximum(jnp.square(jnp.asarray(rtol, values.dtype)), rounding)
    keep = (values > floor * widest) & (widest > 0)
    inverse = jnp.where(keep, 1 / jnp.where(keep, values, 1), 0)
    least = jnp.min(jnp.where(keep, values, jnp.inf))
    pinv = jnp.matmul(vectors * inverse, vectors.T, precision="highest")
    return pinv, jnp.sqrt(jnp.where(widest > 0, least, 0))


class Window(eqx.Module):
    """The last H distinct deployed models and the f-hat under each: a ring buffer with the client's own count.

    A model that stays deployed has one entry, the mean of its f-hat: neither a round of local steps under one model nor
    repeated steps at the edge of the domain evict what was observed under other models. An empty slot yields zero
    columns in both differences, which is exact for the pseudo-inverse: pinv([A 0]) = [pinv(A); 0].
    """

    models: Float[Array, "H d"]
    parameters: Float[Array, "H m"]
    count: Int[Array, ""]
    times: Int[Array, ""]  # how many f-hat the newest entry is the mean of
    last: Int[Array, ""]  # clock of the newest f-hat

    @staticmethod
    def empty(length: int, model: Shaped, parameters: Shaped) -> "Window":
        zero = jnp.zeros((), jnp.int32)
        models = jnp.zeros((length, model.shape[0]), model.dtype)
        return Window(models, jnp.zeros((length, parameters.shape[0]), parameters.dtype), zero, zero, zero)

    def forget_if(self, stale: Bool[Array, ""]) -> "Window":
        """An empty window if `stale`, otherwise this one."""
        return eqx.tree_at(lambda w: w.count, self, jnp.where(stale, 0, self.count))

    def differences(self, model: Array, parameters: Array) -> tuple[Float[Array, "H d"], Float[Array, "H m"]]:
        """Rows theta^(t-h) - theta^t and f^(t-h) - f^t (Eq. 6, transposed); zeros for empty slots."""
        filled = (jnp.arange(len(self.models), dtype=jnp.int32) < self.count)[:, None]
        return jnp.where(filled, self.models - model, 0), jnp.where(filled, self.parameters - parameters, 0)

    @property
    def _newest(self) -> Bool[Array, "H 1"]:
        """Mask of the newest entry; no row if the window is empty."""
        length = len(self.models)
        at = jnp.arange(length, dtype=jnp.int32) == (self.count - 1) % length
        return (at & (self.count > 0))[:, None]

    def newest(self) -> tuple[Float[Array, " d"], Float[Array, " m"]]:
        """The newest entry, zeros if the window is empty."""
        rows = (jnp.where(self._newest, leaf, 0) for leaf in (self.models, self.parameters))
        model, parameters = (jnp.sum(leaf, axis=0) for leaf in rows)
        return model, parameters

    def write(self, model: Array, parameters: Array, clock: Int[Array, ""]) -> "Window":
        """The window with one more f-hat: it replaces the oldest entry, or is averaged into that of the same model."""
        length, (before, mean) = len(self.models), self.newest()
        same = (self.count > 0) & jnp.all(before == model)
        times = jnp.where(same, self.times + 1, 1)
        # By selection: under vmap over clients, a write at an index becomes a scatter.
        oldest = (jnp.arange(length, dtype=jnp.int32) == self.count % length)[:, None]
        slot = jnp.where(same, self._newest, oldest)
        joined = mean + (parameters - mean) / times.astype(mean.dtype)
        return Window(
            jnp.where(slot, model, self.models),
            jnp.where(slot, jnp.where(same, joined, parameters), self.parameters),
            jnp.where(same, self.count, self.count + 1),
            times,
            clock,
        )


class Experience(eqx.Module):
    """All that a client has seen of its reaction: means and central moments, in which later rows have more weight.

        w_t = max(4 / (t + 3), pace),      mean <- mean + w_t (row_t - mean),      likewise for the moments

    Row t is the model deployed at the client's t-th step, the f-hat under it, and s, how the risk depends on f. With
    pace = 0 row s has a weight of order s^3: the first steps, taken far away, are soon forgotten, while the
    effective number of rows grows throughout the run. A model is independent of the noise in the f-hat under it, so
    least squares over rows is consistent.
    """

    count: Int[Array, "..."]
    model: Float[Array, "... d"]
    parameters: Float[Array, "... m"]
    answer: Float[Array, "... m"]  # mean of s
    moments: Moments
    spread: Float[Array, "... m"]  # variance of each entry of f-hat
    crowding: Float[Array, "..."]  # sum of the squared weights, which sum to one

    @staticmethod
    def empty(model: Shaped, parameters: Shaped) -> "Experience":
        d, m = model.shape[0], parameters.shape[0]
        moments = Moments(jnp.zeros((d, d), model.dtype), jnp.zeros((m, d), parameters.dtype))
        f = jnp.zeros(m, parameters.dtype)
        return Experience(jnp.zeros((), jnp.int32), jnp.zeros(d, model.dtype), f, f, moments, f, jnp.ones((), f.dtype))

    def forget_if(self, stale: Bool[Array, ""]) -> "Experience":
        """Empty if `stale`, otherwise unchanged; after a reset the next row has all the weight."""
        return eqx.tree_at(lambda e: e.count, self, jnp.where(stale, 0, self.count))

    def write(
        self, model: Array, parameters: Array, answer: Array, pace: Float[Array, ""] | float = 0.0
    ) -> "Experience":
        """Add one row."""
        count = self.count + 1
        weight = jnp.maximum(4 / (count + 3).astype(model.dtype), pace)
        stays, apart, change = 1 - weight, model - self.model, parameters - self.parameters

        def mix(before: Array, now: Array) -> Array:
            return stays * (before + weight * now)

        moments = Moments(
            mix(self.moments.gram, apart[:, None] * apart), mix(self.moments.cross, change[:, None] * apart)
        )
        return Experience(
            count,
            self.model + weight * apart,
            self.parameters + weight * change,
            self.answer + weight * (answer - self.answer),
            moments,
            mix(self.spread, jnp.square(change)),
            jnp.square(stays) * self.crowding + jnp.square(weight),
        )


class Sighting(eqx.Module):
    """What a client reports to the server about its reaction: moments of all it has seen, and whether its window is
    full."""

    seen: Experience
    ready: Bool[Array, "..."]


class SharedReaction(eqx.Module):
    """The server's df/dtheta: one estimate and one spread of models per cluster, and which are known so far.

    Args:
        trust: a client's own estimate has weight t * trust after t steps, the server's has weight 1
        pace: the minimum weight of a new round; the last 1 / pace rounds count
    """

    jacobian: Float[Array, "C m d"]
    gram: Float[Array, "C d d"]
    known: Bool[Array, " C"]
    trust: Float[Array, ""]
    pace: Float[Array, ""]

    def nearest(self, seen: Experience) -> Int[Array, ""]:
        """The cluster whose df/dtheta best explains the client's f-hat, each entry scaled by its variance."""

        def left_over(jacobian: Array) -> Array:
            half = jnp.matmul(jacobian, seen.moments.gram, precision="highest")
            each = jnp.sum((half - 2 * seen.moments.cross) * jacobian, axis=1)
            return jnp.sum(jnp.where(seen.spread > 0, each / jnp.where(seen.spread > 0, seen.spread, 1), 0))

        left = jnp.where(self.known, jax.vmap(left_over)(self.jacobian), jnp.inf)
        return jnp.argmin(left).astype(jnp.int32)

    def choose(
        self, seen: Experience, ready: Bool[Array, ""], rtol: ArrayLike
    ) -> tuple[Float[Array, "m d"], Bool[Array, ""]]:
        """The client's df/dtheta, and whether there is one.

            J_i = J + a (cross_i - J gram_i) pinv(a gram_i + (1 - a) gram),      a = t trust / (1 + t trust)

        The ridge estimate around the cluster's J, as if J had been observed over 1 / trust steps.
        """
        mine = self.nearest(seen) if len(self.known) > 1 else jnp.zeros((), jnp.int32)
        jacobian, gram = self.jacobian[mine], self.gram[mine]
        counts_for = seen.count.astype(gram.dtype) * self.trust
        share = counts_for / (1 + counts_for)
        pinv, _ = _invert(share * seen.moments.gram + (1 - share) * gram, rtol)
        surprise = seen.moments.cross - jnp.matmul(jacobian, seen.moments.gram, precision="highest")
        own = share * jnp.matmul(surprise, pinv, precision="highest")
        known = self.known[mine] & (ready if len(self.known) > 1 else True)
        return jacobian + own, known
