"""PROFL: Zheng et al. 2024, Performative Robust Optimal Federated Learning."""

from performative.theory.zheng2024.constants import Extremes, lemma_5_6, mixture_sensitivity
from performative.theory.zheng2024.descent import (
    PerformativeAssumptions,
    client_drift,
    corollary_5_11,
    location_smoothness,
    theorem_5_10,
)
from performative.theory.zheng2024.lemmas import (
    contaminated_variance,
    exact_jacobian_error,
    lemma_5_7,
    lemma_5_8,
    lemma_5_9,
    lemma_c_1,
    lemma_c_2,
)
from performative.theory.zheng2024.pricing import PricingDescent
from performative.theory.zheng2024.size import sample_size

__all__ = [
    "Extremes", "PerformativeAssumptions", "PricingDescent", "client_drift", "contaminated_variance", "corollary_5_11",
    "exact_jacobian_error", "lemma_5_6", "lemma_5_7", "lemma_5_8", "lemma_5_9", "lemma_c_1", "lemma_c_2",
    "location_smoothness", "mixture_sensitivity", "sample_size", "theorem_5_10",
]  # fmt: skip
