// Time on the map: play, pause, step, and the numbers beside it.
const player = { t: 0, phase: 1, playing: false, last: 0 };
const SECONDS = 1.1; // of a round at speed 1

function setRound(t, phase = 1) {
  const map = data.map[state.map], end = map.rounds.length - 1;
  player.t = Math.max(0, Math.min(end, t));
  player.phase = phase;
  at("round").value = player.t;
  showRound();
}

function setPlaying(on) {
  const map = data.map[state.map];
  if (on && player.t >= map.rounds.length - 1) setRound(0);
  player.playing = on;
  player.last = 0;
  at("play").textContent = on ? "❚❚" : "▶";
  at("play").setAttribute("aria-label", on ? "Pause" : "Play");
  at("play").setAttribute("aria-pressed", String(on));
  if (on) requestAnimationFrame(frame);
  else { player.phase = 1; drawMap(player.t, 1); }
}

function frame(time) {
  if (!player.playing) return;
  const passed = player.last ? Math.min(0.25, (time - player.last) / 1000) : 0, end = data.map[state.map].rounds.length - 1;
  player.last = time;
  player.phase += (passed / SECONDS) * Number(at("speed").value);
  if (player.phase >= 1) {
    const whole = Math.floor(player.phase);
    if (player.t + whole > end) { setRound(end); setPlaying(false); return; }
    setRound(player.t + whole, player.phase - whole);
  }
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  drawMap(player.t, still ? 1 : player.phase);
  requestAnimationFrame(frame);
}

// What stands beside the map for the present round.
function showRound() {
  const map = data.map[state.map], t = player.t, T = map.rounds.length, round = map.rounds[t];
  const row = flownRow(), growth = longest(map), ahead = row && round >= row.done;
  const minutes = row && row.minutes ? row.minutes[t] : null;
  at("clock").textContent = `Round ${round} of ${map.rounds[T - 1]}${ahead ? ", planned" : minutes == null ? "" : `, ${minutes.toFixed(1)} min`}`;
  at("round").setAttribute("aria-valuetext", `round ${round}`);
  if (!player.playing) at("map").setAttribute("aria-label", `Map of the flights, round ${round}`);
  at("train-size").textContent = whole(growth.train[t]);
  at("test-size").textContent = whole(growth.test[t]);
  const line = document.querySelector("#spark .now"), x = (200 * t) / Math.max(1, T - 1);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  const held = (row || map).held, most = Math.max(1, ...held.map((own) => own.at(-1) || 0), ...held.map((own) => own[t] || 0));
  [...at("vehicles").children].forEach((button, u) => {
    const c = map.visits[u * T + t], samples = held[u][t], left = row && row.battery ? row.battery[u][t] : null;
    const status = statusAt(u, t);
    button.classList.toggle("landed", status > 0);
    button.children[2].textContent = status ? HOMEWARD[status] : c < 0 ? "in between" : classOf(map.classes[c]);
    button.children[3].textContent = left == null ? "–" : `${Math.round(100 * left)} %`;
    button.children[3].style.setProperty("--left", left == null ? 0 : left);
    button.children[4].textContent = whole(samples);
    button.children[5].style.transform = `scaleX(${(samples || 0) / most})`;
  });
  moveCursor(t);
  if (!player.playing) drawMap(t, player.phase);
}

const whole = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en"));

function setVehicle(u) {
  state.vehicle = state.vehicle === u ? -1 : u;
  [...at("vehicles").children].forEach((button, k) => button.setAttribute("aria-pressed", String(k === state.vehicle)));
  drawMap(player.t, player.phase);
  redraw(["battery", "age"]);
}

// The row that has the sizes of the fleet’s sets for most rounds.
function longest(map) {
  const rows = data.flown.filter((one) => map.runs.includes(one.run));
  return rows.reduce((most, one) => (one.train.length > most.train.length ? one : most), { train: [], test: [] });
}

function setMap(k) {
  state.map = k;
  state.row = state.vehicle = -1;
  makeCrew();
  showFlown();
  setRound(data.map[k].opens);
}

// The list of a map’s vehicles.
function makeCrew() {
  const map = data.map[state.map], host = at("vehicles");
  host.textContent = "";
  for (let u = 0; u < map.shown; u++) {
    const button = add(host, "button", { type: "button", "aria-pressed": String(u === state.vehicle), title: `Vehicle ${u}` });
    add(button, "i").style.background = colourOf(u);
    add(button, "b", {}, String(u));
    add(button, "em");
    add(button, "span", { class: "battery" });
    add(button, "span", { class: "samples" });
    add(button, "u").style.background = colourOf(u);
    button.addEventListener("click", () => setVehicle(u));
  }
}

// What belongs to the recorded rows: the choice of one, the growing sets, the note.
function showFlown() {
  const map = data.map[state.map], row = flownRow(), rows = rowsOf(map), pick = at("map-row");
  const titles = rows.map((one) => (map.runs.length > 1 ? `${data.runs[one.run].name}: ` : "") + data.looks[one.algorithm].title);
  if (titles.join("\n") !== [...pick.options].map((option) => option.textContent).join("\n")) {
    pick.textContent = "";
    titles.forEach((title, k) => add(pick, "option", { value: k }, title));
  }
  pick.value = rows.indexOf(row);
  pick.parentElement.hidden = rows.length < 2;
  at("flights").classList.toggle("without-battery", !row || !row.battery);
  const T = map.rounds.length, sizes = longest(map).train, top = Math.max(1, ...sizes);
  const points = sizes.map((size, t) => `${((200 * t) / Math.max(1, T - 1)).toFixed(1)},${(38 - (34 * size) / top).toFixed(1)}`);
  const path = points.length ? `M${points.join("L")}` : "";
  document.querySelector("#spark .line").setAttribute("d", path);
  document.querySelector("#spark .area").setAttribute("d", path && `${path}L${points.at(-1).split(",")[0]},40L0,40Z`);
  at("round").max = T - 1;
  const home = row ? landings(map, row) : [];
  const step = T > 1 ? map.rounds[1] - map.rounds[0] : 1;
  at("map-note").textContent = [
    "Discs: where a class is found, as the planner sees it; brighter is a larger share ψ in this round.",
    "Corners: the camera’s footprint. Triangle: the station. Vehicles that would cover each other stand apart, each with a line to its place.",
    map.closed ? "Red: where constraints of your own allow no vehicle." : "",
    row ? `Samples${row.battery ? " are recorded, batteries modelled," : " are recorded"} for ${data.looks[row.algorithm].title}.` : "Samples beside a vehicle are modelled by Eq. 6, as if pools never ran dry.",
    row && row.minutes ? "The clock is mission time at the end of the round, modelled." : "",
    home.length ? `Went home early: ${home.slice(0, 8).map(([u, t]) => `vehicle ${u} in round ${t}`).join(", ")}${home.length > 8 ? ` and ${home.length - 8} more` : ""}. A vehicle on the ground is drawn pale, at the station.` : "",
    row && row.positions && !home.length ? "Vehicles are where they were, which is not as planned." : "",
    map.shown < map.vehicles ? `${map.shown} of ${map.vehicles} vehicles are shown.` : "",
    step > 1 ? `Every ${step}th round is shown.` : "",
    `Flights of seed ${map.seed}, planned by ${map.method}. Choose a vehicle for its discs’ names, its path and, in grey, its true discs.`,
  ].filter(Boolean).join(" ");
}

function nearest(event) {
  const box = at("map").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const { drawn } = geometry(data.map[state.map], box.width, box.height, player.t, player.phase);
  let best = -1, least = 24;
  drawn.forEach(([a, b], u) => {
    const far = Math.hypot(a - x, b - y);
    if (far < least) [best, least] = [u, far];
  });
  return best;
}
