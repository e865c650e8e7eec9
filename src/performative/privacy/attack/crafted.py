"""Worst-case data for our own steps, and what an attacker who knows the sampler makes of the models.

Gradients do not depend on the model: what a step publishes is then a count of how often one row was drawn, plus noise.
All numbers are in clips. Rows stretch far beyond the clip, so that a clip that is missing shows.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative.draws import ADD_OR_REMOVE, NEGLIGIBLE, Epochs, Law
from performative.types import Numbers, Unchecked, number

RELATIONS = ("replace", "remove")
# Noise below this many clips is as good as none; scores only need to stay numbers.
_LEAST_NOISE = 0.02


def along(theta: Array, z: Array) -> Float[Array, ""]:
    """theta . z: the gradient is z, whatever theta is."""
    return jnp.sum(theta * z)


class OneHot(eqx.Module):
    """gain sign(z) theta_k with k = |z| - 1: row z pushes its own coordinate only, z = 0 pushes none."""

    gain: Numbers = number()

    def __call__(self, theta: Array, z: Array) -> Float[Array, ""]:
        place = jnp.maximum(jnp.abs(z).astype(jnp.int32) - 1, 0)
        return self.gain.astype(theta.dtype) * jnp.sign(z).astype(theta.dtype) * theta[place]


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """Two tables of `rows` numbers that differ in row 0: it pushes up in one, and down or not at all in the other.

    The others push down, where their number in a step is known; else they do not push and leave nothing to hide behind.
    A removed row stays in the table with a gradient of 0: how many rows there are is public.
    """

    rows: int
    relation: str
    others: float

    @property
    def absent(self) -> float:
        """What stands in the place of the row."""
        return -1.0 if self.relation == "replace" else 0.0

    def tables(self, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """With the row, and without it."""
        others = np.full(self.rows - 1, self.others)
        return scale * np.append(1.0, others), scale * np.append(self.absent, others)


def craft(rows: int, relation: str, law: Unchecked[Law], exact: bool) -> Neighbors:
    """The neighbors that show most for units that are drawn by such a law; None where it is not known."""
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {RELATIONS}; got {relation!r}.")
    known = exact and law is not None and law.fixed_size
    return Neighbors(rows, relation, -1.0 if known else 0.0)


def default_relation(law: Unchecked[Law]) -> str:
    """What the accountant takes neighbors to be."""
    return "remove" if law is not None and law.neighbors == ADD_OR_REMOVE else "replace"


def score(
    y: Float[np.ndarray, "n T"], noise: float, pair: Neighbors, law: Any, size: float, exact: bool
) -> Float[np.ndarray, " n"]:
    """log P(y | with the row) - log P(y | without it) for noisy sums y of `size` rows, in clips.

    Where the law is not known (`exact` is False: a memory, another estimator) it is the sum of y, which finds
    whatever drifts.
    """
    y = y - pair.others * size
    if not exact:
        return y.sum(axis=1)
    noise = max(noise, _LEAST_NOISE)
    shifts = (1.0 - pair.others, pair.absent - pair.others)
    if isinstance(law, Epochs):
        up, down = (_epochs(y, noise, shift, law.n, law.rows) for shift in shifts)
        return up - down
    chances = None if law is None else law.chances()
    if chances is None:
        return y.sum(axis=1)
    up, down = (_sampled(y, noise, shift, chances) for shift in shifts)
    return np.sum(up - down, axis=1)


def _likelihood(y: np.ndarray, noise: float, shift: float) -> np.ndarray:
    """log N(y; shift, noise^2) - log N(y; 0, noise^2)."""
    return (y - shift / 2) * (shift / noise**2)


def _sampled(y: np.ndarray, noise: float, shift: float, chances: np.ndarray) -> np.ndarray:
    """log sum_k P(k) N(y; k shift) / N(y; 0)."""
    if shift == 0:
        return np.zeros_like(y)
    with np.errstate(divide="ignore"):
        logs = np.log(chances)
    total = np.full_like(y, logs[0])
    for k in range(1, len(chances)):
        total = np.logaddexp(total, logs[k] + _likelihood(y, noise, k * shift))
    return total


def _epochs(y: np.ndarray, noise: float, shift: float, n: int, rows: int) -> np.ndarray:
    """The same where every row comes once in an epoch of rows // n steps, summed over epochs."""
    batches, total = max(rows // n, 1), np.zeros(len(y))
    if shift == 0:
        return total
    for first in range(0, y.shape[1], batches):
        each = _likelihood(y[:, first : first + batches], noise, shift)
        missed = 1 - each.shape[1] * n / rows
        drawn = np.logaddexp.reduce(each, axis=1) + np.log(n / rows)
        total += np.logaddexp(drawn, np.log(missed)) if missed > NEGLIGIBLE else drawn
    return total
