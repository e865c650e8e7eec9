"""Test whether one method is better than another, or whether the difference is only noise."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from performative._base.arguments import checked
from performative._base.checks import nearest
from performative._base.notebook import card
from performative.history import History, Measure
from performative.types import as_numbers

if TYPE_CHECKING:
    import pandas

__all__ = ["Comparison", "Difference", "compare"]

# If a smaller fraction of the differences is distinct, the metric is discrete.
_DISTINCT = 0.95
# All sign flips of up to this many differences are tried; beyond, as many at random.
_FLIPS = 14


@dataclasses.dataclass(frozen=True)
class Difference:
    """first - second, over repeats with the same seed."""

    first: str
    second: str
    mean: float
    low: float
    high: float
    p_value: float

    @property
    def verdict(self) -> str:
        """In words, at the level of the interval."""
        if self.low > 0:
            return f"{self.second} is smaller"
        if self.high < 0:
            return f"{self.first} is smaller"
        return "no difference shown"

    def __str__(self) -> str:
        interval = f"[{self.low:.4g}, {self.high:.4g}]"
        return f"{self.first} - {self.second} = {self.mean:.4g} {interval}, p = {self.p_value:.2g}: {self.verdict}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Paired differences. The intervals hold simultaneously at `level` (Bonferroni); the p-values are Holm's."""

    metric: str
    level: float
    means: dict[str, float]
    differences: list[Difference]

    def to_frame(self) -> "pandas.DataFrame":
        """One row per pair."""
        import pandas as pd

        return pd.DataFrame([{**dataclasses.asdict(d), "verdict": d.verdict} for d in self.differences])

    def __str__(self) -> str:
        lines = [f"{self.metric}: " + ", ".join(f"{name} {mean:.4g}" for name, mean in self.means.items())]
        return "\n".join([*lines, *(f"  {d}" for d in self.differences)])

    def _repr_html_(self) -> str:
        means = [(f"mean of {name}", f"{mean:.4g}") for name, mean in self.means.items()]
        return card(f"Paired comparison of {self.metric}, level {self.level:g}", means, map(str, self.differences))


@checked
def compare(
    histories: Mapping[str, History],
    metric: Measure = "distance_to_stable",
    level: float = 0.95,
    baseline: str | None = None,
) -> Comparison:
    """Differences of final values between runs with the same seed and repeats (common random numbers).

    Repeat r of one run is compared with repeat r of the other, which removes the shared noise from the difference.
    `baseline` compares all others to one run; without it every pair is compared. With m pairs the intervals are
    Student's at 1 - (1 - level)/m, and p-values are corrected by Holm's method. Both assume normal differences. If some
    are equal (a discrete metric) they are not normal, and p is the probability of a mean as large if every difference
    had either sign with probability 1/2 (a sign-flip test): exact for runs that are equally good. The interval is then
    infinite if Student's would show a difference and that test does not. Runs without randomness are compared exactly.
    """
    if len(histories) < 2:
        raise ValueError(f"compare needs at least two histories; got {list(histories)}.")
    if baseline is not None and baseline not in histories:
        raise ValueError(f"baseline={baseline!r} is not among the histories {list(histories)}.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level}.")
    for name, history in histories.items():
        if not isinstance(history, History):
            raise ValueError(f"compare: histories[{name!r}] must be a History; got {type(history).__name__}.")
    draws = {(h.meta.get("seed"), h.repeats) for h in histories.values()}
    if len(draws) > 1:
        raise ValueError(f"compare pairs repeats by seed, so seed and repeats must agree; got (seed, repeats) {draws}.")
    repeats = next(iter(histories.values())).repeats
    if repeats < 2:
        raise ValueError(f"compare needs repeats >= 2 to tell a difference from noise; got {repeats}.")
    values = {name: _final(name, h, metric) for name, h in histories.items()}
    for run, final in values.items():
        if not np.all(np.isfinite(final)):
            raise ValueError(
                f"compare: the final {metric!r} of {run!r} must be finite in every repeat"
                f"{_ending(histories[run])}; exclude this run."
            )
    ends = {name: int(h.rounds[-1]) for name, h in histories.items()}
    if len(set(ends.values())) > 1:
        told = ", ".join(f"{name!r} at round {end}{_ending(histories[name])}" for name, end in ends.items())
        raise ValueError(
            f"compare uses final values, so all runs must end at the same round; got {told}. Exclude runs that did not "
            "complete, or run all of them for the same number of rounds."
        )
    pairs = list(itertools.combinations(values, 2))
    if baseline is not None:
        pairs = [(name, baseline) for name in values if name != baseline]
    random = {name for name, history in histories.items() if is_random(history)}
    each = [paired(values, pair, (1 - level) / len(pairs), random) for pair in pairs]
    corrected = holm(np.asarray([difference.p_value for difference in each]))
    differences = [dataclasses.replace(d, p_value=float(p)) for d, p in zip(each, corrected, strict=True)]
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    return Comparison(name, level, {n: float(v.mean()) for n, v in values.items()}, differences)


def paired(values: Mapping[str, np.ndarray], pair: tuple[str, str], chance: float, random: set[str]) -> Difference:
    """One paired difference: Student's interval, which misses the truth with this probability, and its own p-value."""
    from scipy import stats

    first, second = pair
    gap = values[first] - values[second]
    repeats = len(gap)
    mean, error = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(repeats))
    half = float(stats.t.ppf(1 - chance / 2, repeats - 1)) * error
    if error == 0 and not random & {first, second}:
        p = float(mean == 0)
    elif error > 0 and len(np.unique(np.abs(gap))) >= _DISTINCT * repeats:
        p = float(2 * stats.t.sf(abs(mean) / error, repeats - 1))
    else:
        p = flipped(gap)
        half = np.inf if p > chance and abs(mean) > half else half
    return Difference(first, second, mean, mean - half, mean + half, p)


def flipped(gap: np.ndarray) -> float:
    """The two-sided probability of a mean as large if every difference had either sign with probability 1/2."""
    moved = np.abs(gap[gap != 0])
    if len(moved) <= _FLIPS:
        signs = 1.0 - 2.0 * (np.arange(1 << len(moved))[:, None] >> np.arange(len(moved)) & 1)
        return float(np.mean(np.abs(signs @ moved) >= abs(gap.sum()) * (1 - 1e-12)))
    signs = 1.0 - 2.0 * np.random.default_rng(0).integers(0, 2, (1 << _FLIPS, len(moved)))
    as_large = np.sum(np.abs(signs @ moved) >= abs(gap.sum()) * (1 - 1e-12))
    return float(as_large + 1) / (
        (1 << _FLIPS) + 1
    )  # the observed value counts as one of them, so the test stays exact


def is_random(history: History) -> bool:
    """Whether repeats end at different models."""
    return any(np.any(leaf != leaf[:1]) for leaf in map(np.asarray, jax.tree.leaves(history.final)))


def _ending(history: History) -> str:
    """How a run ended, in brackets; empty if it completed."""
    if history.status == "diverged":
        at = history.stopped_at[history.stopped_at >= 0]
        rounds = f"round {at.min()}" if at.min() == at.max() else f"rounds {at.min()} to {at.max()}"
        return f" (diverged in {len(at)} of {history.repeats} repeats, at {rounds})"
    return "" if history.status == "completed" else f" ({history.status})"


def _final(name: str, history: History, metric: Measure) -> np.ndarray:
    """The final value of each repeat of one run."""
    if not callable(metric) and metric not in {**history.records, **history.risks}:
        known = nearest(metric, [*history.records, *history.risks])
        raise ValueError(f"compare: metric={metric!r} was not recorded in {name!r}.{known}")
    final = np.asarray(as_numbers(metric(history) if callable(metric) else history[metric][:, -1]))
    if final.shape != (history.repeats,) or final.dtype.kind != "f":
        raise ValueError(
            f"compare: metric must return one number per repeat, [{history.repeats}]; got shape {final.shape}."
        )
    return final


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down correction: valid whatever the dependence between the tests."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(stepped, 1.0)
    return out
