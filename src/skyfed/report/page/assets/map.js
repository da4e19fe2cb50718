// The map: flights drawn from arrays on a canvas.
function prepareMap(map) {
  if (map.places) return;
  map.places = unpack(map.positions, Int32Array);
  map.visits = unpack(map.association, Int16Array);
  map.share = unpack(map.psi, Uint8Array);
  map.ages = unpack(map.age, Uint16Array);
  map.closed = raster(map);
  const reach = [map.region[0] / 2, map.region[1] / 2];
  const stretch = (x, y, r) => { reach[0] = Math.max(reach[0], Math.abs(x) + r); reach[1] = Math.max(reach[1], Math.abs(y) + r); };
  for (let u = 0; u < map.shown; u++) {
    map.centres[u].forEach(([x, y], c) => stretch(x, y, map.radii[u][c]));
    for (let t = 0; t < map.rounds.length; t++) stretch(...placeAt(map, u, t), 0);
  }
  map.reach = reach.map((half) => 1.04 * half);
}

// What the user’s constraints close, as a picture that is stretched over the region; null where they close nothing.
function raster({ allowed: { side, bits } }) {
  if (!side) return null;
  const bytes = unpack(bits, Uint8Array), canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const g = canvas.getContext("2d"), picture = g.createImageData(side, side);
  for (let k = 0; k < side * side; k++) {
    const open = (bytes[k >> 3] >> (7 - (k & 7))) & 1, row = side - 1 - Math.floor(k / side); // north is up
    picture.data.set([200, 40, 40, open ? 0 : 46], 4 * (row * side + (k % side)));
  }
  g.putImageData(picture, 0, 0);
  return canvas;
}

function colourOf(u) { return ink(data.vehicles[u % data.vehicles.length]); }
const ease = (x) => (x <= 0 ? 0 : x >= 1 ? 1 : x * x * (3 - 2 * x));
const FLY = 0.6; // share of a round's picture in which vehicles move; then they sense and send
const ROOM = 26; // pixels between the middles of two vehicles
const TRAIL = 7; // rounds that stay bright behind a vehicle

// Where a vehicle is: on its way to the round's place, then above it.
function now(map, u, t, phase) {
  const [x, y] = placeAt(map, u, t), [x0, y0] = t ? placeAt(map, u, t - 1) : [0, 0], part = ease(phase / FLY);
  return [x0 + (x - x0) * part, y0 + (y - y0) * part];
}

// Where vehicles are drawn, in pixels: those that would cover each other are pushed apart, steadily as they come near.
function apart(points) {
  const places = points.map(([x, y]) => [x, y]);
  for (let turn = 0; turn < 12; turn++) {
    for (let u = 0; u < places.length; u++) {
      for (let v = 0; v < u; v++) {
        let dx = places[u][0] - places[v][0], dy = places[u][1] - places[v][1], far = Math.hypot(dx, dy);
        if (far >= ROOM) continue;
        if (far < 0.01) [dx, dy, far] = [Math.cos(2.4 * u), Math.sin(2.4 * u), 1];
        const push = (ROOM - Math.hypot(places[u][0] - places[v][0], places[u][1] - places[v][1])) / 2 / far;
        places[u][0] += push * dx; places[u][1] += push * dy;
        places[v][0] -= push * dx; places[v][1] -= push * dy;
      }
    }
  }
  return places;
}

// Pixels of the map’s canvas: its size, its scale, and where every vehicle is drawn.
function geometry(map, width, height, t, phase) {
  const [across, along] = map.reach, scale = Math.min(width / 2 / across, height / 2 / along);
  const px = ([x, y]) => [width / 2 + x * scale, height / 2 - y * scale];
  const ring = Math.max(ROOM, (ROOM * map.shown) / 6); // those at home stand around the station
  const places = Array.from({ length: map.shown }, (_, u) => {
    const [x, y] = px(now(map, u, t, phase)), status = statusAt(u, t), angle = (2 * Math.PI * u) / map.shown;
    const out = status ? ring * (status === 2 ? 1 : ease(phase / FLY)) : 0;
    return [x + out * Math.sin(angle), y - out * Math.cos(angle)];
  });
  return { scale, px, drawn: apart(places) };
}

function drawMap(t, phase) {
  const map = data.map[state.map], canvas = at("map"), box = canvas.getBoundingClientRect();
  const [across, along] = map.reach, width = Math.max(200, box.width), height = Math.min(width * (along / across), 760);
  const sharp = Math.min(2, window.devicePixelRatio || 1) * (state.printing ? 2 : 1);
  canvas.style.aspectRatio = `${width} / ${height}`; // paper may make it narrower
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
  }
  const g = canvas.getContext("2d"), { scale, px, drawn } = geometry(map, width, height, t, phase);
  g.setTransform(sharp, 0, 0, sharp, 0, 0);
  g.clearRect(0, 0, width, height);
  drawGround(g, map, px, scale, width, height);
  const crew = Array.from({ length: map.shown }, (_, u) => u).filter((u) => u !== state.vehicle);
  if (state.vehicle >= 0) crew.push(state.vehicle);
  const weight = (u) => (state.vehicle < 0 || state.vehicle === u ? 1 : 0.16);
  for (const u of crew) drawDiscs(g, map, u, t, phase, px, scale, weight(u));
  for (const u of crew) drawTrail(g, map, u, t, phase, px, weight(u));
  const aloft = crew.filter((u) => !statusAt(u, t));
  if (player.playing) for (const u of aloft) drawUpload(g, map, u, t, phase, px, weight(u));
  drawStation(g, px([0, 0]));
  for (const u of aloft) drawFootprint(g, map, u, t, phase, px, scale, weight(u));
  for (const u of crew) {
    const status = statusAt(u, t);
    drawVehicle(g, u, drawn[u], status ? drawn[u] : px(now(map, u, t, phase)), (status === 2 ? 0.35 : 1) * weight(u));
  }
  drawScale(g, scale, width, height);
}

function drawGround(g, map, px, scale, width, height) {
  const step = map.region[0] / 10;
  g.strokeStyle = tone("grid");
  g.lineWidth = 1;
  g.beginPath();
  for (let x = -5 * step; x <= 5 * step; x += step) { const [a] = px([x, 0]); g.moveTo(a, 0); g.lineTo(a, height); }
  for (let y = -5 * step; y <= 5 * step; y += step) { const [, b] = px([0, y]); g.moveTo(0, b); g.lineTo(width, b); }
  g.stroke();
  const [left, top] = px([-map.region[0] / 2, map.region[1] / 2]);
  g.strokeStyle = tone("line");
  g.lineWidth = 1.5;
  g.strokeRect(left, top, map.region[0] * scale, map.region[1] * scale);
  if (map.closed) g.drawImage(map.closed, left, top, map.region[0] * scale, map.region[1] * scale);
}

function shareAt(map, u, c, t, phase) {
  const T = map.rounds.length, k = (u * map.classes.length + c) * T + t, before = map.share[t ? k - 1 : k];
  return (before + (map.share[k] - before) * ease(phase)) / 255;
}

function drawDiscs(g, map, u, t, phase, px, scale, weight) {
  const colour = colourOf(u), focus = state.vehicle === u || map.shown === 1, visited = statusAt(u, t) ? -1 : map.visits[u * map.rounds.length + t];
  map.centres[u].forEach((centre, c) => {
    const [x, y] = px(centre), r = map.radii[u][c] * scale, share = Math.sqrt(shareAt(map, u, c, t, phase));
    const most = (focus ? 0.85 : 0.5) * weight, glow = g.createRadialGradient(x, y, 0, x, y, r);
    glow.addColorStop(0, faint(colour, most * share));
    glow.addColorStop(1, faint(colour, 0.35 * most * share));
    g.fillStyle = glow;
    circle(g, x, y, r);
    g.fill();
    g.strokeStyle = faint(colour, (c === visited ? 0.95 : 0.3) * weight);
    g.lineWidth = c === visited ? 2 : 1;
    g.stroke();
    if (focus) {
      g.strokeStyle = tone("soft");
      g.lineWidth = 0.8;
      circle(g, ...px(map.true_centres[u][c]), map.true_radii[u][c] * scale);
      g.stroke();
      text(g, short(classOf(map.classes[c]), 12), x, y - r - 5, tone(c === visited ? "ink" : "soft"), c === visited ? 600 : 400);
    }
  });
}

function drawTrail(g, map, u, t, phase, px, weight) {
  const colour = colourOf(u), last = now(map, u, t, phase), whole = state.printing || state.vehicle === u;
  const first = whole ? 0 : Math.max(0, t - TRAIL);
  g.lineCap = "round";
  for (let k = first; k < t; k++) {
    const from = px(placeAt(map, u, k)), to = px(k + 1 === t ? last : placeAt(map, u, k + 1)), old = (t - k - phase) / TRAIL;
    const alpha = Math.max(whole ? 0.14 : 0, 0.75 * (1 - old)) * weight;
    g.strokeStyle = faint(colour, alpha);
    g.lineWidth = 1 + 1.6 * Math.max(0, 1 - old);
    g.beginPath();
    g.moveTo(...from);
    g.lineTo(...to);
    g.stroke();
    g.fillStyle = faint(colour, Math.min(1, 1.4 * alpha));
    circle(g, ...from, 2);
    g.fill();
  }
}

function drawUpload(g, map, u, t, phase, px, weight) {
  if (phase <= FLY) return;
  const part = ease((phase - FLY) / (1 - FLY)), [x, y] = placeAt(map, u, t), colour = colourOf(u);
  const [a, b] = px([x * (1 - part), y * (1 - part)]), from = px([x, y]);
  const beam = g.createLinearGradient(...from, a, b);
  beam.addColorStop(0, faint(colour, 0));
  beam.addColorStop(1, faint(colour, 0.6 * weight));
  g.strokeStyle = beam;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(...from);
  g.lineTo(a, b);
  g.stroke();
  g.fillStyle = faint(colour, weight);
  circle(g, a, b, 2.6);
  g.fill();
}

function drawFootprint(g, map, u, t, phase, px, scale, weight) {
  const [x, y] = px(now(map, u, t, phase)), colour = colourOf(u), side = map.footprint * scale;
  const senses = map.visits[u * map.rounds.length + t] >= 0 && phase > FLY;
  g.fillStyle = faint(colour, (senses ? 0.22 : 0.08) * weight);
  g.strokeStyle = faint(colour, 0.9 * weight);
  g.lineWidth = 1.2;
  g.fillRect(x - side / 2, y - side / 2, side, side);
  const tick = Math.min(8, side / 3); // the footprint's corners
  g.beginPath();
  for (const [i, j] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
    const a = x + (i * side) / 2, b = y + (j * side) / 2;
    g.moveTo(a - i * tick, b);
    g.lineTo(a, b);
    g.lineTo(a, b - j * tick);
  }
  g.stroke();
}

// A vehicle, with a line to its true place if another one would cover it there.
function drawVehicle(g, u, [x, y], place, weight) {
  const size = state.vehicle === u ? 7 : 5.5, colour = colourOf(u), strong = Math.max(0.3, weight);
  if (Math.hypot(x - place[0], y - place[1]) > 2) {
    g.strokeStyle = faint(colour, 0.8 * strong);
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(x, y);
    g.lineTo(...place);
    g.stroke();
    g.fillStyle = faint(colour, strong);
    circle(g, ...place, 2.2);
    g.fill();
  }
  for (const [ink, wide] of [[tone("ground"), 5], [faint(colour, strong), 2]]) { // an outline, then the vehicle
    g.strokeStyle = ink;
    g.lineWidth = wide;
    g.beginPath();
    for (const i of [-1, 1]) { g.moveTo(x - i * size, y - size); g.lineTo(x + i * size, y + size); }
    g.stroke();
  }
  g.fillStyle = tone("ground");
  for (const [i, j] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
    circle(g, x + i * size, y + j * size, 0.55 * size);
    g.fill();
    g.stroke();
  }
  g.fillStyle = faint(colour, strong);
  circle(g, x, y, 0.45 * size);
  g.fill();
  if (weight >= 0.3) text(g, String(u), x + size + 9, y - size - 1, tone("ink"), 700);
}

function drawStation(g, [x, y]) {
  g.fillStyle = tone("ink");
  g.strokeStyle = tone("ground");
  g.lineWidth = 2;
  g.beginPath();
  g.moveTo(x, y - 9);
  g.lineTo(x + 8, y + 6);
  g.lineTo(x - 8, y + 6);
  g.closePath();
  g.stroke();
  g.fill();
}

function drawScale(g, scale, width, height) {
  const metres = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000].find((m) => m * scale > 60) || 100000;
  g.strokeStyle = tone("soft");
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(14, height - 18);
  g.lineTo(14, height - 13);
  g.lineTo(14 + metres * scale, height - 13);
  g.lineTo(14 + metres * scale, height - 18);
  g.stroke();
  text(g, metres < 1000 ? `${metres} m` : `${metres / 1000} km`, 14 + (metres * scale) / 2, height - 20, tone("soft"), 400);
  text(g, "N ↑", width - 22, height - 14, tone("soft"), 400);
}

function circle(g, x, y, r) {
  g.beginPath();
  g.arc(x, y, Math.max(0, r), 0, 2 * Math.PI);
}

function text(g, words, x, y, colour, weight) {
  g.font = `${weight} 11.5px ${getComputedStyle(document.body).fontFamily}`;
  g.textAlign = "center";
  g.lineWidth = 3;
  g.lineJoin = "round";
  g.strokeStyle = tone("ground");
  g.strokeText(words, x, y);
  g.fillStyle = colour;
  g.fillText(words, x, y);
}
