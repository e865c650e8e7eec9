"""What a notebook shows: cards of what was made, and pictures at the end of a cell."""

import dataclasses
import io
import re
import sys
import types
from unittest import mock

import numpy as np
import pytest

import performative as pf
from performative._base.notebook import card


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
    assert "<code>final distance to the stable point</code>" in shown  # the numbers used to have no name
    many = dataclasses.replace(sweep, settings=sweep.settings * 12, histories=sweep.histories * 12)
    assert "and 4 more settings" in many._repr_html_()


def test_backticks_are_code():
    shown = card("a", lines=["pass it as `error`", "`<b>`"], lead="set `x`")
    assert "as <code>error</code>" in shown and "<code>&lt;b&gt;</code>" in shown and "set <code>x</code>" in shown


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


BAR = """
import performative as pf
people = pf.populations.Gaussian([0.0, 1.0], 0.3, 1.0)
problem = pf.Problem(pf.losses.squared, people)
chunks = []
class Often:
    every = 10
    def __call__(self, news):
        chunks.append(news.round)
bar = pf.callbacks.Progress(show=True)
pf.run(problem, pf.p_fedavg(0.1), rounds=60, theta=0.0, callbacks=[bar, Often()])
"""


@pytest.mark.slow
def test_a_progress_bar_is_one_output_that_is_replaced(tmp_path):
    """In a real kernel: no flood of lines, no warning about widgets, and the last state stays."""
    nbformat = pytest.importorskip("nbformat", reason="the extra performative[docs] is not installed")
    client = pytest.importorskip("nbclient", reason="the extra performative[docs] is not installed")
    cells = [nbformat.v4.new_code_cell(BAR), nbformat.v4.new_code_cell("print(len(chunks))")]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "P"}})
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    bars = [one for one in notebook.cells[0].outputs if one.output_type == "display_data"]
    others = [one for one in notebook.cells[0].outputs if one.output_type != "display_data"]
    assert len(bars) == 1 and [one.output_type for one in others] == ["execute_result"], notebook.cells[0].outputs
    assert int(notebook.cells[1].outputs[0].text) >= 6, "it was told several times"
    assert "60/60 rounds" in bars[0].data["text/plain"] and "distance to stable" in bars[0].data["text/plain"]
    assert re.search(r'<progress value="60" max="60"', bars[0].data["text/html"])


def test_a_bar_in_a_notebook_shows_text_and_not_markup(kernel, monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda told, raw: shown.append(told))
    display = types.SimpleNamespace(display=lambda told, raw, display_id: shown.append(told) or handle)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    from performative._base.bars import progress_bar

    with progress_bar("<b>", 2, True) as update:
        update(2, lambda: "a < b")
    assert shown[-1]["text/plain"] == "<b> 2/2 rounds a < b"
    assert "<b>" not in shown[-1]["text/html"] and "a &lt; b" in shown[-1]["text/html"]


def test_a_comparison_is_a_card_too(history, problem):
    other = pf.run(problem, pf.p_fedavg(0.2), rounds=5, theta=0.0, repeats=3)
    found = pf.compare({"slow": history, "<fast>": other})
    shown = found._repr_html_()
    assert "mean of slow" in shown and "&lt;fast&gt;" in shown and "<fast>" not in shown
    assert str(found.differences[0]) in str(found)
