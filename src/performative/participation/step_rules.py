"""How many local steps each client of a round does."""

import abc
from typing import Generic

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative.facts import AbstractPart
from performative.types import ArrayLike, Cohort, Memory, Upload, as_numbers, is_concrete, whole

__all__ = ["AbstractSteps", "AdaComm", "EachSteps", "UniformSteps", "as_steps"]


class AbstractSteps(AbstractPart, Generic[Memory]):
    """A rule for tau_i, for `LocalWork`.

    Example:

        import jax
        import jax.numpy as jnp
        import performative as pf

        rule = pf.participation.UniformSteps(1, 3)
        assert isinstance(rule, pf.participation.AbstractSteps)
        print(rule.draw(jax.random.key(0), jnp.arange(4), rule.init()), rule.longest)
    """

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """E, the largest possible tau_i."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, ids: Int[Array, " K"], memory: Memory) -> Int[Array, " K"]:
        """tau_i of these clients in the next round."""

    @property
    def requires_loss(self) -> bool:
        """Whether clients must report the mean loss of their batches."""
        return False

    def listed(self) -> np.ndarray | None:
        """tau_i of every client, if known and constant."""
        return None

    def law(self, clients: int) -> np.ndarray | None:
        """P(tau_i = e + 1), [N, E], independent for each client and round; None if unknown, or if it depends on the
        past."""
        return None

    def init(self) -> Memory:
        """What the rule remembers before the first round."""
        return None  # type: ignore[return-value]  # Memory is None where nothing is remembered

    def observe(self, cohort: Cohort, upload: Upload, memory: Memory) -> Memory:
        """What it remembers after a round."""
        return memory


class EachSteps(AbstractSteps[None]):
    """tau_i as given, one for each client."""

    references = ()
    ignores_data = True

    each: Int[Array | np.ndarray, " N"]

    @property
    def longest(self) -> int:
        return int(np.max(self.each))

    def draw(self, key: PRNGKeyArray, ids: Int[Array, " K"], memory: None) -> Int[Array, " K"]:
        return jnp.take(self.each, ids, mode="clip")

    def listed(self) -> np.ndarray | None:
        return np.asarray(self.each) if is_concrete(self.each) else None

    def law(self, clients: int) -> np.ndarray | None:
        each = self.listed()
        return None if each is None else np.eye(self.longest)[each - 1]


class UniformSteps(AbstractSteps[None]):
    """tau_i uniform on lo..hi, drawn independently each round."""

    references = ()
    ignores_data = True

    lo: int = whole()
    hi: int = whole()

    def __check_init__(self) -> None:
        if not (isinstance(self.lo, int) and isinstance(self.hi, int) and 1 <= self.lo <= self.hi):
            raise ValueError(f"UniformSteps needs whole numbers 1 <= lo <= hi; got lo={self.lo!r}, hi={self.hi!r}.")

    @property
    def longest(self) -> int:
        return self.hi

    def law(self, clients: int) -> np.ndarray | None:
        one = np.where(np.arange(1, self.hi + 1) < self.lo, 0.0, 1.0 / (self.hi - self.lo + 1))
        return np.repeat(one[None], clients, axis=0)

    def draw(self, key: PRNGKeyArray, ids: Int[Array, " K"], memory: None) -> Int[Array, " K"]:
        # Keyed by client, so a client's work does not depend on who else was drawn.
        def one(client: Array) -> Array:
            return jax.random.randint(jax.random.fold_in(key, client), (), self.lo, self.hi + 1, jnp.int32)

        return jax.vmap(one)(ids)


class AdaComm(AbstractSteps[Float[Array, " 2"]]):
    """Fewer local steps as the loss falls: fast progress at first, little client drift in the end.

        tau_t = ceil(sqrt(F(theta_t) / F(theta_0)) * first),      least <= tau_t <= first

    F is the mean loss that the clients of a round report, weighted by a_i; round t uses the report of the previous
    round. If the loss grows (as it can if the data react), tau stays at `first`. It requires a positive initial loss;
    otherwise tau is `first` throughout. A round without a finite report changes nothing. Wang and Joshi, SysML 2019.
    Differs from the paper: tau is updated each round, not once per time interval.
    """

    references = ("wang2019adaptive",)
    requires_loss = True

    first: int = whole()
    least: int = whole(default=1)

    def __check_init__(self) -> None:
        if not (isinstance(self.first, int) and isinstance(self.least, int) and 1 <= self.least <= self.first):
            raise ValueError(
                f"AdaComm needs whole numbers 1 <= least <= first; got first={self.first!r}, least={self.least!r}."
            )

    def init(self) -> Float[Array, " 2"]:
        """The loss at the start and the last one; NaN until there is a report."""
        return jnp.full((2,), jnp.nan, jnp.result_type(float))

    @property
    def longest(self) -> int:
        return self.first

    def draw(self, key: PRNGKeyArray, ids: Int[Array, " K"], memory: Float[Array, " 2"]) -> Int[Array, " K"]:
        start, last = memory
        known = (start > 0) & jnp.isfinite(last)
        ratio = jnp.where(known, jnp.maximum(last, 0) / jnp.where(known, start, 1), 1)
        tau = jnp.clip(jnp.ceil(jnp.sqrt(ratio) * self.first), self.least, self.first).astype(jnp.int32)
        return jnp.broadcast_to(tau, ids.shape)

    def observe(self, cohort: Cohort, upload: Upload, memory: Float[Array, " 2"]) -> Float[Array, " 2"]:
        """The losses at the start and now, after one more report."""
        assert upload.loss is not None
        loss = upload.loss.astype(memory.dtype)
        heard = jnp.isfinite(loss) if cohort.active is None else cohort.active & jnp.isfinite(loss)
        weight = jnp.where(heard, cohort.weight.astype(memory.dtype), 0)
        total = jnp.sum(weight)
        mean = jnp.sum(weight * jnp.where(heard, loss, 0)) / jnp.where(total > 0, total, 1)
        now = jnp.stack([jnp.where(jnp.isnan(memory[0]), mean, memory[0]), mean])
        return jnp.where(total > 0, now, memory)


def as_steps(steps: AbstractSteps | ArrayLike) -> AbstractSteps:
    """Convert a rule, or a list of tau_i. Fractions and numbers below 1 raise an error rather than being rounded."""
    if isinstance(steps, AbstractSteps):
        return steps
    given = np.asarray(as_numbers(steps))
    if given.ndim != 1 or given.size == 0 or given.dtype.kind != "f" or np.any((given < 1) | (given % 1 != 0)):
        raise ValueError(
            "LocalWork: steps must be one whole number >= 1 for each client, pf.participation.UniformSteps(lo, hi) or "
            f"pf.participation.AdaComm(first); got {steps!r}."
        )
    return EachSteps(given.astype(np.int32))
