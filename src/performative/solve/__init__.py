"""Exact points of a problem: where retraining settles, where the risk is least, and the way there."""

from performative.solve.optimal import optimal_point
from performative.solve.retrain import repeated_gradient_descent, repeated_risk_minimization
from performative.solve.sharing import SharedPoint
from performative.solve.solution import Solution
from performative.solve.stable import equilibria, stable_point

__all__ = [
    "SharedPoint", "Solution", "equilibria", "optimal_point", "repeated_gradient_descent", "repeated_risk_minimization",
    "stable_point",
]  # fmt: skip
