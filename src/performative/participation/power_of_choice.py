"""Clients selected by their loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt

from performative._base.checks import is_one_of
from performative._base.sampling import alias_table, distinct, draw_alias, merge_duplicates
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.types import Cohort, Upload, as_whole, whole

# If less than this fraction of all weight may be left for the last candidate, rejection sampling is slow (32 draws on
# average here), and one pass over all clients is better.
_LEFT = 1 / 32


class PowerOfChoice(AbstractParticipation[Float[Array, " N"] | None]):
    """Select the k clients with the highest loss among d candidates.

        A ~ d different clients, drawn in proportion to p;   S = the k of A with the highest F_i(theta);   a_i = 1 / k

    Deliberately biased: it favors clients with high loss and moves the fixed point of training. d = k with equal p is
    Scheme II; with unequal p it is biased, because p enters only through the draw, which is without replacement. Ties
    are broken at random; non-finite losses come last.

    Args:
        prefer: "high"; "low" selects the lowest losses, which excludes atypical clients
        estimate: "exact": the candidates' expected loss at the server's model, on data that responded to the last
            deployed model; "batch": over `samples` draws each (saves computation); "last": the last loss they reported
            after training, averaged over their local steps (queries nobody: saves communication), unseen clients first

    The draw costs O(d). If the p are so unequal that d - 1 clients can have nearly all weight, it costs O(N). Cho, Wang
    and Joshi, AISTATS 2022 (pow-d, cpow-d, rpow-d). Differs from the paper: a client whose first update was non-finite
    counts as seen, with a loss below all others, so it is not selected forever.
    """

    references = ("cho2022biased",)

    k: int = whole()
    d: int = whole()
    prefer: str = eqx.field(static=True, default="high")
    estimate: str = eqx.field(static=True, default="exact")
    samples: int | None = eqx.field(static=True, converter=as_whole, default=None)

    def __check_init__(self) -> None:
        check_draws("PowerOfChoice", self.k)
        if not (isinstance(self.d, int) and not isinstance(self.d, bool) and self.d >= self.k):
            raise ValueError(
                f"PowerOfChoice: d must be a whole number of candidates, d >= k = {self.k}; got {self.d!r}."
            )
        if not is_one_of(self.prefer, "high", "low"):
            raise ValueError(f'PowerOfChoice: prefer must be "high" or "low"; got {self.prefer!r}.')
        if not is_one_of(self.estimate, "exact", "batch", "last"):
            raise ValueError(f'PowerOfChoice: estimate must be "exact", "batch" or "last"; got {self.estimate!r}.')
        if self.estimate == "batch":
            if isinstance(self.samples, bool) or not (isinstance(self.samples, int) and self.samples >= 1):
                raise ValueError(
                    'PowerOfChoice(estimate="batch") needs `samples`, a whole number >= 1 of draws for each '
                    f"candidate; got {self.samples!r}."
                )
        elif self.samples is not None:
            raise ValueError(
                f'PowerOfChoice: samples={self.samples!r} is for estimate="batch" only; leave it out with '
                f"{self.estimate!r}."
            )

    @property
    def requires_loss(self) -> bool:
        return self.estimate == "last"

    @property
    def measures_losses(self) -> bool:
        return not self.requires_loss

    def size(self, clients: int) -> int:
        return self.k

    def check(self, weights: np.ndarray) -> None:
        some = int(np.sum(np.asarray(weights) > 0))
        if self.d > some:
            raise ValueError(
                f"PowerOfChoice(d={self.d}) needs that many clients to draw from; {some} of {len(weights)} have a "
                "weight above 0."
            )

    def tables(self, weights: np.ndarray) -> PyTree:
        """Tables for drawing candidates: none, an alias table, or log p."""
        if np.ptp(weights) == 0 or self.d == len(weights):
            return None
        smallest = np.sort(np.asarray(weights, np.float64))[: len(weights) - self.d + 1]
        if smallest.sum() / np.sum(weights) >= _LEFT:
            return alias_table(weights)
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(weights, np.float64))

    def init(self, clients: int) -> Float[Array, " N"] | None:
        # +inf for clients not seen yet, -inf for selected ones that have not sent a finite loss.
        return jnp.full((clients,), jnp.inf, jnp.result_type(float)) if self.requires_loss else None

    def select(
        self, key: PRNGKeyArray, selection: Selection, memory: Float[Array, " N"] | None
    ) -> tuple[Cohort, Float[Array, " N"] | None]:
        key_draw, key_ties, key_loss = jax.random.split(key, 3)
        drawn = _candidates(key_draw, selection, self.d)
        # The rows of a draw may be ordered by id; among ties, top_k takes the first.
        drawn = jax.random.permutation(key_ties, drawn)
        if memory is not None:
            loss = memory[drawn]
        elif selection.measure is None:
            raise ValueError(
                f'PowerOfChoice(estimate="{self.estimate}") asks clients for their loss, and this selection has no '
                '`measure`; use estimate="last".'
            )
        else:
            loss = selection.measure(drawn, key_loss, self.samples)
        score = jnp.where(jnp.isfinite(loss), loss if self.prefer == "high" else -loss, -jnp.inf)
        if memory is not None:
            score = jnp.where(loss == jnp.inf, jnp.inf, score)
        ids = drawn[jax.lax.top_k(score, self.k)[1]]
        if memory is not None:
            was = memory[ids]
            memory = memory.at[ids].set(jnp.where(was == jnp.inf, -jnp.inf, was))
        return Cohort(ids, jnp.full((self.k,), 1 / self.k, selection.weights.dtype)), memory

    def observe(self, cohort: Cohort, upload: Upload, memory: Float[Array, " N"] | None) -> Float[Array, " N"] | None:
        if memory is None:
            return None
        assert upload.loss is not None
        was = jnp.take(memory, cohort.ids, mode="clip")
        heard = jnp.isfinite(upload.loss) if cohort.active is None else cohort.active & jnp.isfinite(upload.loss)
        return memory.at[cohort.ids].set(jnp.where(heard, upload.loss.astype(memory.dtype), was), mode="drop")


def _candidates(key: PRNGKeyArray, selection: Selection, d: int) -> Int[Array, " d"]:
    """d distinct clients, drawn sequentially with probability proportional to p among the remaining ones."""
    clients, tables = selection.weights.shape[0], selection.tables
    if d == clients:
        return jnp.arange(clients, dtype=jnp.int32)
    if tables is None:
        return distinct(key, d, clients)
    if isinstance(tables, tuple):
        return _first_distinct(key, tables, d, clients)
    # The d largest of log p_i + Gumbel are such a draw. At default precision the largest of many often tie.
    noise = jax.random.gumbel(key, (clients,), tables.dtype, mode="high")
    return jax.lax.top_k(tables + noise, d)[1].astype(jnp.int32)


def _first_distinct(
    key: PRNGKeyArray, table: tuple[UInt[Array, " N"], Int[Array, " N"]], d: int, clients: int
) -> Int[Array, " d"]:
    """The first d distinct ids in a sequence of independent draws. Each iteration draws as many as are missing."""

    def missing(carry: tuple[Array, Array]) -> Array:
        return jnp.any(carry[1] == clients)

    def draw(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        turn, ids = carry
        fresh = draw_alias(jax.random.fold_in(key, turn), table, d)
        return turn + 1, merge_duplicates(jnp.where(ids == clients, fresh, ids), spare=clients)[0]

    start = (jnp.asarray(0, jnp.int32), jnp.full((d,), clients, jnp.int32))
    return jax.lax.while_loop(missing, draw, start)[1]
