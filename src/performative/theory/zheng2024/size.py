"""How many samples a given error of the performative gradient requires (Zheng et al. 2024, Section 5.3)."""

import math
from typing import Any

from performative._base.arguments import Count, Positive, Size, checked
from performative.theory.index import numbered
from performative.theory.zheng2024.descent import PerformativeAssumptions
from performative.theory.zheng2024.lemmas import check_confidence


def sample_size_terms(
    tolerance: Any, spread: Any, curvature: Any, window: Any, eta: Any, loss: Any, gradient: Any, jacobian: Any,
    apart: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Numerator and denominator of the sample size of Section 5.3; plain arithmetic, for any array type.

        n >= 2 l^2 f_phi (2 H |dtheta|^-2 + F^2) / (2 Phi - M^2 eta^4 G^4 H^6 l^2 |dtheta|^-2)

    Args:
        spread: f_phi = s^2 log(2 / phi); apart: |dtheta|^-2. From l^2 (omega_F + f_phi F^2 / n) <= Phi with d = 1.

    A non-positive denominator means that curvature alone exceeds the tolerance: no n suffices.
    """
    worst = loss * loss
    above = 2 * worst * spread * (2 * window * apart + jacobian * jacobian)
    bias = curvature**2 * eta**4 * gradient**4 * window**6 * worst * apart
    return above, 2 * tolerance - bias


@numbered("zheng2024", "Section 5.3, n", "sample size for an allowed error")
@checked
def sample_size(
    given: PerformativeAssumptions, tolerance: Positive, *, eta: Positive, window: Count, reach: Positive,
    variance: Size, confidence: float = 0.05, printed: bool = False,
) -> float:  # fmt: skip
    """Section 5.3: the smallest n for an error of the second term within Phi = tolerance, d = 1; inf if there is none.

    Differs from the paper: eta^4 |dtheta|^-2 in the denominator, where eta^2 |dtheta|^2 is printed, and l_max^2 stands
    before F^2 as well. As `lemma_5_7` says, log(2 / phi) should be twice that; it is kept as printed, for comparison
    with `AdaptiveSize`.
    """
    check_confidence(confidence)
    spread, l2 = variance * math.log(2.0 / confidence), given.l_max**2
    if printed:
        above = 2.0 * (2.0 * l2 * window / reach**2 + given.F**2) * spread
        left = 2.0 * tolerance - given.M**2 * eta**2 * given.G**4 * window**6 * reach**2 * l2
    else:
        above, left = sample_size_terms(
            tolerance, spread, given.M, window, eta, given.l_max, given.G, given.F, 1.0 / reach**2
        )
    return above / left if left > 0 and math.isfinite(above) else math.inf
