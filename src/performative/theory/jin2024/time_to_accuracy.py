"""Time until the error is below a target, and the number of local steps that minimizes it.

    T = v / accuracy - gamma local steps,      time = T + C T / E

C is the time of a communication in units of a local step. Jin et al. 2024, Section 3.3. The bounds give a T that is far
too large; `gaussian_local_steps` has the best E by the exact rate.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from performative._base.arguments import Count, Positive, Size, Values, checked
from performative._base.messages import coded
from performative.theory.gaussian import step_variances
from performative.theory.index import numbered
from performative.theory.jin2024.theorems import Theorem


@dataclasses.dataclass(frozen=True)
class LocalSteps:
    """The E with the smallest total time, and its T; at_limit: the search ended there, a larger E may be better."""

    local_steps: int
    time: float
    steps: float
    at_limit: bool


@numbered("jin2024", "Section 3.3, T_eps", "local steps until the bound is below eps")
@checked
def steps_to_accuracy(theorem: Theorem, accuracy: Positive) -> float:
    """T = v / accuracy - gamma: local steps after which the bound is at most `accuracy`, 0 if it is from the start."""
    return math.inf if theorem.unmet else max(theorem.v / accuracy - theorem.gamma, 0.0)


@numbered("jin2024", "Section 3.3, time", "T + C T / E")
@checked
def total_time(steps: Size, local_steps: Count, cost: Size) -> float:
    """T + C T / E, with T rounded up to whole rounds as in Section 3.3 (T in I_E)."""
    return math.ceil(steps / local_steps) * (local_steps + cost) if math.isfinite(steps) else math.inf


@checked
def best_local_steps(steps: Callable[[int], float], cost: float, limit: Count = 200) -> LocalSteps:
    """The E in 1, ..., limit with the smallest `total_time`; steps(E) is T.

    For instance `lambda E: steps_to_accuracy(theorem_3_1(given, E), 0.01)`. If the drift term determines gamma, T / E
    grows with E under the bounds, so E = 1 is optimal for every C; the exact error says otherwise
    (`gaussian_local_steps`). Differs from the paper, which says that T / E first grows and then falls: its own gamma is
    of order E^2 log E, so it grows without bound; and B_1, B_2, which it calls almost constant in E, grow like c6 / K.
    """
    counts = range(1, limit + 1)
    needed = [steps(E) for E in counts]
    times = [total_time(T, E, cost) for T, E in zip(needed, counts, strict=True)]
    if not np.any(np.isfinite(times)):
        text = f"best_local_steps: no E from 1 to {limit} gets there in finite time; the theorem's `unmet` says why."
        raise ValueError(coded("never-reached", text))
    best = int(np.argmin(times))
    return LocalSteps(best + 1, times[best], needed[best], best + 1 == limit)


@checked
def gaussian_local_steps(
    mean: Values, sensitivity: Values, scale: Values, cost: Positive, *, weights: Values | None = None,
    batch: Count = 1, scheme: str = "full", k: int | None = None,
) -> float:  # fmt: skip
    """The E with the smallest total time by the exact rate of the Gaussian problem, not rounded.

        T proportional to a + b E,   (a + b E)(1 + C / E) is minimal at E = sqrt(C a / b)

    a = sum_i E[w_i^2] scale_i^2 / n is the samples' noise, b = Var(sum_i w_i g_i) that of participation (see
    `gaussian_rate`). Infinite with full participation, where b = 0: larger E costs nothing in the limit. At least 1.
    Holds for small targets, where the error is R / t; neither beta nor the target matters.
    """
    _, a, b = step_variances("gaussian_local_steps", mean, sensitivity, scale, weights, batch, scheme, k)
    return max(1.0, math.sqrt(cost * a / b)) if b > 0 else math.inf
