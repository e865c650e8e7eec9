"""What a solver found, and how good it is."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """A point, with the evidence for it.

    Attributes:
        theta: the point, shaped like the model, float64
        residual: largest entry of |theta - P(theta - g(theta))|, P the projection on the domain, g the decoupled
            gradient for a stable point and the gradient of the performative risk for an optimal one: how well the
            equation was solved, under the rule used for expectations
        error: standard error of theta from that rule, largest coordinate: from draws, or from the nodes of a
            quadrature. 0 if expectations are exact (closed forms, tables), NaN if unknown
        method: how it was found
        risk: the performative risk f(theta; theta)
        contraction: spectral radius of one retraining to the minimum at a stable point, which attracts if it is below
            1: of d Phi / d theta, or of the joint map of model and worlds if data remember past models. NaN if
            undefined or not computed
        attracting: whether retraining settles at the point. If the decoupled risk is flat, so there is nothing to
            retrain to, whether small gradient steps do. None if not computed
        settles: whether small steps along the decoupled gradient settle there (P-FedAvg, gradient descent)
        others: further points found from other starts, best or nearest first
    """

    theta: Any
    residual: float
    method: str
    risk: float
    error: float = float("nan")
    contraction: float = float("nan")
    attracting: bool | None = None
    settles: bool | None = None
    others: tuple["Solution", ...] = ()
