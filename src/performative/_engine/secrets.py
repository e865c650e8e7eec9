"""Noise from the system's entropy, drawn ahead for the rounds of a chunk."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from performative._base.noise import GRID, size_of
from performative._engine.chunk import RecordConfig, RunInputs
from performative.algorithm import Algorithm
from performative.facts import said_bound
from performative.privacy.secure import discrete_gaussian
from performative.problem import Problem
from performative.sharing.base import blank_local
from performative.types import Draws, Theta

# The fraction of a clip that rounding may take, and the largest sum of integer steps: half the range of int32.
_MOST_LOST = 0.1
_LARGEST = 2**30


def noise_of_client(algorithm: Algorithm, start: Theta) -> Draws:
    """The noise of one client's round, as shapes; None for a part that adds none."""
    key = jax.random.key(0)

    def of(part: Any, draw: Any) -> Any:
        return jax.eval_shape(draw) if part.grid_noise else None

    shared = algorithm.sharing.start(start)
    local = blank_local(algorithm.sharing, shared)
    return Draws(
        None,
        of(algorithm.estimator, lambda: algorithm.estimator.draw(key, algorithm.steps, local)),
        of(algorithm.channel, lambda: algorithm.channel.draw(key, shared)),
    )


def shapes_of_secrets(fixed: RunInputs, start: Theta, watch: RecordConfig) -> Draws:
    """One round's noise, as shapes: repeats, rows of the cohort, then what the part draws. Integers."""
    algorithm, clients = fixed.setup.algorithm, fixed.setup.weights.shape[-1]
    rows = watch.executor.rows(algorithm.participation.size(clients), clients)
    each = noise_of_client(algorithm, start)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(fixed.keys), rows, *leaf.shape), jnp.int32), each)


def draw_secrets(fixed: RunInputs, start: Theta, watch: RecordConfig, rounds: int, room: int) -> Draws:
    """Noise for `rounds` rounds, in arrays with space for `room`, so chunks of any length share a program."""

    def draw(leaf: PyTree) -> Any:
        filled = np.zeros((room, *leaf.shape), np.int32)
        filled[:rounds] = discrete_gaussian(GRID, (rounds, *leaf.shape))
        return jnp.asarray(filled)

    return jax.tree.map(draw, shapes_of_secrets(fixed, start, watch))


def client_secrets(algorithm: Algorithm, start: Theta) -> Draws:
    """One client's noise for one round, drawn by the client itself."""
    each = noise_of_client(algorithm, start)
    return jax.tree.map(lambda leaf: jnp.asarray(discrete_gaussian(GRID, leaf.shape)), each)


def secret_keys(repeats: int) -> Any:
    """Keys for samples and cohorts that no seed determines, one per repeat."""
    words = np.frombuffer(os.urandom(8 * repeats), np.uint32).reshape(repeats, 2)
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def check_grid(problem: Problem, algorithm: Algorithm, start: Theta) -> None:
    """Raise if sums of integer steps would overflow, or rounding would take much of the clip."""
    shares = []
    if algorithm.estimator.grid_noise:
        shares.append((said_bound(algorithm.estimator), 1.0, algorithm.batch.largest(problem.population)))
    if algorithm.channel.grid_noise:
        size = algorithm.participation.size(problem.clients)
        shares.append((said_bound(algorithm.channel), float(np.sqrt(size)), 1))
    for bound, share, rows in shares:
        if bound is None:
            raise ValueError(
                'privacy: noise="secure" needs the clip and noise of the part that adds it; the part must declare '
                "them in `bound`."
            )
        name = bound.owner
        noise = float(np.asarray(bound.noise_multiplier)) / share
        if noise == 0:
            raise ValueError(f'privacy: noise="secure" needs {name}(noise_multiplier) above 0.')
        lost = noise * float(np.sqrt(size_of(start))) / (2 * GRID)
        if lost > _MOST_LOST:
            raise ValueError(
                f'privacy: noise="secure" rounds to a grid that would take {100 * lost:.0f}% of {name}\'s clip, with '
                f"noise_multiplier {noise:.4g} and {size_of(start)} parameters; use less noise and larger samples."
            )
        memory = 0.0 if bound.memory_clip is None else float(np.asarray(bound.memory_clip) / np.asarray(bound.clip))
        if rows * (1 + memory) * GRID / noise > _LARGEST:
            raise ValueError(
                f'privacy: noise="secure" counts in integers, and a sum of {rows} gradients with noise_multiplier '
                f"{noise:.4g} of {name} may overflow; use more noise or smaller samples."
            )
