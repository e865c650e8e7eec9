"""The gallery on the site: small pictures with descriptions where there are results, and elsewhere how to make them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import page_gallery  # noqa: E402  after the path

NAME = "p_fedavg/fig1a"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """No results, nothing in the cache, and nothing is run."""
    monkeypatch.setattr(page_gallery, "RESULTS", tmp_path / "performative-results")
    monkeypatch.setattr(page_gallery, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(page_gallery, "RUNS", False)
    return tmp_path


def leave_result(folder: Path, quick: bool) -> None:
    """What a run of Figure 1a leaves, with thousands of points."""
    from performative.papers.catalog import find
    from performative.papers.outcome import Outcome, over
    from performative.papers.store import write

    experiment = find(NAME)
    x, rng = np.arange(1, 3001), np.random.default_rng(0)
    lines = {name: np.exp(rng.normal(size=(5, x.size))) / x for name in ("full", "Scheme I", "Scheme II", "static")}
    data = {panel.data: over(x, lines) for panel in experiment.panels}
    claims = [{"id": experiment.claims[0].id, "claim": "It holds.", "verdict": "reproduced"}]
    claims.append({"id": "gone", "claim": "It was dropped.", "verdict": "reproduced"})
    manifest = {
        "name": NAME, "paper": "p_fedavg", "title": experiment.title, "place": "Figure 1a", "quick": quick,
        "status": "completed", "seconds": 3.2, "hash": "", "claims": claims,
        "numbers": {mark: 0.5 for panel in experiment.panels for mark in panel.marks},
    }  # fmt: skip
    write(folder / NAME, experiment, Outcome(manifest["numbers"], data), manifest)


def test_without_results_every_figure_is_named_with_its_command(here):
    from performative.papers.catalog import find, names

    shown = page_gallery.gallery()
    assert "```{image}" not in shown
    for name in names():
        assert (f"`performative reproduce {name} --quick`" in shown) == bool(find(name).panels)
    assert "`performative data get credit`, then `performative reproduce p_fedavg/fig2cd --quick`" in shown


@pytest.mark.parametrize(
    ("folder", "size"),
    [pytest.param("cache", "quick run", marks=pytest.mark.slow), ("performative-results", "full run")],
)
def test_a_result_is_drawn_small_and_described(here, folder, size):
    leave_result(here / folder, quick=folder == "cache")
    shown = page_gallery.gallery()
    (picture,) = re.findall(r"```\{image\} (\S+)\n:alt: (.+)\n:loading: lazy\n```", shown)
    svg = (ROOT / "docs" / picture[0]).resolve()
    assert svg.stat().st_size < page_gallery.MOST_BYTES and "<text" in svg.read_text(encoding="utf-8")
    assert "against t for full, Scheme I, Scheme II, static" in picture[1] and "$" not in picture[1]
    assert f"`performative reproduce {NAME}` ({size}, 3 s)" in shown and "`claim:p_fedavg/fig1a#" in shown
    assert "It was dropped." in shown and "#gone" not in shown


@pytest.mark.parametrize(("ends", "minor"), [((65.0, 92.0), True), ((1.0, 1000.0), False)])
def test_every_axis_keeps_labels(ends, minor):
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.subplots()
    ax.semilogy([0.0, 1.0], ends)
    page_gallery.fewer_ticks(figure)
    figure.canvas.draw()
    ticks = ax.get_yticklabels(which="both")
    labels = [tick.get_text() for tick in ticks if ends[0] <= tick.get_position()[1] <= ends[1]]
    assert sum(map(bool, labels)) >= 2 and bool(len(ax.get_yticks(minor=True))) == minor


def test_formulas_in_descriptions_keep_their_exponents():
    assert page_gallery.plain(r"$(E|\bar\theta_t - \theta_{PS}|^2)^{1/2}$") == "(E|θ̄_t - θ_PS|^2)^(1/2)"


def test_what_fails_is_said(here, monkeypatch):
    monkeypatch.setattr(page_gallery, "RUNS", True)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "the reason", ""))
    with pytest.raises(ValueError, match=r"no figure of p_fedavg/fig1a.*the reason"):
        page_gallery.gallery()


def test_what_is_run_quickly_needs_no_data_and_has_a_figure():
    from performative.papers.catalog import find
    from performative.papers.catalog import names as known

    assert {*page_gallery.QUICK, *page_gallery.DATA} <= set(known()) and not {*page_gallery.QUICK} & {
        *page_gallery.DATA
    }
    assert {find(name).paper for name in page_gallery.QUICK} == {name.split("/")[0] for name in known()}
    for name in page_gallery.QUICK:
        assert find(name).panels and find(name).settings(quick=True).get("data") in (None, "digits"), name
    for name, data in page_gallery.DATA.items():
        assert find(name).settings(quick=True).get("data", data) == data, name
