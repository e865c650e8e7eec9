"""What an assessment knows, without the words and pictures that are made of it."""

import dataclasses
from typing import Any

from performative.assess.features import Feature
from performative.assess.measuring import Scenario
from performative.certify.certificate import Certificate


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AbstractAssessment:
    """The facts; see `Assessment`."""

    name: str
    rows: int
    clients: int
    label: str
    positive: Any
    who: str
    strategic: tuple[str, ...]
    share: float
    strength: float
    scenarios: tuple[Scenario, ...]
    features: tuple[Feature, ...]
    certificate: Certificate
    notes: tuple[str, ...]

    @property
    def scenario(self) -> Scenario:
        """That of `strength` itself."""
        return next(one for one in self.scenarios if one.strength == self.strength)
