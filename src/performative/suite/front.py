"""Score against deployments: how much of the gap each method closes with how few deployed models."""

from collections.abc import Sequence

import numpy as np

from performative.suite.protocol import FLOOR, Result

# Fractions of an environment's deployments at which methods are compared across environments.
SHARES = (0.03, 0.06, 0.125, 0.25, 0.5, 1.0)


def score_after(result: Result, deployments: float | int) -> float:
    """The mean score after this many deployments, from the last evaluation before; the floor if there is none."""
    if result.why is not None:
        return 0.0
    return next((score for count, score in reversed(result.path) if count <= deployments), FLOOR)


def front(results: Sequence[Result]) -> list[tuple[int, str, float]]:
    """The Pareto front of one environment: (deployments, method, score), each better than all with no more deployments.

    Settings were tuned for the end of the budget: a method tuned for fewer deployments may do better there.
    """
    points = sorted(
        (count, -score, result.method) for result in results if result.why is None for count, score in result.path
    )
    found: list[tuple[int, str, float]] = []
    best = FLOOR
    for count, negative, method in points:
        if -negative > best + 1e-9:
            best = -negative
            found.append((count, method, best))
    return found


def on_front(results: Sequence[Result]) -> set[str]:
    """The methods on the Pareto front."""
    return {method for _, method, _ in front(results)}


def curve(results: Sequence[Result], budgets: Sequence[int]) -> list[float]:
    """A method's mean score over environments after each fraction in `SHARES` of their deployments."""
    pairs = list(zip(results, budgets, strict=True))
    return [float(np.mean([score_after(one, max(1.0, share * total)) for one, total in pairs])) for share in SHARES]
