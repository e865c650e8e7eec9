"""The privacy guarantee of an algorithm on a problem, from what its parts declare; or why there is none.

Every slot is checked. A part whose own class does not declare what is needed here, even if a parent class does, voids
the guarantee (epsilon = infinity), and the reason is reported. What a third-party part declares is its author's word:
the guarantee then relies on it, and `on_word` lists it.

A guarantee covers what a run does with people's rows. Choices made before it by looking at the same rows (scales, a
start, a clip, a step size) are not covered: if the library knows of such a choice, `not_covered` names it.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._base.arguments import checked
from performative._base.client_axis import take_clients
from performative.algorithm import Algorithm
from performative.draws import Everyone, PoissonSampling, WithoutReplacement
from performative.estimators import AbstractEstimator
from performative.facts import Uncertified, chain, declared, one_number, relying
from performative.participation import AbstractParticipation
from performative.privacy.accounting import Spending, epsilons
from performative.privacy.releases import Releases, certified_rows, law_of, protection, releases_by
from performative.problem import Problem
from performative.tables.fitted import is_fitted_model
from performative.types import Scene, Theta

UNITS = ("example", "client")
# What noise on the models does not cover if it is published.
UNCOVERED = ("losses", "clip counts", "participants", "error memory")


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The guarantee of an algorithm for each example or each client.

    It covers all models ever published and people's responses to them. `releases` contains one entry per kind of
    client; the worst counts. `why` contains the reasons if there is no guarantee; `assumes` what must be true outside
    this program; `not_covered` what is known to depend on these people's data without noise: the guarantee holds for
    the rest, given that. `on_word` lists the declarations of third-party parts that the guarantee relies on: they are
    their author's word and have not been checked.
    """

    unit: str
    releases: tuple[Releases, ...]
    why: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    on_word: tuple[str, ...] = ()

    @property
    def promised(self) -> bool:
        """Whether there is a guarantee, possibly on an author's word: a budget can be enforced."""
        return bool(self.releases)

    @property
    def certified(self) -> bool:
        """Whether there is a guarantee that relies only on this library's own parts."""
        return self.promised and not self.on_word

    @property
    def verdict(self) -> str:
        """The verdict in words; never plain "certified" if it relies on the word of a part's author."""
        if not self.promised:
            return "not certified"
        return "certified on the author's word" if self.on_word else "certified"

    def spent(self, rounds: int, delta: float) -> Spending:
        """Epsilon after `rounds` rounds."""
        return self.spendings([rounds], delta)[0]

    def spendings(self, rounds: list[int], delta: float, grid: float | None = None) -> list[Spending]:
        """`spent` for several numbers of rounds. A coarse `grid` is faster and never underestimates."""
        if not self.promised:
            return [Spending(math.inf if r else 0.0, delta, "none", None, "", "; ".join(self.why)) for r in rounds]
        each = [epsilons(mine.after(1), [mine.after(r).steps for r in rounds], delta, grid) for mine in self.releases]
        return [max(found, key=lambda spending: spending.epsilon) for found in zip(*each, strict=True)]

    def most_rounds(self, epsilon: float, delta: float) -> float | int:
        """The most rounds possible within epsilon: 0 if not even one does, infinity if further rounds cost nothing."""
        return min((mine.most_rounds(epsilon, delta) for mine in self.releases), default=0)


@checked
def guarantee(
    problem: Problem,
    algorithm: Algorithm,
    unit: str | None = None,
    published: tuple[str, ...] = (),
    conservative: bool = False,
    theta: Theta = None,
    unseen_rows: bool = False,
    seen: tuple[str, ...] = (),
    secure_threshold: int | None = None,
) -> Guarantee:
    """Return the privacy guarantee of this algorithm on this problem, per round.

    Args:
        unit: "example" (one person's row is replaced, added or removed) or "client" (all of a client's data); None
            means the client if the channel is `ClippedNoise`, else the example
        published: what is published in addition to the models, of "losses", "clip counts", "participants", "error
            memory": the noise covers none of it
        conservative: for `Dice`, use the bound that holds whatever its memory replays: T releases without sampling,
            each moved by up to 2 (C1 + n C2)
        theta: the start, if there is one: a fitted model depends on the people it was fitted to
        unseen_rows: the rows are not the problem's but come from another source (`Federation(source=...)`): their
            number is unknown, so there is no amplification by sampling
        seen: descriptions of what observes more than the released models during the run, such as "metric 'gap' may
            look at uploads": there is then no guarantee, and the reason names it
        secure_threshold: fewest clients whose sum a server sees (`Federation(secure=...)`): the guarantee for clients
            then holds against an honest-but-curious server. It knows who participates, so client sampling provides no
            amplification, and only the noise of this many clients counts. None if the server is trusted
    """
    unit = read_unit(unit, algorithm)
    if isinstance(published, str):
        raise ValueError(f"published must be a list, such as [{published!r}]; got {published!r}.")
    for name in published:
        if name not in UNCOVERED:
            raise ValueError(
                f"published: choose from {', '.join(UNCOVERED)} (models are always published); got {name!r}."
            )
    assumes, uncovered = list(_ALWAYS), (*problem.from_data, *algorithm.from_data)
    if is_fitted_model(theta):
        fitted = type(theta).__name__
        uncovered += (f"the start is a fitted {fitted}: the people it was fitted to are not protected against that",)
    with relying() as heard:
        try:
            if published:
                raise Uncertified(f"{', '.join(published)} would be published without noise")
            if seen:
                raise Uncertified("; ".join(seen))
            _check_choice(algorithm)
            _check_server(algorithm)
            if not algorithm.sharing.is_one:
                raise Uncertified(
                    f"{type(algorithm.sharing).__name__}: clients deploy their own models, which the noise is not "
                    "known to cover; use sharing=pf.sharing.OneModel()"
                )
            if unit == "client":
                releases = _for_clients(problem, algorithm, theta, assumes, secure_threshold)
            elif unseen_rows:
                releases = _for_unseen(algorithm, conservative, assumes)
            else:
                releases = _for_examples(problem, algorithm, conservative, assumes)
        except Uncertified as reason:
            return Guarantee(unit, (), (str(reason),), tuple(assumes), uncovered)
    return Guarantee(unit, releases, (), tuple(assumes), uncovered, tuple(heard))


def read_unit(unit: str | None, algorithm: Algorithm) -> str:
    """The unit that the noise protects: clients if the channel adds it, else examples."""
    if unit is None:
        return "example" if algorithm.channel.bound() is None else "client"
    if unit not in UNITS:
        raise ValueError(f'unit must be "example" or "client"; got {unit!r}.')
    return unit


def _check_choice(algorithm: Algorithm) -> None:
    """Check that participation and the number of local steps do not depend on anyone's data."""
    scheme = algorithm.participation
    for part in chain(scheme):
        if declared(part, "ignores_data"):
            continue
        if isinstance(part, AbstractParticipation):
            name = type(part).__name__
            raise Uncertified(f"{name} may select clients based on their data; use Full, SchemeOne or SchemeTwo")
        raise Uncertified(f"{type(part).__name__} may choose the number of steps, or the order, based on the data")
    if scheme.requires_loss or scheme.measures_losses:
        raise Uncertified(f"{type(scheme).__name__} looks at losses, which depend on the data")


def _check_server(algorithm: Algorithm) -> None:
    """Check that everything after the noise only uses noisy values."""
    for part in chain(algorithm.aggregator):
        if not declared(part, "ignores_data"):
            raise Uncertified(f"what the aggregator {type(part).__name__} uses is not known to the accountant")
    for part in (*chain(algorithm.channel), *chain(algorithm.deploy)):
        if not declared(part, "ignores_data"):
            raise Uncertified(f"what {type(part).__name__} does with a model is not known to the accountant")


def _for_examples(
    problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]
) -> tuple[Releases, ...]:
    """Count each local step as a release. A client may be selected in every round, so every round counts."""
    batch, population = algorithm.batch, problem.population
    tables, times = certified_rows(population), law_of(batch, None).times
    size = float(np.max(np.asarray(batch.expected(population))))
    multiplier, sampled = protection(algorithm.estimator, size, times, conservative)
    if multiplier == 0:
        raise Uncertified("there is no noise")
    steps = Fraction(algorithm.steps)
    if not sampled:
        return (Releases(multiplier, Everyone(), steps),)
    if tables is None:
        assumes.append("no person is sampled twice: the population has no table, every sample is a new person")
        return (Releases(multiplier, Everyone(), steps, most=1),)
    laws = _worst([law_of(batch, rows) for rows in sorted(tables)])
    if any(not law.fixed_size for law in laws):
        assumes.append("table sizes are public: sums are divided by them, and they may serve as client weights")
    found = [releases_by(law, multiplier) for law in laws]
    return tuple(dataclasses.replace(step, each=step.each * steps) for step in found)


def _worst(laws: list[Any]) -> list[Any]:
    """Of the sampling laws of tables in increasing size, keep those that may be the worst case for somebody."""
    cut = any(isinstance(law, PoissonSampling) and law.truncated for law in laws)
    kept: dict[Any, Any] = {}
    for law in laws:
        if isinstance(law, PoissonSampling):
            kept[law if cut else law.rate] = law  # without truncation all tables are equivalent
        else:  # people in the smallest table are drawn most often
            kept.setdefault((type(law), getattr(law, "n", None)), law)
    if len(kept) > _KINDS and cut:
        most = laws[-1].rows
        raise Uncertified(f"tables of {len(kept)} sizes, truncated at n_max={laws[-1].most}; use n_max >= {most}")
    if len(kept) > _KINDS:
        raise Uncertified(f"tables of {len(laws)} sizes are sampled in {len(kept)} ways, which is too many")
    return list(kept.values())


@dataclasses.dataclass
class Unknown:
    """A table of unknown size."""

    rows: float = math.inf
    capacity: float = math.inf


def _for_unseen(algorithm: Algorithm, conservative: bool, assumes: list[str]) -> tuple[Releases, ...]:
    """Assume that anyone may be in every batch, as often as the batch allows."""
    times = law_of(algorithm.batch, None).times
    try:  # a fraction of an unknown number of rows may be arbitrarily large
        size = float(np.asarray(algorithm.batch.expected(Unknown())))
    except (TypeError, ValueError, OverflowError, AttributeError):
        name = type(algorithm.batch).__name__
        raise Uncertified(f"the size of the batch {name} depends on an unknown number of rows") from None
    multiplier, sampled = protection(algorithm.estimator, size, times, conservative)
    if multiplier == 0:
        raise Uncertified("there is no noise, or not enough for batches of any size")
    assumes.append("the number of rows that arrive is public, and nobody contributes two of them under the same model")
    return (Releases(multiplier / times if sampled else multiplier, Everyone(), Fraction(algorithm.steps)),)


def _for_clients(
    problem: Problem, algorithm: Algorithm, theta: Theta, assumes: list[str], threshold: int | None
) -> tuple[Releases, ...]:
    """Count each round as a release of the sum of updates, or of each update if the server uses them individually."""
    clients = problem.clients
    bound, scheme = declared(algorithm.channel, "bound"), algorithm.participation
    if bound is None:
        name = type(algorithm.channel).__name__
        raise Uncertified(f"the channel {name} does not bound the clients' updates; use ClippedNoise")
    if bound.memory_clip is not None:
        raise Uncertified(f"{bound.owner}'s memory replays updates in later rounds")
    size, weights = scheme.size(clients), np.asarray(problem.client_weights, float)
    one_number(bound.clip, f"{bound.owner}: clip")
    z = one_number(bound.noise_multiplier, f"{bound.owner}: noise_multiplier")
    if z == 0:
        raise Uncertified("there is no noise")
    if np.ptp(weights) > 0:
        assumes.append("the clients' weights are public, although they may reveal how many rows each has")
    law = declared(scheme, "sampling", clients)
    everyone = isinstance(law, Everyone) and size == clients
    some = size <= clients and law == WithoutReplacement(size, clients)
    if declared(algorithm.aggregator, "uses_sums_only") and (everyone or some):
        if threshold is not None:
            return (_against_server(z, weights, size, threshold, assumes),)
        assumes.append("only sums of updates are observed: a trusted server, or secure aggregation")
        # Client i moves the sum by a_i c; the noise of the sum is at least that of the lightest other clients.
        heavy, light = weights.max(), weights.min()
        spread = np.sum(weights**2) if everyone else heavy**2 + (size - 1) * light**2
        z = z * math.sqrt(spread / size) / heavy
        # The selection is hidden only if it affects neither the size of the noise nor what clients remember.
        hidden = size < clients and np.ptp(weights) <= 1e-12 * heavy and not _remembers(problem, algorithm, theta)
        return (Releases(z, law if hidden else Everyone()),)
    for part in chain(algorithm.estimator, AbstractEstimator):
        if not declared(part, "sends_update_only"):
            raise Uncertified(f"{type(part).__name__} may send more than its update, and only the update is clipped")
    assumes.append("every client may participate in every round; individual messages are observed")
    return (Releases(z / math.sqrt(size), Everyone()),)


def _against_server(z: float, weights: np.ndarray, size: int, threshold: int, assumes: list[str]) -> Releases:
    """A sum of at least t clients, as an honest but curious server sees it before adding the missing noise.

    noise of the sum >= z c sqrt((heavy^2 + (t - 1) light^2) / K),      client i moves it by at most heavy c
    """
    assumes.append(
        f"the server is honest but curious: it follows the protocol of secure aggregation, sees sums of {threshold} "
        "or more clients and knows who is in them; no client reveals its own noise"
    )
    assumes.append("rounding to the integers of secure aggregation, far finer than the noise, reveals nothing")
    heavy, light = float(weights.max()), float(weights.min())
    spread = heavy**2 + (threshold - 1) * light**2
    return Releases(z * math.sqrt(spread / size) / heavy, Everyone())


# Maximum number of table sizes that are accounted for individually.
_KINDS = 8
_ALWAYS = (
    "one repeat is published",
    "only its models are: the risks, distances and counts in a history are computed without noise",
    "start, feature scales, clip and all other settings were chosen without looking at these people's data",
)


def _remembers(problem: Problem, algorithm: Algorithm, start: Theta) -> bool:
    """Whether clients keep state between rounds, which may depend on who was drawn: does any `init` return arrays?"""

    def memories() -> Any:
        theta = _like(problem, start)
        mine = take_clients(problem.population, jnp.zeros((), jnp.int32))[0]
        world, memory = mine.init(Scene(theta, problem.loss)), algorithm.estimator.init(theta, mine, problem.loss)
        return world, memory, algorithm.batch.init(), algorithm.channel.init(theta)

    try:
        return bool(jax.tree.leaves(eqx.filter_eval_shape(memories)))
    except Exception:  # a part that fails here may remember anything
        return True


def _like(problem: Problem, theta: Theta) -> Any:
    """A model with the shape of the start, or, without one, the shape determined by the data."""
    if theta is None or is_fitted_model(theta):
        return jnp.zeros(problem.population.model_shape() or ())
    return jax.tree.map(lambda leaf: jnp.zeros(np.shape(leaf)), theta)
