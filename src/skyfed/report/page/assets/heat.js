// The heat maps: age of information, accuracy class by class.
const FRESH = { light: [[0, "#fdf6ec"], [0.25, "#fdd49e"], [0.5, "#fc8d59"], [0.75, "#d7301f"], [1, "#7f0000"]], dark: [[0, "#1c1a1c"], [0.25, "#4a2a1e"], [0.5, "#98421f"], [0.75, "#e8833a"], [1, "#ffe0ae"]] };
const VIRIDIS = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"].map((colour, k) => [k / 4, colour]);
let cursorBox = null;

function ageRows(map, vehicle) {
  const C = map.classes.length, T = map.rounds.length;
  const row = (c) => Array.from({ length: T }, (_, t) => {
    if (vehicle >= 0) return map.ages[(vehicle * C + c) * T + t];
    let sum = 0;
    for (let u = 0; u < map.shown; u++) sum += map.ages[(u * C + c) * T + t];
    return sum / map.shown;
  });
  return Array.from({ length: C }, (_, c) => row(c));
}

function drawAge() {
  if (!window.Plotly) return;
  const map = data.map[state.map], one = state.vehicle >= 0, rows = ageRows(map, state.vehicle);
  const T = map.rounds.length, C = map.classes.length, all = rows.flat();
  const worst = Math.max(1, ...rows.map((row) => Math.max(...row)));
  const traces = [{
    type: "heatmap", x: map.rounds, y: map.classes.map((_, c) => c), z: rows, zmin: 0, zmax: worst, colorscale: dark() ? FRESH.dark : FRESH.light, ygap: 1,
    colorbar: { title: { text: "rounds", side: "right" }, thickness: 10, outlinewidth: 0, tickcolor: tone("line"), len: 1 },
    customdata: rows.map((_, c) => new Array(T).fill(plain(short(map.classes[c], 40)))),
    hovertemplate: `round %{x}, class %{customdata}: ${one ? "last sensed %{z} rounds ago" : "%{z:.1f} rounds, mean of vehicles"}<extra></extra>`,
  }];
  if (one) {
    const visits = map.rounds.map((t, k) => [t, map.visits[state.vehicle * T + k]]).filter(([, c]) => c >= 0);
    traces.push({
      type: "scatter", mode: "markers", x: visits.map(([t]) => t), y: visits.map(([, c]) => c), hoverinfo: "skip",
      marker: { symbol: "square", size: Math.max(3, Math.min(9, 700 / T)), color: colourOf(state.vehicle), line: { width: 1, color: tone("card") } },
    });
  }
  const height = Math.max(240, Math.min(640, 90 + 24 * C));
  at("age-chart").style.height = `${height}px`;
  const every = Math.ceil(C / 26), half = T > 1 ? (map.rounds[1] - map.rounds[0]) / 2 : 0.5;
  show(at("age-chart"), traces, layout(
    { title: "Round", showgrid: false, range: [map.rounds[0] - half, map.rounds[T - 1] + half] },
    { title: "", showgrid: false, autorange: "reversed", tickvals: map.classes.map((_, c) => c).filter((c) => c % every === 0), ticktext: map.classes.map((name) => plain(short(classOf(name), 14))).filter((_, c) => c % every === 0) },
  ));
  const middle = all.reduce((sum, age) => sum + age, 0) / all.length;
  at("age-title").textContent = one ? `Association and age of information, vehicle ${state.vehicle}` : "Age of information, mean of all vehicles";
  at("age-note").textContent = (one ? "Marks: the class over which the vehicle hovers in a round. Colour: rounds since it last sensed a class. " : "Colour: rounds since a vehicle last sensed a class. Choose a vehicle on the map to see its visits. ")
    + `Mean age ${middle.toFixed(1)}, worst ${Math.max(...rows.map((row) => Math.max(...row))).toFixed(one ? 0 : 1)} rounds, as planned.`;
  moveCursor(player.t);
}

// A line over the heat map that follows the player; a plain element, since redrawing a chart takes too long.
function moveCursor(t) {
  const chart = at("age-chart"), full = chart && chart._fullLayout;
  if (!full || !full.xaxis) return;
  if (!cursorBox || !cursorBox.isConnected) {
    chart.classList.add("hold");
    cursorBox = add(chart, "div", { class: "cursor", "aria-hidden": "true" });
  }
  const x = full.xaxis._offset + full.xaxis.l2p(data.map[state.map].rounds[t]);
  cursorBox.style.cssText = `left:${x}px;top:${full.yaxis._offset}px;height:${full.yaxis._length}px`;
}

function drawClasses() {
  const host = at("classes-charts"), all = data.classes.filter((one) => solo() || one.run === state.classesRun);
  const maps = all.filter((one) => (solo() ? shown(one) : !state.hidden.has(one.algorithm)));
  const isOf = (box, one) => box.dataset.algorithm === one.algorithm && (!solo() || box.dataset.run === String(one.run));
  for (const old of [...host.children]) {
    if (!maps.some((one) => isOf(old, one))) { fit.unobserve(old.lastChild); Plotly.purge(old.lastChild); old.remove(); }
  }
  const top = Math.max(1, ...all.flatMap((one) => one.percent.flat().map((value) => value || 0)));
  const peak = Math.min(100, 10 * Math.ceil(top / 10));
  maps.forEach((one, k) => {
    const title = solo() ? data.runs[one.run].name : data.looks[one.algorithm].title, names = data.runs[one.run].classes;
    let box = [...host.children].find((old) => isOf(old, one));
    if (!box) {
      box = add(host, "div", { "data-algorithm": one.algorithm, "data-run": one.run });
      add(box, "h3", {}, title);
      add(box, "div", { class: "chart", role: "figure", "aria-label": `Accuracy of ${title} class by class` });
    }
    if (host.children[k] !== box) host.insertBefore(box, host.children[k]);
    const every = Math.ceil(names.length / 16);
    show(box.lastChild, [{
      type: "heatmap", x: [-0.5, ...one.rounds.map((t) => t + 0.5)], y: names.map((_, c) => c), z: one.percent, zmin: 0, zmax: peak, colorscale: VIRIDIS, showscale: false, ygap: 1,
      customdata: names.map((name) => one.rounds.map((t) => [plain(short(name, 40)), t])), hovertemplate: "round %{customdata[1]}, %{customdata[0]}: %{z:.1f} %<extra></extra>",
    }], layout(
      { title: "Round", showgrid: false, range: [-0.5, data.runs[one.run].rounds - 0.5] }, // a column ends with its test
      { showgrid: false, autorange: "reversed", tickvals: names.map((_, c) => c).filter((c) => c % every === 0), ticktext: names.map((name) => plain(short(classOf(name), 12))).filter((_, c) => c % every === 0) },
      { margin: { l: 40, r: 8, t: 6, b: 42 } },
    ), { ...CONFIG, displayModeBar: false });
  });
  const ramp = at("classes-ramp");
  ramp.style.background = `linear-gradient(90deg, ${VIRIDIS.map(([, colour]) => colour).join(",")})`;
  at("classes-peak").textContent = `${peak} %`;
}
