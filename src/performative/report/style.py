"""What interactive pages add to the looks of `html.document`: controls, and a choice of paper beside the system's."""

STYLE = """
:root[data-theme="light"] {
  color-scheme: light; --ink: #1f2328; --soft: #59636e; --paper: #ffffff; --card: #f6f8fa; --line: #d1d9e0;
}
:root[data-theme="dark"] {
  color-scheme: dark; --ink: #e6eaef; --soft: #9aa4af; --paper: #0e1013; --card: #16191d; --line: #30363d;
}
:root { --accent: #0072B2; --good: #00664a; --fair: #8a4b00; --bad: #a3122a; }
@media (prefers-color-scheme: dark) {
  :root:not([data-theme="light"]) { --accent: #56B4E9; --good: #4fd1a5; --fair: #f2be4a; --bad: #ff9b8f; }
}
:root[data-theme="dark"] { --accent: #56B4E9; --good: #4fd1a5; --fair: #f2be4a; --bad: #ff9b8f; }
[hidden] { display: none !important; }
.top { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0 1rem; align-items: start; }
.top .lead { grid-column: 1 / -1; margin-top: 0; }
.top h1, .card h2, .card h3, p, dd, li, .ledger td { overflow-wrap: anywhere; }
button, select, input[type="search"] {
  font: inherit; font-size: .88rem; color: var(--ink); background: var(--paper); border: 1px solid var(--line);
  border-radius: 8px; padding: .38rem .7rem; max-width: 100%; min-height: 2.2rem;
}
button { cursor: pointer; }
button:hover { border-color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
button[aria-pressed="true"][data-log] { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent); }
.split { align-items: start; }
figure { margin: .75rem 0 0; min-width: 0; }
figcaption { color: var(--soft); font-size: .85rem; margin-top: .4rem; }
.canvas { width: 100%; min-height: 200px; touch-action: pan-y; }
.canvas .nsewdrag { touch-action: pan-y pinch-zoom !important; }
.controls { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin-bottom: .4rem; }
.controls label { display: flex; gap: .5rem; align-items: center; font-size: .88rem; color: var(--soft); min-width: 0; }
.controls select { min-width: 0; }
.controls button { padding: .3rem .55rem; }
.legend { display: flex; flex-wrap: wrap; gap: .35rem; margin-top: .3rem; }
.chip {
  display: inline-flex; gap: .4rem; align-items: center; text-align: left; padding: .2rem .55rem; font-size: .82rem;
  min-height: 1.9rem;
}
.chip svg, .swatch svg { flex: none; }
.chip[aria-pressed="false"] { opacity: .5; text-decoration: line-through; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1rem 1.5rem; }
.panels > * { min-width: 0; }
h3 { font-size: 1.15rem; line-height: 1.3; margin: 0 0 .2rem; }
h4 { font-size: .95rem; margin: .8rem 0 0; }
.facts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(8.4rem, 1fr)); gap: .6rem 1rem; margin: .8rem 0 0;
}
.mark { display: inline-flex; gap: .4rem; align-items: center; color: var(--soft); font-size: .82rem; padding: .2rem; }
h2[data-papers] { margin-top: 1.6rem; font-size: 1.2rem; color: var(--ink); }
.papers td:first-child { min-width: 8rem; }
.facts dt { color: var(--soft); font-size: .78rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; font-size: .95rem; }
details { margin-top: .8rem; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
.about { color: var(--soft); font-size: .85rem; }
th button {
  background: none; border: 0; padding: 0; min-height: 0; font-weight: 600; color: inherit; text-align: inherit;
}
th[aria-sort] button { color: var(--ink); }
th[aria-sort="ascending"] button::after { content: " \\25B2"; }
th[aria-sort="descending"] button::after { content: " \\25BC"; }
tr.off td { opacity: .45; }
tr.best td { background: color-mix(in srgb, var(--accent) 12%, transparent); }
.badge, .verdict {
  display: inline-block; border: 1px solid currentColor; border-radius: 99px; padding: .05rem .55rem; font-size: .76rem;
  font-weight: 600; line-height: 1.5; white-space: nowrap;
}
.badge { color: var(--accent); margin-left: .4rem; }
.verdict.good { color: var(--good); } .verdict.fair { color: var(--fair); } .verdict.bad { color: var(--bad); }
.verdict.open { color: var(--soft); }
.filters { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; }
fieldset { border: 1px solid var(--line); border-radius: 8px; padding: .3rem .7rem .5rem; margin: 0; min-width: 0; }
legend { color: var(--soft); font-size: .8rem; padding: 0 .3rem; }
fieldset label { display: inline-flex; gap: .35rem; align-items: center; margin-right: .9rem; font-size: .9rem; }
.filters > label { display: grid; gap: .15rem; font-size: .8rem; color: var(--soft); min-width: 0; }
.filters input[type="search"] { width: 14rem; }
input[type="checkbox"] { accent-color: var(--accent); width: 1.05rem; height: 1.05rem; margin: 0; }
output { font-size: .9rem; color: var(--soft); }
.sticky {
  position: sticky; top: 0; z-index: 5; background: var(--paper); border-bottom: 1px solid var(--line);
  margin: 0 -1.25rem; padding: .7rem 1.25rem;
}
.claims { list-style: none; padding: 0; margin: .6rem 0 0; }
.claims li { border-top: 1px solid var(--line); padding: .45rem 0; font-size: .95rem; }
.claims details { margin: 0; }
.claims summary { color: inherit; font-size: inherit; }
.claims small { margin: .25rem 0 0 1.1rem; }
a { color: var(--accent); }
.filters a { font-size: .9rem; padding: .4rem 0; }
article, #ledger { scroll-margin-top: 7rem; }
.where { color: var(--soft); font-size: .85rem; margin: 0; }
td.left, th.left { text-align: left; }
.ledger td { text-align: left; vertical-align: top; font-size: .85rem; }
.ledger th { text-align: left; }
.ledger td { min-width: 10rem; }
.ledger td:nth-child(2) { min-width: 16rem; }
.shot { background: #ffffff; border-radius: 8px; padding: .5rem; }
@media (max-width: 46rem) {
  .sticky { position: static; }
  .filters input[type="search"], .filters > label { width: 100%; }
  .ledger table, .ledger thead, .ledger tbody, .ledger tr, .ledger td { display: block; min-width: 0; }
  .ledger th { display: inline-block; padding: .3rem .9rem .3rem 0; min-width: 0; }
  .ledger td { border: 0; padding: .2rem 0; min-width: 0 !important; }
  .ledger tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
}
@media print { .controls, .sticky, #theme { display: none; } }
"""
