"""Attacks on our own private steps: lower bounds on epsilon that must lie below what the accountant says."""

from typing import TYPE_CHECKING

from performative._base.lazy import later

if TYPE_CHECKING:
    from performative.privacy.attack.auditing import audit
    from performative.privacy.attack.planting import canaries
    from performative.privacy.attack.report import Finding
    from performative.privacy.attack.trials import messages, neighbours, release

__all__ = ["Finding", "audit", "canaries", "messages", "neighbours", "release"]

__getattr__ = later(
    __name__,
    {
        "Finding": "report",
        "audit": "auditing",
        "canaries": "planting",
        "messages": "trials",
        "neighbours": "trials",
        "release": "trials",
    },
)
