"""The table, and whether what it shows is more than luck."""

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
    """One row of the table: means over repeats, and their standard errors (empty where nothing is random)."""

    name: str
    values: dict[str, float]
    errors: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Way:
    """Where the repeats of an algorithm end on the line from static (0) to stable (1): mean, half its 95 % interval.

    The intervals of all algorithms on a board hold together.
    """

    mean: float
    half: float

    @property
    def resolves(self) -> bool:
        """Whether these repeats tell static from stable.

        The interval must be too short to hold both, and must not lie farther off than they are from each other: a
        biased method that ends elsewhere says nothing of them, however little it scatters.
        """
        return self.half < 0.5 and -1.0 < self.mean < 2.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scoreboard:
    """Made by `pf.scoreboard`; `print` it, or take `frame()`.

    Attributes:
        lines: majority class, static baseline, stable point, optimal point, then the algorithms
        points: "static", "stable" and "optimal" as models; one that was not found is missing
        ways: of each algorithm, where its repeats end between static and stable
        gap: |static - stable|
        accuracy_gain: accuracy at the stable point less that of the static baseline, both after people reacted
        accuracy_error: its standard error over people, paired; NaN where people are not counted
        accuracy_chance: of a gain as large if those whose answer changes were as likely to gain as to lose (a sign
            test); of people who are trained on, to whom the models are fitted, it says little
        people: how many the rates are measured on, None where the population has no table
        held_out: whether these were kept apart
        rounds: of each algorithm
        histories: the runs
        notes: what was out of the ordinary: a point that repels or was not found, what runs warned of
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
        """Whether the repeats of at least one algorithm can tell the stable point from the static baseline: see `Way`.

        `ways` says which; an effect that one algorithm shows may drown in the scatter of another.
        """
        return any(way.resolves for way in self.ways.values())

    def __getitem__(self, name: str) -> Line:
        """A row by its name."""
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(f"{name!r} is no row; there are {[line.name for line in self.lines]}.")

    def frame(self) -> "pandas.DataFrame":
        """One row a line; after the columns their standard errors, `<column>_error`."""
        import pandas as pd

        rows = [{**line.values, **{f"{c}_error": line.errors.get(c, np.nan) for c in COLUMNS}} for line in self.lines]
        return pd.DataFrame(rows, index=pd.Index([line.name for line in self.lines], name="model"))

    def __repr__(self) -> str:
        found = "detectable" if self.detectable else "not detectable"
        return f"Scoreboard({[line.name for line in self.lines]}, effect {found}; print it for the table)"

    def __str__(self) -> str:
        cells = [["", *_HEADS], *([line.name, *(_cell(line, c) for c in COLUMNS)] for line in self.lines)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells]
        return "\n".join([*table, "", *self._words()])

    def _words(self) -> list[str]:
        whom = "the problem's own data" if self.people is None else f"{self.people:,} people"
        where = f"{whom}, held out" if self.held_out else whom
        runs = f" Algorithms: mean ± standard error of {self.repeats} repeats." if self.errors_known else ""
        said = [
            f"Accuracy, TPR and TNR: {where}, after they reacted; believed: before. "
            f"Risk and distances: on what is trained on.{runs}"
        ]
        if "stable" in self.points:
            said += [self._detection(), self._accuracy()]
        return [*said, *(f"Note: {note}" for note in self.notes)]

    @property
    def errors_known(self) -> bool:
        """Whether there is an algorithm with two repeats or more to take a standard error from."""
        return any(line.errors for line in self.lines)

    def _detection(self) -> str:
        apart = f"Static and stable are {self.gap:.3g} apart in theta"
        if not self.ways:
            return f"{apart}."
        if not self.errors_known:
            return f"{apart}; whether that is detectable takes repeats >= 2 that do not diverge."
        told = (
            f"{name} {_short(way.mean, 2)} ± {way.half:.2g}{'' if way.resolves else ' (cannot tell)'}"
            for name, way in self.ways.items()
            if np.isfinite(way.mean)
        )
        verdict = "is detectable" if self.detectable else "is NOT detectable"
        farther = [name for name in self.ways if self[name].values["distance_to_stable"] > self.gap]
        return (
            f"{apart}; the performative effect {verdict} by these repeats. "
            f"On the way from static (0) to stable (1) they end at {', '.join(told)} (95 % together)."
            + (f" Farther from stable than the static baseline is: {', '.join(farther)}." if farther else "")
        )

    def _accuracy(self) -> str:
        gain = f"In accuracy stable less static is {100 * self.accuracy_gain:+.2f}"
        if not np.isfinite(self.accuracy_error):
            return f"{gain} points."
        gain = f"{gain} ± {100 * self.accuracy_error:.2f} points"
        if not self.held_out:
            return f"{gain} among the people trained on; whether others gain takes `held_out`."
        sure = "more" if self.accuracy_chance <= 0.05 else "no more"
        return f"{gain}: {sure} than chance among that many people (p = {self.accuracy_chance:.2g})."


def _cell(line: Line, column: str) -> str:
    value, error = line.values[column], line.errors.get(column)
    if not np.isfinite(value):
        return "-"
    return _short(value, 4) if error is None else f"{_short(value, 4)} ±{_short(error, 4)}"


def _short(value: float, digits: int) -> str:
    """So many digits after the point; what has run away fits in its column, too."""
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.2g}"
