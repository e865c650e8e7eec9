"""P-FedAvg: Jin et al. 2024, Performative Federated Learning (AAAI); with exact answers for Gaussian data."""

from performative.theory.jin2024.assumptions import Assumptions
from performative.theory.jin2024.rates import Beside, gaussian_beside, linear_rate, step_noise
from performative.theory.jin2024.stability import (
    Contraction,
    GaussianPoints,
    gaussian_points,
    proposition_2_8,
    proposition_2_9,
)
from performative.theory.jin2024.theorems import Theorem, p_fedavg, theorem_3_1, theorem_3_2, theorem_3_3
from performative.theory.jin2024.time_to_accuracy import (
    LocalSteps,
    best_local_steps,
    gaussian_local_steps,
    steps_to_accuracy,
    total_time,
)

__all__ = [
    "Assumptions", "Beside", "Contraction", "GaussianPoints", "LocalSteps", "Theorem", "best_local_steps",
    "gaussian_beside", "gaussian_local_steps", "gaussian_points", "linear_rate", "p_fedavg", "proposition_2_8",
    "proposition_2_9", "step_noise", "steps_to_accuracy", "theorem_3_1", "theorem_3_2", "theorem_3_3", "total_time",
]  # fmt: skip
