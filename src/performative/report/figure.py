"""What a picture shows, said once: matplotlib draws it for pages without scripts, Plotly for those to play with."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from performative.report.formulas import for_browser

Values = Sequence[Any]


@dataclass(frozen=True)
class Series:
    """One line, or one set of dots or bars. What is left out is chosen for it.

    Attributes:
        name: In the legend.
        y: The values; None where there is none.
        x: Where they lie along the axis, for lines and points; `at`: at which place down the side, for rows and bars.
        low: Ends of the band or of the intervals, with `high`.
        key: Series of one key are hidden and shown together.
        color: Number of the color; `colors` has one for each value.
        dash: Number of the pattern of the line; `symbol` that of the dot.
        size: Of the dots, in points; `thick` is the width of intervals, in points.
        open: Which dots are hollow.
        labels: Text at each dot.
        along: Other x to choose from, by name.
        joined: Whether points are joined by a line; `dotted`: whether a line has dots; `filled`: whether the area below
            it is; `quiet`: whether it stays out of the legend.
    """

    name: str
    y: Values
    x: Values = ()
    at: Values = ()
    low: Values | None = None
    high: Values | None = None
    key: str = ""
    color: int | None = None
    colors: Sequence[int] | None = None
    dash: int | None = None
    symbol: int | None = None
    size: float | int | None = None
    thick: float | int | None = None
    open: Sequence[bool] | None = None
    labels: Sequence[str] | None = None
    along: Mapping[str, Values] = dataclasses.field(default_factory=dict)
    joined: bool = False
    dotted: bool = False
    filled: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Mark:
    """A line at a value worth knowing; upright: the value is along x, as it always is where rows or bars lie."""

    name: str
    value: float | int
    upright: bool = False


@dataclass(frozen=True)
class View:
    """One picture, or one of several to choose from.

    Attributes:
        label: What a list of views calls it.
        x: Name of the axis along; `y` that of the values, which lie along x where `kind` is "rows" or "bars".
        kind: "lines" (mean and band), "points" (with error bars), "rows" (dots beside names) or "bars" (lying).
        log: Which axes start logarithmic: any of "x" and "y", "y" being the axis of the values.
        rows: Names down the side, where `kind` lies.
        linear: Whether the reader may not change the scales.
        range: Ends of the axis of the values; `ticks` are (values, texts, ends in decades) of it where logarithmic.
        description: What it shows, for those who cannot see it.
    """

    label: str
    x: str
    y: str
    series: Sequence[Series]
    kind: Literal["lines", "points", "rows", "bars"] = "lines"
    log: str = ""
    rows: Sequence[str] = ()
    marks: Sequence[Mark] = ()
    linear: bool = False
    range: Values | None = None
    ticks: tuple[Values, Values, Values] | None = None
    description: str = ""

    @property
    def lying(self) -> bool:
        """Whether values lie along x."""
        return self.kind in ("rows", "bars")

    @property
    def dressed(self) -> list[Series]:
        """The series, those without looks of their own with the colors and dashes in turn.

        A line that lies on earlier ones is dashed, so that both are seen.
        """
        made: list[Series] = []
        for i, one in enumerate(self.series):
            covered = sum(_coincide(one, other) for other in made) if self.kind == "lines" else 0
            dash = (i // 7 + covered) % 6 if one.dash is None else one.dash
            color = i % 7 if one.color is None else one.color
            made.append(dataclasses.replace(one, key=one.key or one.name, color=color, dash=dash))
        return made

    def to_dict(self) -> dict[str, Any]:
        """As the page's script reads it."""
        places = "at" if self.lying else "x"
        series = [{places: list(getattr(one, places)), **_given(one)} for one in self.dressed]
        always = {"log": self.log, "kind": self.kind, "series": series}
        marks = {"marks": [_given(one) | {"name": for_browser(one.name)} for one in self.marks]} if self.marks else {}
        named = {"label": for_browser(self.label), "x": for_browser(self.x), "y": for_browser(self.y)}
        return {**_given(self), **named, **always, **marks}


def _coincide(one: Series, other: Series, share: float = 0.01) -> bool:
    """Whether two lines lie on each other: nowhere apart by more than a share of what they span."""
    if len(one.y) != len(other.y) or len(one.y) < 2 or list(one.x) != list(other.x):
        return False
    pairs = [(a, b) for a, b in zip(one.y, other.y, strict=True) if a is not None and b is not None]
    if not pairs:
        return False
    values = [value for pair in pairs for value in pair]
    return max(abs(a - b) for a, b in pairs) <= share * (max(values) - min(values))


def _given(thing: Any) -> dict[str, Any]:
    """The fields that were given; what is left out stays out, and descriptions stand elsewhere."""
    made = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name != "description" and (required or not (value is None or value is False or _is_empty(value))):
            made[field.name] = value
    return made


def _is_empty(value: Any) -> bool:
    return isinstance(value, (tuple, list, dict, str)) and not value
