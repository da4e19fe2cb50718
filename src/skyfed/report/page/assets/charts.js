// The charts of lines and bars: accuracy, energy, payloads, the bound.
const CONFIG = { displaylogo: false, displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false, modeBarButtons: [["toImage", "resetScale2d"]] };
const FAR_APART = 20; // ratio of two algorithms' costs beyond which only a logarithmic axis shows both

function layout(x, y, more = {}) {
  const axis = { gridcolor: tone("grid"), zeroline: false, linecolor: tone("line"), tickcolor: tone("line"), automargin: true, title: { standoff: 10 } };
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: tone("ink") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: "zoom",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: tone("soft"), activecolor: tone("ink") },
    margin: { l: 52, r: 14, t: 10, b: 46 }, hovermode: "closest",
    hoverlabel: { bgcolor: tone("card"), bordercolor: tone("line"), font: { color: tone("ink") }, namelength: -1 },
    ...more,
    xaxis: { ...axis, ...x, title: { ...axis.title, text: x.title || "" } },
    yaxis: { ...axis, ...y, title: { ...axis.title, text: y.title || "" } },
  };
}

// Draws at the size its place has now, or will have on paper, where the page is narrower than it knows yet.
function show(chart, traces, look, config = CONFIG) {
  const width = state.printing ? (chart.closest(".multiples, .pair") ? 335 : 690) : chart.clientWidth;
  Plotly.react(chart, traces, { ...look, width, height: chart.clientHeight }, config);
  fit.observe(chart);
}
const fit = new ResizeObserver((places) => {
  for (const { target } of places) {
    const known = target.clientWidth && target._fullLayout; // it has no width while the page is hidden or closed
    const wrong = known && Math.abs(target.clientWidth - target._fullLayout.width) > 1;
    if (wrong && !state.printing) Plotly.relayout(target, { width: target.clientWidth, height: target.clientHeight });
  }
});

// A logarithmic axis with ticks written out in full.
function decades(values) {
  const known = values.filter((value) => value > 0), low = Math.min(...known) / 1.15, high = Math.max(...known) * 1.15, ticks = [];
  const steps = high / low < 3 ? [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9] : high / low < 400 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const step of steps) { const tick = step * 10 ** power; if (tick >= low && tick <= high) ticks.push(tick); }
  }
  const text = ticks.map((tick) => tick.toLocaleString("en", { maximumSignificantDigits: 2 }));
  return { type: "log", range: [Math.log10(low), Math.log10(high)], tickvals: ticks, ticktext: text };
}

const central = (line) => data.looks[line.algorithm].central;
const hasAxis = (line, axis) => line.x[axis] && (axis === "rounds" || (!central(line) && line.x[axis].at(-1) > 0));

// The axis that was chosen; before that, the first one that some line has.
const axisNow = () => state.axis || Object.keys(data.axes).find((axis) => data.accuracy.some((line) => hasAxis(line, axis)));

function drawAccuracy() {
  const name = axisNow(), over = name === "rounds", { label, unit } = data.axes[name], all = data.accuracy.filter(shown);
  for (const button of document.querySelectorAll('[data-switch="axis"] button')) {
    button.setAttribute("aria-pressed", String(button.dataset.value === name));
    button.hidden = !data.accuracy.some((line) => hasAxis(line, button.dataset.value));
  }
  const lines = all.filter((line) => hasAxis(line, name)), levels = over ? [] : all.filter(central);
  const traces = [], most = at("accuracy-chart").clientWidth < 500 ? 4 : 8; // markers of a line
  for (const line of lines) {
    const x = line.x[name], y = line.y[state.measure];
    if (line.seeds > 1) {
      traces.push({
        x: [...x, ...[...x].reverse()], y: [...y.high, ...[...y.low].reverse()], fill: "toself", hoverinfo: "skip",
        fillcolor: faint(lineInk(line), 0.16), line: { width: 0 }, mode: "lines", type: "scatter",
      });
    }
  }
  for (const line of lines) {
    const x = line.x[name], y = line.y[state.measure];
    traces.push({
      x, y: y.mean, name: nameOf(line), type: "scatter", mode: "lines+markers",
      line: { color: lineInk(line), width: 2.2 }, marker: marks(line, x.length, most),
      hovertemplate: `%{y:.1f} % at ${over ? "round %{x}" : `%{x:.4g} ${unit}`}`,
    });
  }
  const ends = lines.map((line) => line.x[name].at(-1));
  const far = (ends.length && Math.max(...ends)) || 1;
  const log = !over && ends.length && Math.max(...ends) > FAR_APART * Math.min(...ends);
  const flat = levels.map((line) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, y0: line.y[state.measure].mean.at(-1), y1: line.y[state.measure].mean.at(-1),
    line: { color: lineInk(line), width: 1.2 },
  }));
  const labels = levels.map((line) => ({
    xref: "paper", x: 0.01, xanchor: "left", y: line.y[state.measure].mean.at(-1), yanchor: "bottom", showarrow: false,
    text: `${nameOf(line)} (central), final`, font: { size: 12, color: tone("soft") },
  }));
  const top = Math.max(0, ...flat.map((level) => level.y0), ...lines.flatMap((line) => line.y[state.measure].high));
  const low = Math.min(top, ...flat.map((level) => level.y0), ...lines.flatMap((line) => line.y[state.measure].low));
  const reach = top - low || 1;
  show(at("accuracy-chart"), traces, layout(
    { title: over ? label : `${label} (${unit})`, range: [over ? -0.015 * far : 0, 1.025 * far], ...(log ? decades(lines.flatMap((line) => line.x[name])) : {}) },
    { title: "Test accuracy (%)", range: [Math.max(0, low - 0.06 * reach), top + 0.09 * reach] },
    { shapes: flat, annotations: labels, hovermode: over ? "x unified" : "closest" },
  ));
  const seeds = Math.max(1, ...data.accuracy.map((line) => line.seeds));
  at("accuracy-note").textContent = [
    state.measure === "accuracy" ? "On the test set, which grows as the vehicles see more; measured." : "On the whole test set; measured.",
    seeds > 1 ? `Lines: mean over seeds; bands: least to best of up to ${seeds} seeds.` : "",
    !over && levels.length ? "Central training has no vehicles and no such cost: its last accuracy is a level to compare with." : "",
    lines.length + levels.length < all.length ? "Lines whose run did not record this axis, or has another kind of time, are left out." : "",
    solo() ? "Colours and markers are runs." : many() ? "Colours are algorithms, markers are runs." : "",
  ].join(" ");
}

function drawEnergy() {
  const parts = Object.keys(data.parts), host = at("energy-parts");
  drawParts("energy-chart", parts);
  drawParts("board-chart", parts.slice(2)); // beside the motors these are too small to see
  host.textContent = "";
  for (const part of parts) {
    const item = add(host, "span");
    add(item, "i", { class: "swatch" }).style.background = ink(data.parts[part].colour);
    item.append(data.parts[part].title);
  }
}

// One bar per line, stacked by what the energy was spent on.
function drawParts(chart, parts) {
  const lines = data.energy.filter(shown), sums = lines.map((line) => parts.reduce((sum, part) => sum + line.joules[part], 0));
  const most = Math.max(0, ...sums), [unit, factor] = most >= 1e6 ? ["MJ", 1e-6] : most >= 1e3 ? ["kJ", 1e-3] : ["J", 1];
  const traces = parts.map((part) => ({
    type: "bar", orientation: "h", name: data.parts[part].title, y: lines.map((_, k) => k), x: lines.map((line) => factor * line.joules[part]),
    marker: { color: ink(data.parts[part].colour) }, text: lines.map(nameOf), textposition: "none", hovertemplate: `%{text}, ${data.parts[part].title}: %{x:.3g} ${unit}<extra></extra>`,
  }));
  at(chart).style.height = `${Math.max(150, 70 + 34 * lines.length)}px`;
  show(at(chart), traces, layout(
    { title: `Energy, modelled (${unit})`, rangemode: "tozero" },
    { showgrid: false, autorange: "reversed", tickvals: lines.map((_, k) => k), ticktext: lines.map((line) => short(nameOf(line), 24)) },
    { barmode: "stack", bargap: 0.35, margin: { l: 10, r: 14, t: 6, b: 46 } },
  ));
}

function drawPayload() {
  drawSizes("payload-chart", "Size of an upload", ["formula", "measured"]); // the formula is of the paper’s algorithms
  drawSizes("downlink-chart", "Per vehicle and round", ["down"]);
}

function drawSizes(chart, title, kinds) {
  const all = data.payload.flatMap((one) => kinds.filter((kind) => one[kind]).flatMap((kind) => [one[kind][0], one[kind].at(-1)]));
  const [unit, factor] = Math.max(...all) < 1 ? ["kB", 1000] : ["MB", 1], traces = [];
  for (const one of data.payload.filter(shown)) {
    for (const kind of kinds.filter((kind) => one[kind])) {
      const sizes = one[kind].map((size) => factor * size), modelled = kind === "formula";
      traces.push({
        x: sizes, y: sizes.map((_, k) => k / (sizes.length - 1)), type: "scatter", mode: "lines+markers",
        line: { shape: "hv", color: lineInk(one), width: modelled ? 1.6 : 2.2, dash: modelled ? MODELLED : "solid" },
        marker: marks(one, sizes.length, 4), name: `${nameOf(one)}, ${modelled ? "paper’s formula" : "measured"}`,
        hovertemplate: `%{y:.0%} have at most %{x:.3g} ${unit}`,
      });
    }
  }
  show(at(chart), traces, layout(
    { title: `${title} (${unit})`, ...(all.length ? decades(all.map((size) => factor * size)) : {}) },
    { title: "Share", range: [-0.02, 1.03], tickformat: ".0%" },
  ));
}

function drawBound() {
  const one = data.bound.at(state.bound); // the last one unless somebody chose
  const signed = Object.values(one.terms);
  const sums = one.rounds.map((_, k) => signed.reduce((sum, values) => sum + Math.max(0, values[k] || 0), 0));
  const bars = Object.entries(one.terms).map(([term, values]) => ({
    x: one.rounds, y: values.map((value, k) => Math.max(0, value || 0) / (sums[k] || 1)), customdata: values, name: term, type: "bar",
    marker: { color: ink(data.terms[term]), line: { width: 0 } }, hovertemplate: "%{y:.1%} (%{customdata:.3g})",
  }));
  show(at("bound-shares"), bars, layout(
    { title: "Round" }, { title: "Share of positive terms", range: [0, 1], tickformat: ".0%" },
    { barmode: "stack", bargap: 0.12, hovermode: "x unified" },
  ));
  const symbols = { printed: "triangle-down", supplement: "square", corrected: "circle" };
  const totals = Object.entries(one.totals).filter(([, values]) => values.some((value) => value > 0)).map(([form, values]) => ({
    x: one.rounds, y: values.map((value) => (value > 0 ? value : null)), name: one.valid[form] ? form : `${form} (conditions fail)`,
    type: "scatter", mode: "lines+markers", line: { color: tone("soft"), dash: MODELLED, width: 1.8 }, marker: { size: 6, symbol: symbols[form] }, hovertemplate: "%{y:.3g}",
  }));
  totals.push({ x: one.rounds, y: one.measured, name: "gradient, measured", type: "scatter", mode: "lines+markers", line: { color: tone("ink"), width: 2.4 }, marker: { size: 7, symbol: "diamond" }, hovertemplate: "%{y:.3g}" });
  const heights = totals.flatMap((line) => line.y).filter((value) => value > 0);
  const decade = Math.max(...heights) > 100 * Math.min(...heights) ? 1 : undefined; // else also digits in between
  show(at("bound-totals"), totals, layout(
    { title: "Round" }, { title: "Squared gradient and its bounds", type: "log", exponentformat: "power", dtick: decade, nticks: 8 },
    { hovermode: "x unified", margin: { l: 62, r: 10, t: 10, b: 46 } },
  ));
  const terms = at("bound-terms"), forms = at("bound-forms");
  terms.textContent = forms.textContent = "";
  for (const bar of bars) {
    const item = add(terms, "span");
    add(item, "i", { class: "swatch" }).style.background = bar.marker.color;
    item.append(bar.name);
  }
  for (const line of totals) {
    const item = add(forms, "span");
    glyph(item, line.marker.symbol, line.line.color);
    item.append(line.name);
  }
  at("bound-note").textContent = `Constants measured in the run, seed ${one.seed}; terms and the dashed bounds are computed from them. Left: ${one.form} form`
    + (one.form === "corrected" ? "." : ", since the conditions of the corrected one fail.")
    + ` Largest learning rate the corrected bound allows: ${digits(one.rate)}; the run starts with ${digits(one.eta)}.`;
}
