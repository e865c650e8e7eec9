"""The contents of a figure, defined once: matplotlib draws it for static pages, Plotly for interactive ones."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from performative.report.formulas import for_browser

Values = Sequence[Any]


@dataclass(frozen=True)
class Series:
    """One line, or one set of dots or bars. Omitted attributes are chosen automatically.

    Attributes:
        name: In the legend.
        y: The values; None if missing.
        x: Positions along the axis, for lines and points; `at`: positions down the side, for rows and bars.
        low: Lower ends of the band or the intervals; `high`: the upper ends.
        key: Series with the same key are hidden and shown together.
        color: Index of the color; `colors` has one per value.
        dash: Index of the line style; `symbol` that of the marker.
        size: Marker size, in points; `thick` is the width of intervals, in points.
        open: Which dots are hollow.
        labels: Text at each dot.
        along: Alternative x to choose from, by name.
        joined: Whether points are joined by a line; `dotted`: whether a line has markers; `filled`: whether the area
            below it is filled; `quiet`: whether it is omitted from the legend.
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
    """A reference line at a value. `upright`: the value is along x, as it always is for rows and bars."""

    name: str
    value: float | int
    upright: bool = False


@dataclass(frozen=True)
class View:
    """One figure, or one of several to choose from.

    Attributes:
        label: Its name in a list of views.
        x: Label of the x axis; `y` that of the values, which lie along x if `kind` is "rows" or "bars".
        kind: "lines" (mean and band), "points" (with error bars), "rows" (dots next to names) or "bars" (horizontal).
        log: Which axes start logarithmic: any of "x" and "y", "y" being the axis of the values.
        rows: Names down the side, for "rows" and "bars".
        linear: Whether the scales are fixed.
        range: Limits of the axis of the values; `ticks` are its (values, texts, limits in decades) if logarithmic.
        description: What it shows, as alternative text.
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
        """The series, with default colors and dashes filled in by cycling.

        A line that coincides with earlier ones is dashed, so both are visible.
        """
        made: list[Series] = []
        for i, one in enumerate(self.series):
            covered = sum(_coincide(one, other) for other in made) if self.kind == "lines" else 0
            dash = (i // 7 + covered) % 6 if one.dash is None else one.dash
            color = i % 7 if one.color is None else one.color
            made.append(dataclasses.replace(one, key=one.key or one.name, color=color, dash=dash))
        return made

    def to_dict(self) -> dict[str, Any]:
        """The format that the page's script reads."""
        places = "at" if self.lying else "x"
        series = [{places: list(getattr(one, places)), **_given(one)} for one in self.dressed]
        always = {"log": self.log, "kind": self.kind, "series": series}
        marks = {"marks": [_given(one) | {"name": for_browser(one.name)} for one in self.marks]} if self.marks else {}
        named = {"label": for_browser(self.label), "x": for_browser(self.x), "y": for_browser(self.y)}
        return {**_given(self), **named, **always, **marks}


def _coincide(one: Series, other: Series, share: float = 0.01) -> bool:
    """Whether two lines coincide: nowhere further apart than a share of their range."""
    if len(one.y) != len(other.y) or len(one.y) < 2 or list(one.x) != list(other.x):
        return False
    pairs = [(a, b) for a, b in zip(one.y, other.y, strict=True) if a is not None and b is not None]
    if not pairs:
        return False
    values = [value for pair in pairs for value in pair]
    return max(abs(a - b) for a, b in pairs) <= share * (max(values) - min(values))


def _given(thing: Any) -> dict[str, Any]:
    """The fields that were set; the description is not included."""
    made = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name != "description" and (required or not (value is None or value is False or _is_empty(value))):
            made[field.name] = value
    return made


def _is_empty(value: Any) -> bool:
    return isinstance(value, (tuple, list, dict, str)) and not value
