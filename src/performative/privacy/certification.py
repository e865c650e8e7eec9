"""What can be promised about an algorithm on a problem, read off its parts; or why nothing can.

Every slot is looked at. A part that is not known here, a subclass of a known one too, makes the promise void (epsilon =
infinity) and says so. One's own estimator is added by `protection.register`, one's own population by
`certified_rows.register`.

A promise is about what a run does to people's rows. What was chosen before it by looking at the same rows (scales, a
start, a clip, a step size) is outside: where the library knows of such a choice, `not_covered` names it.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np

from performative.aggregators import (
    ClusterVarp,
    Extrapolate,
    Krum,
    Mean,
    Median,
    Nova,
    PooledJacobian,
    Scaffold,
    ServerOpt,
    TrimmedMean,
    Varp,
)
from performative.algorithm import Algorithm
from performative.arguments import checked
from performative.batches import Fixed, Poisson, Uniform, Whole
from performative.channels import ClippedNoise, Plain, Quantised, Sparse
from performative.deploy import Deployment
from performative.estimators import Clipped, ClippedModel, Dice, Filtered, Minibatch, Preconditioned, Prox
from performative.fitted import is_fitted_model
from performative.participation import Available, Cyclic, FirstK, Full, LocalWork, SchemeOne, SchemeTwo, UniformSteps
from performative.populations import (
    Classes,
    Contaminated,
    Database,
    Gaussian,
    Mixture,
    Outliers,
    Pricing,
    Regression,
    Static,
    Strategic,
)
from performative.privacy.accounting import Everyone, Spending, WithoutReplacement, epsilons
from performative.privacy.known_parts import (
    Releases,
    Uncertified,
    certified_rows,
    exactly,
    most_times,
    one_number,
    protection,
    releases_of,
)
from performative.problem import Problem

UNITS = ("example", "client")
# What noise on the models does not cover, should anyone publish it.
UNCOVERED = ("losses", "clip counts", "participants", "error memory")


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What an algorithm promises to each example or to each client.

    It covers all models that were ever published and whatever people did in answer to them. `releases` holds one entry
    for each kind of client; the worst counts. `why` holds the reasons where nothing can be promised; `assumes` what has
    to be true outside of this program; `not_covered` what is known to come from these people's data without noise: the
    promise holds for the rest, given that.
    """

    unit: str
    releases: tuple[Releases, ...]
    why: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        return bool(self.releases)

    def spent(self, rounds: int, delta: float) -> Spending:
        """Epsilon after `rounds` rounds."""
        return self.spendings([rounds], delta)[0]

    def spendings(self, rounds: list[int], delta: float, grid: float | None = None) -> list[Spending]:
        """The same for several numbers of rounds. A coarse `grid` is quicker and never too small."""
        if not self.certified:
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
    theta: Any = None,
    unseen_rows: bool = False,
) -> Guarantee:
    """What this algorithm promises on this problem, per round.

    unit:         "example" (one person's row is replaced, added or removed) or "client" (all of a client's data);
                  None takes the client where the channel is `ClippedNoise`, else the example
    published:    what is published beside the models, of "losses", "clip counts", "participants", "error memory":
                  none of it is covered by the noise
    conservative: for `Dice`, take the bound that holds whatever its memory replays: T releases without sampling, each
                  moved by up to 2 (C1 + n C2)
    theta:        the start, where there is one: a fitted model was fitted to somebody
    unseen_rows:  the rows are not the problem's but come from elsewhere (`Federation(source=...)`): how many there are
                  is not known, so that no sampling is counted
    """
    unit = read_unit(unit, algorithm)
    if isinstance(published, str):
        raise ValueError(f"published must be a list, such as [{published!r}]; got {published!r}.")
    for name in published:
        if name not in UNCOVERED:
            raise ValueError(f"published: choose from {', '.join(UNCOVERED)} (models always are); got {name!r}.")
    assumes, uncovered = list(_ALWAYS), _not_covered(problem, algorithm, theta)
    try:
        if published:
            raise Uncertified(f"{', '.join(published)} would be published without noise")
        _check_choice(algorithm)
        _check_server(algorithm)
        per = _for_clients if unit == "client" else _for_unseen if unseen_rows else _for_examples
        releases = per(problem, algorithm, conservative, assumes)
    except Uncertified as reason:
        return Guarantee(unit, (), (str(reason),), tuple(assumes), uncovered)
    return Guarantee(unit, releases, (), tuple(assumes), uncovered)


def _not_covered(problem: Problem, algorithm: Algorithm, theta: Any) -> tuple[str, ...]:
    """What came from people's data before the run began, as far as can be known."""
    start = f"the start is a fitted {type(theta).__name__}: whomever it was fitted to is not protected from that"
    return (*problem.from_data, *algorithm.from_data, *((start,) if is_fitted_model(theta) else ()))


def read_unit(unit: str | None, algorithm: Algorithm) -> str:
    """Whom the noise protects: clients where the channel adds it, else examples."""
    if unit is None:
        return "client" if isinstance(algorithm.channel, ClippedNoise) else "example"
    if unit not in UNITS:
        raise ValueError(f'unit must be "example" or "client"; got {unit!r}.')
    return unit


def _scheme(algorithm: Algorithm) -> Any:
    """Who takes part, whatever work they do."""
    scheme = algorithm.participation
    return scheme.inner if type(scheme) is LocalWork else scheme


def _check_choice(algorithm: Algorithm) -> None:
    """Who takes part, and for how many steps, must not depend on anyone's data."""
    scheme, work = _scheme(algorithm), getattr(algorithm.participation, "steps", None)
    if work is not None and type(work) is not UniformSteps and not hasattr(work, "dtype"):
        raise Uncertified(f"{type(work).__name__} may choose the number of steps by the data")
    if type(scheme) not in _BLIND or algorithm.participation.wants_loss:
        raise Uncertified(f"{type(scheme).__name__} may choose clients by their data; use Full, SchemeOne or SchemeTwo")


def _check_server(algorithm: Algorithm) -> None:
    """Whatever follows the noise must look at nothing but what carries it."""
    for part in _chain(algorithm.aggregator):
        if type(part) not in _AGGREGATORS:
            raise Uncertified(f"what the aggregator {type(part).__name__} looks at is not known to the accountant")
    for part, known in ((algorithm.channel, _CHANNELS), (algorithm.deploy, (Deployment,))):
        if type(part) not in known:
            raise Uncertified(f"what {type(part).__name__} makes of a model is not known to the accountant")


def _for_examples(
    problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]
) -> tuple[Releases, ...]:
    """Each local step is a release. A client may be asked in every round, so every round counts."""
    batch = algorithm.batch
    tables, times = exactly(certified_rows, problem.population), most_times(batch)
    size = float(np.max(np.asarray(batch.expected(problem.population))))
    multiplier, sampled = exactly(protection, algorithm.estimator, size, times, conservative)
    if multiplier == 0:
        raise Uncertified("there is no noise")
    steps = Fraction(algorithm.steps)
    if not sampled:
        return (Releases(multiplier, Everyone(), steps),)
    if tables is None:
        assumes.append("no person is asked twice: the population has no table, every sample is a new person")
        return (Releases(multiplier, Everyone(), steps, most=1),)
    if type(batch) is Poisson:
        assumes.append("how many rows each table has is no secret: sums are divided by it, and clients may weigh by it")
        if len(tables) > _KINDS and batch.n_max < max(tables):
            raise Uncertified(f"tables of {len(tables)} sizes, cut at n_max={batch.n_max}; use n_max >= {max(tables)}")
        # Where nothing is cut all tables are alike.
        sizes = tables if batch.n_max < max(tables) else [max(tables)]
    else:
        sizes = [min(tables)]  # people of the smallest table are drawn most often
    found = [releases_of(batch, rows, multiplier) for rows in sizes]
    return tuple(dataclasses.replace(step, each=step.each * steps) for step in found)


def _for_unseen(problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]) -> tuple[Releases, ...]:
    """Anybody may be in every batch, as often as the batch allows."""
    batch: Any = algorithm.batch
    times = most_times(batch)
    size = math.inf if type(batch) in (Poisson, Whole) else float(batch.n)  # a share of rows that are not known
    multiplier, sampled = exactly(protection, algorithm.estimator, size, times, conservative)
    if multiplier == 0:
        raise Uncertified("there is no noise, or not enough for batches of any size")
    assumes.append("how many rows arrive is no secret, and nobody has two of them under one model")
    return (Releases(multiplier / times if sampled else multiplier, Everyone(), Fraction(algorithm.steps)),)


def _for_clients(
    problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]
) -> tuple[Releases, ...]:
    """Each round is a release of the sum of updates, or of every single one where the server uses them singly."""
    channel, scheme = algorithm.channel, _scheme(algorithm)
    if type(channel) is not ClippedNoise:
        raise Uncertified(f"the channel {type(channel).__name__} bounds no client's update; use ClippedNoise")
    clients = problem.clients
    size, weights = scheme.size(clients), np.asarray(problem.client_weights, float)
    one_number(channel.clip, "ClippedNoise: clip")
    z = one_number(channel.noise_multiplier, "ClippedNoise: noise_multiplier")
    if z == 0:
        raise Uncertified("there is no noise")
    if np.ptp(weights) > 0:
        assumes.append("the clients' weights are no secret, though they may tell how many rows each has")
    if type(algorithm.aggregator) is Mean and type(scheme) in (Full, SchemeTwo):
        assumes.append("only sums of updates are looked at: a trusted server, or secure aggregation")
        # Client i moves the sum by a_i c; the noise of the sum is at least that of the lightest other clients.
        heavy, light = weights.max(), weights.min()
        spread = np.sum(weights**2) if type(scheme) is Full else heavy**2 + (size - 1) * light**2
        z = z * math.sqrt(spread / size) / heavy
        # Who was drawn is hidden only if it shows neither in the size of the noise nor in what others remember.
        hidden = size < clients and np.ptp(weights) <= 1e-12 * heavy and not _remembers(problem.population, algorithm)
        return (Releases(z, WithoutReplacement(size, clients) if hidden else Everyone()),)
    for part in _chain(algorithm.estimator):
        if type(part) not in _SILENT:
            raise Uncertified(f"{type(part).__name__} may send more than its update, and only that is clipped")
    assumes.append("every client may take part in every round; single messages are seen")
    return (Releases(z / math.sqrt(size), Everyone()),)


# Schemes that look at nobody's data.
_BLIND = (Full, SchemeOne, SchemeTwo, FirstK, Cyclic, Available)
# What makes a model of noisy updates, and looks at nothing else.
_AGGREGATORS = (
    Mean, Median, TrimmedMean, Krum, Nova, Extrapolate, Varp, ClusterVarp, ServerOpt, Scaffold, PooledJacobian,
)  # fmt: skip
_CHANNELS = (Plain, ClippedNoise, Quantised, Sparse)
# People and batches that keep nothing between rounds.
_CALM = (Classes, Contaminated, Database, Gaussian, Mixture, Outliers, Pricing, Regression, Static, Strategic)
_FRESH = (Fixed, Uniform, Poisson, Whole)
# Estimators that send nothing but the update, and those of them that remember nothing.
_SILENT = (Minibatch, Clipped, ClippedModel, Dice, Filtered, Prox, Preconditioned)
_FORGETFUL = (Minibatch, Clipped, ClippedModel, Filtered, Prox)
# Sizes of tables that are accounted for one by one.
_KINDS = 8
_ALWAYS = (
    "one repeat is published",
    "only its models are: risks, distances and counts that a history holds beside them are computed without noise",
    "start, scales of features, clip and all other settings were chosen without looking at these people",
)


def _chain(part: Any) -> list[Any]:
    """A part, what it is wrapped around, and what else it holds of its kind."""
    inside = [getattr(part, name) for name in ("inner", "outlier") if hasattr(part, name)]
    return [part, *(deeper for one in (*inside, *getattr(part, "groups", ())) for deeper in _chain(one))]


def _remembers(population: Any, algorithm: Algorithm) -> bool:
    """Whether clients keep something between rounds that depends on who was drawn before."""
    return not (
        type(algorithm.batch) in _FRESH
        and all(type(part) in _CALM for part in _chain(population))
        and all(type(part) in _FORGETFUL for part in _chain(algorithm.estimator))
    )
