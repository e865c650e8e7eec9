"""The methods that the leaderboard compares: how each is built for an environment, and what is tuned."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from performative import recipes
from performative.algorithm import Algorithm
from performative.batches import Fixed, Uniform
from performative.deploy import Growing
from performative.participation import Available, Full, LocalWork
from performative.privacy.spending import calibrate
from performative.schedules import harmonic
from performative.suite.environment import Environment

# Step sizes that every method is tuned over.
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_LOCAL_STEPS = 5


@dataclasses.dataclass(frozen=True)
class Means:
    """The budget of a method: rounds of one deployment each, and rows per client in each.

    Attributes:
        size: number of model parameters, in a game those of one player; far: the typical size of a parameter
        parts: slots that the environment fixes
        work: fraction of its rows that each client processes, [N]; None if all process all
        promise: (epsilon, delta) to guarantee each person over all rounds; None if not required
        people: number of people in a client's table, if there is a promise
    """

    rounds: int
    rows: int
    size: int
    far: float
    parts: Mapping[str, Any]
    work: np.ndarray | None = None
    promise: tuple[float, float] | None = None
    people: int | None = None

    def slots(self, local_steps: int = 1) -> dict[str, Any]:
        """Return the slots of a recipe that spreads a deployment's rows over `local_steps` local steps.

        A slow client takes fewer of them; with a single step, all clients use as many rows as the slowest has.
        """
        steps = min(local_steps, self.rows)
        if self.work is None:
            return {"local_steps": steps, "batch": Fixed(self.rows // steps), "deploy": "round", **self.parts}
        if steps == 1:
            return {"batch": Fixed(max(1, int(self.work.min() * self.rows))), "deploy": "round", **self.parts}
        work = LocalWork(Full(), np.maximum(1, (self.work * steps).astype(np.int64)))
        return {"batch": Fixed(self.rows // steps), "deploy": "round", "participation": work}


@dataclasses.dataclass(frozen=True)
class Method:
    """A learning method, as a function of its budget and its tuned parameters.

    Attributes:
        make: (means, **tuned) -> Algorithm; grid: values of each tuned parameter
        sees: what it needs from a deployment, "data" or "losses"; words: a one-line description
        aim: "retrains" (targets the stable point), "foresees" (learns how people react and targets the optimal point),
            or "hedges" (reweights or clips the data, and targets neither)
    """

    name: str
    words: str
    make: Callable[..., Algorithm]
    grid: Mapping[str, tuple[float, ...]]
    sees: str = "data"
    aim: str = "retrains"


def means_of(env: Environment) -> Means:
    """The whole budget, in rounds of one deployment each."""
    budget, rows = env.budget, env.rows
    rounds = min(budget.deployments, budget.time, budget.samples // (rows * env.clients))
    if env.clipping is not None:
        rows = 1  # one release per deployment
    parts = {} if env.answers is None else {"participation": Available(env.answers)}
    start = np.asarray(env.start, np.float64)
    size = start.size if env.game is None else start[0].size
    far = 1.0 + float(np.linalg.norm(start)) / max(start.size, 1) ** 0.5
    if env.promise is None:
        return Means(rounds, rows, int(size), far, parts, env.work)
    return Means(rounds, rows, int(size), far, parts, env.work, env.promise, env.problem.population.capacity)


def _plain(recipe: Callable[..., Algorithm], local_steps: int = 1, **fixed: Any) -> Callable[..., Algorithm]:
    def make(means: Means, rate: float, **tuned: float) -> Algorithm:
        return recipe(rate, **fixed, **tuned, **means.slots(local_steps))

    return make


def _falling(means: Means, rate: float) -> Algorithm:
    return recipes.p_fedavg(harmonic(rate * means.rounds / 4, means.rounds / 4), **means.slots())


def _lazy(means: Means, rate: float) -> Algorithm:
    return recipes.p_fedavg(rate, **(means.slots(_LOCAL_STEPS) | {"deploy": Growing()}))


def _snapshots(means: Means, rate: float, k: float) -> Algorithm:
    return recipes.snapshots(rate, int(k), **means.slots(_LOCAL_STEPS))


def _zeroth(recipe: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    def make(means: Means, rate: float, radius: float) -> Algorithm:
        slots = {name: part for name, part in means.slots().items() if name != "deploy"}
        return recipe(rate, radius * means.far, **slots)

    return make


def _plug_in(means: Means, rate: float, radius: float) -> Algorithm:
    slots = {name: part for name, part in means.slots().items() if name != "deploy"}
    shown = min(max(means.size + 1, means.rounds // 3), means.rounds)
    return recipes.plug_in(rate, radius * means.far, shown, **slots)


def _window(recipe: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    def make(means: Means, rate: float, window: float) -> Algorithm:
        # Distinguishing a linear reaction of d parameters from noise takes more than 2 d models.
        length = max(int(window), 2 * means.size + 1)
        if length >= means.rounds:
            raise ValueError(f"it needs {length} deployments to learn how people react, out of {means.rounds} in all")
        return recipe(rate, length, **means.slots())

    return make


def _private(means: Means, rate: float, clip: float) -> Algorithm:
    """Clipped gradients, with as much noise as the privacy promise requires."""
    slots = means.slots()
    if means.promise is None or means.people is None:
        return recipes.pcsgd(rate, clip, 0.0, **slots)
    noise = _noise(*means.promise, means.rounds, means.rows, means.people)
    return recipes.pcsgd(rate, clip, noise, **(slots | {"batch": Uniform(means.rows)}))


@functools.cache
def _noise(epsilon: float, delta: float, rounds: int, rows: int, people: int) -> float:
    return calibrate(epsilon, delta, rounds, batch=Uniform(rows), rows=people)


_RATE: dict[str, tuple[float, ...]] = {"rate": RATES}
_RADII: dict[str, tuple[float, ...]] = {"radius": (0.3, 1.0, 3.0)}
_CLIPS: dict[str, tuple[float, ...]] = {"clip": (1.0, 3.0, 10.0)}
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("rgd", "one gradient step per deployment", _plain(recipes.p_fedavg), _RATE),
        Method("p_fedavg", "five local steps per deployment", _plain(recipes.p_fedavg, _LOCAL_STEPS), _RATE),
        Method("falling", "gradient steps that decay as 1/t", _falling, _RATE),
        Method("fedavgm", "momentum at the server", _plain(recipes.fedavgm, _LOCAL_STEPS), _RATE),
        Method("fedadam", "Adam at the server", _plain(recipes.fedadam, _LOCAL_STEPS), _RATE),
        Method("fedyogi", "Yogi at the server", _plain(recipes.fedyogi, _LOCAL_STEPS), _RATE),
        Method("fedprox", "proximal local steps", _plain(recipes.fedprox, _LOCAL_STEPS, mu=0.1), _RATE),
        Method("fednova", "normalizes unequal local work", _plain(recipes.fednova, _LOCAL_STEPS), _RATE),
        Method("fedvarp", "remembers absent clients", _plain(recipes.fedvarp, _LOCAL_STEPS), _RATE),
        Method("scaffold", "control variates", _plain(recipes.scaffold, _LOCAL_STEPS), _RATE),
        Method("fedexp", "longer steps if clients disagree", _plain(recipes.fedexp, _LOCAL_STEPS), _RATE),
        Method("qffl", "clients weighted by their losses", _plain(recipes.qffl, q=1.0), _RATE, aim="hedges"),
        Method("afl", "the worst mixture of clients", _plain(recipes.afl), _RATE, aim="hedges"),
        Method("robust", "robust to nearby distributions", _plain(recipes.robust, radius=0.02), _RATE, aim="hedges"),
        Method(
            "pcsgd",
            "clipped gradients, with noise if required",
            _private,
            _RATE | {"clip": (1.0, 3.0, 10.0)},
            aim="hedges",
        ),
        Method("lazy", "deployed at growing intervals", _lazy, _RATE),
        Method("snapshots", "trains on the last data sets pooled", _snapshots, _RATE | {"k": (2, 4)}),
        Method("no_regret", "steps that decay as 1/sqrt(t)", _plain(recipes.no_regret), _RATE),
        Method("two_point", "losses of two models", _zeroth(recipes.two_point), _RATE | _RADII, "losses", "foresees"),
        Method("one_point", "losses of one model", _zeroth(recipes.one_point), _RATE | _RADII, "losses", "foresees"),
        Method("plug_in", "fits a linear reaction, then minimizes", _plug_in, _RATE | _RADII, aim="foresees"),
        Method(
            "pofl",
            "learns each client's reaction on the way",
            _window(recipes.pofl),
            _RATE | {"window": (5,)},
            aim="foresees",
        ),
        Method("profl", "pofl, leaving out outliers", _window(recipes.profl), _RATE | {"window": (5,)}, aim="foresees"),
    )
}
