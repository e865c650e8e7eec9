"""When a new model reaches the world."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from performative.facts import AbstractPart
from performative.types import Theta, as_whole

__all__ = ["Deployment", "Every", "Late"]


class Deployment(AbstractPart):
    """A rule for the model that clients' data react to.

    `each_step`: every local model is deployed as soon as it exists (greedy; what the papers analyze).
    Otherwise the global model is deployed every `period` rounds, `lag` rounds late; 0 means never after the start.
    """

    references = ()
    ignores_data = True

    each_step: bool = eqx.field(static=True)
    period: int = eqx.field(static=True)
    lag: int = eqx.field(static=True, default=0)

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        lazy = settings["period"] > 1 and not settings["each_step"]
        deployed = ("perdomo2020performative",) if settings["each_step"] or settings["period"] else ()
        return (*deployed, *(Every.references if lazy else ()))

    def next(self, deployed: Theta, theta: Theta, round: Int[Array, ""]) -> Theta:
        """The deployed model of this round, from that of the last one and the new global model."""
        if self.each_step or self.period == 1:
            return theta
        if self.period == 0:
            return deployed
        now = round % self.period == 0
        return jax.tree.map(lambda new, old: jnp.where(now, new, old), theta, deployed)


class Every(AbstractPart):
    """Lazy deployment: the global model reaches the world every k rounds."""

    references = ("mendlerdunner2020stochastic",)

    k: int = eqx.field(static=True, converter=as_whole)

    def __check_init__(self) -> None:
        if isinstance(self.k, bool) or not (isinstance(self.k, int) and self.k >= 1):
            raise ValueError(f"Every(k={self.k}) needs a whole number of rounds, k >= 1.")


class Late(AbstractPart):
    """The global model reaches the world so many rounds late: people respond to theta_{t - rounds}.

    Until then they respond to the first model.
    """

    references = ()

    rounds: int = eqx.field(static=True, converter=as_whole)

    def __check_init__(self) -> None:
        if isinstance(self.rounds, bool) or not (isinstance(self.rounds, int) and self.rounds >= 1):
            raise ValueError(f"Late(rounds={self.rounds}) needs a whole number of rounds >= 1.")


_NAMED = {"step": Deployment(True, 1), "round": Deployment(False, 1), "never": Deployment(False, 0)}


def as_deployment(deploy: object) -> Deployment:
    """Read `deploy=`: "step", "round", "never", Every(k) or Late(rounds)."""
    if isinstance(deploy, Deployment):
        return deploy
    if isinstance(deploy, Every):
        return Deployment(False, deploy.k)
    if isinstance(deploy, Late):
        return Deployment(False, 1, deploy.rounds)
    if not isinstance(deploy, str) or deploy not in _NAMED:
        raise ValueError(f'deploy must be "step", "round", "never", pf.Every(k) or pf.Late(rounds); got {deploy!r}.')
    return _NAMED[deploy]
