"""Figures of the papers on the page of the gallery, small ones, each with a description.

A figure is drawn from what `performative reproduce` left in the results folder. Where that has nothing, those of
`QUICK` are run when the site is built, with few seeds, and kept in the cache until the code changes. What takes longer,
or needs data that are not here, is named with its command.
"""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "performative-results"
CACHE = ROOT / ".cache" / "gallery"
# One or two of each kind of question, a minute and a half together on one core.
QUICK = (
    "p_fedavg/fig1a", "p_fedavg/fig1b", "p_fedavg/design", "p_fedavg/prop29", "p_fedavg/theorems",
    "p_fedavg_preprint/equilibria", "p_fedavg_preprint/fig6", "p_fedavg_preprint/fig7",
    "profl/algorithm_1", "profl/contribution_stable", "profl/fig2a", "profl/lemma_5_7", "profl/table3",
    "profl/theorem_5_10",
    "pcsgd/fig1_gap", "pcsgd/corollary_3_8", "pcsgd/memory_clip", "pcsgd/theorem_3_5",
    "heterogeneity/cyclic_unequal", "heterogeneity/fedexp_capped",
    "ours/deployment", "ours/amplification", "ours/moving",
)  # fmt: skip
# Experiments that read a data set in a quick run, too.
DATA = {
    "p_fedavg/cifar": "cifar10", "p_fedavg/fig3": "fashion_mnist", "p_fedavg/fig2cd": "credit",
    "p_fedavg_preprint/fig5to10": "credit", "p_fedavg_preprint/fig11": "credit", "profl/fig6a": "adult",
    "profl/table2_adult": "adult", "profl/table2_credit": "credit", "pcsgd/fig2_credit": "credit",
}  # fmt: skip
MOST_POINTS, MOST_BYTES = 50, 50_000
# Whether quick runs may be made: not if pages are built without executing them.
RUNS = True


def gallery() -> str:
    """All experiments with a figure, paper by paper."""
    from performative.papers import PAPERS
    from performative.papers.catalog import find, names

    if RUNS:
        _run([name for name in QUICK if _manifest(RESULTS / name) is None])
    blocks: list[str] = []
    for paper, title in PAPERS.items():
        shown, missing = [], []
        for name in names(paper):
            folder = next((f for f in (RESULTS / name, CACHE / name) if _manifest(f) is not None), None)
            if folder is not None:
                shown += _shown(name, folder)
            elif find(name).panels:
                missing.append(f"- {_missing(name)}")
        blocks += [f"## {title}", *shown]
        if missing:
            blocks += ["**Not drawn here:**" if shown else "No figure has been drawn yet:", "\n".join(missing)]
    return "\n\n".join(blocks)


def _run(wanted: list[str]) -> None:
    """Quick runs, in a separate process; results of the same code are reused."""
    if not wanted:
        return
    settings = {key: value for key, value in os.environ.items() if key != "JAX_DISABLE_MOST_OPTIMIZATIONS"}
    command = [
        sys.executable,
        "-m",
        "performative",
        "reproduce",
        *wanted,
        "--quick",
        "--jobs",
        "1",
        "--out",
        str(CACHE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    if lost := [name for name in wanted if _manifest(CACHE / name) is None]:
        raise ValueError(f"no figure of {', '.join(lost)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _manifest(folder: Path) -> dict[str, Any] | None:
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return manifest if manifest.get("status") == "completed" else None


def _shown(name: str, folder: Path) -> list[str]:
    """Heading, figure, command, and the claims with their verdicts."""
    from performative.papers.catalog import find
    from performative.papers.ledger import count

    manifest, experiment = _manifest(folder) or {}, find(name)
    blocks = [f"### {manifest['title']}"]
    if experiment.panels and (folder / "data.nc").is_file():
        blocks.append(_figure(name, folder))
    size = "quick run" if manifest["quick"] else "full run"
    blocks.append(f"{manifest['place']}; `performative reproduce {name}` ({size}, {manifest['seconds']:.0f} s).")
    told = ", ".join(f"{many} {verdict}" for verdict, many in count(manifest["claims"]).items())
    # A result may be older than the list of claims.
    links = {claim.id: f" `claim:{name}#{claim.id}`" for claim in experiment.claims}
    rows = [f"- {row['verdict']}: {row['claim']}{links.get(row['id'], '')}" for row in manifest["claims"]]
    return [*blocks, f"<details><summary>Claims: {told}</summary>", "\n".join(rows), "</details>"]


def _figure(name: str, folder: Path) -> str:
    """The picture, redrawn from the data with few points and with text that stays text."""
    from matplotlib import rc_context

    from performative.papers import store
    from performative.papers.catalog import find
    from performative.papers.figure import draw
    from performative.papers.outcome import Outcome
    from performative.report.results import read_arrays, views_of
    from performative.report.theme import saved

    experiment, manifest = find(name), _manifest(folder) or {}
    logarithmic = {panel.data for panel in experiment.panels if "x" in panel.log}
    arrays = {key: _thinned(array, key in logarithmic) for key, array in read_arrays(folder / "data.nc").items()}
    outcome = Outcome(store.read_numbers(manifest), arrays)
    views = views_of([panel.model_dump() for panel in experiment.panels], outcome.data, outcome.numbers)
    file = CACHE / "figures" / f"{name.replace('/', '-')}.svg"
    file.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        drawn = draw(experiment.panels, outcome, experiment.title, experiment.place)
        fewer_ticks(drawn)
        file.write_text(_shortened(saved(drawn, "svg").decode()), encoding="utf-8")
    where = os.path.relpath(file, ROOT / "docs").replace(os.sep, "/")
    return f"```{{image}} {where}\n:alt: {described(experiment.title, views)}\n:loading: lazy\n```"


def fewer_ticks(figure: Any) -> None:
    """No minor ticks, except on an axis with fewer than two major ones: those are its only labels."""
    from matplotlib.ticker import NullLocator

    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        if sum(low <= tick <= high for tick in axis.get_majorticklocs()) >= 2:
            axis.set_minor_locator(NullLocator())


def _thinned(array: Any, logarithmic: bool) -> Any:
    """A few points along the last axis, as far apart as they are drawn; the first and the last among them."""
    last = array.dims[-1]
    if last in ("series", "repeat") or array.sizes[last] <= MOST_POINTS:
        return array
    ends = array.sizes[last] - 1
    at = np.geomspace(1, ends, MOST_POINTS) if logarithmic else np.linspace(0, ends, MOST_POINTS)
    return array.isel({last: np.unique(np.concatenate([[0], at.round().astype(int)]))})


def _shortened(svg: str) -> str:
    """Without comments and metadata, and tenths of a point are enough."""
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:d|x|y)="[^"]*"', lambda places: re.sub(r"([.]\d)\d+", r"\1", places[0]), svg)
    return re.sub(r"\n\s*", "\n", svg)


def described(title: str, views: list[tuple[str, Any]]) -> str:
    """What a figure shows, in a sentence or two: the quantity of each panel, and its lines."""
    told = []
    for name, view in views:
        series = [one.name for one in view.series if one.name]
        lines = f" for {', '.join(series)}" if 1 < len(series) <= 8 else ""
        quantity = f"{view.y} against {view.x}" if view.x else view.y
        told.append(f"{name}: {quantity}{lines}" if name else f"{quantity}{lines}")
    return plain(f"{title}. {'; '.join(told)}.")


def plain(text: str) -> str:
    """A label without formulas' markup, on one line."""
    from performative.report.formulas import for_browser

    text = re.sub(r"\\(?:rm|widehat)\b ?|\\,|\{,\}", "", text)
    text = for_browser(text).replace("<sub>", "_")
    text = re.sub(r"<sup>(.*?)</sup>", lambda up: f"^{up[1]}" if len(up[1]) == 1 else f"^({up[1]})", text)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())


def _missing(name: str) -> str:
    from performative.papers.catalog import find

    title = find(name).title
    if name in DATA:
        needs = f"needs the data set `{DATA[name]}`: `performative data get {DATA[name]}`, then "
        return f"{title}: {needs}`performative reproduce {name} --quick`"
    return f"{title}: `performative reproduce {name} --quick`"
