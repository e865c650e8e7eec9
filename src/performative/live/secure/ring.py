"""Updates as integers modulo 2^64, so a masked sum equals the plain sum exactly.

    x_u = round(c_u delta_u K / h),      sum_u x_u  mod 2^64,      total = (h / K) sum_u x_u

c_u is the client's weight, K the maximum number of clients of a round, h the step of the result. Each of at most K
clients rounds by at most half a unit of h / K, so a total is off by at most h / 2 in each entry (plus float64
rounding). Overflow: the client checks |x_u| <= (2^63 - 1) / K, so no sum wraps around.
"""

import numpy as np

# The largest int64.
_LARGEST = (1 << 63) - 1
# Weights are positive and of order 1; as integers they are in these units.
WEIGHT_UNIT = 2.0**-40


class TooLarge(ValueError):
    """An update that does not fit the ring."""


def limit(clients: int) -> int:
    """The largest |x_u|, such that K of them never wrap around."""
    return _LARGEST // clients


def to_ring(values: np.ndarray, weight: float, step: float, clients: int) -> np.ndarray:
    """weight * values as integers modulo 2^64, followed by the weight."""
    # The largest float64 below the limit: the limit itself may round up.
    most = float(np.nextafter(float(limit(clients)), 0))
    if not 1 <= weight / WEIGHT_UNIT <= most:
        raise TooLarge(f"the weight {weight} does not lie in {WEIGHT_UNIT:.3g}..{most * WEIGHT_UNIT:.3g}")
    with np.errstate(over="ignore"):
        scaled = np.rint(np.asarray(values, np.float64) * (weight * clients / step))
    if not np.all(np.abs(scaled) <= most):
        largest = most * step / (weight * clients)
        raise TooLarge(f"an entry of the update is non-finite, or exceeds the integer range, {largest:.3g}")
    whole = np.append(scaled.astype(np.int64), weight_units(weight))
    return whole.view(np.uint64)


def weight_units(weight: float) -> np.int64:
    """A weight as an integer."""
    return np.int64(np.rint(weight / WEIGHT_UNIT))


def from_ring(total: np.ndarray, step: float, clients: int) -> tuple[np.ndarray, int]:
    """The sum of weighted updates in float64, and the sum of weights in units."""
    signed = total.view(np.int64)
    return signed[:-1].astype(np.float64) * (step / clients), int(signed[-1])
