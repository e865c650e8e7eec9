"""An algorithm is a record of parts."""

from typing import Any

import equinox as eqx

from performative.aggregators import AbstractAggregator, Mean
from performative.batches import AbstractBatch, Fixed
from performative.channels import AbstractChannel, Plain
from performative.deploy import Deployment, as_deployment
from performative.estimators import AbstractEstimator, Minibatch
from performative.participation import AbstractParticipation, Full
from performative.schedules import as_schedule

_SLOTS = {
    "batch": AbstractBatch,
    "estimator": AbstractEstimator,
    "participation": AbstractParticipation,
    "channel": AbstractChannel,
    "aggregator": AbstractAggregator,
}


class Algorithm(eqx.Module):
    """One part for each slot. Recipes such as `p_fedavg` are short functions that return such a record.

    absent: whether the worlds of clients that sit out stay "frozen" or react to each deployed model ("moves").
    """

    rate: Any = eqx.field(converter=as_schedule)
    local_steps: int = eqx.field(static=True, default=1)
    batch: AbstractBatch = Fixed(1)
    estimator: AbstractEstimator = Minibatch()
    participation: AbstractParticipation = Full()
    channel: AbstractChannel = Plain()
    aggregator: AbstractAggregator = Mean()
    deploy: Deployment = eqx.field(converter=as_deployment, default="step")
    absent: str = eqx.field(static=True, default="frozen")
    name: str = eqx.field(static=True, default="algorithm")

    def __check_init__(self) -> None:
        if not (isinstance(self.local_steps, int) and self.local_steps >= 1):
            raise ValueError(f"local_steps must be a whole number E >= 1; got {self.local_steps!r}.")
        if self.absent not in ("frozen", "moves"):
            raise ValueError(f'absent must be "frozen" or "moves"; got {self.absent!r}.')
        for slot, kind in _SLOTS.items():
            part = getattr(self, slot)
            if not isinstance(part, kind):
                raise ValueError(f"{slot} must be a {kind.__name__}; got {part!r}.")
        self.participation.local_steps(self.local_steps)

    @property
    def steps(self) -> int:
        """E, the largest number of local steps that any client does in a round."""
        return self.participation.local_steps(self.local_steps)
