"""What the demo found out, as records."""

import dataclasses
from typing import Any

import numpy as np

from performative.history import History


@dataclasses.dataclass(frozen=True)
class Model:
    """One way to learn, and what came of it. Numbers are means over seeds where there are any.

    expected: on the data that it learnt from; deployed: on the data that it brings about.
    """

    name: str
    how: str
    expected_risk: float
    deployed_risk: float
    expected_accuracy: float
    deployed_accuracy: float
    accuracy_range: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """All that the demo found out.

    models:    static, retrained, stable, optimal
    scores:    log-odds that the static model gives each applicant, before and after it is deployed
    histories: of FedAvg and P-FedAvg
    numbers:   the answers as a flat record, for --json
    """

    models: list[Model]
    scores: tuple[np.ndarray, np.ndarray]
    histories: dict[str, History]
    numbers: dict[str, Any]
