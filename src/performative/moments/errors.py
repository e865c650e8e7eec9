"""The error of a machine as a function of numbers in its algorithm that JAX can differentiate."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from performative.moments.facts import Chances, read_chances
from performative.moments.machine import Machine
from performative.moments.recursion import Law
from performative.sweep.names import set_by_name


def with_numbers(machine: Machine, values: dict[str, Array], chances: Chances | None = None) -> Machine:
    """The same machine with these numbers in its algorithm, and these chances of cohorts; all may be traced."""
    setup, algorithm = machine.setup, machine.setup.algorithm
    for name, value in values.items():
        _, algorithm = set_by_name(setup.problem, algorithm, name, value)
    machine = dataclasses.replace(machine, setup=dataclasses.replace(setup, algorithm=algorithm))
    if chances is None:
        return machine
    return dataclasses.replace(machine, chances=dataclasses.replace(chances, steps=machine.chances.steps))


def chances_with(machine: Machine, values: dict[str, Array]) -> Chances:
    """Chances of cohorts with these numbers in the participation, without the numbers of steps that occur.

    Laws are worked out on the host, hence not in a compiled program.
    """
    if machine.listed is not None:
        raise ValueError("free: clients do not add up here, so that chances have no derivatives; give values to try.")
    try:
        return dataclasses.replace(read_chances(with_numbers(machine, values).setup), steps=None)
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        raise ValueError(
            f"free: what {', '.join(values)} does to chances of cohorts has no derivatives; give values to try."
        ) from None


def square_error(machine: Machine, law: Law, target: Float[Array, " d"]) -> Float[Array, ""]:
    """E|theta - target|^2."""
    inside = slice(1, 1 + machine.layout.model)
    return jnp.sum((law.mean[inside] - target) ** 2) + jnp.trace(jnp.asarray(law.covariance)[inside, inside])


def errors_by_round(machine: Machine, rounds: int, target: Float[Array, " d"]) -> Float[Array, " rounds"]:
    """E|theta - target|^2 after each round. Maps of rounds are worked out again on the way back, not kept."""

    @jax.checkpoint
    def once(law: Law, round: Array) -> tuple[Law, Array]:
        after = machine.round(round).advance(law)
        return after, square_error(machine, after, target)

    begin = jax.tree.map(jnp.asarray, machine.begin())
    return jax.lax.scan(once, begin, jnp.arange(rounds, dtype=jnp.int32))[1]


class LongRun(eqx.Module):
    """What a period of rounds does along the directions that a run can take.

    Attributes:
        error: E|theta - target|^2 of the stationary law, where there is one
        mean: the map of means, [r, r]; second: that of second moments, by pairs of directions
    """

    error: Float[Array, ""]
    mean: Float[Array, "r r"]
    second: Float[Array, "m m"]


def long_run(machine: Machine, directions: Float[Array, "D r"], target: Float[Array, " d"]) -> LongRun:
    """The stationary law by linear equations, as `limits` has it, hence with derivatives.

    m = A m + b,      X = M(X) + what is added at the mean
    """
    first, period = machine.rounds - machine.period, machine.period
    maps = jax.vmap(machine.round)(jnp.arange(first, first + period, dtype=jnp.int32))
    Q, r, start = directions, directions.shape[1], jnp.asarray(machine.begin().mean)
    nothing = jnp.zeros((len(start), len(start)))

    def turn(mean: Array, covariance: Array) -> Law:
        def once(law: Law, k: Array) -> tuple[Law, None]:
            return jax.tree.map(lambda leaf: leaf[k], maps).advance(law), None

        return jax.lax.scan(once, Law(mean, covariance), jnp.arange(period))[0]

    moved = turn(start, nothing).mean
    A = Q.T @ jax.vmap(lambda v: turn(start + v, nothing).mean - moved, in_axes=1, out_axes=1)(Q)
    mean = start + Q @ jnp.linalg.solve(jnp.eye(r) - A, Q.T @ (moved - start))
    added = Q.T @ turn(mean, nothing).covariance @ Q
    i, j = jnp.triu_indices(r)

    def apply(i: Array, j: Array) -> Array:
        B = jnp.zeros((r, r)).at[i, j].set(1.0).at[j, i].set(1.0)
        return Q.T @ turn(jnp.zeros_like(start), Q @ B @ Q.T).covariance @ Q

    M = jax.vmap(apply)(i, j)[:, i, j].T
    solved = jnp.linalg.solve(jnp.eye(len(i)) - M, added[i, j])
    X = jnp.zeros((r, r)).at[i, j].set(solved).at[j, i].set(solved)
    return LongRun(square_error(machine, Law(mean, Q @ X @ Q.T), target), A, M)
