const PAGE = 24;

// ---- charts ----
const key = (style, name) => make("li", {}, sample(style), name);

function panels(host, entries, drawPanel) {
  host.replaceChildren();
  for (const kind of data.kinds) {
    const frame = make("div", {class: "frame"}), output = make("output");
    host.append(make("div", {class: `s${kind.colour}`}, make("h4", {}, make("i", {class: "swatch"}), make("span", {}, kind.name)), frame, output));
    drawPanel({name: kind.name, confidence_ece: kind.ece}, entries[kind.name], frame, output);
  }
}

function drawSeverity(host) {
  const titles = {error: "Error", ece: "ECE", mean_uncertainty: "Mean uncertainty", ood_auroc: "OOD AUROC"};
  host.replaceChildren();
  for (const [metric, title] of Object.entries(titles)) {
    const frame = make("div", {class: "frame"}), output = make("output");
    host.append(make("div", {}, make("h4", {}, make("span", {}, title)), frame, output));
    severityPanel(title, data.severity[metric], frame, output);
  }
}

function severityPanel(title, corruptions, frame, output) {
  const width = frame.clientWidth || 270, height = 210, box = {left: 42, right: width - 10, top: 8, bottom: height - 24};
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
  const lines = Object.entries(corruptions).map(([name, points], index) => ({name, colour: index % 8, points: points.filter((point) => point.value !== null)}));
  const values = lines.flatMap((line) => line.points.map((point) => point.value));
  const low = Math.min(...values), high = Math.max(...values), room = .08 * (high - low) || .05;
  const place = axes(svg, box, {low: 0, high: 5, ticks: 5, format: (value) => String(value)}, {low: low - room, high: high + room, ticks: 4});
  const dots = [];
  for (const line of lines) {
    const group = draw("g", {class: `s${line.colour}`});
    group.append(draw("path", {class: "line", d: `M${line.points.map((point) => `${place.x(point.severity)} ${place.y(point.value)}`).join("L")}`}));
    for (const point of line.points) {
      const dot = draw("circle", {class: "dot", cx: place.x(point.severity), cy: place.y(point.value), r: 4});
      dots.push({dot, severity: point.severity});
      group.append(dot);
    }
    svg.append(group);
  }
  frame.replaceChildren(svg);
  const rest = () => { dots.forEach(({dot}) => dot.setAttribute("r", 4)); output.textContent = ""; };
  explore(frame, `${title} against severity`, [0, 1, 2, 3, 4, 5].map(place.x), (severity) => {
    rest();
    dots.forEach((entry) => { if (entry.severity === severity) entry.dot.setAttribute("r", 6); });
    const texts = lines.flatMap((line) => line.points.filter((point) => point.severity === severity).map((point) =>
      `${line.name} ${show(point.value)}${point.low === null ? "" : ` (${show(point.low)} to ${show(point.high)})`}`));
    return output.textContent = `severity ${severity}: ${texts.join(", ") || "-"}`;
  }, rest);
}

function drawCharts() {
  const curves = data.curves;
  const lines = [
    {label: "random", class: "line random", curve: curves.random},
    ...data.kinds.map((kind) => ({label: kind.name, class: `line s${kind.colour}`, colour: kind.colour, curve: curves[kind.name]})),
    {label: "oracle", class: "line oracle", curve: curves.oracle},
  ];
  lines.forEach((line) => byId("curve-keys").append(key(line.class, line.label)));
  charts.push(() => curveChart(byId("rejection"), "rejected", curves.share, lines, data.limits, "Share of answers rejected", {}));
  charts.push(() => panels(byId("reliability"), data.reliability, (kind, entry, frame, output) => reliabilityPanel(kind, entry, frame, output, {quality: "accuracy", item: "answer"})));
  charts.push(() => panels(byId("histograms"), data.histograms, (kind, entry, frame, output) => histogramPanel(kind, entry, frame, output, {up: "right", down: "wrong"})));
  if (data.severity.error) {
    Object.keys(data.severity.error).forEach((name, index) => byId("corruption-keys").append(key(`line s${index % 8}`, name)));
    charts.push(() => drawSeverity(byId("severity")));
  } else byId("severity-card").hidden = true;
  drawAndKeepUp();
}

// ---- examples ----
const sorts = {
  "probability of a wrong answer": (example) => (example.right ? 1 : -1) * example.confidence - (example.right ? 0 : 1),
  "highest uncertainty": (example) => -example.uncertainty,
  "lowest uncertainty": (example) => example.uncertainty,
  "highest probability": (example) => -example.confidence,
  "lowest probability": (example) => example.confidence,
  "row": (example) => example.row,
};
const state = {text: "", verdict: "", group: "", low: -Infinity, high: Infinity, sort: "probability of a wrong answer", page: 0};
data.examples.forEach((example) => { example.search = [example.label, example.answer, example.text || ""].join("\n").toLowerCase(); });

function selected() {
  const key = sorts[state.sort];
  return data.examples.filter((example) => example.search.includes(state.text) && (!state.group || example.groups.includes(state.group))
    && (!state.verdict || (state.verdict === "right") === example.right) && example.confidence >= state.low && example.confidence <= state.high)
    .sort((one, two) => key(one) - key(two) || one.row - two.row);
}

function card(example) {
  const parts = [];
  if (example.image) parts.push(make("img", {src: example.image, alt: `Row ${example.row}, ${example.label}`}));
  if (example.text !== undefined) parts.push(make("div", {class: "passage", dir: "auto"}, example.text));
  parts.push(make("div", {class: `verdict ${example.right ? "right" : "wrong"}`}, make("b", {dir: "auto"}, `${example.right ? "✓" : "✗"} ${example.answer}`), percent(example.confidence)));
  if (!example.right) parts.push(make("div", {}, "is ", make("b", {dir: "auto"}, example.label), ` (${percent(example.of_label)})`));
  parts.push(make("div", {class: "small"}, `row ${example.row}, uncertainty ${show(example.uncertainty)}`));
  if (example.calibrated !== undefined) parts.push(make("div", {class: "small"}, "calibrated: ", make("span", {dir: "auto"}, example.calibrated_answer), `, ${percent(example.calibrated)}`));
  const top = example.top.flatMap(([name, value]) => [make("dt", {dir: "auto"}, name), make("dd", {}, show(value))]);
  parts.push(make("details", {}, make("summary", {}, "Probabilities"), make("dl", {}, top)));
  if (example.groups.length) parts.push(make("div", {}, example.groups.map((group) => make("span", {class: "tag"}, group))));
  return make("li", {"data-row": example.row}, parts);
}

function drawCards(first = false) {
  byId("cards").replaceChildren(...turnTo(state, first, selected(), PAGE, "example").map(card));
}

function drawControls() {
  drawFilters(state, drawCards);
  Object.keys(sorts).forEach((name) => byId("sort").append(make("option", {}, name)));
  byId("sort").addEventListener("change", (event) => { state.sort = event.target.value; drawCards(true); });
  drawChips("verdicts", state, "verdict", [["", "all answers"], ["wrong", "wrong answers"], ["right", "right answers"]], drawCards);
  drawChips("groups", state, "group", [["", "all examples on this page"], ...Object.entries(data.groups)], drawCards);
  drawPager(state, drawCards);
  if (data.examples.some((example) => example.text !== undefined)) byId("cards").classList.add("texts");
  byId("examples-note").textContent = `${shownOf()} examples: the answer, its probability, and the true class if it differs.`;
}

unhide();
drawCharts();
drawControls();
drawCards();
