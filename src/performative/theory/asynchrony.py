"""Steps on stale models, exactly: how large may they be?

    theta_{t+1} = theta_t - eta (theta_{t - tau} - Z),   Z ~ D(theta_{t - tau - s}),   E Z = m + eps theta

Full participation, E = 1; tau counts the server updates while a client was training, s how late people met the model
that it used.
"""

import math

import numpy as np

from performative._base.arguments import Finite, checked

__all__ = ["largest_stale_step", "stale_radius"]


@checked
def largest_stale_step(sensitivity: float, staleness: int) -> float:
    """The step below which training with updates that are tau server updates old settles.

        eta (1 - eps) < 2 sin(pi / (2 (2 tau + 1)))

    Args:
        sensitivity: eps < 1, the same for all clients
        staleness: tau >= 0; 0 gives 2 / (1 - eps), the limit for fresh updates
    """
    _check("largest_stale_step", staleness=staleness)
    if not sensitivity < 1:
        raise ValueError(f"largest_stale_step: no step settles with sensitivity >= 1; got {sensitivity:g}.")
    return 2 * math.sin(math.pi / (2 * (2 * staleness + 1))) / (1 - sensitivity)


@checked
def stale_radius(eta: Finite, sensitivity: Finite, staleness: int, late: int = 0) -> float:
    """The factor by which the mean distance to the stable point changes per server update, in the long run.

        the largest |z| with  z^{tau+s+1} - z^{tau+s} + eta z^s - eta eps = 0

    Training settles if it is below 1.

    Args:
        staleness: tau, server updates while a client was training
        late: s, server updates between a model and its deployment (`pf.Late(s)`)
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
