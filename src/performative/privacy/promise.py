"""The privacy requirements of a run."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from performative._base.arguments import check_fields

# File name of the ledger in a checkpoint folder.
BOOK = "ledger.json"


@dataclasses.dataclass(frozen=True)
class Privacy:
    """The privacy requirements of a run, for `pf.run(..., privacy=...)` and the table [privacy] of a file.

    Attributes:
        delta: the probability with which the guarantee may fail; well below one over the number of people
        epsilon: the budget: the run stops before the round that would exceed it. None only tracks the spending
        unit: "example" or "client"; None means the client if the channel is `ClippedNoise`
        noise: "fast" (reproducible, for simulation) or "secure" (discrete Gaussian from the system's entropy)
        published: what is published in addition to the models; see `guarantee`
        conservative: see `guarantee`; for `Dice`
    """

    references: ClassVar[tuple[str, ...]] = ("dwork2006calibrating",)

    delta: float
    epsilon: float | None = None
    unit: str | None = None
    noise: str = "fast"
    published: tuple[str, ...] = ()
    conservative: bool = False

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("canonne2020discrete",) if settings.get("noise") == "secure" else ()

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.delta < 1:
            raise ValueError(f"privacy: delta must lie between 0 and 1; got {self.delta}.")
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ValueError(f"privacy: epsilon must be above 0 and finite; got {self.epsilon}.")
        if self.noise not in ("fast", "secure"):
            raise ValueError(f'privacy: noise must be "fast" or "secure"; got {self.noise!r}.')
        if isinstance(self.published, str):
            raise ValueError(f"privacy: published must be a list, such as [{self.published!r}].")
        object.__setattr__(self, "published", tuple(self.published))
