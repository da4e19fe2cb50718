// What the page knows, what it shows, and the colours of the day.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const state = {
  axis: "rounds", measure: "accuracy", hidden: new Set(), hiddenRuns: new Set(),
  map: 0, vehicle: -1, classesRun: 0, bound: 0, printing: false,
};
const root = document.documentElement;
const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

// Dark paper needs lighter inks of the same hue.
const LIGHTER = { "#000000": "#f2f2f2", "#0072B2": "#5d8bf4", "#882255": "#d9486f", "#6F4E9C": "#a98be0", "#009E73": "#2cc295", "#D55E00": "#f0813a" };
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

const DASHES = ["solid", "9px,4px", "2px,3px", "9px,4px,2px,4px", "14px,5px", "4px,3px"];
const many = data.runs.length > 1;
// Runs of one algorithm are told apart by colour too.
const solo = many && Object.keys(data.looks).length === 1;
const lineInk = (line) => ink(solo ? data.colours[line.run % data.colours.length] : data.looks[line.algorithm].colour);
const dashOf = (line) => (many ? DASHES[line.run % DASHES.length] : data.looks[line.algorithm].dash);
const shown = (line) => !state.hidden.has(line.algorithm) && !state.hiddenRuns.has(line.run);
// Plotly reads a few tags in its texts; names are not to be read so.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const nameOf = (line) => plain(solo ? data.runs[line.run].name : (many ? `${data.runs[line.run].name}: ` : "") + data.looks[line.algorithm].title);
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const classOf = (name) => (/^\d+$/.test(name) ? `class ${name}` : name);
const digits = (value) => (value == null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

// A piece of a line, for legends.
function stroke(parent, dash, colour) {
  parent.insertAdjacentHTML("afterbegin", '<svg viewBox="0 0 30 12" aria-hidden="true"><line x1="1" x2="29" y1="6" y2="6" stroke-width="2.6"/></svg>');
  const line = parent.firstChild.firstChild;
  line.setAttribute("stroke", colour);
  if (dash !== "solid") line.setAttribute("stroke-dasharray", dash.replace(/px/g, ""));
}

function add(parent, tag, about = {}, text = "") {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}
