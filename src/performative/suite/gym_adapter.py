"""Environments for Gymnasium: an action is a model, an observation is the data it induces."""

import math
from typing import Any

import numpy as np

from performative._base.arguments import Positive, checked
from performative.domains import Box
from performative.suite.budget import Budget
from performative.suite.environment import Environment, Rows
from performative.types import Unchecked


@checked
def gymnasium_env(env: Unchecked[Environment], bound: Positive = 100.0) -> Any:
    """Wrap an environment as a `gymnasium.Env`.

        action       the next model, of `env.shape`, projected onto the problem's domain
        observation  what `env.deploy` returns, as a dictionary of arrays; rows of absent clients are 0
        reward       f(previous model) - f(current model), as a fraction of the gap between never retraining and the
                     oracle
        truncated    when the budget does not cover another deployment

    The rewards of an episode add up to the score of its last model minus that of the start. They use the ground truth:
    a learner that is compared with others must not use them.

    Args:
        bound: largest absolute entry of a deployed model, if the problem has no box domain

    Needs the package gymnasium: pip install "performative[suite]".
    """
    if not isinstance(env, Environment):
        raise ValueError(f"gymnasium_env: env must be a pf.suite.Environment; got {type(env).__name__}.")
    try:
        import gymnasium
    except ImportError:
        raise ImportError(
            'gymnasium_env: the package gymnasium is not installed; pip install "performative[suite]", or use '
            "env.reset and env.deploy, which do not need it."
        ) from None
    low, high = _ends(env, bound)

    class Deployments(gymnasium.Env):  # type: ignore[misc]  # Any to the type checker if gymnasium is missing
        """Models in, rows out, until the budget is spent."""

        metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  as Gymnasium has it

        def __init__(self) -> None:
            self.world = env
            self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
            self.observation_space = gymnasium.spaces.Dict(
                {name: _space(gymnasium.spaces, values) for name, values in _shown(env.reset(0)).items()}
            )
            self._score = 0.0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Rows, dict[str, Any]]:
            super().reset(seed=seed)
            drawn = int(self.np_random.integers(2**31)) if seed is None else seed
            seen = _shown(env.reset(drawn))
            self._score = env.score(env.start)
            return seen, _facts(env)

        def step(self, action: Any) -> tuple[Rows, float, bool, bool, dict[str, Any]]:
            theta = env.project(np.clip(np.asarray(action, np.float64), low, high))
            seen = _shown(env.deploy(theta))
            before, self._score = self._score, env.score(theta)
            over = bool(env.left.lacks(Budget(1, env.rows * env.clients, 1)))
            return seen, self._score - before, False, over, _facts(env)

    return Deployments()


def _ends(env: Environment, bound: float) -> tuple[np.ndarray, np.ndarray]:
    domain = env.problem.domain
    ends = (domain.lo, domain.hi) if isinstance(domain, Box) else (-math.inf, math.inf)
    low, high = (np.broadcast_to(np.asarray(end, np.float64), env.shape) for end in ends)
    return np.where(np.isfinite(low), low, -bound), np.where(np.isfinite(high), high, bound)


def _space(spaces: Any, values: np.ndarray) -> Any:
    if values.dtype == np.int8:
        return spaces.MultiBinary(values.shape)
    return spaces.Box(-np.inf, np.inf, values.shape, np.float64)


def _shown(rows: Rows) -> Rows:
    """Convert every number to float64, and `present` to 0 and 1."""
    return {
        name: values.astype(np.int8) if name == "present" else np.nan_to_num(values.astype(np.float64))
        for name, values in rows.items()
    }


def _facts(env: Environment) -> dict[str, Any]:
    left = env.left
    return {"deployments_left": left.deployments, "samples_left": left.samples, "time_left": left.time}
