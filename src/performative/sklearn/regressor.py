"""A linear regression that anticipates people's response to it."""

from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from performative._base.checks import is_one_of
from performative.sklearn.learner import AbstractPerformative
from performative.types import ArrayLike


# scikit-learn has no types: to mypy its mixin is Any.
class PerformativeRegressor(RegressorMixin, AbstractPerformative):  # type: ignore[misc]  # scikit-learn has no types
    """Ridge regression for people who respond to it.

        y ~ theta.x,      people show x -+ strength theta on `strategic` columns, y does not change

    Args:
        strategic: columns that people can change, by name or number; None for all
        strength: how far they move per unit of theta, in the units of X (scale columns first): a number, or
            {client: number} with `fit(X, y, clients=...)`
        method: "stable", "optimal" or "static"; see `PerformativeClassifier`
        desired: "low" if people want a low prediction (a premium), "high" if they want a high one (a grade)
        penalty: L2 in the mean loss, None for 1 / (number of rows), the alpha = 1 of `Ridge`; the intercept is not
            penalized
        fit_intercept: whether to fit an intercept
        max_iter, tol: limit on retrainings, and the step (relative to 1 + |theta|) at which retraining has settled

    `predict` is for rows as observed; `score` is R^2 once people have responded to this model.

    Attributes:
        coef_ [d], intercept_, n_features_in_, feature_names_in_: as in scikit-learn
        n_iter_, settled_, deployments_: as in `PerformativeClassifier`
    """

    _for_classes = False

    def __init__(
        self,
        *,
        strategic: Any = None,
        strength: Any = 1.0,
        method: Any = "stable",
        desired: Any = "low",
        penalty: Any = None,
        fit_intercept: Any = True,
        max_iter: Any = 100,
        tol: Any = 1e-6,
    ):
        self.strategic = strategic
        self.strength = strength
        self.method = method
        self.desired = desired
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def partial_fit(
        self, X: Any, y: Any, clients: ArrayLike | None = None, responded: bool = False
    ) -> "PerformativeRegressor":
        """Redeploy: people respond to the current model, which is then retrained to the minimum on their new data.

        Arguments as in `PerformativeClassifier.partial_fit`.
        """
        return self._redeploy(X, y, None, clients, responded)

    def predict(self, X: Any) -> Float[np.ndarray, " n"]:
        """theta.x of rows as observed."""
        return self._linear(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None, clients: ArrayLike | None = None) -> float:
        """R^2 once people (rows from before the response) have responded to this model."""
        return float(r2_score(y, self.predict(self.respond(X, clients=clients)), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._foresees()
        return tags

    def _direction(self) -> float:
        if not is_one_of(self.desired, "low", "high"):
            raise ValueError(f'PerformativeRegressor: desired must be "low" or "high"; got {self.desired!r}.')
        return 1.0 if self.desired == "low" else -1.0

    def _read_targets(self, y: Shaped[np.ndarray, " n"], known: ArrayLike | None) -> Float[np.ndarray, " n"]:
        return np.asarray(y, np.float64)

    def _keep(self, theta: Float[np.ndarray, " d"]) -> None:
        theta = np.asarray(theta, np.float64)
        self.coef_ = (theta[:-1] if self.fit_intercept else theta).copy()
        self.intercept_ = float(theta[-1]) if self.fit_intercept else 0.0
