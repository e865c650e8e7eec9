"""The page of a watch: one self-contained HTML text that refreshes itself."""

import html
import math
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #5b6570; --paper: #fff; --card: #f5f7f9; --line: #d8dee4;
  --good: #1a7f52; --bad: #b3261e; --care: #9a6700; --mark: #2557a7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9aa5b1; --paper: #0f1419; --card: #171d24;
  --line: #2b333c; --good: #4cc38a; --bad: #ff8a80; --care: #e3b341; --mark: #7aa7f0; } }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.verdict { border-left: .35rem solid var(--mark); background: var(--card); padding: .8rem 1rem; margin: 1rem 0; }
.verdict.warning { border-color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem; }
.card { background: var(--card); padding: .7rem .9rem; } .card b { display: block; font-size: 1.35rem; }
.card span, .dim { color: var(--dim); font-size: .875rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: right; padding: .3rem .5rem;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: var(--dim); font-size: .875rem; }
th:first-child, td:first-child, th.text, td.text { text-align: left; } .wide { overflow-x: auto; }
li.warning { color: var(--bad); } li.caution { color: var(--care); } svg { width: 100%; height: auto; display: block; }
"""
# Refreshes the content without losing the position on the page; says so if the server cannot be reached.
_SCRIPT = """
async function renew() {
  const sign = document.getElementById("sign");
  try {
    const answer = await fetch("content", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    document.getElementById("content").innerHTML = await answer.text();
    sign.textContent = "updated " + new Date().toLocaleTimeString();
  } catch (error) { sign.textContent = "server not reachable; retrying"; }
}
setInterval(renew, Number(document.body.dataset.every) * 1000);
"""


def page(told: dict[str, Any], title: str, every: float) -> str:
    """The whole page, from a report's `to_dict`."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>"
        f'<body data-every="{float(every):g}"><main><h1>{html.escape(title)}</h1>'
        f'<p class="dim" id="sign" role="status">&nbsp;</p><div id="content">{content(told)}</div></main>'
        f"<script>{_SCRIPT}</script></body></html>"
    )


def content(told: dict[str, Any]) -> str:
    """The part that is refreshed: verdict, numbers, evidence over time, strengths, all findings, quarantine."""
    verdict = next(one for one in told["findings"] if one["code"].startswith("verdict."))
    rest = [one for one in told["findings"] if one is not verdict]
    parts = [
        f'<p class="verdict {html.escape(verdict["severity"])}">{html.escape(verdict["text"])}</p>',
        f'<div class="cards">{"".join(_cards(told))}</div>',
        "<h2>Evidence over looks</h2>",
        _curve(told["history"], 1 / told["alpha"]),
        "<h2>Strength of the reaction</h2>",
        _strengths(told["reactions"]),
        "<h2>Findings</h2><ul>",
        *(f'<li class="{html.escape(one["severity"])}">{html.escape(one["text"])}</li>' for one in rest if one["text"]),
        "</ul>",
        _quarantine(told["input"]["recent"]),
    ]
    return "".join(parts)


def _cards(told: dict[str, Any]) -> list[str]:
    value = told["log_evidence"]
    evidence = "none yet" if value is None else _power(value)
    way = told["forecast"]
    shown = [
        (evidence, f"evidence; {1 / told['alpha']:g} is an alarm"),
        (f"{told['looks']:,}", f"looks, {told['rows']:,} rows"),
        (_number(way["contraction"]), f"contraction, {_span(way['low'], way['high'])}"),
    ]
    if told["loss"] is not None:
        shown.append((_number(told["loss"]["value"]), f"loss, {_span(told['loss']['low'], told['loss']['high'])}"))
    if told["gap"] is not None:
        shown.append((_number(told["gap"]["value"]), f"gap, {_span(told['gap']['low'], told['gap']['high'])}"))
    return [f'<div class="card"><b>{html.escape(a)}</b><span>{html.escape(b)}</span></div>' for a, b in shown]


def _power(value: float) -> str:
    return f"{math.exp(value):.3g}" if value < 14 else f"10^{value / math.log(10):.0f}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _span(low: float | None, high: float | None) -> str:
    ends = ("..." if end is None else f"{end:.3g}" for end in (low, high))
    return " to ".join(ends)


def _strengths(reactions: list[dict[str, Any]]) -> str:
    if not reactions:
        return '<p class="dim">Nothing has been read yet.</p>'
    rows = "".join(
        f'<tr><td>{html.escape(one["client"])}</td><td class="text">{html.escape(one["column"])}</td>'
        f'<td class="text">theta_{html.escape(one["parameter"])}</td><td>{_number(one["value"])}</td>'
        f"<td>{_span(one['low'], one['high'])}</td>"
        f"<td>{'none yet' if one['log_evidence'] is None else _power(one['log_evidence'])}</td></tr>"
        for one in reactions[:200]
    )
    head = '<tr><th>client</th><th class="text">column</th><th class="text">parameter</th><th>per unit</th>'
    return f'<div class="wide"><table>{head}<th>confidence sequence</th><th>evidence</th></tr>{rows}</table></div>'


def _quarantine(recent: list[dict[str, str]]) -> str:
    if not recent:
        return ""
    rows = "".join(
        f'<tr><td>{html.escape(one["batch"])}</td><td class="text">{html.escape(one["code"])}</td>'
        f'<td class="text">{html.escape(one["message"])}</td></tr>'
        for one in reversed(recent[-20:])
    )
    head = '<tr><th>batch</th><th class="text">fault</th><th class="text">what was wrong</th></tr>'
    return f'<h2>Quarantined</h2><div class="wide"><table>{head}{rows}</table></div>'


def _curve(points: list[dict[str, float]], alarm: float) -> str:
    """log10 E over looks, with the alarm threshold."""
    if len(points) < 2:
        return '<p class="dim">The curve appears after the second look.</p>'
    base = math.log(10)
    looks = [point["look"] for point in points]
    values = [max(point["log_evidence"] / base, -4.0) for point in points]
    line = math.log10(alarm)
    low, high = min(*values, 0.0) - 0.3, max(*values, line) + 0.5
    span = max(looks[-1] - looks[0], 1)

    def x(look: float) -> float:
        return 60 + 720 * (look - looks[0]) / span

    def y(value: float) -> float:
        return 20 + 180 * (high - value) / (high - low)

    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(looks, values, strict=True))
    step = max(1, math.ceil((high - low) / 5))
    ticks = [float(t) for t in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]
    marks = "".join(
        f'<line x1="60" x2="780" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="var(--line)"/>'
        f'<text x="52" y="{y(t) + 4:.1f}" text-anchor="end" font-size="12" fill="var(--dim)">10^{t:g}</text>'
        for t in ticks
    )
    return (
        f'<svg viewBox="0 0 800 230" role="img" aria-label="Evidence over looks, now 10^{values[-1]:.1f}">{marks}'
        f'<line x1="60" x2="780" y1="{y(line):.1f}" y2="{y(line):.1f}" stroke="var(--bad)" stroke-dasharray="6 4"/>'
        f'<text x="776" y="{y(line) - 5:.1f}" text-anchor="end" font-size="12" fill="var(--bad)">alarm</text>'
        f'<polyline points="{path}" fill="none" stroke="var(--mark)" stroke-width="2"/>'
        f'<text x="60" y="222" font-size="12" fill="var(--dim)">look {looks[0]:g}</text>'
        f'<text x="780" y="222" text-anchor="end" font-size="12" fill="var(--dim)">look {looks[-1]:g}</text></svg>'
    )
