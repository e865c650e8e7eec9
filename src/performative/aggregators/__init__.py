"""How updates become a server move."""

from performative.aggregators.base import AbstractAggregator
from performative.aggregators.cluster_varp import ClusterVarp
from performative.aggregators.confidence_bounds import ConfidenceBounds
from performative.aggregators.extrapolate import Extrapolate, mean_of_last_two
from performative.aggregators.fair import Agnostic, QFair
from performative.aggregators.mean import Mean, weighted_sum
from performative.aggregators.nova import Nova
from performative.aggregators.pooled_jacobian import PooledJacobian
from performative.aggregators.robust import Krum, Median, TrimmedMean
from performative.aggregators.scaffold import Scaffold
from performative.aggregators.server_opt import ServerOpt
from performative.aggregators.varp import Varp

__all__ = [
    "AbstractAggregator",
    "Agnostic",
    "ClusterVarp",
    "ConfidenceBounds",
    "Extrapolate",
    "Krum",
    "Mean",
    "Median",
    "Nova",
    "PooledJacobian",
    "QFair",
    "Scaffold",
    "ServerOpt",
    "TrimmedMean",
    "Varp",
    "mean_of_last_two",
    "weighted_sum",
]
