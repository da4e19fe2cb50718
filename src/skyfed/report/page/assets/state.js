// What the page knows, what it shows, and the colours of the day.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const state = {
  axis: null, measure: "accuracy", hidden: new Set(), hiddenRuns: new Set(),
  map: 0, row: -1, vehicle: -1, classesRun: 0, bound: -1, printing: false,
};
const root = document.documentElement;
const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

// Dark paper needs lighter inks of the same hue.
const LIGHTER = { "#000000": "#f2f2f2", "#0072B2": "#5d8bf4", "#882255": "#d9486f", "#6F4E9C": "#a98be0", "#009E73": "#2cc295", "#D55E00": "#f0813a",
  "#8F1FE8": "#bd7bff", "#1F3BE0": "#7f8dff", "#4B5A12": "#a8bd4a", "#B5121B": "#f05a62", "#7A4A1E": "#c08a57", "#0A5A5A": "#3fa3a3", "#D018D0": "#f05cf0", "#E6117A": "#ff5ba8", "#12A112": "#4bd44b", "#2E3640": "#5a6f84" };
const ink = (colour) => (dark() && LIGHTER[colour]) || colour;
const faint = (colour, alpha) => {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
};
const probe = document.body.appendChild(document.createElement("i"));
probe.hidden = true;
const tone = (name) => { // a colour of the style sheet, as it is now
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};

// A full line is measured or recorded, a dashed one computed by a formula. Colours and markers tell algorithms and runs apart.
const MODELLED = "7px,4px";
const GLYPHS = { circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", cross: "✚", "diamond-tall": "⬧", x: "✖", "triangle-left": "◀", "triangle-right": "▶", pentagon: "⬟", hexagon: "⬢" };
const many = () => data.runs.length > 1;
// Runs of one algorithm are told apart by colour too.
const solo = () => many() && Object.keys(data.looks).length === 1;
const lineInk = (line) => ink(solo() ? data.colours[line.run % data.colours.length] : data.looks[line.algorithm].colour);
const symbolOf = (line) => (many() ? data.symbols[line.run % data.symbols.length] : data.looks[line.algorithm].symbol);
// Markers at a few points of a line, moved a little from line to line so that they do not cover each other.
function marks(line, count, most) {
  const every = Math.max(1, Math.round(count / most)), order = Object.keys(data.looks).indexOf(line.algorithm) + line.run;
  const shift = Math.floor((every * (order % 6)) / 6), size = (k) => (count < 9 || k % every === shift ? 8 : 0);
  return { symbol: symbolOf(line), color: lineInk(line), size: Array.from({ length: count }, (_, k) => size(k)), opacity: 1, line: { width: 1, color: tone("card") } };
}
const shown = (line) => !state.hidden.has(line.algorithm) && !state.hiddenRuns.has(line.run);
// Plotly reads a few tags in its texts; names are not to be read so.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const nameOf = (line) => plain(solo() ? data.runs[line.run].name : (many() ? `${data.runs[line.run].name}: ` : "") + data.looks[line.algorithm].title);
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const classOf = (name) => (/^\d+$/.test(name) ? `class ${name}` : name);
const digits = (value) => (value == null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

// A line's marker, for legends.
function glyph(parent, symbol, colour) { add(parent, "i", { class: "glyph", "aria-hidden": "true" }, GLYPHS[symbol]).style.color = colour; }

function add(parent, tag, about = {}, text = "") {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}
