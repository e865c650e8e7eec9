"""The table, and whether its differences are significant."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from performative.history import History

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "accuracy", "believed", "performative_risk", "true_positive", "true_negative",
    "distance_to_stable", "distance_to_optimal",
)  # fmt: skip
_HEADS = ("accuracy", "believed", "risk", "TPR", "TNR", "to stable", "to optimal")


@dataclasses.dataclass(frozen=True)
class Line:
    """One row of the table: means over repeats, and their standard errors (empty if nothing is random)."""

    name: str
    values: dict[str, float]
    errors: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Way:
    """Where the repeats of an algorithm end on the line from static (0) to stable (1): mean, half its 95% interval.

    The intervals of all algorithms on a board hold simultaneously.
    """

    mean: float
    half: float

    @property
    def resolves(self) -> bool:
        """Whether these repeats distinguish static from stable.

        The interval must be too short to contain both, and must not be farther away than they are from each other: a
        biased method that ends elsewhere carries no information about them, however small its variance.
        """
        return self.half < 0.5 and -1.0 < self.mean < 2.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scoreboard:
    """Returned by `pf.scoreboard`; `print` it, or use `frame()`.

    Attributes:
        lines: majority class, static baseline, stable point, optimal point, then the algorithms
        points: "static", "stable" and "optimal" as models; one that was not found is missing
        ways: for each algorithm, where its repeats end between static and stable
        gap: |static - stable|
        accuracy_gain: accuracy at the stable point minus that of the static baseline, both after people reacted
        accuracy_error: its standard error over people, paired; NaN if the population has no table
        accuracy_chance: p-value of a sign test of the gain; on training people, to whom the models are fitted, it is
            not informative
        people: number of people the rates are measured on, None if the population has no table
        held_out: whether these people were held out
        rounds: of each algorithm
        histories: the runs
        notes: anything unusual: a point that repels or was not found, warnings of runs
    """

    lines: tuple[Line, ...]
    points: dict[str, np.ndarray]
    ways: dict[str, Way]
    gap: float
    accuracy_gain: float
    accuracy_error: float
    accuracy_chance: float
    people: int | None
    held_out: bool
    repeats: int
    rounds: dict[str, int]
    histories: dict[str, History]
    notes: tuple[str, ...]

    @property
    def detectable(self) -> bool:
        """Whether the repeats of at least one algorithm distinguish stable from static: see `Way`.

        `ways` shows which; an effect visible with one algorithm may be hidden by the variance of another.
        """
        return any(way.resolves for way in self.ways.values())

    def __getitem__(self, name: str) -> Line:
        """A row by its name."""
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(f"{name!r} is not a row; there are {[line.name for line in self.lines]}.")

    def frame(self) -> "pandas.DataFrame":
        """One row per line; after the columns, their standard errors as `<column>_error`."""
        import pandas as pd

        rows = [{**line.values, **{f"{c}_error": line.errors.get(c, np.nan) for c in COLUMNS}} for line in self.lines]
        return pd.DataFrame(rows, index=pd.Index([line.name for line in self.lines], name="model"))

    def __repr__(self) -> str:
        found = "detectable" if self.detectable else "not detectable"
        return f"Scoreboard({[line.name for line in self.lines]}, effect {found}; print it for the table)"

    def __str__(self) -> str:
        cells = cells_of(self)
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells]
        return "\n".join([*table, "", *self.sentences()])

    def sentences(self) -> list[str]:
        """What the numbers are, and whether the performative effect is detectable."""
        whom = "the problem's own data" if self.people is None else f"{self.people:,} people"
        where = f"{whom}, held out" if self.held_out else whom
        runs = f" Algorithms: mean ± standard error of {self.repeats} repeats." if self.errors_known else ""
        said = [
            f"Accuracy, TPR and TNR: {where}, after they reacted; believed: before. "
            f"Risk and distances: on the training data.{runs}"
        ]
        if "stable" in self.points:
            said += [self._detection(), self._accuracy()]
        return [*said, *(f"Note: {note}" for note in self.notes)]

    @property
    def errors_known(self) -> bool:
        """Whether any algorithm has at least two repeats to compute a standard error from."""
        return any(line.errors for line in self.lines)

    def _detection(self) -> str:
        apart = f"Static and stable are {self.gap:.3g} apart in theta"
        if not self.ways:
            return f"{apart}."
        if not self.errors_known:
            return f"{apart}; judging whether that is detectable requires repeats >= 2 that do not diverge."
        told = (
            f"{name} {_short(way.mean, 2)} ± {way.half:.2g}{'' if way.resolves else ' (inconclusive)'}"
            for name, way in self.ways.items()
            if np.isfinite(way.mean)
        )
        verdict = "is detectable" if self.detectable else "is NOT detectable"
        farther = [name for name in self.ways if self[name].values["distance_to_stable"] > self.gap]
        return (
            f"{apart}; the performative effect {verdict} with these repeats. "
            f"On the line from static (0) to stable (1) they end at {', '.join(told)} (95% simultaneous)."
            + (f" Farther from stable than the static baseline: {', '.join(farther)}." if farther else "")
        )

    def _accuracy(self) -> str:
        gain = f"Accuracy of stable minus static: {100 * self.accuracy_gain:+.2f}"
        if not np.isfinite(self.accuracy_error):
            return f"{gain} points."
        gain = f"{gain} ± {100 * self.accuracy_error:.2f} points"
        if not self.held_out:
            return f"{gain} on the training people; use `held_out` for others."
        sure = "significant" if self.accuracy_chance <= 0.05 else "not significant"
        return f"{gain}: {sure} with this many people (p = {self.accuracy_chance:.2g})."


def cells_of(board: Scoreboard) -> list[list[str]]:
    """The table as text, heading first."""
    return [["", *_HEADS], *([line.name, *(_cell(line, c) for c in COLUMNS)] for line in board.lines)]


def _cell(line: Line, column: str) -> str:
    value, error = line.values[column], line.errors.get(column)
    if not np.isfinite(value):
        return "-"
    return _short(value, 4) if error is None else f"{_short(value, 4)} ±{_short(error, 4)}"


def _short(value: float, digits: int) -> str:
    """Format with `digits` decimals; diverged values still fit in their column."""
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.2g}"
