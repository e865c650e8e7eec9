"""Noise from the system's entropy, drawn ahead for the rounds of a chunk."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative.engine.chunk import Frozen, Watch
from performative.noise import GRID
from performative.privacy.secure import discrete_gaussian
from performative.types import Secrets, Theta


def shapes_of_secrets(fixed: Frozen, start: Theta, watch: Watch) -> Secrets:
    """The shapes of one round's noise: repeats, rows of the cohort, then what the part draws."""
    algorithm, key = fixed.setup.algorithm, jax.random.key(0)
    clients = fixed.setup.weights.shape[-1]
    rows = clients if watch.executor == "dense" else algorithm.participation.size(clients)

    def of(part: Any, draw: Any) -> Any:
        if not part.grid_noise:
            return None
        return jax.tree.map(lambda leaf: (len(fixed.keys), rows, *leaf.shape), jax.eval_shape(draw))

    return Secrets(
        of(algorithm.estimator, lambda: algorithm.estimator.draw(key, algorithm.steps, start)),
        of(algorithm.channel, lambda: algorithm.channel.draw(key, start)),
    )


def bytes_of_secrets(fixed: Frozen, start: Theta, watch: Watch) -> int:
    """What one round's noise takes."""
    shapes = jax.tree.leaves(shapes_of_secrets(fixed, start, watch), is_leaf=_is_shape)
    return 4 * sum(int(np.prod(shape)) for shape in shapes)


def draw_secrets(fixed: Frozen, start: Theta, watch: Watch, rounds: int, room: int) -> Secrets:
    """Noise for `rounds` rounds, in arrays with room for `room`, so that chunks of every length share a program."""

    def draw(shape: tuple[int, ...]) -> Any:
        filled = np.zeros((room, *shape), np.int32)
        filled[:rounds] = discrete_gaussian(GRID, (rounds, *shape))
        return jnp.asarray(filled)

    return jax.tree.map(draw, shapes_of_secrets(fixed, start, watch), is_leaf=_is_shape)


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, tuple)
