"""When a new model reaches the world."""

import functools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int

from performative._base.checks import check_counts, check_flags, check_number, check_rule, is_one_of
from performative.facts import AbstractPart
from performative.types import Numbers, Theta, as_array, as_whole, number, whole

__all__ = ["Deployment", "Every", "Explore", "Growing", "Late"]

# Deployments of `Growing` that are computed in advance: at power 1/2 enough for thirty million rounds.
_MOST = 1 << 17


class Explore(AbstractPart):
    """Deploy perturbations of the global model, one per round, to learn how the world reacts.

        deployed_t = theta_t + radius u_s,          and with `pairs` theta_t + radius u_s, then theta_t - radius u_s

    u_s has length 1. The global model itself does not move. Directions depend only on the round, so all clients, and
    all repeats of a run, share them; deployed models are projected onto the problem's domain. Methods that learn from
    deployments need it (`ZerothOrder`, `PlugIn`); for others it adds some noise, and makes audits more informative.

    Args:
        radius: size of the perturbation
        pairs: whether each direction is tried both ways, in two rounds
        directions: "sphere", drawn each time, or "axes" in turn; without pairs the model itself comes before the first
            axis, so d + 1 rounds identify a linear reaction
        rounds: number of rounds of exploration, after which nothing else is deployed; None for no limit
        seed: random seed of the directions

    Example:

        import performative as pf

        print(pf.p_fedavg(0.1, deploy=pf.Explore(0.5)).deploy)
    """

    references = ()
    ignores_data = True

    radius: Numbers = number()
    pairs: bool = eqx.field(static=True, default=True)
    directions: str = eqx.field(static=True, default="sphere")
    rounds: int | None = whole(default=None)
    seed: int = whole(default=0)

    def __check_init__(self) -> None:
        check_number("Explore", radius=self.radius)
        check_rule("Explore", "must be above 0", radius=self.radius)
        check_flags("Explore", pairs=self.pairs)
        if not is_one_of(self.directions, "sphere", "axes"):
            raise ValueError(f'Explore: directions must be "sphere" or "axes"; got {self.directions!r}.')
        if self.rounds is not None:
            check_counts(**{"Explore: rounds": self.rounds})
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ValueError(f"Explore: seed must be a whole number from 0 to 2**32 - 1; got {self.seed!r}.")

    def next(self, deployed: Theta, theta: Theta, round: Int[Array, ""]) -> Theta:
        """The deployed model of this round."""
        center, back = ravel_pytree(theta)
        turn = round // 2 if self.pairs else round
        if self.directions == "sphere":
            drawn = jax.random.normal(jax.random.fold_in(jax.random.key(self.seed), turn), center.shape, center.dtype)
            u = drawn / jnp.linalg.norm(drawn)
        else:
            at = turn % len(center) if self.pairs else turn % (len(center) + 1) - 1
            u = (jnp.arange(len(center), dtype=jnp.int32) == at).astype(center.dtype)
        far = jnp.asarray(self.radius, center.dtype)
        if self.pairs:
            far = jnp.where(round % 2 == 0, far, -far)
        shown = back(center + far * u)
        if self.rounds is None:
            return shown
        lasts = round < self.rounds
        return jax.tree.map(lambda new, old: jnp.where(lasts, new, old), shown, deployed)


class Deployment(AbstractPart):
    """A rule for which model clients' data react to.

    `each_step`: every local model is deployed as soon as it exists (greedy; what the papers analyze).
    Otherwise the global model is deployed every `period` rounds, `lag` rounds late; 0 means never after the start.
    With `grows` = (first, power) intervals grow, and `period` only means that they are longer than one round; with
    `explore` other models are deployed around it.
    """

    references = ()
    ignores_data = True

    each_step: bool = eqx.field(static=True)
    period: int = eqx.field(static=True)
    lag: int = eqx.field(static=True, default=0)
    grows: tuple[int, float] | None = eqx.field(static=True, default=None)
    explore: Explore | None = None

    @property
    def is_regular(self) -> bool:
        """Whether the global model is deployed at regular intervals."""
        return self.grows is None and self.explore is None

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        lazy = settings["period"] > 1 and not settings["each_step"]
        deployed = ("perdomo2020performative",) if settings["each_step"] or settings["period"] else ()
        return (*deployed, *(Every.references if lazy else ()))

    def next(self, deployed: Theta, theta: Theta, round: Int[Array, ""]) -> Theta:
        """The deployed model of this round, from that of the last one and the new global model."""
        if self.explore is not None:
            return self.explore.next(deployed, theta, round)
        if self.each_step or self.period == 1:
            return theta
        if self.period == 0:
            return deployed
        if self.grows is None:
            now = round % self.period == 0
        else:
            times = jnp.asarray(growing_times(*self.grows))
            now = jnp.take(times, jnp.searchsorted(times, round), mode="clip") == round
        return jax.tree.map(lambda new, old: jnp.where(now, new, old), theta, deployed)


class Every(AbstractPart):
    """Lazy deployment: the global model reaches the world every k rounds."""

    references = ("mendlerdunner2020stochastic",)

    k: int = eqx.field(static=True, converter=as_whole)

    def __check_init__(self) -> None:
        if isinstance(self.k, bool) or not (isinstance(self.k, int) and self.k >= 1):
            raise ValueError(f"Every(k={self.k}) needs a whole number of rounds, k >= 1.")


def _as_float(value: Any) -> Any:
    """A static number as a Python float; anything else is left to the checks."""
    array = as_array(value)
    return float(array) if array.ndim == 0 and array.dtype.kind in "uif" else value


class Growing(AbstractPart):
    """Lazy deployment at growing intervals: the j-th model stays for n_j rounds.

        n_j = ceil(first j^power),      j = 1, 2, ...

    Between deployments training continues on the data of the last one, so models approach those of exact retraining,
    with far fewer deployments: about R^(1/(1+power)) in R rounds. Mendler-Duenner et al. 2020, Theorem 3.6 and Section
    3.2. It deploys at most 131,072 times.

    Args:
        first: the first interval, in rounds
        power: how fast they grow, > 0

    Example:

        import performative as pf

        print(pf.p_fedavg(0.1, deploy=pf.Growing(first=2, power=1.0)).deploy)           # rounds 0, 2, 6, 12, ...
    """

    references = ("mendlerdunner2020stochastic",)

    first: int = whole(default=1)
    power: float = eqx.field(static=True, default=1.0, converter=_as_float)

    def __check_init__(self) -> None:
        check_counts(**{"Growing: first": self.first})
        check_number("Growing", power=self.power)
        check_rule("Growing", "must be above 0", power=self.power)


@functools.lru_cache(maxsize=16)
def growing_times(first: int, power: float) -> np.ndarray:
    """The rounds in which `Growing` deploys, as far as rounds can be counted."""
    intervals = np.ceil(first * np.arange(1.0, _MOST + 1) ** power)
    times = np.concatenate([[0.0], np.cumsum(intervals)])
    return times[times < 2**31].astype(np.int32)


class Late(AbstractPart):
    """The global model is deployed with a delay: people respond to theta_{t - rounds}.

    Until then they respond to the first model.
    """

    references = ()

    rounds: int = eqx.field(static=True, converter=as_whole)

    def __check_init__(self) -> None:
        if isinstance(self.rounds, bool) or not (isinstance(self.rounds, int) and self.rounds >= 1):
            raise ValueError(f"Late(rounds={self.rounds}) needs a whole number of rounds >= 1.")


_NAMED = {"step": Deployment(True, 1), "round": Deployment(False, 1), "never": Deployment(False, 0)}


def as_deployment(deploy: object) -> Deployment:
    """Read `deploy=`: "step", "round", "never", Every(k), Growing(...), Late(rounds) or Explore(radius)."""
    if isinstance(deploy, Deployment):
        return deploy
    if isinstance(deploy, Every):
        return Deployment(False, deploy.k)
    if isinstance(deploy, Late):
        return Deployment(False, 1, deploy.rounds)
    if isinstance(deploy, Growing):
        return Deployment(False, 2, grows=(deploy.first, deploy.power))
    if isinstance(deploy, Explore):
        return Deployment(False, 1, explore=deploy)
    if not isinstance(deploy, str) or deploy not in _NAMED:
        raise ValueError(
            'deploy must be "step", "round", "never", pf.Every(k), pf.Growing(first, power), pf.Late(rounds) or '
            f"pf.Explore(radius); got {deploy!r}."
        )
    return _NAMED[deploy]
