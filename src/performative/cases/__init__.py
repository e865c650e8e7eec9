"""Ready-made problems."""

from performative.cases.credit import CHANGEABLE, credit, credit_table
from performative.cases.games import competing_banks, linear_game
from performative.cases.images import Images, images
from performative.cases.private import credit_default, quadratic
from performative.cases.reacting import (
    house_pricing,
    pricing_contribution,
    pricing_demands,
    regression_contribution,
    strategic_classes,
)
from performative.cases.strategic_tables import StrategicTables, strategic_adult, strategic_credit

__all__ = [
    "CHANGEABLE",
    "Images",
    "StrategicTables",
    "competing_banks",
    "credit",
    "credit_default",
    "credit_table",
    "house_pricing",
    "images",
    "linear_game",
    "pricing_contribution",
    "pricing_demands",
    "quadratic",
    "regression_contribution",
    "strategic_adult",
    "strategic_classes",
    "strategic_credit",
]
