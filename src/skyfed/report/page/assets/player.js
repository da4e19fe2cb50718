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
  at("clock").textContent = `Round ${round} of ${map.rounds[T - 1]}`;
  at("round").setAttribute("aria-valuetext", `round ${round}`);
  if (!player.playing) at("map").setAttribute("aria-label", `Map of the flights, round ${round}`);
  at("train-size").textContent = whole(map.train[round]);
  at("test-size").textContent = whole(map.test[round]);
  const line = document.querySelector("#spark .now"), x = (200 * t) / Math.max(1, T - 1);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  const most = Math.max(1, ...map.held.map((row) => row[T - 1] || 0), ...map.held.map((row) => row[t] || 0));
  [...at("vehicles").children].forEach((button, u) => {
    const c = map.visits[u * T + t], held = map.held[u][t];
    button.children[2].textContent = c < 0 ? "in between" : classOf(map.classes[c]);
    button.children[3].textContent = whole(held);
    button.children[4].style.transform = `scaleX(${(held || 0) / most})`;
  });
  moveCursor(t);
  if (!player.playing) drawMap(t, player.phase);
}

const whole = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en"));

function setVehicle(u) {
  state.vehicle = state.vehicle === u ? -1 : u;
  [...at("vehicles").children].forEach((button, k) => button.setAttribute("aria-pressed", String(k === state.vehicle)));
  drawMap(player.t, player.phase);
  drawAge();
}

function setMap(k) {
  state.map = k;
  state.vehicle = -1;
  const map = data.map[k], host = at("vehicles");
  host.textContent = "";
  for (let u = 0; u < map.shown; u++) {
    const button = add(host, "button", { type: "button", "aria-pressed": "false", title: `Vehicle ${u}` });
    add(button, "i").style.background = ink(colourOf(u));
    add(button, "b", {}, String(u));
    add(button, "em");
    add(button, "span");
    add(button, "u").style.background = ink(colourOf(u));
    button.addEventListener("click", () => setVehicle(u));
  }
  const T = map.rounds.length, sizes = map.rounds.map((round) => map.train[round]), top = Math.max(1, ...sizes.map((size) => size || 0));
  const points = sizes.map((size, t) => (size == null ? null : `${((200 * t) / Math.max(1, T - 1)).toFixed(1)},${(38 - (34 * size) / top).toFixed(1)}`)).filter(Boolean);
  const path = points.length ? `M${points.join("L")}` : "";
  document.querySelector("#spark .line").setAttribute("d", path);
  document.querySelector("#spark .area").setAttribute("d", path && `${path}L${points.at(-1).split(",")[0]},40L0,40Z`);
  at("round").max = T - 1;
  const step = T > 1 ? map.rounds[1] - map.rounds[0] : 1;
  at("map-note").textContent = [
    "Discs: where a class is found, as the planner sees it; brighter is a larger share ψ in this round.",
    "Corners: the camera’s footprint. Triangle: the station.",
    map.train[0] == null ? "" : "Sizes of the fleet’s sets are recorded.",
    `Samples beside a vehicle are ${map.source}.`,
    map.shown < map.vehicles ? `${map.shown} of ${map.vehicles} vehicles are shown.` : "",
    step > 1 ? `Every ${step}th round is shown.` : "",
    `Flights of seed ${map.seed}, planned by ${map.method}. Choose a vehicle for its discs’ names, its path and, dashed, its true discs.`,
  ].filter(Boolean).join(" ");
  setRound(0);
}

function nearest(event) {
  const map = data.map[state.map], box = at("map").getBoundingClientRect(), [across, along] = map.reach;
  const scale = Math.min(box.width / 2 / across, box.height / 2 / along);
  const x = (event.clientX - box.left - box.width / 2) / scale, y = -(event.clientY - box.top - box.height / 2) / scale;
  let best = -1, least = 24 / scale;
  for (let u = 0; u < map.shown; u++) {
    const [a, b] = now(map, u, player.t, player.phase), far = Math.hypot(a - x, b - y);
    if (far < least) [best, least] = [u, far];
  }
  return best;
}
