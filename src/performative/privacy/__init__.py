"""Privacy guarantees, privacy accounting, and calibrated noise.

The accountant takes a second to import, so it is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from performative._base.lazy import later
from performative.privacy.promise import Privacy
from performative.privacy.secure import discrete_gaussian

if TYPE_CHECKING:
    from performative.privacy.accounting import Spending
    from performative.privacy.certification import Guarantee, guarantee
    from performative.privacy.ledger import Ledger
    from performative.privacy.printed import corollary_3_6_as_printed
    from performative.privacy.releases import certified_rows, protection
    from performative.privacy.spending import calibrate, spent

__all__ = [
    "Guarantee", "Ledger", "Privacy", "Spending", "calibrate", "certified_rows", "corollary_3_6_as_printed",
    "discrete_gaussian", "guarantee", "protection", "spent",
]  # fmt: skip

__getattr__ = later(
    __name__,
    {
        "Guarantee": "certification",
        "Ledger": "ledger",
        "Spending": "accounting",
        "calibrate": "spending",
        "certified_rows": "releases",
        "corollary_3_6_as_printed": "printed",
        "guarantee": "certification",
        "protection": "releases",
        "spent": "spending",
    },
    ("attack",),
)
