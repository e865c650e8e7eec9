"""The page of a folder of results: one card per experiment, and the ledger of claims."""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from performative.report.curves import MOST_POINTS, packed, thinning
from performative.report.interactive import Plots, details, facts, number, page, sortable
from performative.report.results import Result, read_arrays, read_results, views_of, without_results
from performative.report.section import Cell, Table

PAPERS = {
    "p_fedavg": "Jin et al. 2024 (P-FedAvg)",
    "p_fedavg_preprint": "Jin et al. 2023 (preprint)",
    "profl": "Zheng et al. 2024 (PROFL)",
    "pcsgd": "Li, Yemini and Wai 2024 (PCSGD)",
    "heterogeneity": "Joshi (slides on heterogeneity)",
    "ours": "New results",
}
# A style and a sign for each verdict: color alone is not accessible.
_VERDICTS = {
    "reproduced": ("good", "✓"),
    "reproduced with corrections": ("fair", "≈"),
    "refuted": ("bad", "✕"),
    "undecided": ("open", "?"),
    "holds": ("good", "✓"),
    "fails": ("bad", "✕"),
    "not tested": ("open", "–"),
}
# Limit for the numbers of all plots; beyond it curves are thinned further. The plotting library adds 5 MB.
_MOST_BYTES = 8_000_000


def gallery_page(folder: Path, title: str | None = None) -> bytes:
    """Cards with interactive figures, claims and verdicts, filters over them, and the ledger as one table."""
    order = list(PAPERS)
    results = read_results(folder)
    # Papers in the order listed above, unknown ones last; the stable sort keeps the order of names within each.
    results.sort(key=lambda result: order.index(result.paper) if result.paper in order else len(order))
    read = [read_arrays(result.folder / "data.nc") for result in results]
    most = MOST_POINTS
    while True:
        plots = Plots()
        cards = [_card(result, arrays, plots, most) for result, arrays in zip(results, read, strict=True)]
        if len(packed(plots.views)) <= _MOST_BYTES or most <= 50:
            break
        most //= 2
    claims = sum(len(result.claims) for result in results)
    parts = [_summary(results), _filters(results)]
    for paper in dict.fromkeys(result.paper for result in results):
        parts.append(f'<h2 data-papers="{escape(paper, quote=True)}">{escape(PAPERS.get(paper, paper))}</h2>')
        parts += [made for made, result in zip(cards, results, strict=True) if result.paper == paper]
    parts += [_ledger(results), _not_run(results)]
    quick = sum(bool(result.manifest.get("quick")) for result in results)
    lead = f"{len(results)} experiments, {claims} claims; every verdict is computed from the run."
    if quick:
        lead += f" {quick} of them are quick runs, smaller than in the papers."
    return page(
        title or "Every figure, with a verdict", lead, "\n".join(parts), plots, f"From {folder}. {thinning(most)}"
    )


def chip(verdict: str) -> str:
    look, sign = _VERDICTS.get(verdict, ("open", "?"))
    return f'<span class="verdict {look}"><span aria-hidden="true">{sign} </span>{escape(verdict)}</span>'


def _entry(kind: str, paper: str, verdicts: list[str]) -> str:
    return (
        f'data-entry="{kind}" data-paper="{escape(paper, quote=True)}" '
        f'data-verdicts="{escape("|".join(verdicts), quote=True)}"'
    )


def _card(result: Result, arrays: dict[str, Any], plots: Plots, most: int) -> str:
    told, claims = result.manifest, result.claims
    verdicts = list(dict.fromkeys(str(claim.get("verdict", "")) for claim in claims))
    title = str(told.get("title", result.name))
    where = " · ".join(
        part
        for part in (PAPERS.get(result.paper, result.paper), str(told.get("place", "")), result.name)
        if part
    )  # fmt: skip
    badge = '<span class="badge">quick</span>' if told.get("quick") else ""
    inside = [
        f'<h3>{escape(title)}{badge}</h3><p class="where">{escape(where)}</p>',
        _figure(result, arrays, plots, most, title),
        f'<ul class="claims">{"".join(_claim(claim) for claim in claims)}</ul>' if claims else "",
    ]
    inside.append(_printed(claims))
    caption = told.get("caption") or result.setup.get("caption")
    if caption:
        inside.append(details("The paper's caption", f"<p>{escape(str(caption))}</p>"))
    note = told.get("note") or result.setup.get("note")
    if note:
        inside.append(details("What the paper leaves unspecified, and what was chosen", f"<p>{escape(str(note))}</p>"))
    inside += [_numbers(told.get("numbers", {})), _made(told)]
    place = f'id="{escape(result.name, quote=True)}" {_entry("card", result.paper, verdicts)}'
    return f'<article class="card" {place}>{"".join(inside)}</article>'


def _figure(result: Result, arrays: dict[str, Any], plots: Plots, most: int, title: str) -> str:
    drawn = []
    for head, one in views_of(result.setup.get("panels", []), arrays, result.manifest.get("numbers", {}), most):
        top = f"<h4>{escape(head)}</h4>" if head and head != title else ""
        drawn.append(f"<div>{top}{plots.add([one], title + ': ' + one.label)}</div>")
    if drawn:
        return f'<div class="panels">{"".join(drawn)}</div>'
    svg = result.figure
    if svg is None:
        return ""
    coded = base64.b64encode(svg).decode()
    return (
        f'<img class="shot" loading="lazy" src="data:image/svg+xml;base64,{coded}" alt="{escape(title, quote=True)}">'
    )


def _claim(claim: dict[str, Any]) -> str:
    """The verdict and the claim, with expandable details; expanded unless the claim was reproduced as printed."""
    verdict = str(claim.get("verdict", "?"))
    lines = [(word, claim.get(key)) for word, key in (("Tested", "how"), ("Found", "number"), ("Why", "reason"))]
    small = "".join(f"<small>{word}: {escape(str(text))}</small>" for word, text in lines if text)
    said = f"{chip(verdict)} {escape(str(claim.get('claim', '')))}"
    at_once = "" if verdict in ("reproduced", "not tested") else " open"
    return f"<li><details{at_once}><summary>{said}</summary>{small}</details></li>" if small else f"<li>{said}</li>"


def _printed(claims: list[dict[str, Any]]) -> str:
    """The numbers printed in the paper next to the measured ones."""
    rows: list[list[Cell]] = [
        [str(claim.get("claim", "")), number(claim["of_paper"]), number(claim.get("measured")),
         number(claim["error"]) if claim.get("error") else ""]
        for claim in claims
        if claim.get("of_paper") is not None
    ]  # fmt: skip
    return Table(("claim", "printed", "ours", "standard error"), rows).html() if rows else ""


def _numbers(numbers: Any) -> str:
    if not isinstance(numbers, dict) or not numbers:
        return ""
    rows: list[list[Cell]] = []
    for name, value in numbers.items():
        pair = value if isinstance(value, list) else [value, None]
        rows.append(
            [name.replace("_", " "), number(pair[0]), number(pair[1]) if len(pair) > 1 and pair[1] is not None else ""]
        )
    return details(f"{len(rows)} numbers", Table(("number", "value", "standard error"), rows).html())


def _made(told: dict[str, Any]) -> str:
    versions = told.get("versions", {})
    seconds = told.get("seconds")
    rows = [
        ("seed", told.get("seed")),
        ("device", told.get("device")),
        ("seconds", None if seconds is None else number(seconds)),
        ("finished", told.get("finished")),
        *(versions.items() if isinstance(versions, dict) else ()),
    ]
    constants = escape(json.dumps(told.get("constants", {}), indent=1, ensure_ascii=False))
    return details("How it was produced", facts(rows) + f"<pre>{constants}</pre>")


def _summary(results: list[Result]) -> str:
    """Papers as rows, verdicts as columns; clicking a count filters the page."""
    verdicts = _verdicts(results)
    lines = []
    for paper in dict.fromkeys(result.paper for result in results):
        found = [
            str(claim.get("verdict", "")) for result in results if result.paper == paper for claim in result.claims
        ]
        cells = []
        for verdict in verdicts:
            count = found.count(verdict)
            choose = escape(f"{paper}|{verdict}", quote=True)
            said = escape(f"{PAPERS.get(paper, paper)}: {verdict}", quote=True)
            cells.append(
                f'<td><button type="button" data-choose="{choose}" aria-label="{count} {said}">{count}</button></td>'
                if count
                else "<td>0</td>"
            )
        lines.append(f"<tr><td>{escape(PAPERS.get(paper, paper))}</td>{''.join(cells)}<td>{len(found)}</td></tr>")
    links = "".join(
        f'<li><a href="#{escape(one.name, quote=True)}">{escape(str(one.manifest.get("title", one.name)))}</a></li>'
        for one in results
    )
    contents = f"<ul>{links}</ul>"
    head = "".join(f'<th scope="col">{chip(verdict)}</th>' for verdict in verdicts)
    return (
        '<section class="card"><h2>Claims by paper and verdict</h2><div class="scroll"><table class="papers"><thead>'
        f'<tr><th scope="col">paper</th>{head}<th scope="col">all</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{details('All experiments', contents)}</section>"
    )


def _verdicts(results: list[Result]) -> list[str]:
    there = {str(claim.get("verdict", "")) for result in results for claim in result.claims}
    return [verdict for verdict in _VERDICTS if verdict in there] + sorted(there - set(_VERDICTS))


def _filters(results: list[Result]) -> str:
    def options(values: list[tuple[str, str]]) -> str:
        return "".join(f'<option value="{escape(v, quote=True)}">{escape(text)}</option>' for v, text in values)

    papers = [(p, PAPERS.get(p, p)) for p in dict.fromkeys(result.paper for result in results)]
    verdicts = [(verdict, verdict) for verdict in _verdicts(results)]
    return (
        '<section class="sticky" aria-label="Filters"><div class="filters">'
        '<label>Search<input type="search" id="search" placeholder="words in titles and claims"></label>'
        f'<label>Paper<select id="paper"><option value="">all papers</option>{options(papers)}</select></label>'
        f'<label>Verdict<select id="verdict"><option value="">all verdicts</option>{options(verdicts)}</select></label>'
        '<button type="button" id="reset">Clear</button><a href="#ledger">Ledger</a>'
        '<output id="count" aria-live="polite"></output></div></section>'
    )


def _not_run(results: list[Result]) -> str:
    """List the experiments without results, so nothing is dropped silently."""
    missing = without_results(results)
    if not missing:
        return ""
    names = "".join(f"<li><code>performative reproduce {escape(name)}</code></li>" for name in missing)
    return f'<section class="card"><h2>No results in this folder: {len(missing)}</h2><ul>{names}</ul></section>'


def _ledger(results: list[Result]) -> str:
    rows = []
    for result in results:
        paper, anchor = escape(PAPERS.get(result.paper, result.paper)), escape(result.name, quote=True)
        for claim in result.claims:
            verdict = str(claim.get("verdict", ""))
            how = f"<small>{escape(str(claim['how']))}</small>" if claim.get("how") else ""
            why = f"<small>{escape(str(claim['reason']))}</small>" if claim.get("reason") else ""
            place = escape(str(claim.get("place") or result.manifest.get("place", "")))
            rows.append(
                f"<tr {_entry('claim', result.paper, [verdict])}>"
                f'<td>{paper}<small>{place}<br><a href="#{anchor}">{escape(result.name)}</a></small></td>'
                f"<td>{escape(str(claim.get('claim', '')))}{how}</td><td>{escape(str(claim.get('number') or '–'))}</td>"
                f'<td data-value="{escape(verdict, quote=True)}">{chip(verdict)}{why}</td></tr>'
            )
    made = sortable(("paper and place", "claim", "number", "verdict"), rows, "How each is tested. Sortable.")
    return f'<section class="card ledger" id="ledger"><h2>The ledger</h2>{made}</section>' if rows else ""
