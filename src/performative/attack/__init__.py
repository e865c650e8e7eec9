"""Attacks on our own private steps: lower bounds on epsilon that must lie below what the accountant says."""

from typing import TYPE_CHECKING

from performative.lazy import later

if TYPE_CHECKING:
    from performative.attack.auditing import audit
    from performative.attack.planting import canaries
    from performative.attack.report import Finding
    from performative.attack.trials import messages, neighbours, release

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
