"""What is known without a run: exact moments of the Gaussian problem, and the theorems' constants."""

from typing import TYPE_CHECKING, Any

from performative.theory.assumptions import Assumptions
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
from performative.theory.heterogeneity import (
    FederatedAssumptions,
    GradientBound,
    extrapolation,
    fedavg,
    fedvarp,
    participation_variance,
    tuned_orders,
)
from performative.theory.index import Numbered
from performative.theory.p_fedavg import Theorem, p_fedavg, theorem_3_1, theorem_3_2, theorem_3_3
from performative.theory.p_fedavg_appendix import theorem_b_4, theorem_c_5, theorem_d_5, theorem_d_8
from performative.theory.profl import (
    PerformativeAssumptions,
    RiskBound,
    client_drift,
    corollary_5_11,
    location_smoothness,
    theorem_5_10,
)
from performative.theory.profl_constants import Extremes, lemma_5_6, mixture_sensitivity
from performative.theory.profl_lemmas import (
    ErrorBound,
    contaminated_variance,
    exact_jacobian_error,
    lemma_5_7,
    lemma_5_8,
    lemma_5_9,
    lemma_c_1,
    lemma_c_2,
)
from performative.theory.profl_pricing import PricingDescent
from performative.theory.profl_size import sample_size
from performative.theory.quadratic_points import Floor, cycle_point, quadratic_floor, settled_point
from performative.theory.rates import Beside, gaussian_beside, linear_rate, step_noise
from performative.theory.selection import (
    CyclicAssumptions,
    SelectionAssumptions,
    SelectionBound,
    biased_selection,
    cyclic_orders,
    effective_steps,
    inconsistency,
    objective_weights,
    selection_floor,
    selection_orders,
)
from performative.theory.stability import (
    Contraction,
    GaussianPoints,
    PointGap,
    gaussian_points,
    proposition_2_8,
    proposition_2_9,
)
from performative.theory.time_to_accuracy import (
    LocalSteps,
    best_local_steps,
    gaussian_local_steps,
    steps_to_accuracy,
    total_time,
)

if TYPE_CHECKING:
    from performative.theory.index import THEOREMS

__all__ = [
    "THEOREMS",
    "Assumptions",
    "Beside",
    "Bound",
    "Choice",
    "ClippedAssumptions",
    "ClippedQuadratic",
    "Contraction",
    "CyclicAssumptions",
    "DiceAssumptions",
    "ErrorBound",
    "Extremes",
    "FederatedAssumptions",
    "Floor",
    "GaussianPoints",
    "GradientBound",
    "LocalSteps",
    "Moments",
    "Numbered",
    "PerformativeAssumptions",
    "PointGap",
    "PricingDescent",
    "RiskBound",
    "SelectionAssumptions",
    "SelectionBound",
    "Theorem",
    "best_local_steps",
    "bias_amplification",
    "bias_bound",
    "biased_selection",
    "client_drift",
    "clip_pull",
    "contaminated_variance",
    "corollary_5_11",
    "cycle_point",
    "cyclic_orders",
    "dice_model_error",
    "dicesgd",
    "effective_steps",
    "exact_jacobian_error",
    "extrapolation",
    "fedavg",
    "fedvarp",
    "gaussian_beside",
    "gaussian_local_steps",
    "gaussian_moments",
    "gaussian_points",
    "gaussian_rate",
    "gradient_change",
    "harmonic_kappa",
    "inconsistency",
    "lemma_5_6",
    "lemma_5_7",
    "lemma_5_8",
    "lemma_5_9",
    "lemma_c_1",
    "lemma_c_2",
    "linear_rate",
    "location_smoothness",
    "mixture_sensitivity",
    "noise_share",
    "objective_weights",
    "one_step",
    "optimal_clip",
    "optimal_clip_and_step",
    "optimal_clip_limit",
    "optimal_step",
    "p_fedavg",
    "participation_variance",
    "pcsgd",
    "printed_noise_share",
    "proposition_2_8",
    "proposition_2_9",
    "quadratic_floor",
    "sample_size",
    "selection_floor",
    "selection_orders",
    "settled_point",
    "step_noise",
    "steps_to_accuracy",
    "theorem_3_1",
    "theorem_3_2",
    "theorem_3_3",
    "theorem_5_10",
    "theorem_b_4",
    "theorem_c_5",
    "theorem_d_5",
    "theorem_d_8",
    "total_time",
    "travel",
    "tuned_orders",
]


def __getattr__(name: str) -> Any:
    """`THEOREMS` is collected when it is asked for."""
    if name == "THEOREMS":
        from performative.theory import index

        return index.THEOREMS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
