"""The data of an assessment, without the text and figures derived from it."""

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
        """The scenario at `strength` itself."""
        return next(one for one in self.scenarios if one.strength == self.strength)
