"""What the demo found out, as records."""

import dataclasses
from typing import Any

import numpy as np

from performative.findings import Finding
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

    @property
    def findings(self) -> tuple[Finding, Finding, Finding]:
        """Does deployment change the data, does retraining settle, what does ignoring it cost?"""
        n, (static, learnt, stable, optimal) = self.numbers, self.models
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
            "gained": learnt.deployed_accuracy - static.deployed_accuracy,
            "further": optimal.deployed_accuracy - stable.deployed_accuracy,
            "risks": [model.deployed_risk for model in (static, stable, optimal)],
        }
        return (
            Finding("answer.change", "warning" if changes else "info", change),
            Finding("answer.settle", "info" if attracts else "warning", settle),
            Finding("answer.cost", "info", cost),
        )
