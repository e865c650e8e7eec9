"""One description of a picture, drawn by matplotlib as the page's script draws it."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from performative.report.drawing import draw, png, svg
from performative.report.figure import Mark, Series, View

LINES = View(
    "l", "round", "risk", [Series("a", [1, 2, None], [1, 2, 3], low=[0.5, 1, None], high=[2, 3, None]),
                           Series("b", [3, 3, 3], [1, 2, 3], dash=1, filled=True, quiet=True)],
    log="y", marks=[Mark("floor", 0.7), Mark("now", 2, upright=True)],
)  # fmt: skip
POINTS = View("p", "x", "y", [Series("a$", [1, 2], [1, 2], joined=True), Series("b", [2, 1], [1, 2])], kind="points")
ROWS = View(
    "r", "", "accuracy", kind="rows",
    series=[Series("a", [1, 2], at=[0, 1], low=[0, 1], high=[2, 3], open=[True, False], labels=["x", "y"])],
    rows=["first", "second"], range=[0, 5], marks=[Mark("", 1)], description="Not for the script.",
)  # fmt: skip
BARS = View("b", "", "share", [Series("s", [4, -2], at=[0, 1], colors=[1, 0])], kind="bars", rows=["one", "two"])
VIEWS = [LINES, POINTS, ROWS, BARS]


def drawn(view):
    ax = Figure(layout="constrained").subplots()
    draw(ax, view)
    return ax


def test_the_script_gets_what_was_said_and_nothing_else():
    told = json.loads(json.dumps(ROWS.to_dict()))
    assert set(told) == {"label", "x", "y", "kind", "log", "series", "rows", "range", "marks"}
    (series,) = told["series"]
    assert set(series) == {"name", "key", "y", "at", "low", "high", "open", "labels", "color", "dash"}
    assert (series["key"], series["color"], series["dash"]) == ("a", 0, 0)
    assert [one["color"] for one in LINES.to_dict()["series"]] == [0, 1]
    assert LINES.to_dict()["marks"][1] == {"name": "now", "value": 2, "upright": True}


def test_lines_have_bands_marks_and_scales():
    ax = drawn(LINES)
    a, b, floor, now = ax.get_lines()
    np.testing.assert_array_equal(a.get_ydata(), [1, 2, np.nan])
    assert b.get_linestyle() == "--" and len(ax.collections) == 2  # a band, and the area below
    assert list(floor.get_ydata()) == [0.7, 0.7] and list(now.get_xdata()) == [2, 2]
    assert (ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "round", "risk")
    assert not ax.figure.legends  # one of them is quiet
    assert {text.get_text() for text in ax.texts} == {"floor", "now"}


def test_points_are_joined_where_said_and_names_stay_text():
    ax = drawn(POINTS)
    assert [bars.lines[0].get_linestyle() for bars in ax.containers] == ["-", "None"]
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == [r"a\$", "b"]


def test_rows_lie_beside_their_names():
    ax = drawn(ROWS)
    hollow, full, mark = ax.get_lines()
    assert hollow.get_markerfacecolor() == "none" != full.get_markerfacecolor()
    assert (hollow.get_xdata()[0], full.get_ydata()[0], mark.get_xdata()[0]) == (1, 1, 1)
    np.testing.assert_array_equal(ax.collections[0].get_segments(), [[[0, 0], [2, 0]], [[1, 1], [3, 1]]])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["first", "second"]
    assert ax.get_xlim() == (0, 5) and ax.get_xlabel() == "accuracy" and ax.yaxis_inverted()
    assert [text.get_text() for text in ax.texts] == ["x", "y"]


def test_bars_have_colors_of_their_own():
    ax = drawn(BARS)
    assert [bar.get_width() for bar in ax.patches] == [4, -2]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.kind)
def test_files_are_the_same_each_time_and_differ_by_paper(view):
    assert svg(view) == svg(view) and svg(view).endswith(b"</svg>\n")
    assert svg(view) != svg(view, dark=True)


def test_whole_numbers_on_a_logarithmic_axis():
    ax = drawn(View("l", "clients", "time", [Series("a", [1, 2, 3], [1, 10, 100])], log="xy"))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_several_side_by_side():
    assert png(VIEWS[:3], ["one", "two", "three"])[:8] == b"\x89PNG\r\n\x1a\n"
