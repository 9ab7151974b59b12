// What the pages of all reports share.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// ---- elements: text always goes in as text ----
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children.flat());
  return element;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const show = (value, digits = 3) => value === null || value === undefined ? "-" :
  (Math.abs(value) >= 1e5 ? value.toExponential(2) : value.toFixed(Math.abs(value) >= 100 ? 1 : digits)).replace("-", "−");
const breakable = (name) => name.split("_").flatMap((part, index) => index ? ["_", make("wbr"), part] : [part]);
const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

// ---- charts: drawn again where the width changes ----
const charts = [];
const redraw = () => charts.forEach((chart) => chart());

function drawAndKeepUp() {
  redraw();
  let width = byId("curves").clientWidth;
  new ResizeObserver(() => {
    if (byId("curves").clientWidth === width) return;
    width = byId("curves").clientWidth;
    redraw();
  }).observe(byId("curves"));
}

const sample = (style) => draw("svg", {width: 26, height: 10, "aria-hidden": "true"}, draw("path", {d: "M1 5H25", class: style}));

// ---- axes ----
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) values.push(k * step);
  return {values, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9))};
}

function axes(svg, box, x, y) {
  const place = {
    x: (value) => box.left + (value - x.low) / (x.high - x.low) * (box.right - box.left),
    y: (value) => box.bottom - (value - y.low) / (y.high - y.low) * (box.bottom - box.top),
  };
  const across = ticks(x.low, x.high, x.ticks), up = ticks(y.low, y.high, y.ticks);
  for (const value of up.values) {
    svg.append(draw("path", {class: "gridline", d: `M${box.left} ${place.y(value)}H${box.right}`}));
    svg.append(draw("text", {x: box.left - 7, y: place.y(value) + 4, "text-anchor": "end"}, (y.format || show)(value, up.digits)));
  }
  svg.append(draw("path", {class: "axisline", d: `M${box.left} ${box.bottom}H${box.right}`}));
  for (const value of across.values)
    svg.append(draw("text", {x: place.x(value), y: box.bottom + 17, "text-anchor": "middle"}, (x.format || show)(value, across.digits)));
  if (x.label) svg.append(draw("text", {x: (box.left + box.right) / 2, y: box.bottom + 37, "text-anchor": "middle"}, x.label));
  return place;
}

// A drawing in which pointer and arrow keys move from stop to stop.
function explore(frame, label, stops, tell, clear) {
  let at = -1;
  const go = (index) => {
    at = Math.max(0, Math.min(stops.length - 1, index));
    const text = tell(at);
    frame.setAttribute("aria-valuenow", at);
    frame.setAttribute("aria-valuetext", text);
  };
  fill(frame, {tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": Math.max(0, stops.length - 1), "aria-valuenow": 0}, []);
  frame.onpointermove = (event) => {
    const x = event.clientX - frame.getBoundingClientRect().left;
    let best = 0;
    stops.forEach((stop, index) => { if (Math.abs(stop - x) < Math.abs(stops[best] - x)) best = index; });
    if (stops.length) go(best);
  };
  frame.onpointerleave = frame.onblur = () => { at = -1; clear(); };
  frame.onfocus = () => { if (stops.length && at < 0) go(0); };
  frame.onkeydown = (event) => {
    const far = Math.max(1, Math.round(stops.length / 40));
    const target = {ArrowRight: at + far, ArrowUp: at + far, ArrowLeft: at - far, ArrowDown: at - far, Home: 0, End: stops.length - 1}[event.key];
    if (target === undefined || !stops.length) return;
    event.preventDefault();
    go(target);
  };
}

// ---- curves against a share ----
function curveChart(frame, label, x, lines, limits, xLabel, spots) {
  const width = frame.clientWidth || 500, height = width < 420 ? 290 : 340;
  const box = {left: 48, right: width - 10, top: 8, bottom: height - 46};
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
  const place = axes(svg, box, {low: 0, high: 1, ticks: width < 420 ? 4 : 6, format: (value) => `${Math.round(100 * value)} %`, label: xLabel}, {low: limits[0], high: limits[1], ticks: 6});
  const id = `clip-${frame.id}`;
  svg.append(draw("clipPath", {id}, draw("rect", {x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 4})));
  const group = draw("g", {"clip-path": `url(#${id})`});
  for (const line of lines) {
    const points = line.curve.map((value, index) => `${place.x(x[index]).toFixed(1)} ${place.y(value).toFixed(1)}`);
    group.append(draw("path", {class: line.class, "data-name": line.label, d: points.length > 1 ? `M${points.join("L")}` : `M${points[0]}h.01`}));
  }
  for (const [name, spot] of Object.entries(spots)) {
    const index = Math.min(x.length - 1, Math.floor(x.length * spot.at));
    svg.append(draw("text", {x: place.x(x[index]) + spot.dx, y: place.y(lines.find((line) => line.class === `line ${name}`).curve[index]) + spot.dy, "text-anchor": spot.anchor}, name));
  }
  const cursor = draw("g");
  const tip = make("div", {class: "tip", hidden: ""});
  svg.append(group, cursor);
  frame.replaceChildren(svg, tip);
  const tell = (index) => {
    const at = place.x(x[index]);
    cursor.replaceChildren(draw("path", {class: "cursor", d: `M${at} ${box.top}V${box.bottom}`}));
    const rows = lines.map((line) => ({...line, value: line.curve[index]})).sort((a, b) => b.value - a.value);
    for (const row of rows) {
      const y = place.y(row.value);
      if (y >= box.top - 4 && y <= box.bottom + 4) cursor.append(draw("circle", {class: `dot ${row.class.replace("line", "").replace("dashed", "")}`, cx: at, cy: y, r: 4}));
    }
    tip.replaceChildren(make("b", {}, `${percent(x[index])} ${label}`), ...rows.map((row) => make("div", {}, make("span", {}, row.colour === undefined ? "" : make("i", {class: `swatch s${row.colour}`}), row.label), make("span", {}, show(row.value)))));
    tip.hidden = false;
    tip.style.left = at > width / 2 ? `${Math.max(0, at - tip.offsetWidth - 12)}px` : `${Math.min(at + 12, width - tip.offsetWidth)}px`;
    return `${percent(x[index])} ${label}: ` + rows.map((row) => `${row.label} ${show(row.value)}`).join(", ");
  };
  explore(frame, `${xLabel}: read the curves`, x.map(place.x), tell, () => { cursor.replaceChildren(); tip.hidden = true; });
}

// ---- small panels, one per scorer ----
function reliabilityPanel(scorer, entry, frame, output, labels = {quality: "quality", item: "output"}) {
  const width = frame.clientWidth || 230, height = 200, box = {left: 30, right: width - 8, top: 8, bottom: height - 24};
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
  const place = axes(svg, box, {low: 0, high: 1, ticks: 2}, {low: 0, high: 1, ticks: 2});
  const most = Math.max(1, ...entry.counts), step = 1 / entry.counts.length;
  entry.counts.forEach((number, index) => svg.append(draw("rect", {class: "bars", x: place.x(index * step) + .5, width: Math.max(1, place.x(step) - place.x(0) - 1), y: place.y(.22 * number / most), height: place.y(0) - place.y(.22 * number / most)})));
  svg.append(draw("path", {class: "line random", d: `M${place.x(0)} ${place.y(0)}L${place.x(1)} ${place.y(1)}`}));
  const bins = entry.bins, points = bins.map((bin) => `${place.x(bin.confidence)} ${place.y(bin.quality)}`);
  for (const bin of bins) svg.append(draw("path", {class: "whisker", d: `M${place.x(bin.confidence)} ${place.y(bin.low)}V${place.y(bin.high)}`}));
  svg.append(draw("path", {class: "line", d: `M${points.join("L")}`}));
  const dots = bins.map((bin) => draw("circle", {class: "dot", cx: place.x(bin.confidence), cy: place.y(bin.quality), r: 4}));
  svg.append(...dots);
  frame.replaceChildren(svg);
  const rest = () => {
    dots.forEach((dot) => dot.setAttribute("r", 4));
    output.textContent = scorer.confidence_ece === null ? "" : `ECE ${show(scorer.confidence_ece)}`;
  };
  rest();
  explore(frame, `${scorer.name}: bins of confidence`, bins.map((bin) => place.x(bin.confidence)), (index) => {
    rest();
    dots[index].setAttribute("r", 6.5);
    const bin = bins[index];
    return output.textContent = `confidence ${show(bin.confidence)}, ${labels.quality} ${show(bin.quality)} (${show(bin.low)} to ${show(bin.high)}), ${count(bin.count, labels.item)}`;
  }, rest);
}

function histogramPanel(scorer, entry, frame, output, labels = {up: "good", down: "bad"}) {
  const width = frame.clientWidth || 230, height = 190, box = {left: 40, right: width - 8, top: 6, bottom: height - 22};
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
  const shares = ["good", "bad"].map((kind) => {
    const all = entry[kind].reduce((sum, number) => sum + number, 0) || 1;
    return entry[kind].map((number) => number / all);
  });
  const edges = entry.edges, top = 1.05 * Math.max(...shares.flat());
  const place = axes(svg, box, {low: edges[0], high: edges.at(-1), ticks: Math.max(2, Math.floor((box.right - box.left) / 32))}, {low: -top, high: top, ticks: 5, format: (value) => `${Math.round(100 * Math.abs(value))} %`});
  const bars = edges.slice(1).map((right, index) => ["good", "bad"].map((kind, sign) => {
    const zero = place.y(0), size = Math.abs(place.y(shares[sign][index]) - zero), left = place.x(edges[index]);
    return draw("rect", {class: kind, x: left + .4, width: Math.max(1, place.x(right) - left - .8), y: sign ? zero : zero - size, height: size});
  }));
  svg.append(...bars.flat(), draw("path", {class: "axisline", d: `M${box.left} ${place.y(0)}H${box.right}`}));
  frame.replaceChildren(svg);
  const rest = () => { bars.flat().forEach((bar) => bar.classList.remove("lighted")); output.textContent = ""; };
  explore(frame, `${scorer.name}: bars of the histogram`, bars.map((_, index) => place.x((edges[index] + edges[index + 1]) / 2)), (index) => {
    rest();
    bars[index].forEach((bar) => bar.classList.add("lighted"));
    return output.textContent = `${show(edges[index])} to ${show(edges[index + 1])}: ${entry.good[index].toLocaleString("en")} ${labels.up}, ${entry.bad[index].toLocaleString("en")} ${labels.down}`;
  }, rest);
}

// ---- examples: what is shown of them depends on a state with a page, filters and an order ----
function turnTo(state, first, rows, size, word) {
  const pages = Math.max(1, Math.ceil(rows.length / size));
  state.page = first ? 0 : Math.max(0, Math.min(state.page, pages - 1));
  const start = state.page * size, made = rows.slice(start, start + size);
  byId("status").textContent = rows.length ? `${start + 1} to ${start + made.length} of ${count(rows.length, word)}` : `No ${word} matches.`;
  byId("page").textContent = `Page ${state.page + 1} of ${pages}`;
  byId("previous").disabled = state.page === 0;
  byId("next").disabled = state.page === pages - 1;
  return made;
}

function drawPager(state, redrawRows) {
  for (const [id, step] of [["previous", -1], ["next", 1]]) byId(id).addEventListener("click", () => {
    state.page += step;
    redrawRows();
    byId("examples").scrollIntoView();
  });
}

function drawFilters(state, redrawRows) {
  const limit = (id, key, otherwise) => byId(id).addEventListener("input", (event) => {
    state[key] = event.target.value === "" || Number.isNaN(event.target.valueAsNumber) ? otherwise : event.target.valueAsNumber;
    redrawRows(true);
  });
  limit("filter-low", "low", -Infinity);
  limit("filter-high", "high", Infinity);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("filter-text").addEventListener("input", (event) => { state.text = event.target.value.toLowerCase(); redrawRows(true); });
}

function drawChips(host, state, key, entries, redrawRows) {
  for (const [value, about] of entries) {
    const radio = make("input", {type: "radio", name: key, value});
    radio.checked = value === "";
    radio.addEventListener("change", () => { state[key] = value; redrawRows(true); });
    byId(host).append(make("label", {title: about}, radio, value || "all"));
  }
}

// Headings to sort by; a first click sorts in the direction that its column begins with.
function sortingHeads(columns, state, begin, redrawRows) {
  return columns.map((column) => {
    const button = make("button", {type: "button"}, column.label);
    const cell = make("th", {scope: "col", role: "columnheader", "aria-sort": "none", "data-key": column.key, class: column.number ? "number" : null}, button);
    if (column.width) cell.style.width = column.width;
    button.addEventListener("click", () => {
      state.direction = state.sort === column.key ? -state.direction : begin(column);
      state.sort = column.key;
      redrawRows(true);
    });
    return cell;
  });
}

function markSorted(state) {
  byId("table").tHead.querySelectorAll("th").forEach((cell) => cell.setAttribute("aria-sort", cell.dataset.key !== state.sort ? "none" : state.direction > 0 ? "ascending" : "descending"));
}

const shownOf = () => data.examples.length === data.n ? `All ${data.n.toLocaleString("en")}` : `${data.examples.length.toLocaleString("en")} of ${data.n.toLocaleString("en")}`;
const unhide = () => document.querySelectorAll("[data-script]").forEach((element) => { element.hidden = false; });
