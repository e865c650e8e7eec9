"""df/dtheta from differences of models and of what the data were under them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from performative.types import masked_mean


class Moments(eqx.Module):
    """What a finite difference needs of a window: sums over its rows.

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


class Window(eqx.Module):
    """The last H different models that were deployed and the f-hat under each: a ring, and the client's own count.

    A model that stays deployed has one entry, the mean of its f-hat: neither a round of local steps under one model nor
    a stay at the edge of the domain pushes out what other models have taught. A slot that was never written gives zero
    columns in both differences, which are exact for the pseudo-inverse: pinv([A 0]) = [pinv(A); 0].
    """

    models: Float[Array, "H d"]
    parameters: Float[Array, "H m"]
    count: Int[Array, ""]
    times: Int[Array, ""]  # how many f-hat the newest entry is the mean of
    last: Int[Array, ""]  # clock of the newest f-hat

    @staticmethod
    def empty(length: int, model: Any, parameters: Any) -> "Window":
        zero = jnp.zeros((), jnp.int32)
        models = jnp.zeros((length, model.shape[0]), model.dtype)
        return Window(models, jnp.zeros((length, parameters.shape[0]), parameters.dtype), zero, zero, zero)

    def forget_if(self, stale: Bool[Array, ""]) -> "Window":
        """An empty window where `stale`, else this one."""
        return eqx.tree_at(lambda w: w.count, self, jnp.where(stale, 0, self.count))

    def differences(self, model: Array, parameters: Array) -> tuple[Float[Array, "H d"], Float[Array, "H m"]]:
        """Rows theta^(t-h) - theta^t and f^(t-h) - f^t (Eq. 6, transposed); zeros where there is no entry."""
        filled = (jnp.arange(len(self.models), dtype=jnp.int32) < self.count)[:, None]
        return jnp.where(filled, self.models - model, 0), jnp.where(filled, self.parameters - parameters, 0)

    @property
    def _newest(self) -> Bool[Array, "H 1"]:
        """Marks the newest entry; no row where there is none."""
        length = len(self.models)
        at = jnp.arange(length, dtype=jnp.int32) == (self.count - 1) % length
        return (at & (self.count > 0))[:, None]

    def newest(self) -> tuple[Float[Array, " d"], Float[Array, " m"]]:
        """The newest entry, zeros where there is none."""
        rows = (jnp.where(self._newest, leaf, 0) for leaf in (self.models, self.parameters))
        model, parameters = (jnp.sum(leaf, axis=0) for leaf in rows)
        return model, parameters

    def write(self, model: Array, parameters: Array, clock: Int[Array, ""]) -> "Window":
        """The window with one more f-hat: in place of the oldest entry, or joined to that of the same model."""
        length, (before, mean) = len(self.models), self.newest()
        same = (self.count > 0) & jnp.all(before == model)
        times = jnp.where(same, self.times + 1, 1)
        # By selection: mapped over clients, a write at an index is a scatter.
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


class Tally(eqx.Module):
    """Sums over the steps of one round: of the models deployed and of the f-hat under them."""

    model: Float[Array, " d"]
    parameters: Float[Array, " m"]
    steps: Int[Array, ""]

    def add(self, model: Array, parameters: Array, first: Bool[Array, ""]) -> "Tally":
        """One more step; the first one starts over."""

        def go_on(total: Array) -> Array:
            return jnp.where(first, 0, total)

        return Tally(go_on(self.model) + model, go_on(self.parameters) + parameters, go_on(self.steps) + 1)


class Sighting(eqx.Module):
    """What a client tells a server of its reaction in one round.

    The moments of its window; the model that the round began with; the mean model and the mean f-hat of its steps; and
    whether its window is full.
    """

    window: Moments
    start: Float[Array, "... d"]
    model: Float[Array, "... d"]
    parameters: Float[Array, "... m"]
    ready: Bool[Array, "..."]


class Rounds(eqx.Module):
    """The last rounds as a server saw them: start, mean model and mean f-hat of each. A ring."""

    start: Float[Array, "R d"]
    model: Float[Array, "R d"]
    parameters: Float[Array, "R m"]
    count: Int[Array, ""]

    @staticmethod
    def empty(length: int, like: Sighting) -> "Rounds":
        def rows(leaf: Any) -> Array:
            return jnp.zeros((length, *leaf.shape), leaf.dtype)

        return Rounds(rows(like.start), rows(like.model), rows(like.parameters), jnp.zeros((), jnp.int32))

    def write(self, start: Array, model: Array, parameters: Array) -> "Rounds":
        """One more round in place of the oldest."""
        length = len(self.start)
        oldest = (jnp.arange(length, dtype=jnp.int32) == self.count % length)[:, None]
        return Rounds(
            jnp.where(oldest, start, self.start),
            jnp.where(oldest, model, self.model),
            jnp.where(oldest, parameters, self.parameters),
            self.count + 1,
        )

    def jacobian(self, rtol: Any) -> Float[Array, "m d"]:
        """df/dtheta = Cov(f, start) pinv(Cov(model, start)).

        The start stands in for the mean model (an instrumental variable): it owes nothing to what was sampled in the
        round, while the mean model does, and chance in f-hat would pass for reaction.
        """
        filled = jnp.arange(len(self.start), dtype=jnp.int32) < self.count

        def centred(rows: Array) -> Array:
            return jnp.where(filled[:, None], rows - masked_mean(rows, filled), 0)

        start, model, parameters = (centred(rows) for rows in (self.start, self.model, self.parameters))
        moved = jnp.matmul(model.T, start, precision="highest")
        answered = jnp.matmul(parameters.T, start, precision="highest")
        pinv = jnp.linalg.pinv(moved, rtol=jnp.square(jnp.asarray(rtol, moved.dtype)))
        return jnp.matmul(answered, pinv, precision="highest")


class SharedReaction(eqx.Module):
    """What a server says of df/dtheta: one estimate a cluster, which are known yet, and whose cluster is which.

    `label` is None where there is but one cluster; a client that belongs to none yet has -1.
    """

    jacobian: Float[Array, "C m d"]
    known: Bool[Array, " C"]
    label: Int[Array, " N"] | None

    def choose(self, client: Int[Array, ""] | None) -> tuple[Float[Array, "m d"], Bool[Array, ""]]:
        """The client's df/dtheta, and whether it is known."""
        if self.label is None or client is None:
            return self.jacobian[0], self.known[0]
        mine = self.label[client]
        return self.jacobian[mine], self.known[mine] & (mine >= 0)
