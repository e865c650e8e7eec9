"""PCSGD and DiceSGD: Li, Yemini, Wai 2024, Clipped SGD Algorithms for Privacy Preserving Performative Prediction."""

from performative.theory.li2024.clipped import (
    ClippedAssumptions,
    bias_amplification,
    bias_bound,
    clip_pull,
    gradient_change,
    one_step,
    pcsgd,
)
from performative.theory.li2024.dice import DiceAssumptions, dice_model_error, dicesgd, travel
from performative.theory.li2024.quadratic import ClippedQuadratic
from performative.theory.li2024.tuning import (
    harmonic_kappa,
    noise_share,
    optimal_clip,
    optimal_clip_and_step,
    optimal_clip_limit,
    optimal_step,
    printed_noise_share,
)

__all__ = [
    "ClippedAssumptions", "ClippedQuadratic", "DiceAssumptions", "bias_amplification", "bias_bound", "clip_pull",
    "dice_model_error", "dicesgd", "gradient_change", "harmonic_kappa", "noise_share", "one_step", "optimal_clip",
    "optimal_clip_and_step", "optimal_clip_limit", "optimal_step", "pcsgd", "printed_noise_share", "travel",
]  # fmt: skip
