"""Did people improve, or do they only look better?"""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.stats

from performative.findings import Plain

ASSUMPTION = (
    "The share of qualified people given the features is linear and, in the first deployment, caused by the features; "
    "nothing but the features has moved it since. Then labels that follow the features mean improvement, and labels "
    "that lag behind mean gaming."
)


@dataclasses.dataclass(frozen=True)
class Improvement(Plain):
    """How the share of qualified people changed, against the change predicted if the features caused it.

    Attributes:
        expected: Change of the share that the new features predict.
        observed: The actual change.
        shortfall: expected - observed.
        verdict: "improvement" (observed, no shortfall), "gaming" (shortfall, nothing observed), "both", "unclear"
            (neither differs significantly from 0), "no move" (expected does not differ significantly from 0).

    Each number has its normal interval (low, high).
    """

    group: str
    expected: tuple[float, float, float]
    observed: tuple[float, float, float]
    shortfall: tuple[float, float, float]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        told = super().to_dict()
        for name in ("expected", "observed", "shortfall"):
            told[name] = dict(zip(("value", "low", "high"), told[name], strict=True))
        return told


def improvement(
    group: str, x0: np.ndarray, y0: np.ndarray, x1: np.ndarray, y1: np.ndarray, level: float = 0.95
) -> Improvement | None:
    """Compare two samples of people: features [n, k] and qualified [n] (0 or 1), before and after.

        y = b_0 + b.x + rest  on the first sample (least squares),    expected = b.(mean x1 - mean x0)
        shortfall = mean(b_0 + b.x1 - y1),    observed = mean y1 - mean y0 = expected - shortfall

    Standard errors treat x as random and allow the rest's variance to depend on x (White 1980). None if the first
    sample has fewer than two rows more than coefficients, or the second fewer than two rows.
    """
    n0, n1, k = len(x0), len(x1), x0.shape[1]
    if n0 < k + 3 or n1 < 2:
        return None
    z = float(scipy.stats.norm.ppf(0.5 + level / 2))
    center, spread = x0.mean(axis=0), x0.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    a0 = np.column_stack([np.ones(n0), (x0 - center) / spread])
    a1 = np.column_stack([np.ones(n1), (x1 - center) / spread])
    inverse = np.linalg.pinv(a0.T @ a0, hermitian=True)
    b = inverse @ (a0.T @ y0)
    rest = y0 - a0 @ b
    spread_b = inverse @ ((a0 * (rest**2)[:, None]).T @ a0) @ inverse
    move = a1.mean(axis=0) - a0.mean(axis=0)
    promised = a1 @ b
    expected = float(b @ move)
    observed = float(y1.mean() - y0.mean())
    error_expected = math.sqrt(
        max(0.0, move @ spread_b @ move) + np.var(a0 @ b, ddof=1) / n0 + np.var(promised, ddof=1) / n1
    )
    error_observed = math.sqrt(np.var(y0, ddof=1) / n0 + np.var(y1, ddof=1) / n1)
    there = a1.mean(axis=0)
    error_short = math.sqrt(max(0.0, there @ spread_b @ there) + np.var(promised - y1, ddof=1) / n1)
    values = ((expected, error_expected), (observed, error_observed), (expected - observed, error_short))
    intervals = [(v, v - z * e, v + z * e) for v, e in values]
    moved, came, short = (not low <= 0 <= high for _, low, high in intervals)
    verdict = (
        "no move" if not moved
        else "both" if came and short
        else "improvement" if came
        else "gaming" if short
        else "unclear"
    )  # fmt: skip
    return Improvement(group, intervals[0], intervals[1], intervals[2], verdict)
