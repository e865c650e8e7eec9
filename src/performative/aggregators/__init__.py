"""How updates become a server move."""

from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import Mean, weighted_sum

__all__ = ["AbstractAggregator", "Mean", "weighted_sum"]
