"""Steps on old models, exactly: how long may they be?

    theta_{t+1} = theta_t - eta (theta_{t - tau} - Z),   Z ~ D(theta_{t - tau - s}),   E Z = m + eps theta

Everyone takes part, E = 1; tau counts the moves of the server while a client was at work, s how late people met the
model that it took.
"""

import math

import numpy as np

from performative._base.arguments import checked

__all__ = ["largest_stale_step", "stale_radius"]


@checked
def largest_stale_step(sensitivity: float, staleness: int) -> float:
    """The step below which training with updates that are tau moves old settles.

        eta (1 - eps) < 2 sin(pi / (2 (2 tau + 1)))

    Args:
        sensitivity: eps < 1, of all clients alike
        staleness: tau >= 0; 0 is 2 / (1 - eps), the border of fresh updates
    """
    _check("largest_stale_step", staleness=staleness)
    if not sensitivity < 1:
        raise ValueError(f"largest_stale_step: no step settles with sensitivity >= 1; got {sensitivity:g}.")
    return 2 * math.sin(math.pi / (2 * (2 * staleness + 1))) / (1 - sensitivity)


@checked
def stale_radius(eta: float, sensitivity: float, staleness: int, late: int = 0) -> float:
    """The factor by which the mean distance to the stable point changes a move, in the long run.

        the largest |z| with  z^{tau+s+1} - z^{tau+s} + eta z^s - eta eps = 0

    Training settles where it is below 1.

    Args:
        staleness: tau, moves of the server while a client was at work
        late: s, moves between a model and its deployment (`pf.Late(s)`)
    """
    _check("stale_radius", staleness=staleness, late=late)
    polynomial = np.zeros(staleness + late + 2)
    polynomial[0] = 1.0
    polynomial[1] -= 1.0
    polynomial[staleness + 1] += eta
    polynomial[-1] -= eta * sensitivity
    return float(np.max(np.abs(np.roots(polynomial))))


def _check(owner: str, **counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(f"{owner}: {name} must be a whole number >= 0; got {count!r}.")
