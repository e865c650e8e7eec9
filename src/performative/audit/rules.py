"""Who is accepted, by score and by linear model."""

import numpy as np

from performative._base.checks import nearest
from performative.audit.deployments import Deployments
from performative.audit.schema import LogError, Settings
from performative.audit.scoring import INTERCEPT


def decide(score: np.ndarray, threshold: float | None, accept: str) -> np.ndarray:
    """1 if the score is at the threshold or on its accepted side, else 0; NaN if it is not finite."""
    assert threshold is not None
    inside = score >= threshold if accept == "above" else score <= threshold
    return np.where(np.isfinite(score), inside, np.nan).astype(np.float64)


def linear_models(
    features: tuple[str, ...], deployments: Deployments, settings: Settings
) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights [T, k] on the features and offsets [T]; None if the parameters do not match the features."""
    place = parameter_places(features, deployments.parameters, settings)
    used = set(place.values())
    rest = [p for i, p in enumerate(deployments.parameters) if i not in used and p != INTERCEPT]
    if not place or rest:
        return None
    weights = np.zeros((len(deployments.names), len(features)))
    for name, i in place.items():
        weights[:, features.index(name)] = deployments.theta[:, i]
    free = deployments.parameters.index(INTERCEPT) if INTERCEPT in deployments.parameters else None
    return weights, np.zeros(len(weights)) if free is None or free in used else deployments.theta[:, free]


def linear_rule(
    models: tuple[np.ndarray, np.ndarray] | None, deployments: Deployments, settings: Settings
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Weights [T, k] on the features, offsets [T] and the threshold; None if one of them is unknown.

    The threshold is in units of the score; if models are summarized by the logit of the score, it is transformed too.
    """
    threshold = settings.decision.threshold
    if threshold is None or models is None:
        return None
    if deployments.scoring and deployments.scoring[0].link == "logit":
        if not 0 < threshold < 1:
            raise LogError(f"decision.threshold must lie in (0, 1) like the scores; got {threshold:g}.", "audit.toml")
        threshold = float(np.log(threshold) - np.log1p(-threshold))
    return *models, threshold


def parameter_places(features: tuple[str, ...], parameters: tuple[str, ...], settings: Settings) -> dict[str, int]:
    """Which entry of theta is the weight of which feature: by [model] parameters, else by equal names."""
    place = {name: parameters.index(name) for name in features if name in parameters}
    for feature, parameter in settings.parameters.items():
        short = parameter.removeprefix("theta_")
        if feature not in features:
            raise LogError(
                f"model.parameters: there is no feature {feature!r}.{nearest(feature, features)}", "audit.toml"
            )
        if short not in parameters:
            near = nearest(short, parameters)
            raise LogError(f"model.parameters: there is no parameter {parameter!r}.{near}", "audit.toml")
        place[feature] = parameters.index(short)
    if len(set(place.values())) < len(place):
        raise LogError("model.parameters: two features share a parameter.", "audit.toml")
    return place
