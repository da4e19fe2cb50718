// The page of a run that goes on: asks its server for what is new, and keeps the reader’s place.
const SECONDS_RUNNING = 2, SECONDS_ENDED = 10, SECONDS_LOST = 5;
const LISTS = ["accuracy", "energy", "payload", "classes", "bound", "flown"]; // of records, one per run and algorithm
const same = (one, other) => one.run === other.run && one.algorithm === other.algorithm;

// Puts new records in the place of old ones, in the order of runs and algorithms.
function merged(old, fresh) {
  const order = Object.keys(data.looks), all = [...old.filter((one) => !fresh.some((other) => same(one, other))), ...fresh];
  return all.sort((a, b) => a.run - b.run || order.indexOf(a.algorithm) - order.indexOf(b.algorithm));
}

function take({ version, whole, content }) {
  const atLatest = data.map.length > 0 && !player.playing && player.t === latest(), hadMap = data.map.length > 0, { row } = state;
  const chosen = row >= 0 ? flownRow() : null;
  for (const [name, value] of Object.entries(content)) {
    if (name.startsWith("block-")) replaceBlock(name.slice(6), value);
    else data[name] = !whole && LISTS.includes(name) ? merged(data[name], value) : value;
  }
  data.version = version;
  arrange();
  if (data.map.length) {
    state.map = Math.min(state.map, data.map.length - 1);
    if (chosen) state.row = rowsOf(data.map[state.map]).findIndex((one) => same(one, chosen));
    if (!hadMap) setMap(0);
    if (content.map && hadMap) makeCrew();
    showFlown();
    if (player.playing) showRound();
    else setRound(atLatest || !hadMap ? latest() : player.t);
  }
  const names = Object.keys(content).filter((name) => name in DRAW);
  redraw([...names, ...(content.map ? ["age"] : []), ...(content.map || content.flown ? ["battery"] : [])]);
}

// The last round that the row on the map has flown; where the map opens before there is one.
function latest() {
  const map = data.map[state.map], row = flownRow();
  return row ? Math.max(0, map.rounds.filter((t) => t < row.done).length - 1) : map.opens;
}

// The server writes these parts with the template of the page itself; scripts in them would not run.
function replaceBlock(name, html) {
  const host = document.querySelector(`[data-block="${name}"]`), open = [...host.querySelectorAll("details")].map((one) => one.open);
  const left = host.querySelector(".scroll")?.scrollLeft || 0;
  host.innerHTML = html;
  host.querySelectorAll("details").forEach((one, k) => { if (k in open) one.open = open[k]; });
  if (left && host.querySelector(".scroll")) host.querySelector(".scroll").scrollLeft = left;
}

function tell(words, kind) {
  at("live").textContent = words;
  at("live").dataset.kind = kind;
}

function tellState() {
  if (data.running) tell("Live. The page follows the run.", "running");
  else tell("Not running. The page shows what is there, and follows if the run goes on.", "ended");
}

async function ask() {
  let pause = SECONDS_LOST;
  try {
    if (!document.hidden) {
      const answer = await fetch(`data?since=${data.version}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const news = await answer.json();
      if (news.trouble) tell(`The run’s folder cannot be read now: ${news.trouble}`, "lost");
      else {
        if (news.version !== data.version) take(news);
        tellState();
      }
    }
    pause = data.running ? SECONDS_RUNNING : SECONDS_ENDED;
  } catch {
    tell("The server has ended. This page shows what it last heard.", "lost");
  }
  setTimeout(ask, 1000 * pause);
}

tellState();
if (data.map.length && data.running) setRound(latest());
window.addEventListener("load", () => setTimeout(ask, 1000 * SECONDS_RUNNING));
