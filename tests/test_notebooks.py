"""What a notebook shows: cards of what was made, and pictures at the end of a cell."""

import io
import sys
import types
from unittest import mock

import numpy as np
import pytest

import performative as pf


@pytest.fixture(scope="module")
def problem():
    people = pf.populations.Gaussian(mean=[0.0, 1.0], sensitivity=[0.2, 0.5], scale=1.0)
    return pf.Problem(pf.losses.squared, people, domain=pf.Box(-5.0, 5.0))


@pytest.fixture(scope="module")
def history(problem):
    return pf.run(problem, pf.p_fedavg(0.1), rounds=5, theta=0.0, repeats=3)


def test_parts_are_listed_by_slot(problem):
    shown = problem._repr_html_()
    assert "<b>population</b>" in shown and "Gaussian(" in shown and "Box(" in shown
    method = pf.p_fedavg(0.1, participation=pf.SchemeOne(1))
    assert "<b>participation</b>" in method._repr_html_() and "SchemeOne" in method._repr_html_()


def test_what_users_wrote_is_escaped():
    shown = pf.p_fedavg(0.1, name="<script>")._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_results_have_their_picture(problem, history):
    assert "data:image/svg+xml" in history._repr_html_() and "final distance to stable" in history._repr_html_()
    sweep = pf.sweep(problem, pf.p_fedavg(0.1), over={"rate": [0.1, 0.2]}, rounds=5, theta=0.0, repeats=2)
    shown = sweep._repr_html_()
    assert "data:image/svg+xml" in shown and "rate=0.2" in shown.replace(" = ", "=")


def test_verdicts_come_first(problem):
    certificate = pf.certify(problem)
    shown = certificate._repr_html_()
    assert shown.index(certificate.verdict[:20]) < shown.index("<li>")


@pytest.fixture
def kernel(monkeypatch):
    """A notebook's kernel, as far as pictures look."""
    shell = mock.MagicMock(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, version_info=(9, 0)))


def test_a_figure_is_shown_in_a_notebook_and_nowhere_else(history, kernel, monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    ax = history.plot()
    assert len(pyplot.get_fignums()) == len(before) + 1 and pyplot.gcf() is ax.figure
    assert history.plot(ax=ax) is ax
    pyplot.close(ax.figure)
    history._repr_html_()
    assert pyplot.get_fignums() == before  # a card leaves no second figure
    monkeypatch.delitem(sys.modules, "IPython")
    history.plot()
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(("values", "texts"), [((3.0, 60.0), {"5", "10", "20", "50"}), ((1e-4, 30.0), {"0.001", "10"})])
def test_ticks_of_a_logarithmic_axis_are_whole_numbers(values, texts):
    from matplotlib.figure import Figure

    from performative.plotting import whole_numbers

    ax = Figure().subplots()
    ax.plot([0, 1], values)
    ax.set_yscale("log")
    whole_numbers(ax.yaxis)
    ax.figure.savefig(io.BytesIO())
    low, high = ax.get_ylim()
    shown = {tick.label1.get_text() for tick in ax.yaxis.get_major_ticks() if low <= tick.get_loc() <= high}
    assert texts <= shown and all(np.isfinite(float(text)) for text in shown)
