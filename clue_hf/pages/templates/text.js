const PAGE = 25;

// ---- scorers that are shown: the best ones, where there are more of them than colours ----
const shown = new Set(data.scorers.slice(0, data.most_shown).map((scorer) => scorer.name));
const lineClass = (scorer) => `line s${scorer.colour}${scorer.dashed ? " dashed" : ""}`;

function drawLegend() {
  for (const scorer of data.scorers) {
    const button = make("button", {type: "button", "aria-pressed": String(shown.has(scorer.name))}, sample(lineClass(scorer)), scorer.name);
    button.addEventListener("click", () => {
      const on = !shown.delete(scorer.name);
      if (on) shown.add(scorer.name);
      button.setAttribute("aria-pressed", String(on));
      redraw();
    });
    const light = (on) => document.querySelectorAll("#rejection svg, #risk svg").forEach((svg) => {
      svg.classList.toggle("dim", on && shown.has(scorer.name));
      svg.querySelectorAll(".line").forEach((line) => line.classList.toggle("lit", on && line.dataset.name === scorer.name));
    });
    for (const [event, on] of [["pointerenter", true], ["focus", true], ["pointerleave", false], ["blur", false]])
      button.addEventListener(event, () => light(on));
    byId("legend").append(button);
  }
  const all = make("button", {type: "button"}, "Show all");
  all.addEventListener("click", () => {
    data.scorers.forEach((scorer) => shown.add(scorer.name));
    byId("legend").querySelectorAll("[aria-pressed]").forEach((button) => button.setAttribute("aria-pressed", "true"));
    redraw();
  });
  byId("legend").append(all);
}

// ---- small panels, one per scorer ----
function panels(host, entries, drawPanel) {
  host.replaceChildren();
  for (const scorer of data.scorers.filter((scorer) => shown.has(scorer.name) && entries[scorer.name])) {
    const frame = make("div", {class: "frame"}), output = make("output");
    host.append(make("div", {class: `s${scorer.colour}`}, make("h4", {}, make("i", {class: "swatch"}), make("span", {}, breakable(scorer.name))), frame, output));
    drawPanel(scorer, entries[scorer.name], frame, output);
  }
  if (!host.children.length) host.append(make("p", {class: "note"}, "No scorer is shown."));
}

function curveLines(values) {
  return [
    {label: "random", class: "line random", curve: values("random")},
    ...data.scorers.filter((scorer) => shown.has(scorer.name)).map((scorer) => (
      {label: scorer.name, class: lineClass(scorer), colour: scorer.colour, curve: values(`scorer:${scorer.name}`)})),
    {label: "oracle", class: "line oracle", curve: values("oracle")},
  ];
}

function drawCharts() {
  const curves = data.curves, flip = (values) => values.map((value) => 1 - value);
  const [low, high] = data.limits;
  if (curves.share.length) {
    charts.push(() => curveChart(byId("rejection"), "rejected", curves.share, curveLines((name) => curves[name]), [low, high], "Share of outputs rejected",
      {oracle: {at: .14, dx: -9, dy: 0, anchor: "end"}, random: {at: .02, dx: 0, dy: 16, anchor: "start"}}));
    charts.push(() => curveChart(byId("risk"), "kept", flip(curves.share).reverse(), curveLines((name) => flip(curves[name]).reverse()), [1 - high, 1 - low], "Coverage: share of outputs kept",
      {oracle: {at: .86, dx: 9, dy: 8, anchor: "start"}, random: {at: .98, dx: 0, dy: -8, anchor: "end"}}));
    charts.push(() => panels(byId("histograms"), data.histograms, histogramPanel));
    byId("histogram-note").textContent = `Coloured, up: outputs of quality ${show(data.median)} (the median) or better. Grey, down: the others. Each as a share of its kind; the outermost bars include everything beyond.`;
  }
  if (Object.keys(data.reliability).length) charts.push(() => panels(byId("reliability"), data.reliability, reliabilityPanel));
  else byId("reliability-card").hidden = true;
  drawAndKeepUp();
}

// ---- examples ----
const state = {text: "", group: "", low: -Infinity, high: Infinity, score: 0, sort: "row", direction: 1, page: 0};
const confident = data.examples.some((example) => example.confidence.some((value) => value !== null));
const open = new Set();
data.examples.forEach((example) => { example.search = [example.source, example.reference, ...example.references, example.output].join("\n").toLowerCase(); });
const columns = [
  {key: "row", label: "Row", width: "4.6rem", value: (example) => example.row},
  {key: "source", label: "Source", text: true, value: (example) => example.source},
  {key: "reference", label: "Reference", text: true, value: (example) => example.reference, more: (example) => example.references.length - 1},
  {key: "output", label: "Output", text: true, value: (example) => example.output},
  {key: "quality", label: "Quality", width: "5.6rem", number: true, meter: true, value: (example) => example.quality},
  {key: "score", label: "Uncertainty", width: "7.4rem", number: true, value: (example) => example.scores[state.score]},
  ...(confident ? [{key: "confidence", label: "Confidence", width: "7.2rem", number: true, meter: true, value: (example) => example.confidence[state.score]}] : []),
  {key: "groups", label: "Groups", width: "10.4rem", value: (example) => example.groups.join(", ")},
];

function compare(one, two) {
  const column = columns.find((column) => column.key === state.sort), a = column.value(one), b = column.value(two);
  if (a === b) return one.row - two.row;
  if (a === null || a === "" ) return 1;  // unknown values come last in both directions
  if (b === null || b === "") return -1;
  return state.direction * (typeof a === "string" ? a.localeCompare(b) : a - b) || one.row - two.row;
}

function selected() {
  return data.examples.filter((example) => example.search.includes(state.text) && (!state.group || example.groups.includes(state.group))
    && example.quality >= state.low && example.quality <= state.high).sort(compare);
}

function drawHead() {
  const blank = make("td", {class: "blank", role: "cell"});
  blank.style.width = "3.2rem";
  byId("table").tHead.replaceChildren(make("tr", {role: "row"}, blank, sortingHeads(columns, state, () => 1, drawRows)));
}

function exampleCell(column, example) {
  const value = column.value(example);
  if (column.text) return make("td", {class: "text", role: "cell", "data-label": column.label}, make("span", {class: "clamp", dir: "auto"}, value.length > 400 ? `${value.slice(0, 400)}…` : value),
    column.more && column.more(example) > 0 ? make("span", {class: "tag"}, `and ${column.more(example)} more`) : "");
  if (column.key === "groups") return make("td", {role: "cell"}, example.groups.map((group) => make("span", {class: "tag"}, group)));
  const cell = make("td", {class: column.number ? "number" : null, role: "cell", "data-label": column.label}, column.number ? show(value) : String(value));
  if (column.meter && value !== null) {
    const bar = make("i");
    bar.style.width = `${100 * Math.max(0, Math.min(1, value))}%`;
    cell.append(make("span", {class: "meter", "aria-hidden": "true"}, bar));
  }
  return cell;
}

function exampleRow(example) {
  const id = `detail-${example.row}`;
  const button = make("button", {type: "button", class: "toggle", "aria-expanded": "false", "aria-label": `Details of row ${example.row}`});
  const row = make("tr", {class: "row", role: "row"}, make("td", {role: "cell"}, button), columns.map((column) => exampleCell(column, example)));
  const toggle = (on) => {
    open[on ? "add" : "delete"](example);
    row.classList.toggle("open", on);
    button.setAttribute("aria-expanded", String(on));
    if (!on) { byId(id).remove(); button.removeAttribute("aria-controls"); return; }
    row.after(make("tr", {class: "detail", role: "row", id}, make("td", {role: "cell", colspan: columns.length + 1}, details(example))));
    button.setAttribute("aria-controls", id);
  };
  button.addEventListener("click", () => toggle(!open.has(example)));
  row.addEventListener("click", (event) => {
    if (!event.target.closest("button") && !String(getSelection())) toggle(!open.has(example));
  });
  return {row, unfold: () => toggle(true)};
}

function details(example) {
  const texts = [["Source", example.source], ...(example.references.length ? example.references.map((text, index) => [`Reference ${index + 1}`, text]) : [["Reference", example.reference]])].flatMap(([name, text]) => [make("h4", {}, name), make("div", {class: "passage", dir: "auto", "data-part": name.toLowerCase().split(" ")[0]}, text)]);
  const about = make("p", {class: "token-text", "aria-live": "polite"}, "Point at a token, or move between tokens with the arrow keys.");
  const heat = make("div", {class: "heat"}, "Entropy: 0", make("i"), `${show(data.entropy_limit, 2)} nats or more`);
  const numbers = (heads, rows) => make("table", {}, make("thead", {}, make("tr", {}, heads.map((head) => make("th", {scope: "col"}, head)))),
    make("tbody", {}, rows.map(([name, ...values]) => make("tr", {}, make("th", {scope: "row"}, name), values.map((value) => make("td", {class: "number"}, value))))));
  const scores = data.scorers.map((scorer, index) => [breakable(scorer.name), show(example.scores[index]), percent(example.ranks[index]), ...(confident ? [show(example.confidence[index])] : [])]);
  const qualities = Object.entries(example.qualities).length ? Object.entries(example.qualities) : [[data.quality, example.quality]];
  return make("div", {class: "inside"},
    make("div", {}, texts, make("h4", {}, "Output"), make("div", {class: "passage", dir: "auto", "data-part": "output"}, example.output),
      make("h4", {}, "Tokens of the output, shaded by entropy"), tokens(example, about), heat, about),
    make("div", {}, make("h4", {}, "Scores"), numbers(["Scorer", "Score", "More certain outputs", ...(confident ? ["Confidence"] : [])], scores),
      make("h4", {}, "Quality"), numbers(["Measure", "Value"], qualities.map(([name, value]) => [name, show(value)]))));
}

// One tab stop for all tokens of an output; arrow keys go from one to the next.
function tokens(example, output) {
  const box = make("div", {class: "passage tokens", dir: "auto", role: "group", "aria-label": "Tokens of the output"});
  const spans = example.tokens.map((token, index) => {
    const entropy = example.entropies[index], log = example.log_probabilities[index];
    const bare = token.replace(/^ +/, ""), text = bare === "" ? (token ? "␣" : "·") : bare.replaceAll("\n", "⏎");
    const about = `${JSON.stringify(bare || token)}: probability ${log === null ? "-" : show(Math.exp(log))}, entropy ${show(entropy)} nats`;
    const span = make("span", {class: /^<.*>$/.test(bare) ? "token special" : "token", tabindex: index ? -1 : 0, title: about, role: "img", "aria-label": about}, text);
    span.style.setProperty("--heat", Math.max(0, Math.min(1, (entropy || 0) / data.entropy_limit)));
    if (token !== bare && index) box.append(" ");
    box.append(span);
    if (token.endsWith("\n")) box.append("\n");
    span.about = about;
    return span;
  });
  const tell = (event) => { if (event.target.about) output.textContent = event.target.about; };
  box.addEventListener("pointerover", tell);
  box.addEventListener("focusin", tell);
  box.addEventListener("keydown", (event) => {
    const at = spans.indexOf(event.target), step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const next = spans[at + step];
    if (at < 0 || !next) return;
    event.preventDefault();
    spans[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return box;
}

function drawRows(first = false) {
  const made = turnTo(state, first, selected(), PAGE, "example").map((example) => [example, exampleRow(example)]);
  byId("table").tBodies[0].replaceChildren(...made.map(([, entry]) => entry.row));
  made.forEach(([example, entry]) => { if (open.has(example)) entry.unfold(); });
  markSorted(state);
}

function drawControls() {
  drawFilters(state, drawRows);
  data.scorers.forEach((scorer, index) => byId("score").append(make("option", {value: index}, scorer.name)));
  state.score = Math.max(0, data.scorers.findIndex((scorer) => scorer.name === data.scorer));
  byId("score").value = state.score;
  byId("score").addEventListener("change", (event) => { state.score = Number(event.target.value); drawRows(true); });
  byId("group-legend").textContent = `Group, by ${data.scorer}`;
  drawChips("groups", state, "group", [["", "all examples on this page"], ...Object.entries(data.groups)], drawRows);
  drawPager(state, drawRows);
  byId("examples-note").textContent = `${shownOf()} outputs. Click a heading to sort; open a row to see its tokens and all its scores.`;
}

unhide();
drawLegend();
drawCharts();
drawHead();
drawControls();
drawRows();
