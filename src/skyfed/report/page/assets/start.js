// Each chart in a turn of its own, so that the page answers meanwhile.
const waiting = [...drawings];
(function next() {
  const name = waiting.shift();
  if (name) { DRAW[name](); setTimeout(next, 0); } else root.dataset.ready = String(Math.round(performance.now()));
})();
