"""How updates become a server move."""

from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import Mean, weighted_sum
from performative.aggregators.pooled_jacobian import PooledJacobian
from performative.aggregators.varp import Varp

__all__ = ["AbstractAggregator", "Mean", "PooledJacobian", "Varp", "weighted_sum"]
