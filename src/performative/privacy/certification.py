"""What can be promised about an algorithm on a problem, from what its parts declare; or why nothing can.

Every slot is looked at. A part whose own class does not declare what is needed here, a subclass of one that does too,
makes the promise void (epsilon = infinity) and says so. What a part from elsewhere declares is its author's word: the
promise then rests on it, and `on_word` lists it.

A promise is about what a run does to people's rows. What was chosen before it by looking at the same rows (scales, a
start, a clip, a step size) is outside: where the library knows of such a choice, `not_covered` names it.
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
# What noise on the models does not cover, should anyone publish it.
UNCOVERED = ("losses", "clip counts", "participants", "error memory")


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What an algorithm promises to each example or to each client.

    It covers all models that were ever published and what people did in response to them. `releases` holds one entry
    for each kind of client; the worst counts. `why` holds the reasons where nothing can be promised; `assumes` what has
    to be true outside of this program; `not_covered` what is known to come from these people's data without noise: the
    promise holds for the rest, given that. `on_word` names what parts from elsewhere declare of themselves and the
    promise rests on: it is their author's word, which nobody here has checked.
    """

    unit: str
    releases: tuple[Releases, ...]
    why: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    on_word: tuple[str, ...] = ()

    @property
    def promised(self) -> bool:
        """Whether there is a promise, be it on somebody's word: a budget can be kept."""
        return bool(self.releases)

    @property
    def certified(self) -> bool:
        """Whether there is one that rests on nobody's word but ours."""
        return self.promised and not self.on_word

    @property
    def verdict(self) -> str:
        """In words; never plain "certified" where it rests on the word of a part's author."""
        if not self.promised:
            return "not certified"
        return "certified on the author's word" if self.on_word else "certified"

    def spent(self, rounds: int, delta: float) -> Spending:
        """Epsilon after `rounds` rounds."""
        return self.spendings([rounds], delta)[0]

    def spendings(self, rounds: list[int], delta: float, grid: float | None = None) -> list[Spending]:
        """The same for several numbers of rounds. A coarse `grid` is quicker and never too small."""
        if not self.promised:
            return [Spending(math.inf if r else 0.0, delta, "none", None, "", "; ".join(self.why)) for r in rounds]
        each = [epsilons(mine.after(1), [mine.after(r).steps for r in rounds], delta, grid) for mine in self.releases]
        return [max(found, key=lambda spending: spending.epsilon) for found in zip(*each, strict=True)]

    def most_rounds(self, epsilon: float, delta: float) -> float | int:
        """The most rounds that stay within epsilon: 0 where not even one does, infinity where none spends more."""
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
    """What this algorithm promises on this problem, per round.

    Args:
        unit: "example" (one person's row is replaced, added or removed) or "client" (all of a client's data); None
            takes the client where the channel is `ClippedNoise`, else the example
        published: what is published beside the models, of "losses", "clip counts", "participants", "error memory": none
            of it is covered by the noise
        conservative: for `Dice`, take the bound that holds whatever its memory replays: T releases without sampling,
            each moved by up to 2 (C1 + n C2)
        theta: the start, where there is one: a fitted model was fitted to somebody
        unseen_rows: the rows are not the problem's but come from elsewhere (`Federation(source=...)`): how many there
            are is not known, so that no sampling is counted
        seen: what looks at more than the released models while it runs, in words, such as "metric 'gap' may look at
            uploads": there is no promise then, and the reason names it
        secure_threshold: fewest clients whose sum a server sees (`Federation(secure=...)`): the promise to clients then
            holds against a server that is honest but curious. It knows who takes part, so that drawing clients hides
            nobody from it, and counts the noise of so many clients only. None where the server is trusted
    """
    unit = read_unit(unit, algorithm)
    if isinstance(published, str):
        raise ValueError(f"published must be a list, such as [{published!r}]; got {published!r}.")
    for name in published:
        if name not in UNCOVERED:
            raise ValueError(f"published: choose from {', '.join(UNCOVERED)} (models always are); got {name!r}.")
    assumes, uncovered = list(_ALWAYS), (*problem.from_data, *algorithm.from_data)
    if is_fitted_model(theta):
        fitted = type(theta).__name__
        uncovered += (f"the start is a fitted {fitted}: whomever it was fitted to is not protected from that",)
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
                    f"{type(algorithm.sharing).__name__}: people meet models of a client's own, of which no noise is "
                    "known to cover all; use sharing=pf.sharing.OneModel()"
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
    """Whom the noise protects: clients where the channel adds it, else examples."""
    if unit is None:
        return "example" if algorithm.channel.bound() is None else "client"
    if unit not in UNITS:
        raise ValueError(f'unit must be "example" or "client"; got {unit!r}.')
    return unit


def _check_choice(algorithm: Algorithm) -> None:
    """Who takes part, and for how many steps, must not depend on anyone's data."""
    scheme = algorithm.participation
    for part in chain(scheme):
        if declared(part, "ignores_data"):
            continue
        if isinstance(part, AbstractParticipation):
            name = type(part).__name__
            raise Uncertified(f"{name} may choose clients by their data; use Full, SchemeOne or SchemeTwo")
        raise Uncertified(f"{type(part).__name__} may choose the number of steps, or who is first, by the data")
    if scheme.requires_loss or scheme.measures_losses:
        raise Uncertified(f"{type(scheme).__name__} looks at losses, which depend on the data")


def _check_server(algorithm: Algorithm) -> None:
    """Whatever follows the noise must look at nothing but what carries it."""
    for part in chain(algorithm.aggregator):
        if not declared(part, "ignores_data"):
            raise Uncertified(f"what the aggregator {type(part).__name__} looks at is not known to the accountant")
    for part in (*chain(algorithm.channel), *chain(algorithm.deploy)):
        if not declared(part, "ignores_data"):
            raise Uncertified(f"what {type(part).__name__} makes of a model is not known to the accountant")


def _for_examples(
    problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]
) -> tuple[Releases, ...]:
    """Each local step is a release. A client may be asked in every round, so every round counts."""
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
        assumes.append("no person is asked twice: the population has no table, every sample is a new person")
        return (Releases(multiplier, Everyone(), steps, most=1),)
    laws = _worst([law_of(batch, rows) for rows in sorted(tables)])
    if any(not law.fixed_size for law in laws):
        assumes.append("how many rows each table has is no secret: sums are divided by it, and clients may weigh by it")
    found = [releases_by(law, multiplier) for law in laws]
    return tuple(dataclasses.replace(step, each=step.each * steps) for step in found)


def _worst(laws: list[Any]) -> list[Any]:
    """Of the laws of tables that grow, those that may be worst for somebody."""
    cut = any(isinstance(law, PoissonSampling) and law.truncated for law in laws)
    kept: dict[Any, Any] = {}
    for law in laws:
        if isinstance(law, PoissonSampling):
            kept[law if cut else law.rate] = law  # where nothing is cut all tables are alike
        else:  # people of the smallest table are drawn most often
            kept.setdefault((type(law), getattr(law, "n", None)), law)
    if len(kept) > _KINDS and cut:
        most = laws[-1].rows
        raise Uncertified(f"tables of {len(kept)} sizes, cut at n_max={laws[-1].most}; use n_max >= {most}")
    if len(kept) > _KINDS:
        raise Uncertified(f"tables of {len(laws)} sizes are sampled in {len(kept)} ways, which are too many")
    return list(kept.values())


@dataclasses.dataclass
class Unknown:
    """A table of which nobody knows how long it is."""

    rows: float = math.inf
    capacity: float = math.inf


def _for_unseen(algorithm: Algorithm, conservative: bool, assumes: list[str]) -> tuple[Releases, ...]:
    """Anybody may be in every batch, as often as the batch allows."""
    times = law_of(algorithm.batch, None).times
    try:  # a share of rows that are not known is as large as one likes
        size = float(np.asarray(algorithm.batch.expected(Unknown())))
    except (TypeError, ValueError, OverflowError, AttributeError):
        name = type(algorithm.batch).__name__
        raise Uncertified(f"how large the batch {name} is depends on rows that are not known") from None
    multiplier, sampled = protection(algorithm.estimator, size, times, conservative)
    if multiplier == 0:
        raise Uncertified("there is no noise, or not enough for batches of any size")
    assumes.append("how many rows arrive is no secret, and nobody has two of them under one model")
    return (Releases(multiplier / times if sampled else multiplier, Everyone(), Fraction(algorithm.steps)),)


def _for_clients(
    problem: Problem, algorithm: Algorithm, theta: Theta, assumes: list[str], threshold: int | None
) -> tuple[Releases, ...]:
    """Each round is a release of the sum of updates, or of every single one where the server uses them singly."""
    clients = problem.clients
    bound, scheme = declared(algorithm.channel, "bound"), algorithm.participation
    if bound is None:
        name = type(algorithm.channel).__name__
        raise Uncertified(f"the channel {name} bounds no client's update; use ClippedNoise")
    if bound.memory_clip is not None:
        raise Uncertified(f"{bound.owner}'s memory replays updates in later rounds")
    size, weights = scheme.size(clients), np.asarray(problem.client_weights, float)
    one_number(bound.clip, f"{bound.owner}: clip")
    z = one_number(bound.noise_multiplier, f"{bound.owner}: noise_multiplier")
    if z == 0:
        raise Uncertified("there is no noise")
    if np.ptp(weights) > 0:
        assumes.append("the clients' weights are no secret, though they may tell how many rows each has")
    law = declared(scheme, "sampling", clients)
    everyone = isinstance(law, Everyone) and size == clients
    some = size <= clients and law == WithoutReplacement(size, clients)
    if declared(algorithm.aggregator, "uses_sums_only") and (everyone or some):
        if threshold is not None:
            return (_against_server(z, weights, size, threshold, assumes),)
        assumes.append("only sums of updates are looked at: a trusted server, or secure aggregation")
        # Client i moves the sum by a_i c; the noise of the sum is at least that of the lightest other clients.
        heavy, light = weights.max(), weights.min()
        spread = np.sum(weights**2) if everyone else heavy**2 + (size - 1) * light**2
        z = z * math.sqrt(spread / size) / heavy
        # Who was drawn is hidden only if it shows neither in the size of the noise nor in what others remember.
        hidden = size < clients and np.ptp(weights) <= 1e-12 * heavy and not _remembers(problem, algorithm, theta)
        return (Releases(z, law if hidden else Everyone()),)
    for part in chain(algorithm.estimator, AbstractEstimator):
        if not declared(part, "sends_update_only"):
            raise Uncertified(f"{type(part).__name__} may send more than its update, and only that is clipped")
    assumes.append("every client may take part in every round; single messages are seen")
    return (Releases(z / math.sqrt(size), Everyone()),)


def _against_server(z: float, weights: np.ndarray, size: int, threshold: int, assumes: list[str]) -> Releases:
    """A sum of at least t clients, as an honest but curious server sees it before it adds what is missing.

    noise of the sum >= z c sqrt((heavy^2 + (t - 1) light^2) / K),      client i moves it by at most heavy c
    """
    assumes.append(
        f"the server is honest but curious: it keeps to the protocol of secure aggregation, sees sums of {threshold} "
        "or more clients and knows who is in them; no client tells it its own noise"
    )
    assumes.append("rounding to the integers of secure aggregation, far finer than the noise, gives nothing away")
    heavy, light = float(weights.max()), float(weights.min())
    spread = heavy**2 + (threshold - 1) * light**2
    return Releases(z * math.sqrt(spread / size) / heavy, Everyone())


# Sizes of tables that are accounted for one by one.
_KINDS = 8
_ALWAYS = (
    "one repeat is published",
    "only its models are: risks, distances and counts that a history holds beside them are computed without noise",
    "start, scales of features, clip and all other settings were chosen without looking at these people",
)


def _remembers(problem: Problem, algorithm: Algorithm, start: Theta) -> bool:
    """Whether clients keep something between rounds, which may depend on who was drawn: does `init` return any?"""

    def memories() -> Any:
        theta = _like(problem, start)
        mine = take_clients(problem.population, jnp.zeros((), jnp.int32))[0]
        world, memory = mine.init(Scene(theta, problem.loss)), algorithm.estimator.init(theta, mine, problem.loss)
        return world, memory, algorithm.batch.init(), algorithm.channel.init(theta)

    try:
        return bool(jax.tree.leaves(eqx.filter_eval_shape(memories)))
    except Exception:  # a part that cannot say what it remembers may remember anything
        return True


def _like(problem: Problem, theta: Theta) -> Any:
    """A model of the start's shape; where there is none, of the shape that the data settle."""
    if theta is None or is_fitted_model(theta):
        return jnp.zeros(problem.population.model_shape() or ())
    return jax.tree.map(lambda leaf: jnp.zeros(np.shape(leaf)), theta)
