"""Tables of a report as text: headings are no wider than what stands below them, and nothing is cut off."""

import io

from rich.console import Console

from performative.report.section import Table

TABLE = Table(
    ["strength", "deserving accepted", "model"],
    [["0.1", "73.8%", "trained once"], ["3", "0.5%", ("stable", "point")]],
    notes=["A note."],
)


def test_plain_text():
    assert TABLE.text().splitlines() == [
        "          deserving",
        "strength   accepted           model",
        "0.1           73.8%    trained once",
        "3              0.5%  stable (point)",
        "A note.",
    ]


def test_a_table_without_rows_is_its_heading():
    assert Table(["a", "b"], []).text() == "a  b"


def test_a_terminal_of_80_columns_cuts_nothing_off():
    wide = Table(["strength", "group", *["decisions changed"] * 5], [["0.1", "female", *["100.0%"] * 5]])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(wide.terminal())
    shown = console.export_text()
    assert shown.count("decisions") == 5 and shown.count("100.0%") == 5
    assert max(map(len, shown.splitlines())) <= 80
