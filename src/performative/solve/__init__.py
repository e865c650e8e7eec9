"""Exact points of a problem: where retraining settles, where the risk is minimal, and the trajectory there."""

from performative.solve.games import nash_point, player_risks, social_point
from performative.solve.mixed import mixed_regret
from performative.solve.optimal import optimal_point
from performative.solve.outlook import Outlook, play_outlook
from performative.solve.retrain import repeated_gradient_descent, repeated_risk_minimization
from performative.solve.sharing import SharedPoint
from performative.solve.solution import Solution
from performative.solve.stable import equilibria, stable_point
from performative.solve.verdict import Verdict, play_verdict

__all__ = [
    "Outlook", "SharedPoint", "Solution", "Verdict", "equilibria", "mixed_regret", "nash_point", "optimal_point",
    "play_outlook", "play_verdict", "player_risks", "repeated_gradient_descent", "repeated_risk_minimization",
    "social_point", "stable_point",
]  # fmt: skip
