"""Environments for Gymnasium: an action is a model, an observation is what its people left behind."""

from typing import Any

import numpy as np

from performative.suite.environment import Environment, Rows


def gymnasium_env(env: Environment, bound: float = 100.0) -> Any:
    """The environment as a `gymnasium.Env`.

        action       the next model, float64 of `env.shape`, projected on the problem's domain
        observation  what `env.deploy` shows, as a dictionary of arrays
        reward       minus the mean loss of the rows under that model; `info["risk"]` is not told
        truncated    when the budget does not pay for another deployment

    Args:
        bound: largest entry of a model that may be deployed where the problem has no box

    Needs the package gymnasium: pip install "performative[suite]".
    """
    raise NotImplementedError
