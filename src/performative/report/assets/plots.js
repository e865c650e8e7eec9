const DATA = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)").matches;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
const ink = name => getComputedStyle(root).getPropertyValue(name).trim();
const all = (query, from) => Array.from((from || document).querySelectorAll(query));

// Plotly interprets tags, entities and %{...} in its labels; ours are plain text.
const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "{": "&#123;" };
const plain = text => String(text).replace(/[&<>{]/g, sign => SIGNS[sign]);
const wrapped = (text, width) => {
  const lines = [""];
  for (const word of String(text).split(" ")) {
    const line = lines[lines.length - 1];
    if (line && line.length + word.length + 1 > width) lines.push(word);
    else lines[lines.length - 1] = line ? line + " " + word : word;
  }
  return lines.map(plain).join("<br>");
};
const faded = (color, by) => {
  const n = parseInt(color.slice(1), 16);
  return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, ${by})`;
};
const made = (tag, attributes, ...inside) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...inside);
  return element;
};
const short = value => typeof value === "number" ? Number(value.toPrecision(4)).toString() : value;

// What the filters hide: settings by their key, in every plot they control.
const board = { hidden: new Set(), filtered: new Set() };

class Plot {
  constructor(figure) {
    this.figure = figure;
    this.views = DATA.plots[Number(figure.dataset.plot)];
    this.canvas = figure.querySelector(".canvas");
    this.boarded = figure.dataset.board === "yes";
    this.hidden = new Set();
    this.drawn = false;
    this.controls();
    this.pick(0);
  }
  get view() { return this.views[this.at]; }
  get across() { return this.along.hidden ? this.view.x : this.against || this.view.x; }
  xs(series) { return (series.along || {})[this.across] || series.x; }
  get lying() { return this.view.kind === "rows" || this.view.kind === "bars"; }
  shows(series) {
    if (this.boarded) return !board.hidden.has(series.key) && !board.filtered.has(series.key);
    return !this.hidden.has(series.key);
  }
  controls() {
    const bar = this.bar = made("div", { class: "controls" });
    if (this.views.length > 1) {
      const select = made("select", { "data-pick": "" });
      this.views.forEach((view, i) => select.append(made("option", { value: i }, view.label)));
      select.addEventListener("change", () => { this.pick(Number(select.value)); this.draw(); });
      bar.append(made("label", {}, this.figure.dataset.pick || "Show", " ", select));
    }
    // Running totals that a quantity can be plotted against instead of the round.
    const totals = new Set(this.views.flatMap(view => view.series.flatMap(one => Object.keys(one.along || {}))));
    this.against = "";
    this.others = made("select", { "data-against": "" }, made("option", { value: "" }, this.views[0].x));
    for (const total of totals) this.others.append(made("option", { value: total }, total));
    this.others.addEventListener("change", () => { this.against = this.others.value; this.draw(); });
    this.along = made("label", {}, "against ", this.others);
    bar.append(this.along);
    this.switches = {};
    for (const axis of ["y", "x"]) {
      const button = made("button", { type: "button", "data-log": axis, "aria-pressed": "false" });
      button.addEventListener("click", () => {
        this.log[axis] = !this.log[axis];
        this.draw();
      });
      this.switches[axis] = button;
      bar.append(button);
    }
    this.figure.insertBefore(bar, this.canvas);
    this.legend = made("div", { class: "legend" });
    this.canvas.after(this.legend);
  }
  pick(at) {
    this.at = at;
    const view = this.view;
    this.log = { x: view.log.includes("x"), y: view.log.includes("y") };
    const positive = values => values.some(value => typeof value === "number" && value > 0);
    const values = axis => view.series.flatMap(series => series[axis]);
    for (const axis of ["x", "y"]) {
      const fixed = view.linear || (axis === "x" && this.lying);
      this.switches[axis].hidden = fixed || !positive(values(axis));
    }
    this.along.hidden = !view.series.some(series => series.along);
    this.bar.hidden = Array.from(this.bar.children).every(control => control.hidden);
    this.key();
  }
  key() {
    this.legend.replaceChildren();
    const series = this.view.series;
    const crowd = this.boarded && series.length > 14;
    (this.view.marks || []).forEach((mark, i) => {
      if (!mark.name) return;
      const line = swatch({ dash: 1 + i % 3 }, { kind: "lines" }, 0, true);
      this.legend.append(made("span", { class: "mark" }, line, `${mark.name}: ${short(mark.value)}`));
    });
    if (this.view.kind === "bars" || crowd || series.length < 2) return;
    for (const one of series.filter(one => !one.quiet)) {
      const title = "Click: hide or show. Double-click: show only this one.";
      const chip = made("button", { type: "button", class: "chip", title });
      chip.append(swatch(one, this.view, series.indexOf(one)), made("span", {}, one.name));
      const set = this.boarded ? board.hidden : this.hidden;
      const change = () => this.boarded ? refresh() : this.draw();
      chip.addEventListener("click", () => { if (!set.delete(one.key)) set.add(one.key); change(); });
      chip.addEventListener("dblclick", () => {
        const alone = series.every(other => other.key === one.key || set.has(other.key));
        set.clear();
        if (!alone) series.forEach(other => other.key === one.key || set.add(other.key));
        change();
      });
      chip.dataset.key = one.key;
      this.legend.append(chip);
    }
  }
  look() {
    for (const axis of ["x", "y"]) {
      const button = this.switches[axis], on = this.log[axis];
      button.setAttribute("aria-pressed", String(on));
      button.textContent = `log ${this.lying ? "scale" : axis}`;
    }
    const shown = new Map(this.view.series.map(series => [series.key, this.shows(series)]));
    const state = chip => String(shown.get(chip.dataset.key));
    for (const chip of all("button", this.legend)) chip.setAttribute("aria-pressed", state(chip));
    color(this.legend);
  }
  draw() {
    this.look();
    if (!this.drawn) return;
    const { traces, layout } = picture(this);
    const config = {
      responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover", showTips: false,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
      showSendToCloud: false, plotlyServerURL: "",
    };
    Plotly.react(this.canvas, traces, layout, config);
  }
  start() {
    if (this.drawn) return;
    this.drawn = true;
    this.draw();
  }
}

const palette = () => DATA.palettes[dark() ? "dark" : "light"];
const SPACES = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
function color(from) {
  const colors = palette();
  for (const sign of all("svg [data-stroke]", from)) sign.setAttribute("stroke", colors[sign.dataset.stroke]);
  for (const sign of all("svg [data-fill]", from)) sign.setAttribute("fill", colors[sign.dataset.fill]);
}
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "triangle-down", "x", "star"];
const GLYPHS = "●◆■▲▼✖★";
function swatch(series, view, order, soft) {
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
  const dots = view.kind !== "lines", sign = document.createElementNS(ns, dots ? "text" : "line");
  const set = dots ? { x: 13, y: 11, "font-size": 14, "text-anchor": "middle", "data-fill": series.color }
    : { x1: 1, x2: 25, y1: 6, y2: 6, "stroke-width": soft ? 1.5 : 3, "stroke-dasharray": SPACES[DASHES[series.dash]],
      ...(soft ? { stroke: "currentColor" } : { "data-stroke": series.color }) };
  const symbol = series.symbol ?? (view.kind === "points" ? order : 0);
  if (dots) sign.textContent = GLYPHS[symbol % GLYPHS.length];
  for (const [name, value] of Object.entries(set)) sign.setAttribute(name, value);
  const size = { width: 26, height: 12, "aria-hidden": "true" };
  for (const [name, value] of Object.entries(size)) svg.setAttribute(name, value);
  svg.append(sign);
  return svg;
}

function errors(series, color, log) {
  if (!series.low) return undefined;
  const up = series.high.map((high, i) => high - series.y[i]);
  const down = series.low.map((low, i) => series.y[i] - (log && low <= 0 ? series.y[i] * 1e-3 : low));
  const thickness = series.thick || 2;
  return { type: "data", symmetric: false, array: up, arrayminus: down, color: color, thickness, width: 0 };
}

function picture(plot) {
  const view = plot.view, colors = palette(), bands = [], lines = [];
  const width = plot.canvas.clientWidth || 600;
  const many = view.series.filter(series => plot.shows(series)).length > 8;
  const rows = view.rows || [];
  view.series.forEach((series, order) => {
    const color = colors[series.color], visible = plot.shows(series), name = plain(series.name);
    const spread = series.low ? series.low.map((low, i) => `${short(low)} to ${short(series.high[i])}`) : null;
    const base = { name, visible, customdata: spread, meta: { key: series.key }, showlegend: false };
    if (plot.lying) {
      const bar = view.kind === "bars", at = series.at;
      const told = series.y.map((value, i) => {
        const lines = [plain(rows[Math.round(at[i])] ?? ""), `<b>${short(value)}</b>`];
        if (view.series.length > 1) lines.splice(1, 0, name);
        if (spread) lines.push(spread[i]);
        return lines.join("<br>");
      });
      lines.push({ ...base, type: bar ? "bar" : "scatter", orientation: bar ? "h" : undefined, x: series.y, y: at,
        mode: bar ? undefined : series.labels ? "markers+text" : "markers", text: told,
        textposition: bar ? "none" : "top center", texttemplate: series.labels && series.labels.map(plain),
        hovertemplate: "%{text}<extra></extra>", error_x: errors(series, bar ? ink("--ink") : color, plot.log.y),
        marker: { color: series.colors ? series.colors.map(c => colors[c]) : color, size: series.size ?? 10,
          symbol: series.open ? series.open.map(o => o ? "circle-open" : "circle") : SYMBOLS[series.symbol ?? 0] },
        width: bar ? 0.62 : undefined });
      return;
    }
    const xs = plot.xs(series);
    // One label for all lines at an x or, with many lines, one for the hovered line.
    const told = many ? [`<b>${name}</b>`, `${plain(plot.across)} %{x}`, "%{y:.4~g}"] : ["%{y:.4~g}"];
    if (spread) told.push(many ? "%{customdata}" : "(%{customdata})");
    const template = told.join(many ? "<br>" : " ") + (many ? "<extra></extra>" : "");
    if (view.kind === "points") {
      lines.push({ ...base, type: "scatter", mode: series.joined ? "lines+markers" : "markers",
        x: xs, y: series.y, error_y: errors(series, color, plot.log.y), hovertemplate: template,
        line: { color: color, width: 1.5, dash: DASHES[series.dash] },
        marker: { color: color, size: series.x.length > 60 ? 5 : 8,
          symbol: SYMBOLS[(series.symbol ?? order) % SYMBOLS.length] } });
      return;
    }
    if (series.low && !many) {
      // A logarithmic axis cannot show zero: the band ends at the lowest value drawn.
      const floor = Math.min(...series.y.concat(series.high).filter(value => value > 0));
      const low = series.low.map(value => !plot.log.y || value > 0 ? value : floor);
      bands.push({ ...base, type: "scatter", mode: "lines", x: xs.concat(xs.slice().reverse()),
        y: series.high.concat(low.slice().reverse()), fill: "toself", fillcolor: faded(color, 0.2),
        line: { width: 0 }, hoverinfo: "skip", customdata: undefined, meta: { key: series.key, band: true } });
    }
    lines.push({ ...base, type: "scatter", mode: series.x.length < 3 || series.dotted ? "lines+markers" : "lines",
      x: xs, y: series.y, hovertemplate: template, marker: { color: color, size: 5 },
      fill: series.filled ? "tozeroy" : undefined, fillcolor: faded(color, 0.3),
      line: { color: color, width: 2, dash: DASHES[series.dash] } });
  });
  const axis = {
    gridcolor: faded(dark() ? "#ffffff" : "#000000", 0.1), zeroline: false, linecolor: ink("--line"), showline: true,
    automargin: true, tickfont: { size: 12 }, exponentformat: "power", minexponent: 5,
  };
  // Few decades get ticks at 1, 2 and 5 as well. Without a format Plotly writes their first digit alone, 2 for 20.
  const ticks = key => {
    const decades = spanned(plot, key);
    return decades > 2.2 ? { dtick: Math.ceil(decades / 8) } : { dtick: "D2", tickformat: ".6~g" };
  };
  const scaled = (log, key) => ({ ...axis, type: log ? "log" : "linear", ...(log ? ticks(key) : {}) });
  const value = scaled(plot.log.y, "y");
  if (view.range && !plot.log.y) Object.assign(value, { range: view.range, autorange: false });
  const letters = Math.floor(width / (plot.lying ? 12 : 7.5));
  const title = text => ({ text: wrapped(text, letters), font: { size: 13 }, standoff: 8 });
  const dashed = i => ({ color: ink("--soft"), width: 1.3, dash: DASHES[1 + i % 3] });
  const line = i => ({ type: "line", line: dashed(i), layer: "below" });
  const upright = (v, i) => ({ ...line(i), xref: "x", yref: "paper", x0: v, x1: v, y0: 0, y1: 1 });
  const level = (v, i) => ({ ...line(i), xref: "paper", yref: "y", x0: 0, x1: 1, y0: v, y1: v });
  const marks = view.marks || [];
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { color: ink("--ink"), family: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif", size: 13 },
    margin: { l: 44, r: 14, t: 12, b: 40 }, height: 330,
    dragmode: coarse ? false : "zoom", hovermode: plot.lying || many ? "closest" : "x unified",
    hoverlabel: { bgcolor: ink("--card"), bordercolor: ink("--line"), font: { color: ink("--ink"), size: 12 },
      namelength: 32, align: "left" },
    shapes: marks.map((one, i) => (one.upright || plot.lying ? upright : level)(one.value, i)),
  };
  if (plot.lying) {
    layout.xaxis = { ...value, title: title(view.y) };
    if (view.ticks && plot.log.y) {
      const [tickvals, ticktext, range] = view.ticks;
      Object.assign(layout.xaxis, { dtick: undefined, tickvals, ticktext, range, autorange: false });
    }
    const names = rows.map(name => wrapped(name, width < 400 ? 16 : 26));
    const tallest = Math.max(...names.map(name => name.split("<br>").length));
    layout.height = Math.max(190, 84 + (18 + 15 * tallest) * rows.length);
    layout.yaxis = { ...axis, tickvals: rows.map((_, i) => i), ticktext: names, range: [rows.length - 0.4, -0.6],
      autorange: false, showgrid: false, fixedrange: true };
  } else {
    const words = view.series.some(series => series.x.some(x => typeof x === "string"));
    layout.xaxis = { ...(words ? { ...axis, type: "category" } : scaled(plot.log.x, "x")), title: title(plot.across) };
    layout.yaxis = value;
    const lines = wrapped(view.y, Math.floor(width / 7.2));
    layout.title = { text: lines, x: 0, xanchor: "left", xref: "container", y: 1, yanchor: "top", yref: "container",
      pad: { t: 4, l: 4 }, font: { size: 13 } };
    layout.margin.t = 14 + 18 * lines.split("<br>").length;
  }
  return { traces: bands.concat(lines), layout };
}
// Decades from the smallest to the largest positive value.
function spanned(plot, key) {
  const of = series => key === "x" ? plot.xs(series) : series[key];
  const values = plot.view.series.flatMap(of).filter(value => value > 0);
  return values.length ? Math.log10(Math.max(...values) / Math.min(...values)) : 0;
}

const plots = all("figure[data-plot]").map(figure => new Plot(figure));
const seen = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) plots[Number(entry.target.dataset.index)].start();
}, { rootMargin: "250px" });
plots.forEach((plot, i) => { plot.figure.dataset.index = i; plot.look(); seen.observe(plot.figure); });
addEventListener("beforeprint", () => plots.forEach(plot => plot.start()));

// Light and dark.
const redraw = () => { plots.forEach(plot => plot.draw()); name(); color(document); };
const button = document.getElementById("theme");
const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; redraw(); });
system.addEventListener("change", () => { if (!root.dataset.theme) redraw(); });
