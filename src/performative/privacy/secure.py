"""Secure noise: a discrete Gaussian on the integers, from the system's entropy.

    P(k) proportional to exp(-k^2 / (2 sigma^2)),      k an integer

Floating-point normals have gaps that can reveal what they were added to; integers have none. Drawn by inverting the
distribution function, stored as 128-bit integers: the distribution is exact to 2^-100 in total variation. Nothing here
depends on a seed. Canonne, Kamath and Steinke 2020.
"""

import functools
import math
import os

import numpy as np

from performative._base.arguments import checked
from performative.facts import cites

# Bits of the table of the distribution function, and of the arithmetic that computes it.
_BITS = 128
_WORK = 320
# exp(-12.5^2 / 2) is below 2^-112.
_REACH = 12.5


@functools.lru_cache(maxsize=4)
def _table(sigma: int) -> tuple[np.ndarray, np.ndarray]:
    """floor(2^128 P(K <= k)) for k = -reach .. reach, as its upper and its lower 64 bits."""
    reach = math.ceil(_REACH * sigma)
    one = 1 << _WORK
    # exp(-k^2 / (2 sigma^2)) by its ratios: w_{k+1} = w_k u_k, u_{k+1} = u_k q^2, q = exp(-1 / (2 sigma^2)).
    q = _exp_minus(2 * sigma * sigma)
    step = q * q >> _WORK
    weight, ratio, half = one, q, [one]
    for _ in range(reach):
        weight = weight * ratio >> _WORK
        ratio = ratio * step >> _WORK
        half.append(weight)
    total = 2 * sum(half) - half[0]
    below, high, low = 0, [], []
    for k in range(-reach, reach + 1):
        below += half[abs(k)]
        level = min((below << _BITS) // total, (1 << _BITS) - 1)
        high.append(level >> 64)
        low.append(level & (1 << 64) - 1)
    return np.asarray(high, np.uint64), np.asarray(low, np.uint64)


def _exp_minus(over: int) -> int:
    """exp(-1 / over) in fixed point, by its series."""
    term = total = 1 << _WORK
    n = 0
    while term:
        n += 1
        term = -(abs(term) // (over * n)) if n % 2 else abs(term) // (over * n)
        total += term
    return total


@cites("canonne2020discrete")
@checked
def discrete_gaussian(sigma: int, shape: tuple[int, ...]) -> np.ndarray:
    """Independent integers with P(k) proportional to exp(-k^2 / (2 sigma^2)), as int32."""
    if not (isinstance(sigma, int) and 1 <= sigma <= 1 << 17):
        raise ValueError(f"discrete_gaussian: sigma must be a whole number from 1 to 2^17; got {sigma!r}.")
    high, low = _table(sigma)
    count = math.prod(shape)
    upper = np.frombuffer(os.urandom(8 * count), np.uint64)
    # The smallest k with U < F(k). A draw whose upper bits equal an entry's is decided by 64 more bits.
    place = np.searchsorted(high, upper, side="right")
    tied = np.flatnonzero((place > 0) & (high[np.maximum(place, 1) - 1] == upper))
    for i in tied:  # about one draw in 2^45
        lower = int.from_bytes(os.urandom(8), "little")
        value = (int(upper[i]) << 64) | lower
        place[i] = next(j for j in range(len(high)) if value < (int(high[j]) << 64 | int(low[j])))
    reach = (len(high) - 1) // 2
    drawn = np.minimum(place, len(high) - 1).astype(np.int64) - reach
    return drawn.astype(np.int32).reshape(shape)


def describe_noise(kind: str) -> str:
    """What a result says about the noise that was used."""
    return {
        "fast": "jax.random, for simulation: reproducible, but its 2^23 values per number can leak",
        "secure": "discrete Gaussian from the system's entropy: not reproducible",
    }[kind]
