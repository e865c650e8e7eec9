// Tables sorted by clicking their headers.
for (const table of all("table[data-sort]")) {
  all("th button", table).forEach(head => head.addEventListener("click", () => {
    const cell = head.closest("th"), column = cell.cellIndex, up = cell.getAttribute("aria-sort") !== "ascending";
    all("th", table).forEach(other => other.removeAttribute("aria-sort"));
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], [p, q] = [Number(x), Number(y)];
      // Empty cells come last in either order.
      if (x !== "" && y !== "" && !isNaN(p) && !isNaN(q)) return up ? p - q : q - p;
      if (x === "" || y === "") return (x === "") - (y === "");
      return (up ? 1 : -1) * x.localeCompare(y);
    };
    table.tBodies[0].append(...Array.from(table.tBodies[0].rows).sort(order));
  }));
}

// A sweep: checkboxes per swept value, and one per setting in the table.
const rows = all("tr[data-key]");
function refresh() {
  const on = {};
  for (const box of all("input[data-tag]")) {
    on[box.dataset.tag] ??= new Set();
    if (box.checked) on[box.dataset.tag].add(box.value);
  }
  board.filtered.clear();
  let count = 0;
  for (const row of rows) {
    const out = row.dataset.tags.split(",").some((value, i) => on[i] && !on[i].has(value));
    if (out) board.filtered.add(row.dataset.key);
    row.hidden = out;
    const off = board.hidden.has(row.dataset.key);
    row.classList.toggle("off", off);
    row.querySelector("input").checked = !off;
    count += !out && !off;
  }
  const told = document.getElementById("shown");
  if (told) told.textContent = `${count} of ${rows.length} settings shown`;
  plots.filter(plot => plot.boarded).forEach(plot => plot.draw());
}
for (const row of rows) {
  const curves = plots.filter(plot => plot.boarded).flatMap(plot => plot.views[0].series);
  const series = curves.find(one => one.key === row.dataset.key);
  if (series) row.querySelector(".swatch").append(swatch(series, { kind: "lines" }, 0));
  row.querySelector("input").addEventListener("change", event => {
    if (event.target.checked) board.hidden.delete(row.dataset.key); else board.hidden.add(row.dataset.key);
    refresh();
  });
}
all("input[data-tag]").forEach(box => box.addEventListener("change", refresh));
const everything = document.getElementById("everything");
if (everything) everything.addEventListener("click", () => {
  all("input[data-tag]").forEach(box => { box.checked = true; });
  board.hidden.clear();
  refresh();
});
if (rows.length) refresh();

// A gallery: filter cards and claims by words, paper and verdict.
const search = document.getElementById("search");
if (search) {
  const paper = document.getElementById("paper"), verdict = document.getElementById("verdict");
  const entries = all("[data-entry]").map(element => ({ element, words: element.textContent.toLowerCase(),
    paper: element.dataset.paper, verdicts: element.dataset.verdicts.split("|"), kind: element.dataset.entry }));
  const sift = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = { card: 0, claim: 0 }, total = { card: 0, claim: 0 };
    for (const entry of entries) {
      const fits = wanted.every(word => entry.words.includes(word)) && (!paper.value || entry.paper === paper.value)
        && (!verdict.value || entry.verdicts.includes(verdict.value));
      entry.element.hidden = !fits;
      total[entry.kind] += 1;
      shown[entry.kind] += fits;
    }
    const left = new Set(entries.filter(one => one.kind === "card" && !one.element.hidden).map(one => one.paper));
    for (const head of all("[data-papers]")) head.hidden = !left.has(head.dataset.papers);
    document.getElementById("count").textContent =
      `${shown.card} of ${total.card} experiments, ${shown.claim} of ${total.claim} claims shown`;
  };
  [search, paper, verdict].forEach(control => control.addEventListener("input", sift));
  document.getElementById("reset").addEventListener("click", () => {
    search.value = paper.value = verdict.value = "";
    sift();
    search.focus();
  });
  all("[data-choose]").forEach(cell => cell.addEventListener("click", () => {
    [paper.value, verdict.value] = cell.dataset.choose.split("|"); sift(); search.scrollIntoView({ block: "center" });
  }));
  sift();
}
name();
color(document);
root.dataset.ready = "yes";
