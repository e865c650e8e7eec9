"""scikit-learn integration: estimators that anticipate the response to themselves, and a classifier stress test."""

from performative._base.lazy import later

__all__ = ["PerformativeClassifier", "PerformativeRegressor", "StressTest", "stress"]

__getattr__ = later(
    __name__,
    {
        "PerformativeClassifier": "classifier",
        "PerformativeRegressor": "regressor",
        "StressTest": "stress_test",
        "stress": "stressing",
    },
)
