"""The error of a machine as a JAX-differentiable function of numbers in its algorithm."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from performative.moments.facts import Chances, read_chances
from performative.moments.machine import Machine
from performative.moments.recursion import AbstractRound, Law
from performative.sweep.names import set_by_name

# Size limit for the maps of rounds that are computed together.
_NUMBERS = 1 << 22


def with_numbers(machine: Machine, values: dict[str, Array], chances: Chances | None = None) -> Machine:
    """The same machine with these numbers in its algorithm and these cohort probabilities; all may be traced."""
    setup, algorithm = machine.setup, machine.setup.algorithm
    for name, value in values.items():
        _, algorithm = set_by_name(setup.problem, algorithm, name, value)
    machine = dataclasses.replace(machine, setup=dataclasses.replace(setup, algorithm=algorithm))
    if chances is None:
        return machine
    return dataclasses.replace(machine, chances=dataclasses.replace(chances, steps=machine.chances.steps))


def chances_with(machine: Machine, values: dict[str, Array]) -> Chances:
    """Cohort probabilities with these numbers in the participation, without the step counts that occur.

    Computed on the host, so not inside a compiled program.
    """
    if machine.listed is not None:
        raise ValueError("free: clients do not add up here, so probabilities have no derivatives; pass values to try.")
    try:
        return dataclasses.replace(read_chances(with_numbers(machine, values).setup), steps=None)
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        raise ValueError(
            f"free: what {', '.join(values)} does to cohort probabilities has no derivatives; pass values to try."
        ) from None


def square_error(machine: Machine, law: Law, target: Float[Array, " d"]) -> Float[Array, ""]:
    """E|theta - target|^2."""
    inside = slice(1, 1 + machine.layout.model)
    return jnp.sum((law.mean[inside] - target) ** 2) + jnp.trace(jnp.asarray(law.covariance)[inside, inside])


def errors_by_round(machine: Machine, rounds: int, target: Float[Array, " d"]) -> Float[Array, " rounds"]:
    """E|theta - target|^2 after each round. Large maps are computed in blocks, and again in the backward pass."""
    begin = jax.tree.map(jnp.asarray, machine.begin())

    def once(law: Law, one: AbstractRound) -> tuple[Law, Array]:
        after = one.advance(law)
        return after, square_error(machine, after, target)

    def several(law: Law, rounds: Array) -> tuple[Law, Array]:
        return jax.lax.scan(once, law, jax.vmap(machine.round)(rounds))

    block = max(1, min(rounds, _NUMBERS // machine.numbers()))
    blocks = -(-rounds // block)
    # The last block may repeat the last round; the extra results are discarded.
    each = jnp.minimum(jnp.arange(blocks * block, dtype=jnp.int32), rounds - 1).reshape(blocks, block)
    if blocks == 1:
        return several(begin, each[0])[1]
    return jax.lax.scan(jax.checkpoint(several), begin, each)[1].ravel()[:rounds]


class LongRun(eqx.Module):
    """The effect of a period of rounds along the directions that a run can take.

    Attributes:
        error: E|theta - target|^2 under the stationary distribution, if there is one
        mean: the map of means, [r, r]; second: that of second moments, by pairs of directions
    """

    error: Float[Array, ""]
    mean: Float[Array, "r r"]
    second: Float[Array, "m m"]


def long_run(machine: Machine, directions: Float[Array, "D r"], target: Float[Array, " d"]) -> LongRun:
    """The stationary distribution by linear equations, as in `limits`, and therefore differentiable.

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

    i, j = jnp.triu_indices(r)

    def pair(i: Array, j: Array) -> Array:
        return Q @ jnp.zeros((r, r)).at[i, j].set(1.0).at[j, i].set(1.0) @ Q.T

    # All at once: the images of the start, of each direction, and of the covariance of each pair of them.
    means = jnp.concatenate([start[None], Q.T, jnp.zeros((len(i), len(start)))])
    spreads = jnp.concatenate([jnp.zeros((1 + r, *nothing.shape)), jax.vmap(pair)(i, j)])
    after = jax.vmap(turn)(means, spreads)
    A = Q.T @ after.mean[1 : 1 + r].T
    mean = start + Q @ jnp.linalg.solve(jnp.eye(r) - A, Q.T @ (after.mean[0] - start))
    M = jnp.einsum("da,kde,eb->kab", Q, after.covariance[1 + r :], Q)[:, i, j].T
    added = Q.T @ turn(mean, nothing).covariance @ Q
    solved = jnp.linalg.solve(jnp.eye(len(i)) - M, added[i, j])
    X = jnp.zeros((r, r)).at[i, j].set(solved).at[j, i].set(solved)
    return LongRun(square_error(machine, Law(mean, Q @ X @ Q.T), target), A, M)
