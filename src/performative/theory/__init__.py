"""What is known without a run: exact moments of the Gaussian problem, and the theorems' constants.

One namespace per paper, named as it is cited; everything in them is also available here. A theorem takes the constants
of a problem and returns what it proves about it, usually as a `Bound`, with violated preconditions in `unmet`.
"""

from typing import TYPE_CHECKING, Any

from performative._deprecated import old_name
from performative.theory import jin2023, jin2024, joshi2023, li2024, zheng2024
from performative.theory.asynchrony import largest_stale_step, stale_radius
from performative.theory.bound import Bound
from performative.theory.drifting import DriftError, best_period, best_step, drift_error, retraining_error
from performative.theory.gaussian import Moments, gaussian_moments, gaussian_rate
from performative.theory.index import Numbered
from performative.theory.jin2023 import *  # noqa: F403
from performative.theory.jin2024 import *  # noqa: F403
from performative.theory.joshi2023 import *  # noqa: F403
from performative.theory.li2024 import *  # noqa: F403
from performative.theory.retention import RetentionPoint, TwoGroups
from performative.theory.zheng2024 import *  # noqa: F403

if TYPE_CHECKING:
    from performative.theory.index import THEOREMS

__all__ = [
    "THEOREMS",
    "Bound",
    "DriftError",
    "Moments",
    "Numbered",
    "RetentionPoint",
    "TwoGroups",
    "best_period",
    "best_step",
    "drift_error",
    "gaussian_moments",
    "gaussian_rate",
    "jin2023",
    "jin2024",
    "joshi2023",
    "largest_stale_step",
    "li2024",
    "retraining_error",
    "stale_radius",
    "zheng2024",
]  # fmt: skip
__all__ += jin2023.__all__
__all__ += jin2024.__all__
__all__ += joshi2023.__all__
__all__ += li2024.__all__
__all__ += zheng2024.__all__


def __getattr__(name: str) -> Any:
    """`THEOREMS`, collected on first access, and renamed names."""
    if name == "THEOREMS":
        from performative.theory import index

        return index.THEOREMS
    return old_name(__name__, name)
