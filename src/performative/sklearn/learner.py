"""The base of classifier and regressor: people respond to the deployed linear model, which learns from their data."""

import abc
import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from performative._base.checks import check_counts, check_number, check_rule, is_one_of
from performative.problem import Problem
from performative.sklearn.people import by_row, client_numbers, column_numbers, problem_of, shown, strengths_of
from performative.types import ArrayLike

METHODS = ("stable", "optimal", "static")


# scikit-learn has no types: to mypy its base class is Any.
class AbstractPerformative(BaseEstimator, abc.ABC):  # type: ignore[misc]  # scikit-learn has no types
    """A linear model whose people respond to it; see `PerformativeClassifier`."""

    _for_classes: bool

    @abc.abstractmethod
    def _direction(self) -> float:
        """1 if people lower theta.x, -1 if they raise it."""

    @abc.abstractmethod
    def _read_targets(self, y: Shaped[np.ndarray, " n"], known: ArrayLike | None) -> Shaped[np.ndarray, " n"]:
        """Targets in the form the loss expects; `known` are the classes, if given."""

    @abc.abstractmethod
    def _keep(self, theta: Float[np.ndarray, " d"]) -> None:
        """Store theta as coef_ and intercept_."""

    def fit(self, X: Any, y: Any, clients: ArrayLike | None = None) -> Any:
        """Learn from people as they are before any model is deployed.

        Args:
            X: one row per person
            y: their labels or targets, which do not change
            clients: the client of each row, if `strength` differs between clients; None for a single client

        "stable" repeatedly deploys, lets people respond and trains to the minimum, from theta = 0, until the model
        moves by less than `tol`; if it does not, it issues a ConvergenceWarning and keeps the last model.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=not self._for_classes)
        problem = self._problem(X, self._read_targets(y, None), clients)
        theta, self.n_iter_, self.settled_ = self._learn(problem)
        self.deployments_ = self.n_iter_
        self._keep(theta)
        return self

    def _redeploy(self, X: Any, y: Any, known: ArrayLike | None, clients: ArrayLike | None, responded: bool) -> Any:
        """One deployment: people respond to the model, which is then trained to the minimum on their data."""
        from performative.solve import repeated_risk_minimization

        self._check_parameters()
        first = not hasattr(self, "coef_")
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=not self._for_classes, reset=first)
        targets = self._read_targets(y, known if first or known is not None else getattr(self, "classes_", None))
        if self._for_classes and self.fit_intercept and np.all(targets == targets[0]):
            raise ValueError(
                f"{type(self).__name__}: all {len(targets)} people of this deployment are of class "
                f"{self._known().tolist()[targets[0]]!r}, so the free intercept has no best value; "
                "pass people of both classes, or set fit_intercept=False."
            )
        problem = self._problem(X, targets, clients, responded=responded)
        start = np.zeros(X.shape[1] + bool(self.fit_intercept)) if first else self._theta()
        path: Any = repeated_risk_minimization(problem, start, 1)
        self._keep(path[1])
        self.n_iter_, self.settled_ = 1, None
        self.deployments_ = getattr(self, "deployments_", 0) + 1
        return self

    def problem(self, X: Any, y: Any, clients: ArrayLike | None = None) -> Problem:
        """Return the `pf.Problem` that `fit` solves: for `pf.certify`, `pf.equilibria` or a federated run."""
        self._check_parameters()
        fresh = self.__sklearn_clone__() if hasattr(self, "__sklearn_clone__") else self
        X, y = validate_data(fresh, X, y, dtype=np.float64, y_numeric=not self._for_classes)
        return fresh._problem(X, fresh._read_targets(y, None), clients)

    def respond(self, X: Any, y: Any = None, clients: ArrayLike | None = None) -> Any:
        """Return people's responses to this model: x - strength theta on the columns that they can change.

        A DataFrame of pandas or polars stays one. `y` is required if the strength differs between classes.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        if y is None and np.ndim(self.strength) == 1:
            raise ValueError(f"{type(self).__name__}: respond needs y, because strength differs between classes.")
        targets = np.zeros(len(rows), np.int32) if y is None else self._read_targets(np.asarray(y), self._known())
        problem = self._problem(rows, targets, clients)
        _, client = client_numbers(type(self).__name__, clients, len(rows))
        moved = by_row(shown(problem, self._theta()), client)[:, : rows.shape[1]]
        return _as_table(moved, X)

    def _foresees(self) -> bool:
        """Whether the model anticipates a response: it then misclassifies people who have not responded, which a tag
        declares to scikit-learn's checks. `score` lets them respond first."""
        return bool(self.method != "static" and np.any(as_plain(self.strength) != 0))

    def _known(self) -> Any:
        return getattr(self, "classes_", None)

    def _theta(self) -> Float[np.ndarray, " d"]:
        coef = np.ravel(self.coef_)
        return np.append(coef, np.ravel(self.intercept_)) if self.fit_intercept else coef

    def _linear(self, X: Any) -> Float[np.ndarray, " n"]:
        """theta.x of rows as observed."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return rows @ np.ravel(self.coef_) + float(np.ravel(self.intercept_)[0])

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        if not is_one_of(self.method, *METHODS):
            raise ValueError(f'{owner}: method must be "stable", "optimal" or "static"; got {self.method!r}.')
        if self.penalty is not None:
            check_number(owner, penalty=self.penalty)
            check_rule(owner, "must not be negative", penalty=self.penalty)
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise ValueError(f"{owner}: fit_intercept must be True or False; got {self.fit_intercept!r}.")
        check_counts(**{f"{owner}: max_iter": self.max_iter})
        check_number(owner, tol=self.tol)
        check_rule(owner, "must be above 0", tol=self.tol)

    def _problem(
        self, X: Float[np.ndarray, "n d"], targets: Shaped[np.ndarray, " n"], clients: ArrayLike | None,
        responded: bool = False,
    ) -> Problem:  # fmt: skip
        owner = type(self).__name__
        names = getattr(self, "feature_names_in_", None)
        columns = column_numbers(owner, self.strategic, None if names is None else list(names), X.shape[1])
        who, client = client_numbers(owner, clients, len(X))
        strength = strengths_of(owner, self.strength, who, self._for_classes)
        strength = np.asarray(strength * (0.0 if responded else self._direction()))
        return problem_of(
            X, targets, strength=strength, features=columns, client=client,
            penalty=1.0 / len(X) if self.penalty is None else float(self.penalty),
            intercept=bool(self.fit_intercept), classes=self._for_classes,
        )  # fmt: skip

    def _learn(self, problem: Problem) -> tuple[Float[np.ndarray, " d"], int, bool | None]:
        """theta by `method`, the number of deployments it took, and whether retraining settled."""
        from performative.solve import optimal_point, repeated_risk_minimization

        width = int(problem.population.model_shape()[0])  # type: ignore[index]  # always known for people

        def retrained(theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
            path: Any = repeated_risk_minimization(problem, theta, 1)
            return np.asarray(path[1])

        static = retrained(np.zeros(width))
        if self.method == "static":
            return static, 1, None
        if self.method == "optimal":
            best: Any = optimal_point(problem, start=static)
            return np.asarray(best), 1, None
        theta = static
        moved = np.inf
        for deployments in range(1, self.max_iter):
            after = retrained(theta)
            moved, theta = float(np.linalg.norm(after - theta)), after
            if moved <= self.tol * (1.0 + float(np.linalg.norm(theta))):
                return theta, deployments + 1, True
        warnings.warn(
            f"{type(self).__name__}: retraining did not settle in max_iter={self.max_iter} deployments; the last one "
            f"still moved theta by {moved:.3g}. Check with pf.certify(model.problem(X, y)) whether it ever does; a "
            'larger penalty or a smaller strength helps, and method="optimal" needs no retraining.',
            ConvergenceWarning,
            stacklevel=3,
        )
        return theta, self.max_iter, False


def _as_table(values: Float[np.ndarray, "n d"], like: Any) -> Any:
    """The values as the kind of table they came from."""
    if hasattr(like, "iloc"):
        import pandas as pd

        return pd.DataFrame(values, columns=like.columns, index=like.index)
    import narwhals.stable.v2 as nw

    table = nw.from_native(like, pass_through=True)
    if not isinstance(table, nw.DataFrame):
        return values
    columns = {name: values[:, j] for j, name in enumerate(table.columns)}
    return nw.from_dict(columns, backend=table.implementation).to_native()


def as_plain(strength: Any) -> np.ndarray:
    """A strength of any form as an array; invalid values are left to the checks in `fit`."""
    values = list(strength.values()) if hasattr(strength, "values") and callable(strength.values) else strength
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return np.ones(1)
