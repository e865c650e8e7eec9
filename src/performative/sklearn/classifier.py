"""A linear binary classifier that anticipates people's response to it."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from performative._base.messages import warn
from performative.sklearn.learner import AbstractPerformative, as_plain
from performative.sklearn.stressing import is_ordered
from performative.types import ArrayLike


# scikit-learn has no types: to mypy its mixin is Any.
class PerformativeClassifier(ClassifierMixin, AbstractPerformative):  # type: ignore[misc]  # scikit-learn has no types
    """Logistic regression for people who respond to it.

        P(y = classes_[1]) = 1 / (1 + exp(-theta.x)),      people show x -+ strength theta on `strategic` columns

    Args:
        strategic: columns that people can change, by name or number; None for all
        strength: how far they move per unit of theta, in the units of X (scale columns first): a number, (one for each
            class), or {client: number} with `fit(X, y, clients=...)`. The response is the best response to the gain
            theta.x (or -theta.x) at the cost |x' - x|^2 / (2 strength)
        method: "stable": the fixed point of retraining; "optimal": the lowest loss once people have responded;
            "static": trained once, as if nobody responded
        desired: the class that people want to be assigned, None for classes_[0], which is a guess if classes are words
        penalty: L2 in the mean loss, None for 1 / (number of rows), the C = 1 of `LogisticRegression`; the intercept is
            not penalized
        fit_intercept: whether to fit an intercept
        max_iter, tol: limit on retrainings, and the step (relative to 1 + |theta|) at which retraining has settled

    `predict` classifies rows as they are observed. `score` is the accuracy *once people have responded to this model*,
    so GridSearchCV selects by what happens after deployment, unless `scoring` is passed: "accuracy" and the like call
    `predict`, on people who have not responded. If everybody responds in the same way, a free intercept undoes the
    response, and the stable point is the optimal one. There is no `sample_weight` in `fit`.

    Attributes:
        classes_, coef_ [1, d], intercept_ [1], n_features_in_, feature_names_in_: as in scikit-learn
        n_iter_: deployments used by `fit`; settled_: whether retraining settled, None if there was no retraining
        deployments_: number of models deployed, including those of `partial_fit`

    Perdomo et al. 2020; Hardt et al. 2016. It is `pf.Problem(pf.losses.logistic, pf.populations.Strategic)` solved by
    `pf.repeated_risk_minimization` and `pf.optimal_point`; `problem(X, y)` returns it.
    """

    _for_classes = True

    def __init__(
        self,
        *,
        strategic: Any = None,
        strength: Any = 1.0,
        method: Any = "stable",
        desired: Any = None,
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
        self, X: Any, y: Any, classes: ArrayLike | None = None, clients: ArrayLike | None = None,
        responded: bool = False,
    ) -> "PerformativeClassifier":  # fmt: skip
        """Redeploy: people respond to the current model, which is then retrained to the minimum on their new data.

            theta_{k+1} = argmin f(. ; theta_k)

        Args:
            X, y: people of this deployment before they respond; at the first call no model is deployed yet
            classes: all classes, for a first batch that lacks one; possible only with fit_intercept=False and a
                penalty, since a free intercept has no best value for people of one class
            clients: as in `fit`
            responded: X already contains people's responses to the deployed model, as in logs
        """
        return self._redeploy(X, y, classes, clients, responded)

    def decision_function(self, X: Any) -> Float[np.ndarray, " n"]:
        """theta.x: log-odds of classes_[1] for rows as observed."""
        return self._linear(X)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n 2"]:
        """Probabilities of both classes for rows as observed."""
        one = expit(self._linear(X))
        return np.column_stack([1.0 - one, one])

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """The more probable class of rows as observed."""
        scores = self._linear(X)
        return self.classes_[(scores > 0).astype(int)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, clients: ArrayLike | None = None) -> float:
        """Accuracy once people (rows from before the response) have responded to this model."""
        return float(accuracy_score(y, self.predict(self.respond(X, y, clients)), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = self._foresees()
        return tags

    def _direction(self) -> float:
        if self.desired is None or self.desired == self.classes_[0]:
            return 1.0
        if self.desired == self.classes_[1]:
            return -1.0
        raise ValueError(
            f"PerformativeClassifier: desired={self.desired!r} is not a class of y, which contains "
            f"{self.classes_.tolist()}; pass one of them, or None for the first."
        )

    def _read_targets(self, y: Shaped[np.ndarray, " n"], known: ArrayLike | None) -> Int[np.ndarray, " n"]:
        check_classification_targets(y)
        if known is None:
            kind = type_of_target(y, input_name="y", raise_unknown=True)
            found = np.unique(y)
            if kind != "binary":
                raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        else:
            found = np.unique(np.asarray(known))
        if len(found) != 2:
            raise ValueError(
                f"PerformativeClassifier needs two classes in y; got {len(found)} class: {found.tolist()}."
                if len(found) < 2
                else f"Only binary classification is supported; classes are {found.tolist()}."
            )
        strange = np.setdiff1d(y, found)
        if len(strange):
            raise ValueError(
                f"PerformativeClassifier: y contains {strange[:3].tolist()}; classes are {found.tolist()}."
            )
        if known is None and self.desired is None and not is_ordered(found.tolist()):
            self._tell_guess(*found.tolist())
        self.classes_ = found
        return np.searchsorted(found, y).astype(np.int32)

    def _tell_guess(self, wanted: Any, other: Any) -> None:
        if np.any(as_plain(self.strength) != 0):
            warn(
                "desired-class-assumed",
                f"PerformativeClassifier: people are assumed to want {wanted!r}, not {other!r}; set desired= to the "
                "class that they want.",
            )

    def _keep(self, theta: Float[np.ndarray, " d"]) -> None:
        theta = np.asarray(theta, np.float64)
        coef, rest = (theta[:-1], theta[-1:]) if self.fit_intercept else (theta, np.zeros(1))
        self.coef_, self.intercept_ = coef[None, :].copy(), rest.copy()
