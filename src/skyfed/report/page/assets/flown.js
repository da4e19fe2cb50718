// What a row has recorded of its flights: places, who went home, batteries.

// What the chosen row has recorded; null before it has a round.
function flownRow() {
  const rows = rowsOf(data.map[state.map]);
  return rows.at(state.row) || rows.at(-1) || null;
}
const rowsOf = (map) => data.flown.filter((one) => map.runs.includes(one.run) && one.held);

// What a vehicle does in a round: 0 flies, 1 goes home, 2 is on the ground.
const HOMEWARD = ["", "going home", "on the ground"];
function statusAt(u, t) {
  const map = data.map[state.map], row = flownRow();
  if (!row || !row.status) return 0;
  row.codes ||= unpack(row.status, Uint8Array);
  const known = row.codes.length / map.shown;
  return t < known ? row.codes[u * known + t] : 0;
}

// Vehicles that went home before the end, each with the first such round.
function landings(map, row) {
  if (!row.status) return [];
  const first = (u) => map.rounds.findIndex((_, t) => statusAt(u, t) > 0);
  return Array.from({ length: map.shown }, (_, u) => [u, first(u)]).filter(([, t]) => t >= 0).map(([u, t]) => [u, map.rounds[t]]);
}

function placeAt(map, u, t) {
  const row = map === data.map[state.map] ? flownRow() : null;
  if (row && row.positions) {
    row.places ||= unpack(row.positions, Int32Array);
    const known = row.places.length / (2 * map.shown), k = 2 * (u * known + t);
    if (t < known) return [row.places[k] / 10, row.places[k + 1] / 10];
  }
  const k = 2 * (u * map.rounds.length + t);
  return [map.places[k] / 10, map.places[k + 1] / 10];
}

// Batteries of the row on the map over mission time, one line per vehicle.
function drawBattery() {
  if (!window.Plotly || !at("batteries")) return;
  const map = data.map[state.map], row = flownRow(), known = Boolean(row && row.battery && row.minutes);
  at("batteries").hidden = !known;
  if (!known) return;
  const focus = (u) => state.vehicle < 0 || state.vehicle === u;
  const home = new Map(landings(map, row).map(([u, t]) => [u, map.rounds.indexOf(t)]));
  const x = [0, ...row.minutes], traces = row.battery.map((left, u) => ({
    x, y: [100, ...left.map((share) => (share == null ? null : 100 * share))], name: `vehicle ${u}`, type: "scatter", mode: "lines+markers",
    opacity: focus(u) ? 1 : 0.2, line: { color: colourOf(u), width: 2 },
    marker: { color: colourOf(u), symbol: "triangle-down", size: x.map((_, k) => (home.get(u) === k - 1 ? 11 : 0)), opacity: 1 },
    hovertemplate: "%{y:.0f} % after %{x:.1f} min",
  }));
  const end = x.at(-1) || 1, title = data.looks[row.algorithm].title;
  show(at("battery-chart"), traces, layout(
    { title: "Mission time, modelled (min)", range: [0, 1.03 * end] }, { title: "Battery left (%)", range: [0, 104] },
    row.reserve == null ? {} : {
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 100 * row.reserve, y1: 100 * row.reserve, line: { color: tone("soft"), width: 1.2 } }],
      annotations: [{ xref: "paper", x: 0.01, xanchor: "left", y: 100 * row.reserve, yanchor: "bottom", showarrow: false, text: "reserve", font: { size: 12, color: tone("soft") } }],
    },
  ));
  at("batteries-title").textContent = `Batteries, ${title}`;
  at("battery-note").textContent = `Of ${title}, at the end of every round, modelled. Colours are those of the vehicles on the map. `
    + (home.size ? `A triangle marks the round in which a vehicle goes home. ${home.size} of ${map.shown} went home early.` : "No vehicle went home early.")
    + (row.reserve == null ? " This run ignores empty batteries." : " A vehicle goes home before its reserve is touched.");
}
