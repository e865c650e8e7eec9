"""The full performative gradient: the term of the loss and the term of the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from performative._base.checks import check_counts, check_flags, check_number, is_one_of
from performative._base.messages import warn
from performative._base.noise import draws_nothing
from performative._base.reaction import Experience, Moments, Sighting, Window
from performative._deprecated import old_keywords
from performative.batches import AbstractBatch
from performative.estimators.base import AbstractEstimator, Problem
from performative.estimators.family_check import late_part, overlooked
from performative.estimators.minibatch import count_samples
from performative.families import AbstractFamily
from performative.populations.base import AbstractPopulation, collect
from performative.types import (
    ArrayLike,
    Batch,
    Estimate,
    Local,
    Loss,
    Noise,
    Numbers,
    Sample,
    Scene,
    Theta,
    Unchecked,
    Upload,
    as_numbers,
    as_whole,
    is_concrete,
    masked_mean,
    squared_norm,
)

_LATE = 0.01  # of the reaction: what may come later without a warning
_OVERLOOKED = 0.1  # of the gradient's second term


class Watch(eqx.Module):
    """What a client remembers about its reaction: its last models and the data under them, and sums over all."""

    window: Window
    seen: Experience


class Performative(AbstractEstimator[Watch | None]):
    """Both terms of the performative gradient, with the reaction learned from the client's own past.

        v = mean grad l(theta; z) + (df/dtheta)^T s
        "score":     s = mean (l - b) d log p(z; f)/df                      (Zheng et al. 2024, Eq. 5)
        "pathwise":  s = mean (dz/df)^T dl/dz
        df/dtheta  ~ [f^(t-H) - f^t, ...] pinv [theta^(t-H) - theta^t, ...]   (Eq. 6, the client's last H models)

    Args:
        window: H, well above the d parameters; None differentiates the population's own `sample` instead (the client
            knows how its data react; pathwise only, any d)
        family: the family p(z; f) with its f-hat; None takes the population's own
        term: "score" needs only the density; "pathwise" has far less variance, if the samples themselves move
        baseline: subtract b = mean l in the score term. If f-hat is the maximum likelihood estimate, the scores of a
            batch sum to zero, so it has no effect
        rtol: directions in which past models spread less than rtol of the widest are dropped
        reset_after: forget the window after this many steps of absence; None for never

    For its first H + 1 models a client uses the plain gradient (Algorithm 2, line 6); a model that stays deployed
    counts once. With a pooling server (`PooledJacobian`) its df/dtheta replaces the client's own. If data react with a
    delay (`Sluggish`), a window sees only the initial reaction and misses the optimum; the same holds if the family
    does not capture the whole reaction (non-normal rows of a `Database` with "score", outliers, the pooled data of
    heterogeneous clients). Warnings before a run report this.
    """

    learns_reaction = True
    references = ("izzo2021learn", "zheng2024profl")
    quadrature = draws_nothing

    window: int | None = eqx.field(static=True)
    family: AbstractFamily | None
    term: str = eqx.field(static=True)
    baseline: bool = eqx.field(static=True)
    rtol: Numbers
    reset_after: int | None = eqx.field(static=True)

    @old_keywords
    def __init__(
        self,
        window: int | None,
        family: Unchecked[AbstractFamily | None] = None,
        term: str = "score",
        baseline: bool = True,
        rtol: ArrayLike = 1e-2,
        reset_after: int | None = None,
    ):
        self.window, self.family, self.term, self.baseline = as_whole(window), family, term, baseline
        self.rtol, self.reset_after = as_numbers(rtol), as_whole(reset_after)

    def __check_init__(self) -> None:
        if not is_one_of(self.term, "score", "pathwise"):
            raise ValueError(f'Performative: term must be "score" or "pathwise"; got {self.term!r}.')
        if self.family is not None and not isinstance(self.family, AbstractFamily):
            raise ValueError(f"Performative: family must be one such as pf.families.Location(); got {self.family!r}.")
        for name in ("window", "reset_after"):
            if getattr(self, name) is not None:
                check_counts(**{f"Performative: {name}": getattr(self, name)})
        check_flags("Performative", baseline=self.baseline)
        check_number("Performative", rtol=self.rtol)
        if is_concrete(self.rtol) and not 0 <= self.rtol < 1:
            raise ValueError(f"Performative: rtol must lie in [0, 1); got {self.rtol}.")
        if self.window is None and self.term != "pathwise":
            raise ValueError('Performative(window=None) differentiates the samples; give it term="pathwise".')

    def check(self, problem: Problem, theta: Theta, batch: AbstractBatch) -> None:
        population = problem.population
        if self.term == "score" and getattr(batch, "n", 2) < 2:
            raise ValueError(
                'Performative(term="score") learns nothing from one sample per step: it compares the samples of a '
                "batch. Use for example batch=pf.Fixed(500)."
            )
        if self.term == "pathwise" and not population.smooth:
            raise ValueError(
                f'Performative(term="pathwise"): in {type(population).__name__} the model changes who is sampled, '
                'not the samples, so their derivative misses the reaction. Use term="score".'
            )
        if self.window is None:
            return
        family = self._family(population)
        d = sum(leaf.size for leaf in jax.tree.leaves(theta))
        if self.window <= d:
            raise ValueError(
                f"Performative(window={self.window}) cannot tell how the data follow {d} parameters: H models give H "
                f"differences, so give window >= {2 * d + 1}"
                + (', or window=None with term="pathwise" where the reaction is known.' if d > 50 else ".")
            )
        if self.window < 2 * d:
            warn(
                "window-too-short",
                f"Performative(window={self.window}) is not well above the {d} parameters; df/dtheta will be noisy. "
                f"window={5 * d} is a good start.",
            )
        late = late_part(problem, theta)
        if late > _LATE:
            warn(
                "delayed-reaction",
                f"{type(population).__name__}: after one period under a model {100 * late:.0f}% of the reaction is "
                f"still to come, but Performative(window={self.window}) learns only from the immediate reaction. It "
                "will miss the optimal point.",
            )
        exact = population.exact_family and isinstance(family, type(population.family))
        if population.smooth and not exact:
            off, sure = overlooked(problem, theta, family, self._answer)
            if sure and off > _OVERLOOKED:
                warn(
                    "reaction-overlooked",
                    f'Performative(term="{self.term}") treats the data of {type(population).__name__} as '
                    f"{type(family).__name__}, which is wrong: at the start the reaction term of the gradient is off "
                    f"by {100 * off:.0f}%, however well df/dtheta is known. It will miss the optimum.",
                )

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Watch | None:
        if self.window is None:
            return None
        family = self._family(population)

        def fitted() -> Array:
            noise = population.draw(jax.random.key(0), (2,), theta)
            return family.fit(collect(population, noise, None, population.init(Scene(theta, loss)), theta))

        model, parameters = ravel_pytree(theta)[0], jax.eval_shape(fitted)
        return Watch(Window.empty(self.window, model, parameters), Experience.empty(model, parameters))

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Watch | None
    ) -> Estimate[Watch | None]:
        each, gradients = jax.vmap(jax.value_and_grad(local.loss), in_axes=(None, 0))(theta, batch.z)
        first = masked_mean(gradients, batch.mask)
        counts = {"samples": count_samples(batch)}
        if memory is None:
            second = masked_mean(_through_samples(theta, batch, local), batch.mask)
            return Estimate(jax.tree.map(jnp.add, first, second), memory, counts)

        family = self._family(local.population)
        window, seen = memory.window, memory.seen
        if self.reset_after is not None:
            stale = local.clock - window.last > self.reset_after
            window, seen = window.forget_if(stale), seen.forget_if(stale)
        here, unflatten = ravel_pytree(local.deployed)
        f = family.fit(batch)
        f = jnp.where(
            jnp.isnan(f), window.newest()[1], f
        )  # entries that this batch does not determine stay as they were
        jacobian, reach, ready = self._reaction(window, seen, here, f, local)
        s = self._answer(family, each, batch, f, theta, local.loss)
        reaction = jnp.where(ready, jnp.matmul(s, jacobian, precision="highest"), 0)
        direction = jax.tree.map(jnp.add, first, unflatten(reaction.astype(here.dtype)))
        facts = {
            "loss": jnp.abs(masked_mean(each, batch.mask)),
            "gradient": jnp.sqrt(squared_norm(first)),
            "jacobian": jnp.linalg.norm(jacobian),
            "reach": reach,
            "spread": _variance_of_fit(family, batch, f),
            "ready": ready,
        }
        shared = local.broadcast.extra.get("reaction")
        pace = 0.0 if shared is None else shared.pace / local.broadcast.steps
        after = Watch(window.write(here, f, local.clock), seen.write(here, f, s, pace))
        return Estimate(direction, after, counts, facts)

    def finish(self, upload: Upload, local: Local, memory: Watch | None) -> tuple[dict[str, PyTree], Watch | None]:
        """What the client has observed of its reaction, for a server that pools it."""
        if self.window is None or memory is None:
            return {}, memory
        return {"reaction": Sighting(memory.seen, memory.window.count > self.window)}, memory

    def _family(self, population: AbstractPopulation) -> AbstractFamily:
        found = population.family if self.family is None else self.family
        if found is None:
            raise ValueError(
                f"Performative: {type(population).__name__} does not declare how its data are distributed; pass "
                'family=, such as pf.families.Location(), or window=None with term="pathwise".'
            )
        return found

    def _reaction(
        self, window: Window, seen: Experience, here: Array, f: Array, local: Local
    ) -> tuple[Float[Array, "m d"], Float[Array, ""], Array]:
        """df/dtheta, how far past models spread around the current one, and whether there are enough of them."""
        rows = window.differences(here, f)
        moments = Moments.of(*rows)
        jacobian, reach = moments.jacobian(self.rtol)
        ready = window.count > len(window.models)
        if "reaction" in local.broadcast.extra:
            # Excludes the current batch: its noise would enter both the slope and s.
            jacobian, ready = local.broadcast.extra["reaction"].choose(seen, ready, self.rtol)
        return jacobian, reach, ready

    def _answer(
        self, family: AbstractFamily, each: Array, batch: Batch, f: Array, theta: Theta, loss: Loss
    ) -> Float[Array, " m"]:
        """s, how the risk changes with f."""
        if self.term == "pathwise":
            slope = jax.vmap(jax.grad(loss, argnums=1, allow_int=True), in_axes=(None, 0))(theta, batch.z)
            return masked_mean(family.displace(batch, slope), batch.mask)
        if self.baseline:
            each = each - masked_mean(each, batch.mask)
        return _mean_product(each, family.score(batch, f), batch.mask)


def _mean_product(
    each: Float[Array, " n"], rows: Float[Array, "n m"], mask: Bool[Array, " n"] | None
) -> Float[Array, " m"]:
    """Mean of each_j rows_j over the unmasked rows, as one matrix product."""
    if mask is not None:
        each, rows = jnp.where(mask, each, 0), jnp.where(mask[:, None], rows, 0)
    count = each.shape[0] if mask is None else jnp.maximum(jnp.sum(mask), 1).astype(each.dtype)
    return jnp.matmul(each, rows, precision="highest") / count


def _through_samples(theta: Theta, batch: Batch, local: Local) -> PyTree:
    """(dz/dtheta)^T dl/dz for each sample, by differentiating the population's own map with its world settled."""

    def one(u: Noise, z: Sample) -> Theta:
        floating, rest = eqx.partition(z, eqx.is_inexact_array)
        slope = jax.grad(lambda moving: local.loss(theta, eqx.combine(moving, rest)))(floating)

        def moved(deployed: Theta) -> Sample:
            scene = Scene(deployed, local.loss, None, local.broadcast.models, local.player)  # others stay as they are
            world = local.population.settle(scene)
            return eqx.filter(local.population.sample(u, world, deployed), eqx.is_inexact_array)

        return jax.vjp(moved, local.deployed)[1](slope)[0]

    return jax.vmap(one)(batch.noise, batch.z)


def _variance_of_fit(family: AbstractFamily, batch: Batch, f: Array) -> Array:
    """n times the variance of f-hat, summed over its entries: 1 / Fisher information, from the scores themselves."""
    information = masked_mean(jnp.square(family.score(batch, f)), batch.mask)
    return jnp.sum(1 / jnp.maximum(information, jnp.finfo(information.dtype).tiny))
