"""Worst-case data for our own steps, and the scores of an attacker who knows the sampler.

Gradients do not depend on the model: a step then publishes a count of how often one row was drawn, plus noise. All
numbers are in units of the clip. Rows extend far beyond the clip, so a missing clip is noticed.
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
# Noise below this many clips is effectively none; the floor only keeps scores finite.
_LEAST_NOISE = 0.02


def along(theta: Array, z: Array) -> Float[Array, ""]:
    """theta . z: the gradient is z, whatever theta is."""
    return jnp.sum(theta * z)


class OneHot(eqx.Module):
    """gain sign(z) theta_k with k = |z| - 1: row z moves only its own coordinate, z = 0 moves none."""

    gain: Numbers = number()

    def __call__(self, theta: Array, z: Array) -> Float[Array, ""]:
        place = jnp.maximum(jnp.abs(z).astype(jnp.int32) - 1, 0)
        return self.gain.astype(theta.dtype) * jnp.sign(z).astype(theta.dtype) * theta[place]


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """Two tables of `rows` numbers that differ in row 0: it pushes up in one, and down or not at all in the other.

    The others push down if their number in a step is known; otherwise they do not push, and add no uncertainty.
    A removed row stays in the table with a gradient of 0: the number of rows is public.
    """

    rows: int
    relation: str
    others: float

    @property
    def absent(self) -> float:
        """The value that replaces the row."""
        return -1.0 if self.relation == "replace" else 0.0

    def tables(self, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """The tables with and without the row."""
        others = np.full(self.rows - 1, self.others)
        return scale * np.append(1.0, others), scale * np.append(self.absent, others)


def craft(rows: int, relation: str, law: Unchecked[Law], exact: bool) -> Neighbors:
    """The most revealing neighbors for units drawn by this law; the law may be None if unknown."""
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {RELATIONS}; got {relation!r}.")
    known = exact and law is not None and law.fixed_size
    return Neighbors(rows, relation, -1.0 if known else 0.0)


def default_relation(law: Unchecked[Law]) -> str:
    """The neighbor relation that the accountant uses."""
    return "remove" if law is not None and law.neighbors == ADD_OR_REMOVE else "replace"


def score(
    y: Float[np.ndarray, "n T"], noise: float, pair: Neighbors, law: Any, size: float, exact: bool
) -> Float[np.ndarray, " n"]:
    """log P(y | with the row) - log P(y | without it) for noisy sums y of `size` rows, in clips.

    If the law is not known (`exact` is False: a memory, another estimator), it is the sum of y, which detects any
    drift.
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
    """`_sampled` if every row is used once per epoch of rows // n steps, summed over epochs."""
    batches, total = max(rows // n, 1), np.zeros(len(y))
    if shift == 0:
        return total
    for first in range(0, y.shape[1], batches):
        each = _likelihood(y[:, first : first + batches], noise, shift)
        missed = 1 - each.shape[1] * n / rows
        drawn = np.logaddexp.reduce(each, axis=1) + np.log(n / rows)
        total += np.logaddexp(drawn, np.log(missed)) if missed > NEGLIGIBLE else drawn
    return total
