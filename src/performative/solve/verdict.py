"""What play did in a run: settled, cycled, diverged, or unknown."""

import dataclasses
import math

import jax
import numpy as np

from performative._base.arguments import checked
from performative.history import History

# Records needed, and the size of movements that count, relative to the total movement of play.
_RECORDS, _STILL = 40, 0.02
# A cycle returns to within this fraction of its size, and its size is constant to within that fraction.
_RETURN, _STEADY = 0.1, 0.01
# Play this many times as far out as in its first quarter has diverged.
_FAR = 1e3


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a run shows.

    Attributes:
        kind: "settled", "cycles", "diverged" or "unknown"
        period: rounds after which play returns, NaN if it does not cycle
        reason: in words
    """

    kind: str
    period: float
    reason: str


@checked
def play_verdict(history: History) -> Verdict:
    """Whether play in a run settled, cycles or diverged, by the mean path of all models over the repeats.

    settled     in the last quarter of the rounds it moves by less than 2% of how far it has come, and no more than
                in the quarter before
    cycles      throughout the last half it comes back, every `period` rounds and at least three times, to within 10%
                of its size, which stays the same within 1%
    diverged    every repeat became non-finite or passed the limit, or the mean went out 1,000 times as far as in the
                first quarter

    Everything else is "unknown": a path that still moves may settle, cycle or diverge later. More repeats average out
    more noise. The verdict only covers these rounds: a cycle may decay in ten thousand more.
    """
    stopped = int(np.sum(history.stopped_at >= 0))
    if stopped:
        said = f"{stopped} of {history.repeats} repeats diverged"
        return Verdict("diverged" if stopped == history.repeats else "unknown", math.nan, f"{said}.")
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(history.theta)]
    path = np.concatenate([leaf.mean(axis=0).reshape(leaf.shape[1], -1) for leaf in leaves], axis=1)
    count = len(path)
    if count < _RECORDS:
        return Verdict("unknown", math.nan, f"{count} records are too few; {_RECORDS} are needed.")
    if history.models is not None and not np.any(path != path[0]):
        return Verdict("unknown", math.nan, "clients kept their models, so their path was not recorded.")
    travel = float(np.max(np.linalg.norm(path - path[0], axis=1)))
    first, third, last = (path[slice(*ends)] for ends in _quarters(count))
    size = 1.0 + float(np.max(np.linalg.norm(first, axis=1)))
    if np.linalg.norm(path[-1]) > _FAR * size:
        return Verdict("diverged", math.nan, f"models are {np.linalg.norm(path[-1]) / size:.3g} times as far out.")
    before, after = _spread(third), _spread(last)
    moved = float(np.linalg.norm(last.mean(axis=0) - third.mean(axis=0)))
    if max(after, moved) <= _STILL * travel and after <= 1.05 * before + 1e-9 * travel:
        return Verdict("settled", math.nan, f"the last quarter moves by {after:.3g}, all of play by {travel:.3g}.")
    half = path[count // 2 :]
    middle = (np.min(half, axis=0) + np.max(half, axis=0)) / 2
    sizes = [float(np.max(np.linalg.norm(part - middle, axis=1))) for part in (third, last)]
    lag = _returns(half, max(sizes)) if abs(sizes[1] - sizes[0]) <= _STEADY * sizes[0] else None
    if lag is not None:
        period = lag * float(history.rounds[-1]) / (count - 1)
        said = f"play returns after {period:.3g} rounds; its size went from {sizes[0]:.4g} to {sizes[1]:.4g}."
        return Verdict("cycles", period, said)
    said = f"the last quarter moves by {after:.3g}, the one before by {before:.3g}, all of play by {travel:.3g}."
    return Verdict("unknown", math.nan, said)


def _quarters(count: int) -> list[tuple[int, int]]:
    cuts = [count * part // 4 for part in range(5)]
    return [(cuts[0], cuts[1]), (cuts[2], cuts[3]), (cuts[3], cuts[4])]


def _spread(path: np.ndarray) -> float:
    """The largest distance from the middle."""
    return float(np.max(np.linalg.norm(path - path.mean(axis=0), axis=1)))


def _returns(path: np.ndarray, size: float) -> int | None:
    """The first lag after which the whole path returns, having been away; None if there is none."""
    away = False
    for lag in range(1, len(path) // 3 + 1):
        apart = np.linalg.norm(path[lag:] - path[:-lag], axis=1)
        away = away or float(np.median(apart)) > 0.5 * size
        if away and float(np.max(apart)) <= _RETURN * size:
            return lag
    return None
