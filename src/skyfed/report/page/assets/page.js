// Puts everything in its place and listens.
const DRAW = { accuracy: drawAccuracy, energy: drawEnergy, payload: drawPayload, battery: drawBattery, age: drawAge, classes: drawClasses, bound: drawBound };
const SECTIONS = { accuracy: "accuracy", energy: "energy", payload: "payload", classes: "classes", bound: "bound", map: "flights" };
const hasData = (name) => data[["age", "battery"].includes(name) ? "map" : name].length > 0;

function redraw(names = Object.keys(DRAW)) { for (const name of names) if (window.Plotly && hasData(name)) DRAW[name](); }

function paintChips() {
  for (const chip of at("algorithms").children) {
    chip.firstChild.style.color = ink(data.looks[chip.dataset.algorithm].colour);
  }
  if (solo()) [...at("runs").children].forEach((chip, run) => { chip.firstChild.style.color = lineInk({ run }); });
  for (const swatch of document.querySelectorAll("[data-swatch]")) {
    swatch.style.background = lineInk({ algorithm: swatch.dataset.swatch, run: swatch.closest("tr").dataset.run });
  }
  at("theme").lastElementChild.textContent = dark() ? "Light" : "Dark";
}

function makeChip(host, text, symbol, set, key) {
  const chip = add(host, "button", { type: "button", "aria-pressed": String(!set.has(key)) });
  glyph(chip, symbol, "currentColor");
  add(chip, "span", {}, text);
  chip.addEventListener("click", () => {
    const on = set.has(key);
    on ? set.delete(key) : set.add(key);
    chip.setAttribute("aria-pressed", String(on));
    hideRows();
    redraw(["accuracy", "energy", "payload", "classes"]);
  });
  return chip;
}

function hideRows() {
  for (const row of document.querySelectorAll("tr[data-run]")) {
    row.hidden = state.hidden.has(row.dataset.algorithm) || state.hiddenRuns.has(Number(row.dataset.run));
  }
}

// Gives a select these names; it is out of sight where there is nothing to choose.
function fill(select, names, chosen) {
  if (names.join("\n") !== [...select.options].map((option) => option.textContent).join("\n")) {
    select.textContent = "";
    names.forEach((name, k) => add(select, "option", { value: k }, name));
  }
  select.value = chosen;
  select.parentElement.hidden = names.length < 2;
}

// Puts in place what depends on which runs, algorithms and parts there are; again whenever more of them have come.
function arrange() {
  at("algorithms").textContent = at("runs").textContent = "";
  for (const [name, look] of Object.entries(data.looks)) {
    makeChip(at("algorithms"), look.title, many() ? "circle" : look.symbol, state.hidden, name).dataset.algorithm = name;
  }
  if (many()) data.runs.forEach((run, k) => makeChip(at("runs"), run.name, symbolOf({ run: k }), state.hiddenRuns, k));
  at("algorithms").hidden = solo();
  at("runs").hidden = !many();
  at("bar").hidden = !data.accuracy.length && !data.payload.length;
  for (const [name, section] of Object.entries(SECTIONS)) if (at(section)) at(section).hidden = !data[name].length;
  if (at("age")) at("age").hidden = !data.map.length;
  data.map.forEach(prepareMap);
  if (data.map.length) fill(at("map-run"), data.map.map((map) => short(map.runs.map((run) => data.runs[run].name).join(", "), 60)), state.map);
  if (data.classes.length) {
    const runs = classRuns();
    if (!runs.includes(state.classesRun)) state.classesRun = runs[0];
    fill(at("classes-run"), runs.map((run) => short(data.runs[run].name, 60)), runs.indexOf(state.classesRun));
    if (solo()) at("classes-label").hidden = true; // all stand side by side
  }
  if (data.bound.length) {
    const names = data.bound.map((one) => (many() ? `${data.runs[one.run].name}: ` : "") + data.looks[one.algorithm].title);
    fill(at("bound-pick"), names, state.bound < 0 ? names.length - 1 : state.bound);
  }
  paintChips();
  hideRows();
  for (const box of document.querySelectorAll(".scroll")) more.observe(box);
}
const classRuns = () => [...new Set(data.classes.map((one) => one.run))];

// A table that is wider than its place says so.
const more = new ResizeObserver((boxes) => {
  for (const { target } of boxes) target.toggleAttribute("data-more", target.scrollWidth > target.clientWidth + 1);
});

for (const group of document.querySelectorAll("[data-switch]")) {
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
    state[group.dataset.switch] = button.dataset.value;
    redraw(["accuracy"]);
  });
}

if (at("flights")) {
  at("map-run").addEventListener("change", (event) => { setMap(Number(event.target.value)); redraw(["battery", "age"]); });
  at("map-row").addEventListener("change", (event) => { state.row = Number(event.target.value); showFlown(); setRound(player.t); drawBattery(); });
  at("play").addEventListener("click", () => setPlaying(!player.playing));
  at("back").addEventListener("click", () => setRound(player.t - 1));
  at("forth").addEventListener("click", () => setRound(player.t + 1));
  at("round").addEventListener("input", (event) => setRound(Number(event.target.value)));
  at("map").addEventListener("click", (event) => { const u = nearest(event); setVehicle(u < 0 ? state.vehicle : u); });
  new ResizeObserver(() => { if (data.map.length) drawMap(player.t, player.phase); }).observe(at("map").parentElement);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !data.map.length || event.target.closest("input, select, textarea, summary")) return;
    const steps = { ArrowLeft: () => setRound(player.t - 1), ArrowRight: () => setRound(player.t + 1), Home: () => setRound(0), End: () => setRound(Infinity) };
    if (event.key === " " && !event.target.closest("button, a")) setPlaying(!player.playing);
    else if (steps[event.key] && !event.target.closest(".scroll, pre")) steps[event.key]();
    else return;
    event.preventDefault();
  });
}
if (at("classes")) at("classes-run").addEventListener("change", (event) => { state.classesRun = classRuns()[event.target.value]; redraw(["classes"]); });
if (at("bound")) at("bound-pick").addEventListener("change", (event) => { state.bound = Number(event.target.value); redraw(["bound"]); });

function repaint() {
  paintChips();
  if (data.map.length) {
    makeCrew();
    setRound(player.t, player.phase);
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
arrange();
if (data.map.length) setMap(0);
window.addEventListener("load", () => setTimeout(() => {
  const plotly = document.createElement("script");
  plotly.textContent = at("plotly").textContent;
  document.head.append(plotly);
  redraw();
  root.dataset.ready = String(Math.round(performance.now()));
}, 0));
