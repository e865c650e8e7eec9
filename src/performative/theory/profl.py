"""What is proved of learning with the performative gradient (Zheng et al. 2024)."""

from typing import Any

import numpy as np


def mixture_sensitivity(group_sensitivity: Any, distance: Any, share_slope: Any) -> Any:
    """Sensitivity of a mixture of two groups whose shares answer to the model (Lemma C.3).

        W_1(D(theta), D(theta')) <= (gamma + W_1(D_1(theta), D_2(theta)) F) |theta - theta'|

    group_sensitivity: gamma, the larger sensitivity of the groups' own data; 0 where they are fixed
    distance:          W_1 between the groups, the largest where it depends on theta
    share_slope:       F >= |d nu_1 / d theta|
    """
    given = {"group_sensitivity": group_sensitivity, "distance": distance, "share_slope": share_slope}
    for name, value in given.items():
        if not np.all(np.isfinite(value)) or np.any(np.asarray(value) < 0):
            raise ValueError(f"mixture_sensitivity: {name} must be finite and not negative; got {value}.")
    return group_sensitivity + distance * share_slope
