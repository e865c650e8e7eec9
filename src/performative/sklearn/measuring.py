"""Rates of a classifier before and after people respond, for all and by group."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from performative.sklearn.judged import Judge

EVERYBODY = "all"


def measured(
    judge: Judge,
    shown: dict[float, np.ndarray],
    moves: dict[float, np.ndarray],
    utility: dict[float, np.ndarray],
    deserve: Bool[np.ndarray, " n"],
    groups: Any,
) -> Any:
    """A tidy frame: one row per strength and group. `deserve`: who truly belongs to the desired class."""
    import pandas as pd

    n = len(deserve)
    everyone = np.arange(n)
    kinds = [EVERYBODY] if groups is None else [EVERYBODY, *np.unique(groups).tolist()]  # strings, none of them "all"
    first, rows = judge.accepted(everyone, judge.movable), []
    for s, values in shown.items():
        accepted = judge.accepted(everyone, values)
        scores = None
        if judge.kind is not None and np.isfinite(judge.threshold):
            scores = judge.scores(everyone, values)
        for kind in kinds:
            of = np.ones(n, bool) if kind == EVERYBODY else groups == kind
            row = {"strength": s, "group": str(kind), **_rates(accepted[of], deserve[of], first[of])}
            row |= {
                "moved": float(np.mean(np.any(moves[s][of] != 0, axis=1))),
                "distance": float(np.mean(np.linalg.norm(moves[s][of], axis=1))),
                "utility": float(np.mean(utility[s][of])),
            }
            if kind == EVERYBODY:
                row |= _thresholds(scores, deserve, float(np.mean(first)), judge.threshold)
            rows.append(row)
    return pd.DataFrame(rows)


def _rates(accepted: np.ndarray, deserve: np.ndarray, first: np.ndarray) -> dict[str, Any]:
    """Accuracy, acceptance (overall, of deserving people and of others), and the share of changed decisions."""

    def share(of: np.ndarray) -> float:
        return float(np.mean(accepted[of])) if np.any(of) else float("nan")

    return {
        "people": len(accepted),
        "accuracy": float(np.mean(accepted == deserve)),
        "acceptance": float(np.mean(accepted)),
        "acceptance_deserving": share(deserve),
        "acceptance_others": share(~deserve),
        "changed": float(np.mean(accepted != first)),
    }


def _thresholds(
    scores: Float[np.ndarray, " n"] | None, deserve: np.ndarray, rate: float, threshold: float
) -> dict[str, float]:
    """The current threshold, the one whose acceptance is closest to the one before (ties cannot be split), and the most
    accurate one with its accuracy."""
    if scores is None:
        return {}
    order = np.argsort(scores, kind="stable")
    ordered, right = scores[order], deserve[order]
    # Scores i, i + 1, ... lie above cut i; ties cannot be split.
    cuts = np.concatenate([[ordered[0] - 1.0], (ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + 1.0]])
    whole = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    above = len(scores) - np.arange(len(scores) + 1)
    hits = np.concatenate([[0], np.cumsum(~right)]) + np.concatenate([np.cumsum(right[::-1])[::-1], [0]])
    cuts, above, accuracy = cuts[whole], above[whole] / len(scores), hits[whole] / len(scores)
    same, best = int(np.argmin(np.abs(above - rate))), int(np.argmax(accuracy))
    # Keep the current threshold if it is as good as any.
    now = float(np.mean((scores > threshold) == deserve))
    kept = now >= accuracy[best]
    unmoved = bool(np.mean(scores > threshold) == rate)
    return {
        "threshold": threshold,
        "threshold_same_rate": threshold if unmoved else float(cuts[same]),
        "acceptance_same_rate": rate if unmoved else float(above[same]),
        "threshold_best": threshold if kept else float(cuts[best]),
        "accuracy_best": now if kept else float(accuracy[best]),
    }
