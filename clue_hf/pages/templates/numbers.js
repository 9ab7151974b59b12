const PAGE = 25;
// numbers in units of the target are of any size
const units = (value) => {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value), short = Number(value.toPrecision(4));
  return (size && (size < 1e-4 || size >= 1e6) ? short.toExponential() : String(short)).replaceAll("-", "−");
};

// ---- charts ----
const key = (style, name) => make("li", {}, sample(style), name);
const around = (values, share = .06) => {
  const low = Math.min(...values), high = Math.max(...values), room = share * (high - low) || share * Math.abs(high) || 1;
  return {low: low - room, high: high + room};
};

function panels(host, drawPanel) {
  const parts = data.kinds.map((kind) => ({kind, frame: make("div", {class: "frame"}), output: make("output")}));
  host.replaceChildren(...parts.map(({kind, frame, output}) => make("div", {class: `s${kind.colour}`}, make("h4", {}, make("i", {class: "swatch"}), make("span", {}, kind.name)), frame, output)));
  parts.forEach(({kind, frame, output}) => drawPanel(kind, frame, output));  // when all are there, their widths are known
}

function errorPanel(kind, frame, output) {
  const entry = data.errors[kind.name], bins = entry.bins;
  const width = frame.clientWidth || 340, height = 280, box = {left: 58, right: width - 8, top: 8, bottom: height - 26};
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
  const x = around(bins.map((bin) => bin.rmv), .12), sorted = [...entry.error].sort((a, b) => a - b);
  x.low = Math.max(0, x.low);
  const top = 1.05 * Math.max(x.high, ...bins.map((bin) => bin.rmse), sorted[Math.floor(.98 * (sorted.length - 1))]);
  const place = axes(svg, box, {...x, ticks: 4, format: units}, {low: 0, high: top, ticks: 5, format: units});
  entry.std.forEach((std, index) => {
    if (std >= x.low && std <= x.high && entry.error[index] <= top) svg.append(draw("circle", {class: "point", cx: place.x(std), cy: place.y(entry.error[index]), r: 2.2}));
  });
  svg.append(draw("path", {class: "line random", d: `M${place.x(x.low)} ${place.y(x.low)}L${place.x(x.high)} ${place.y(x.high)}`}));
  svg.append(draw("path", {class: "line", d: `M${bins.map((bin) => `${place.x(bin.rmv)} ${place.y(bin.rmse)}`).join("L")}`}));
  const dots = bins.map((bin) => draw("circle", {class: "dot", cx: place.x(bin.rmv), cy: place.y(bin.rmse), r: 4.5}));
  svg.append(...dots);
  frame.replaceChildren(svg);
  const rest = () => { dots.forEach((dot) => dot.setAttribute("r", 4.5)); output.textContent = ""; };
  explore(frame, `${kind.name}: bins of the standard deviation`, bins.map((bin) => place.x(bin.rmv)), (index) => {
    rest();
    dots[index].setAttribute("r", 7);
    return output.textContent = `expected ${units(bins[index].rmv)}, observed ${units(bins[index].rmse)}, ${count(bins[index].count, "row")}`;
  }, rest);
}

function bandPanel(kind, frame, output) {
  const entry = data.bands[kind.name], n = entry.mean.length;
  const width = frame.clientWidth || 700, height = 270, box = {left: 58, right: width - 8, top: 8, bottom: height - 14};
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
  const all = data.kinds.flatMap(({name}) => [...data.bands[name].low, ...data.bands[name].high, ...data.bands[name].target]);
  const place = axes(svg, box, {low: 0, high: n + 1, ticks: 4, format: () => ""}, {...around(all, .03), ticks: 5, format: units});
  const at = (index) => place.x(index + 1), outside = entry.target.map((value, index) => value < entry.low[index] || value > entry.high[index]);
  const wide = Math.max(1, Math.min(8, .6 * (box.right - box.left) / n));
  entry.low.forEach((low, index) => svg.append(draw("path", {class: "band", "stroke-width": wide, d: `M${at(index)} ${place.y(low)}V${place.y(entry.high[index])}`})));
  svg.append(draw("path", {class: "line", d: n > 1 ? `M${entry.mean.map((value, index) => `${at(index)} ${place.y(value)}`).join("L")}` : `M${at(0)} ${place.y(entry.mean[0])}h.01`}));
  const dots = entry.target.map((value, index) => draw("circle", {class: outside[index] ? "truth outside" : "truth", cx: at(index), cy: place.y(value), r: outside[index] ? 3.2 : 2.2}));
  svg.append(...dots);
  frame.replaceChildren(svg);
  const rest = () => { dots.forEach((dot, index) => dot.setAttribute("r", outside[index] ? 3.2 : 2.2)); output.textContent = ""; };
  explore(frame, `${kind.name}: rows ordered by their mean`, entry.mean.map((_, index) => at(index)), (index) => {
    rest();
    dots[index].setAttribute("r", 5.5);
    return output.textContent = `row ${entry.number[index]}: mean ${units(entry.mean[index])}, ${units(entry.low[index])} to ${units(entry.high[index])}, target ${units(entry.target[index])}`;
  }, rest);
}

function drawCharts() {
  const kindLines = (curves) => data.kinds.map((kind) => ({label: kind.name, class: `line s${kind.colour}`, colour: kind.colour, curve: curves[kind.name]}));
  const covered = [{label: "perfect", class: "line random", curve: data.levels}, ...kindLines(data.coverage)];
  const curves = data.sparsification, first = data.kinds[0].name;
  const left = [
    {label: "random", class: "line random", curve: curves.share.map(() => 1)}, ...kindLines(curves),
    {label: "oracle", class: "line oracle", curve: curves[`${first} oracle`]},
  ];
  covered.forEach((line) => byId("coverage-keys").append(key(line.class, line.label)));
  left.forEach((line) => byId("sparsification-keys").append(key(line.class, line.label)));
  const seen = left.flatMap((line) => line.curve.slice(0, Math.max(1, Math.floor(.97 * line.curve.length))));
  charts.push(() => curveChart(byId("coverage"), "expected", data.levels, covered, [0, 1], "Probability of the interval", {}));
  charts.push(() => curveChart(byId("sparsification"), "removed", curves.share, left, [0, 1.06 * Math.max(...seen)], "Share of rows removed", {}));
  charts.push(() => panels(byId("errors"), errorPanel));
  charts.push(() => panels(byId("bands"), bandPanel));
  const shown = data.bands[first].mean.length;
  byId("bands-note").textContent = `${shown < data.n ? `${shown} of ${count(data.n, "row")}, evenly spaced` : "All rows"}, ordered by their mean. Dots: the targets, red if outside the interval.`;
  drawAndKeepUp();
}

// ---- rows ----
const some = (name) => data.examples.some((example) => example[name]);
const number = (name, label, value, width = "6.2rem") => ({key: name, label, number: true, width, value});
const columns = [
  {key: "row", label: "Row", width: "4.6rem", value: (example) => example.row},
  ...(some("image") ? [{key: "image", label: "Image", width: "5rem", value: (example) => example.row}] : []),
  ...(some("text") ? [{key: "text", label: "Input", text: true, value: (example) => example.text}] : []),
  number("target", "Target", (example) => example.target),
  number("mean", "Mean", (example) => example.kinds.raw.mean),
  number("std", "Std", (example) => example.kinds.raw.std),
  ...data.kinds.map(({name}) => ({...number(`interval ${name}`, data.kinds.length > 1 ? `95 %, ${name}` : "95 %", (example) => example.kinds[name].low, "10rem"), interval: name})),
  number("error", "Error", (example) => example.error),
  number("score", "Error / std", (example) => Math.abs(example.score)),
];
const state = {sort: "score", direction: -1, page: 0};

function compare(one, two) {
  const column = columns.find((column) => column.key === state.sort), a = column.value(one), b = column.value(two);
  return state.direction * (typeof a === "string" ? a.localeCompare(b) : a - b) || one.row - two.row;
}

function drawHead() {
  byId("table").tHead.replaceChildren(make("tr", {role: "row"}, sortingHeads(columns, state, (column) => column.number ? -1 : 1, drawRows)));
}

function cell(column, example) {
  const settings = {role: "cell", "data-label": column.label};
  if (column.key === "image") return make("td", settings, make("img", {src: example.image, alt: `Row ${example.row}`}));
  if (column.text) return make("td", {...settings, class: "text"}, make("span", {class: "clamp", dir: "auto", title: column.value(example)}, column.value(example)));
  if (!column.interval) return make("td", {...settings, class: column.number ? "number" : null}, column.number ? units(column.value(example)) : String(column.value(example)));
  const {low, high} = example.kinds[column.interval], outside = example.target < low || example.target > high;
  return make("td", {...settings, class: outside ? "number outside" : "number"}, `${units(low)} to ${units(high)}`);
}

function drawRows(first = false) {
  const made = turnTo(state, first, [...data.examples].sort(compare), PAGE, "row");
  byId("table").tBodies[0].replaceChildren(...made.map((example) => make("tr", {class: "row", role: "row", "data-row": example.row}, columns.map((column) => cell(column, example)))));
  markSorted(state);
}

function drawControls() {
  drawPager(state, drawRows);
  const all = data.examples.length === data.n;
  byId("examples-note").textContent = `${all ? `All ${count(data.n, "row")}, first those` : `The ${data.examples.length.toLocaleString("en")} of ${count(data.n, "row")}`} with the largest error in standard deviations. Red: the target is outside the interval. Click a heading to sort.`;
}

unhide();
drawCharts();
drawHead();
drawControls();
drawRows();
