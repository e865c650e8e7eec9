"""What is known without a run: exact moments of the Gaussian problem, and the theorems' constants."""

from performative.theory.gaussian import Moments, gaussian_moments, gaussian_rate
from performative.theory.p_fedavg import Assumptions, Theorem, p_fedavg
from performative.theory.profl import mixture_sensitivity

__all__ = ["Assumptions", "Moments", "Theorem", "gaussian_moments", "gaussian_rate", "mixture_sensitivity", "p_fedavg"]
