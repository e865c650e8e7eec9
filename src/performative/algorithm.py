"""An algorithm is a record of parts."""

import functools
from typing import Any, TypedDict

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.checks import check_counts, check_fields, is_one_of
from performative._base.describe import short, shown
from performative._base.notebook import card
from performative._deprecated import new_value
from performative.aggregators import AbstractAggregator, Mean
from performative.batches import AbstractBatch, Fixed
from performative.channels import AbstractChannel, Plain
from performative.deploy import Deployment, as_deployment
from performative.estimators import AbstractEstimator, Minibatch
from performative.participation import AbstractParticipation, Full
from performative.schedules import Constant, as_schedule
from performative.sharing import AbstractSharing, OneModel
from performative.types import Numbers, as_words, is_concrete, whole

__all__ = ["Algorithm"]

_SLOTS = {
    "batch": AbstractBatch,
    "estimator": AbstractEstimator,
    "participation": AbstractParticipation,
    "channel": AbstractChannel,
    "aggregator": AbstractAggregator,
    "sharing": AbstractSharing,
}
_EXAMPLES = {
    "batch": "pf.Fixed(1)",
    "estimator": "pf.estimators.Minibatch()",
    "participation": "pf.SchemeOne(2)",
    "channel": "pf.channels.Plain()",
    "aggregator": "pf.aggregators.Mean()",
    "sharing": "pf.sharing.OneModel()",
}


class Algorithm(eqx.Module):
    """One part per slot. Recipes such as `p_fedavg` are short functions that return such a record.

    Args:
        absent: whether the worlds of absent clients stay "frozen" or react to each deployed model ("reacts")
        from_data: in words, what was chosen based on the data of the run itself, such as a clip: no noise protects it,
            and `pf.privacy.guarantee` reports it
    """

    rate: Any = eqx.field(converter=as_schedule)
    local_steps: int = whole(default=1)
    batch: AbstractBatch = Fixed(1)
    estimator: AbstractEstimator = Minibatch()
    participation: AbstractParticipation = Full()
    channel: AbstractChannel = Plain()
    aggregator: AbstractAggregator = Mean()
    sharing: AbstractSharing = OneModel()
    deploy: Deployment = eqx.field(converter=as_deployment, default="step")
    absent: str = eqx.field(static=True, default="frozen", converter=functools.partial(new_value, "absent"))
    name: str = eqx.field(static=True, default="algorithm")
    from_data: tuple[str, ...] = eqx.field(static=True, converter=as_words, default=())

    def __repr__(self) -> str:
        return shown(self)

    def _repr_html_(self) -> str:
        facts = [(slot, short(getattr(self, slot))) for slot in ("rate", "local_steps", *_SLOTS, "deploy")]
        return card(f"Algorithm: {self.name}", facts)

    def __check_init__(self) -> None:
        check_counts(local_steps=self.local_steps)
        if isinstance(self.rate, Constant):
            check_rate(self.rate.value)
        if not is_one_of(self.absent, "frozen", "reacts"):
            raise ValueError(f'absent must be "frozen" or "reacts"; got {self.absent!r}.')
        for slot, kind in _SLOTS.items():
            part = getattr(self, slot)
            if not isinstance(part, kind):
                raise ValueError(f"{slot} must be a part such as {_EXAMPLES[slot]}; got {part!r}.")
            check_fields(part)
        check_fields(self.rate)
        self.participation.local_steps(self.local_steps)

    def eta(self, t: Int[Array, ""] | int) -> Float[Array, ""]:
        """The step size of local step t, whatever type the schedule returns."""
        return jnp.asarray(self.rate(t)).astype(jnp.result_type(float))

    @property
    def steps(self) -> int:
        """E, the largest number of local steps that any client does in a round."""
        return self.participation.local_steps(self.local_steps)


class Parts(TypedDict, total=False):
    """What every recipe takes in addition to its own arguments: the fields of `Algorithm`."""

    local_steps: int
    batch: AbstractBatch
    estimator: AbstractEstimator
    participation: AbstractParticipation
    channel: AbstractChannel
    aggregator: AbstractAggregator
    sharing: AbstractSharing
    deploy: Deployment | str
    absent: str
    name: str
    from_data: tuple[str, ...]


def check_rate(value: Numbers) -> None:
    """Raise unless a constant step is a number >= 0."""
    if not is_concrete(value):
        return
    step = np.asarray(value)
    if step.dtype.kind not in "iuf" or step.ndim or not np.isfinite(step) or step < 0:
        raise ValueError(
            f"rate must be a finite number >= 0, or a schedule such as pf.schedules.harmonic(20.0, 200.0); got "
            f"{repr(step.item()) if step.dtype.kind == 'U' and not step.ndim else value}."
        )
