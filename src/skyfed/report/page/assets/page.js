// Puts everything in its place and listens.
const DRAW = { accuracy: drawAccuracy, payload: drawPayload, age: drawAge, classes: drawClasses, bound: drawBound };
const drawings = Object.keys(DRAW).filter((name) => at(name));

function redraw(names = drawings) { for (const name of names) if (drawings.includes(name)) DRAW[name](); }

function paintChips() {
  for (const chip of at("algorithms").children) {
    chip.querySelector("line").setAttribute("stroke", ink(data.looks[chip.dataset.algorithm].colour));
  }
  if (solo) [...at("runs").children].forEach((chip, run) => chip.querySelector("line").setAttribute("stroke", lineInk({ run })));
  for (const swatch of document.querySelectorAll("[data-swatch]")) {
    swatch.style.background = lineInk({ algorithm: swatch.dataset.swatch, run: swatch.closest("tr").dataset.run });
  }
  at("theme").lastElementChild.textContent = dark() ? "Light" : "Dark";
}

function makeChip(host, text, dash, set, key) {
  const chip = add(host, "button", { type: "button", "aria-pressed": "true" });
  stroke(chip, dash, "currentColor");
  add(chip, "span", {}, text);
  chip.addEventListener("click", () => {
    const on = set.has(key);
    on ? set.delete(key) : set.add(key);
    chip.setAttribute("aria-pressed", String(on));
    for (const row of document.querySelectorAll("tr[data-run]")) {
      row.hidden = state.hidden.has(row.dataset.algorithm) || state.hiddenRuns.has(Number(row.dataset.run));
    }
    redraw(["accuracy", "payload", "classes"]);
  });
  return chip;
}

function fill(select, names, chosen) {
  names.forEach((name, k) => add(select, "option", { value: k }, short(name, 60)));
  select.addEventListener("change", () => chosen(Number(select.value)));
  if (names.length < 2) select.parentElement.hidden = true;
}

for (const [name, look] of Object.entries(data.looks)) {
  makeChip(at("algorithms"), look.title, many ? "solid" : look.dash, state.hidden, name).dataset.algorithm = name;
}
if (many) data.runs.forEach((run, k) => makeChip(at("runs"), run.name, DASHES[k % DASHES.length], state.hiddenRuns, k));

for (const group of document.querySelectorAll("[data-switch]")) {
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
    state[group.dataset.switch] = button.dataset.value;
    redraw(["accuracy"]);
  });
}

if (data.map.length) {
  fill(at("map-run"), data.map.map((map) => map.runs.map((run) => data.runs[run].name).join(", ")), (k) => { setMap(k); drawAge(); });
  at("play").addEventListener("click", () => setPlaying(!player.playing));
  at("back").addEventListener("click", () => setRound(player.t - 1));
  at("forth").addEventListener("click", () => setRound(player.t + 1));
  at("round").addEventListener("input", (event) => setRound(Number(event.target.value)));
  at("map").addEventListener("click", (event) => { const u = nearest(event); setVehicle(u < 0 ? state.vehicle : u); });
  new ResizeObserver(() => drawMap(player.t, player.phase)).observe(at("map").parentElement);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, summary")) return;
    const steps = { ArrowLeft: () => setRound(player.t - 1), ArrowRight: () => setRound(player.t + 1), Home: () => setRound(0), End: () => setRound(Infinity) };
    if (event.key === " " && !event.target.closest("button, a")) setPlaying(!player.playing);
    else if (steps[event.key] && !event.target.closest(".scroll, pre")) steps[event.key]();
    else return;
    event.preventDefault();
  });
}
if (data.classes.length) {
  const runs = [...new Set(data.classes.map((one) => one.run))];
  state.classesRun = runs[0];
  fill(at("classes-run"), runs.map((run) => data.runs[run].name), (k) => { state.classesRun = runs[k]; redraw(["classes"]); });
  if (solo) at("classes-label").hidden = true; // all stand side by side
}
if (data.bound.length) {
  fill(at("bound-pick"), data.bound.map((one) => (many ? `${data.runs[one.run].name}: ` : "") + data.looks[one.algorithm].title), (k) => { state.bound = k; redraw(["bound"]); });
  state.bound = data.bound.length - 1;
  at("bound-pick").value = state.bound;
}

function repaint() {
  paintChips();
  if (data.map.length) {
    const { t } = player, focus = state.vehicle;
    setMap(state.map);
    if (focus >= 0) { state.vehicle = focus; at("vehicles").children[focus].setAttribute("aria-pressed", "true"); }
    setRound(t, player.phase);
  }
  redraw();
}

at("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; repaint(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!root.dataset.theme) repaint(); });

// Paper is white and as wide as paper; the map shows whole flights there.
function paper(on) {
  if (state.printing === on) return;
  if (on) { setPaused(); state.theme = root.dataset.theme || ""; root.dataset.theme = "light"; state.round = player.t; }
  state.printing = on;
  root.toggleAttribute("data-paper", on);
  if (!on) { if (state.theme) root.dataset.theme = state.theme; else delete root.dataset.theme; }
  if (data.map.length) setRound(on ? Infinity : state.round);
  repaint();
}
function setPaused() { if (player.playing) setPlaying(false); }
window.addEventListener("beforeprint", () => paper(true));
window.addEventListener("afterprint", () => paper(false));
matchMedia("print").addEventListener("change", (event) => paper(event.matches));

// First what needs no Plotly: the table, the map. It takes a second to read, so it waits until the page stands.
paintChips();
if (data.map.length) setMap(0);
window.addEventListener("load", () => setTimeout(() => {
  const plotly = document.createElement("script");
  plotly.textContent = at("plotly").textContent;
  document.head.append(plotly);
  redraw();
  root.dataset.ready = String(Math.round(performance.now()));
}, 0));
