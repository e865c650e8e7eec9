"""Ready problems."""

from performative.cases.credit import CHANGEABLE, credit, credit_table
from performative.cases.private import credit_default, quadratic
from performative.cases.reacting import (
    house_pricing,
    pricing_contribution,
    pricing_demands,
    regression_contribution,
    strategic_classes,
)

__all__ = [
    "CHANGEABLE",
    "credit",
    "credit_default",
    "credit_table",
    "house_pricing",
    "pricing_contribution",
    "pricing_demands",
    "quadratic",
    "regression_contribution",
    "strategic_classes",
]
