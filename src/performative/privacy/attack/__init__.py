"""Attacks on our own private steps: lower bounds on epsilon that must lie below the accountant's value."""

from typing import TYPE_CHECKING

from performative._base.lazy import later

if TYPE_CHECKING:
    from performative.privacy.attack.estimating import estimate_epsilon
    from performative.privacy.attack.planting import canaries
    from performative.privacy.attack.report import AttackResult
    from performative.privacy.attack.trials import messages, neighbors, release

__all__ = ["AttackResult", "canaries", "estimate_epsilon", "messages", "neighbors", "release"]

__getattr__ = later(
    __name__,
    {
        "AttackResult": "report",
        "estimate_epsilon": "estimating",
        "canaries": "planting",
        "messages": "trials",
        "neighbors": "trials",
        "release": "trials",
    },
)
