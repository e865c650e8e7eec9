"""What `pf.tune` minimizes: exactly, and as a differentiable function."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from performative._base.checks import check_counts, check_number, is_one_of
from performative.algorithm import Algorithm
from performative.moments.errors import errors_by_round, long_run, with_numbers
from performative.moments.exact import moments
from performative.moments.facts import Chances
from performative.moments.limits import reachable
from performative.moments.machine import Machine
from performative.moments.outcome import Moments
from performative.moments.playing import last_turn
from performative.problem import Problem
from performative.types import Theta

KINDS = ("stationary", "final", "time")
# Pairs of directions whose second moments are solved for at once.
_PAIRS = 1200
# Steps between which a constant rate must not differ.
_LATER = (1, 10, 1000, 100_000)


@dataclasses.dataclass(frozen=True, eq=False)
class Cost:
    """E|theta - point|^2 in the long run or after `rounds`; or rounds until it stays below accuracy^2, times a price.

    Attributes:
        price: the cost of a round of an algorithm, None for 1
    """

    kind: str
    rounds: int
    accuracy: float
    to: str
    theta: Theta
    price: Callable[[Algorithm], float] | None

    def exact(self, problem: Problem, algorithm: Algorithm) -> float:
        """By `pf.moments`; infinite if it does not settle, or not in time."""
        if self.kind == "stationary":
            check_stays(algorithm)
        found = moments(problem, algorithm, self.rounds, self.theta)
        if getattr(found, self.to) is None:
            raise ValueError(f"tune: the {self.to} point is not known, or is not a fixed point shared by all clients.")
        return self._of(found, algorithm)

    def _of(self, found: Moments, algorithm: Algorithm) -> float:
        if self.kind == "stationary":
            return np.inf if found.stationary is None else float(getattr(found.stationary, f"mse_{self.to}"))
        errors = getattr(found, f"mse_{self.to}")
        if self.kind == "final":
            return float(errors[-1]) if np.isfinite(errors[-1]) else np.inf
        outside = np.flatnonzero(~(errors <= self.accuracy**2))
        if len(outside) and outside[-1] == self.rounds:
            return np.inf
        return (outside[-1] + 1.0 if len(outside) else 0.0) * self.price_of(algorithm)

    def price_of(self, algorithm: Algorithm) -> float:
        return 1.0 if self.price is None else float(self.price(algorithm))

    def directions(self, machine: Machine) -> np.ndarray:
        """Directions along which the long run is computed."""
        if self.kind != "stationary":
            return np.zeros((machine.size, 0))
        found = reachable(last_turn(machine), np.asarray(machine.begin().mean))
        r = found.shape[1]
        if r * (r + 1) // 2 > _PAIRS:
            raise ValueError(
                f"tune: {r} numbers of a run are random, but the long run can be differentiated for at most 48; "
                'use cost="final".'
            )
        return found

    def words(self) -> str:
        point = f"|theta - theta_{'PS' if self.to == 'stable' else 'PO'}|"
        if self.kind == "time":
            return f"{'cost' if self.price else 'rounds'} until (E {point}^2)^(1/2) <= {self.accuracy:g}"
        when = "in the long run" if self.kind == "stationary" else f"after {self.rounds} rounds"
        return f"E {point}^2 {when}"


def read_cost(cost: Any, rounds: Any, accuracy: Any, theta: Theta, to: Any, price: Any) -> Cost:
    """Checked."""
    if not is_one_of(cost, *KINDS):
        raise ValueError(f'cost must be "stationary", "final" or "time"; got {cost!r}.')
    if not is_one_of(to, "stable", "optimal"):
        raise ValueError(f'to must be "stable" or "optimal"; got {to!r}.')
    if price is not None and not callable(price):
        raise ValueError(f"price must be a function of an algorithm that returns the cost of a round; got {price!r}.")
    if price is not None and cost != "time":
        raise ValueError(f'price is for cost="time"; got cost={cost!r}.')
    if cost == "stationary":
        return Cost(cost, 1, 0.0, to, theta, price)
    if rounds is None:
        raise ValueError(f'cost="{cost}" needs rounds, the maximum length of a run.')
    check_counts(rounds=rounds)
    if cost == "final":
        return Cost(cost, rounds, 0.0, to, theta, price)
    if accuracy is None:
        raise ValueError('cost="time" needs an accuracy: the root mean square distance to reach.')
    check_number("tune", accuracy=accuracy)
    if not accuracy > 0:
        raise ValueError(f"accuracy must be > 0; got {accuracy}.")
    return Cost(cost, rounds, float(accuracy), to, theta, price)


def check_stays(algorithm: Algorithm) -> None:
    """Raise if the rate decays: a long run exists only at a constant rate."""
    first = float(algorithm.eta(jnp.asarray(0)))
    if any(float(algorithm.eta(jnp.asarray(t))) != first for t in _LATER):
        raise ValueError('cost="stationary" needs a constant rate; with a decaying one, use cost="final".')


@eqx.filter_jit
def graded(
    machine: Machine, numbers: tuple[dict[str, Array], Chances | None], kind: str, rounds: int, accuracy: Array,
    target: Float[Array, " d"], directions: Float[Array, "D r"],
) -> tuple[tuple[Array, Any], Any]:  # fmt: skip
    """The log cost, the maps whose radii determine whether it is finite, and its gradient."""

    def loss(numbers: tuple[dict[str, Array], Chances | None]) -> tuple[Array, Any]:
        changed = with_numbers(machine, *numbers)
        if kind == "stationary":
            found = long_run(changed, directions, target)
            return jnp.log(found.error), (found.mean, found.second)
        errors = errors_by_round(changed, rounds, target)
        if kind == "final":
            return jnp.log(errors[-1]), ()
        away = ravel_pytree(changed.layout.join(*changed.start, changed.first).theta)[0] - target
        return jnp.log1p(crossing(jnp.concatenate([jnp.sum(away**2)[None], errors]), accuracy)), ()

    return eqx.filter_value_and_grad(loss, has_aux=True)(numbers)


def crossing(errors: Float[Array, " R"], accuracy: Array) -> Float[Array, ""]:
    """When errors fall below accuracy^2 for good, interpolating log errors linearly between rounds.

    Beyond the last round if they do not: later, the larger the last error.
    """
    above = jnp.log(errors) - 2 * jnp.log(accuracy)
    last = len(errors) - 1
    outside = jnp.where(above > 0, jnp.arange(len(errors)), -1).max()
    k = jnp.clip(outside, 0, last - 1)
    between = k.astype(above.dtype) + above[k] / jnp.where(outside < last, above[k] - above[k + 1], 1.0)
    late = last * (1.0 + above[last])
    return jnp.where(outside < 0, 0.0, jnp.where(outside < last, between, late))
