"""The demo's results as records."""

import dataclasses
from typing import Any

import numpy as np

from performative.findings import Finding
from performative.history import History


@dataclasses.dataclass(frozen=True)
class Model:
    """One way to learn, and its result. Numbers are means over seeds, if there are any.

    expected: on the data it was trained on; deployed: on the data it induces.
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
    """All results of the demo.

    models:    static, retrained, stable, optimal
    scores:    the static model's log-odds for each applicant, before and after it is deployed
    histories: of FedAvg and P-FedAvg
    numbers:   the answers as a flat record, for --json
    """

    models: list[Model]
    scores: tuple[np.ndarray, np.ndarray]
    histories: dict[str, History]
    numbers: dict[str, Any]

    @property
    def findings(self) -> tuple[Finding, Finding, Finding]:
        """Does deployment change the data, does retraining settle, what does ignoring it cost?"""
        n, (static, learned, stable, optimal) = self.numbers, self.models
        changes, attracts = n["decisions_changed"] > 0.01, n["contraction"] < 1
        covered = 1 - n["distance_end"] / n["distance_start"]
        change = {
            "changes": changes,
            "decisions_changed": n["decisions_changed"],
            "feature_shift": n["feature_shift"],
            "expected": static.expected_accuracy,
            "deployed": static.deployed_accuracy,
        }
        settle = {
            "settles": attracts and covered > 0.5,
            "covered": covered,
            **{name: n[name] for name in ("distance_start", "distance_end", "static_distance", "seeds", "contraction")},
            "retrainings": len(n["retraining"]) - 1,
            "left": n["retraining"][-1],
        }
        cost = {
            "lost": static.expected_accuracy - static.deployed_accuracy,
            "gained": learned.deployed_accuracy - static.deployed_accuracy,
            "further": optimal.deployed_accuracy - stable.deployed_accuracy,
            "risks": [model.deployed_risk for model in (static, stable, optimal)],
        }
        return (
            Finding("answer.change", "warning" if changes else "info", change),
            Finding("answer.settle", "info" if attracts else "warning", settle),
            Finding("answer.cost", "info", cost),
        )
