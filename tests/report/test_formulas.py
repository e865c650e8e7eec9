"""Formulas in labels."""

import pytest

from performative.report.figure import Series, View
from performative.report.formulas import for_browser, for_matplotlib


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"$|\theta_t - \theta_{PS}|$", "|θ<sub>t</sub> - θ<sub>PS</sub>|"),
        (r"$\mathbb{E}\|\bar\theta - \theta^*\|^2$ at the end", "E‖θ̄ - θ^*‖<sup>2</sup> at the end"),
        (r"share $\frac{K}{N}$", "share K/N"),
        (r"$\beta = 0.01$, $\eta L$", "β = 0.01, ηL"),
        ("steps $t$ of $T$", "steps t of T"),
        ("costs $5 and $7", "costs $5 and $7"),
    ],
)
def test_formulas_for_the_browser(text, shown):
    assert for_browser(text) == shown


def test_money_is_no_formula():
    assert for_matplotlib("costs $5 and $7") == r"costs \$5 and \$7"
    assert for_matplotlib(r"$\theta_{PS}$ for $5") == r"$\theta_{PS}$ for \$5"


def test_lines_that_coincide_are_dashed():
    x = [0, 1, 2]
    lines = [Series("a", [1.0, 2.0, 3.0], x), Series("b", [1.0, 2.001, 3.0], x), Series("c", [1.0, 2.5, 3.0], x)]
    assert [one.dash for one in View("v", "x", "y", lines).dressed] == [0, 1, 0]
