"""What is known without a run: exact moments of the Gaussian problem, and the theorems' constants."""

from performative.theory.clipped import (
    Bound,
    ClippedAssumptions,
    bias_amplification,
    bias_bound,
    clip_pull,
    gradient_change,
    one_step,
    pcsgd,
)
from performative.theory.clipped_quadratic import ClippedQuadratic
from performative.theory.clipped_tuning import (
    Choice,
    harmonic_kappa,
    noise_share,
    optimal_clip,
    optimal_clip_and_step,
    optimal_clip_limit,
    optimal_step,
    printed_noise_share,
)
from performative.theory.dice import DiceAssumptions, dice_model_error, dicesgd, travel
from performative.theory.gaussian import Moments, gaussian_moments, gaussian_rate
from performative.theory.p_fedavg import Assumptions, Theorem, p_fedavg
from performative.theory.profl import mixture_sensitivity

__all__ = [
    "Assumptions",
    "Bound",
    "Choice",
    "ClippedAssumptions",
    "ClippedQuadratic",
    "DiceAssumptions",
    "Moments",
    "Theorem",
    "bias_amplification",
    "bias_bound",
    "clip_pull",
    "dice_model_error",
    "dicesgd",
    "gaussian_moments",
    "gaussian_rate",
    "gradient_change",
    "harmonic_kappa",
    "mixture_sensitivity",
    "noise_share",
    "one_step",
    "optimal_clip",
    "optimal_clip_and_step",
    "optimal_clip_limit",
    "optimal_step",
    "p_fedavg",
    "pcsgd",
    "printed_noise_share",
    "travel",
]
