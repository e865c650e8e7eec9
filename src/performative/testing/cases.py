"""A small situation for each slot, in which a part is used as the engine uses it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from performative import losses
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.keys import RunKeys, run_keys
from performative._engine.prepare import check_fit, on_device, read_theta
from performative._engine.setup import Setup, init_state, prepare
from performative.aggregators import AbstractAggregator
from performative.algorithm import Algorithm
from performative.batches import AbstractBatch, Fixed
from performative.channels import AbstractChannel
from performative.domains import AbstractDomain
from performative.estimators import AbstractEstimator
from performative.facts import AbstractPart
from performative.participation import AbstractParticipation, SchemeTwo
from performative.populations import AbstractPopulation, Strategic
from performative.problem import Problem
from performative.schedules import AbstractSchedule
from performative.sharing import AbstractSharing
from performative.testing.uses import BUILDERS, INSTANCES, row
from performative.types import Loss, State, Theta, Unchecked

SLOTS: dict[str, type] = {
    "population": AbstractPopulation,
    "estimator": AbstractEstimator,
    "participation": AbstractParticipation,
    "channel": AbstractChannel,
    "aggregator": AbstractAggregator,
    "sharing": AbstractSharing,
    "batch": AbstractBatch,
    "schedule": AbstractSchedule,
    "domain": AbstractDomain,
}
# Different from the number of features and of cohort rows, so a client axis is identified by its length.
_CLIENTS = 7


@dataclasses.dataclass
class Case:
    """A part and how it is used: `use(part, inputs, memory) -> (outputs, memory)` is one call.

    Inputs and memory have a leading axis of instances. `fast` is `use` compiled, and `traces` counts compilations.
    """

    slot: str
    part: Any  # whatever its slot accepts
    use: Callable[..., tuple[PyTree, PyTree]]
    inputs: PyTree
    memory: PyTree
    setup: Setup
    state: State
    keys: RunKeys
    again: Callable[[DTypeLike], "Case"]

    def __post_init__(self) -> None:
        self.traces = 0

        def counted(part: AbstractPart, inputs: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
            self.traces += 1
            return self.use(part, inputs, memory)

        self.fast = quickly_compiled(counted)

    def instance(self, i: int) -> tuple[PyTree, PyTree]:
        """Inputs and memory of one instance."""
        return row(self.inputs, i), row(self.memory, i)


def slot_of(part: Unchecked[AbstractPart]) -> str:
    """The slot a part belongs to."""
    for slot, kind in SLOTS.items():
        if isinstance(part, kind):
            return slot
    kinds = ", ".join(kind.__name__ for kind in SLOTS.values())
    raise ValueError(f"check_part needs a part, an instance of one of {kinds}; got {part!r}.")


def build_case(
    slot: str,
    part: AbstractPart,
    problem: Problem | None,
    theta: Theta | None,
    algorithm: Algorithm | None,
    seed: int,
    dtype: DTypeLike,
) -> Case:
    """Put the part in its slot, with keys, models and memory for a few instances, in one precision."""
    problem = _problem_for(slot, part, problem, theta)
    algorithm = _algorithm_for(slot, part, problem, algorithm)
    setup = on_device(prepare(problem, algorithm, Clock()), dtype)
    start = read_theta(setup.problem, theta, dtype)
    check_fit(setup.problem, start)
    rng = np.random.default_rng(seed)
    thetas = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.3 * rng.standard_normal((INSTANCES, *leaf.shape)), dtype), start
    )
    keys = jax.random.split(jax.random.key(seed), INSTANCES)
    state = init_state(setup, start, not algorithm.participation.is_full)
    use, inputs, memory = BUILDERS[slot](setup, state, keys, thetas)
    held = {
        "population": setup.problem.population,
        "domain": setup.problem.domain,
        "schedule": setup.algorithm.rate,
    }
    placed = held[slot] if slot in held else getattr(setup.algorithm, slot)

    def again(precision: DTypeLike) -> Case:
        with jax.enable_x64(precision == jnp.float64):
            return build_case(slot, part, problem, theta, algorithm, seed, precision)

    return Case(slot, placed, use, inputs, memory, setup, state, run_keys(jax.random.key(seed)), again)


def small_problem(clients: int) -> Problem:
    """Clients with two to six rows of three features, who react to a logistic model; weights by rows."""
    rng = np.random.default_rng(0)
    count = 2 + np.arange(clients) % 5
    x, y = rng.standard_normal((clients, 6, 3)), rng.integers(0, 2, (clients, 6))
    population = Strategic(x, y, strength=rng.uniform(0.1, 0.5, clients), count=count)
    return Problem(losses.logistic(0.1), population, weights=count / count.sum())


def _problem_for(slot: str, part: Any, problem: Problem | None, theta: Theta | None) -> Problem:
    if slot == "population":
        if problem is not None:
            return dataclasses.replace(problem, population=part)
        return Problem(_fitting_loss(part, theta), part)
    if problem is None:
        lengths = [np.shape(leaf)[0] for leaf in jax.tree.leaves(part) if np.ndim(leaf) >= 1]
        per_client = slot in ("participation", "aggregator", "sharing") and lengths
        problem = small_problem(max(lengths) if per_client else _CLIENTS)
    return dataclasses.replace(problem, domain=part) if slot == "domain" else problem


def _fitting_loss(population: AbstractPopulation, theta: Theta | None) -> Loss:
    """One of our losses that accepts the population's samples."""
    start = read_theta(Problem(losses.squared, population), theta, jnp.float64)
    for loss in (losses.squared, losses.logistic(0.1), losses.cross_entropy(losses.linear_scores)):
        try:
            check_fit(on_device(Problem(loss, population), jnp.float64), start)
        except ValueError:
            continue
        return loss
    raise ValueError(
        "check_part: none of our losses accepts this population's samples; pass problem=, with a loss that does."
    )


def _algorithm_for(slot: str, part: AbstractPart, problem: Problem, algorithm: Algorithm | None) -> Algorithm:
    if algorithm is None:
        some = SchemeTwo(max(1, (problem.clients - 1) // 2))
        algorithm = Algorithm(rate=0.1, batch=Fixed(2), participation=some)
    if slot in ("population", "domain"):
        return algorithm
    change: dict[str, Any] = {"rate" if slot == "schedule" else slot: part}
    return dataclasses.replace(algorithm, **change)
