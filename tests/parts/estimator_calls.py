"""One call of an estimator, or a short run, on prices."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative._base.run_once import quickly_compiled
from performative._engine.prepare import on_device
from performative.populations.base import collect
from performative.testing.client_rules import spoil_rows
from performative.testing.uses import slice_client
from performative.types import Broadcast, Local, Scene

RATE = 0.1
PRICES = pf.populations.Pricing(np.asarray([6.0, 7.0, 6.5]), np.asarray([1.0, 2.0, 1.5]), 1.0)


@quickly_compiled
def _one_call(estimator: Any, problem: Any, theta: Any, key: Any, mask: Any, memory: Any, spoil: Any) -> Any:
    mine, zero = slice_client(problem.population, 0), jnp.zeros((), jnp.int32)
    world = mine.init(Scene(theta, problem.loss))
    batch = collect(mine, mine.draw(key, mask.shape, theta), mask, world, theta)
    memory = estimator.init(theta, mine, problem.loss) if memory is None else memory
    broadcast = Broadcast(theta, theta, {}, zero, 1)
    local = Local(problem.loss, mine, world, theta, broadcast, zero, jnp.asarray(RATE, theta.dtype))
    spoilt = dataclasses.replace(batch, z=spoil_rows(batch.z, ~mask & spoil))
    return estimator.estimate(None, theta, spoilt, local, memory), batch


def direct(
    estimator: Any, problem: Any, theta: Any, mask: Any, seed: int = 0, memory: Any = None, spoil: bool = False
) -> Any:
    """One call of the estimator on a batch of client 0, and the batch, in float64. `spoil`: NaN in masked rows."""
    on, estimator = on_device((problem, estimator), jnp.float64)
    mask = jnp.ones(mask, bool) if isinstance(mask, int) else mask
    return _one_call(estimator, on, jnp.asarray(theta), jax.random.key(seed), mask, memory, jnp.asarray(spoil))


def short_run(estimator: Any, population: Any, rounds: int = 3, n: int = 400) -> Any:
    """A few rounds of federated averaging with this estimator."""
    problem = pf.Problem(pf.losses.negative_revenue, population)
    algorithm = pf.p_fedavg(0.05, batch=pf.Fixed(n), estimator=estimator)
    return pf.run(problem, algorithm, rounds, theta=1.0, record=pf.Record(risks=False))
