"""At home in scikit-learn: estimators that foresee the reaction to themselves, and a stress test of any classifier."""

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
