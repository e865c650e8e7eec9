"""Heterogeneous clients: Joshi, Heterogeneity-aware Algorithms for Federated Optimization (slides)."""

from performative.theory.joshi2023.heterogeneity import (
    FederatedAssumptions,
    extrapolation,
    fedavg,
    fedvarp,
    participation_variance,
    tuned_orders,
)
from performative.theory.joshi2023.points import Floor, cycle_point, quadratic_floor, settled_point
from performative.theory.joshi2023.selection import (
    CyclicAssumptions,
    SelectionAssumptions,
    biased_selection,
    cyclic_orders,
    effective_steps,
    inconsistency,
    objective_weights,
    selection_floor,
    selection_orders,
)

__all__ = [
    "CyclicAssumptions", "FederatedAssumptions", "Floor", "SelectionAssumptions", "biased_selection", "cycle_point",
    "cyclic_orders", "effective_steps", "extrapolation", "fedavg", "fedvarp", "inconsistency", "objective_weights",
    "participation_variance", "quadratic_floor", "selection_floor", "selection_orders", "settled_point", "tuned_orders",
]  # fmt: skip
