/* Lanes: canvases that share one time range. */
const LEFT = 74, RIGHT = 8, TOP = 6, AXIS = 18;
const STROKES = [["--a", []], ["--b", []], ["--c", [6, 4]]];

/* Colours of the theme, looked up once a frame: the browser computes all styles anew for the first one. */
const colours = new Map();
function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colours.get(name);
}

/* Appends the points of a line to the path; values hold until the next one. Of the points in half a pixel only the first,
   the extremes and the last are drawn: it looks the same, and strokes of ten thousands of points take seconds. Returns the
   last value. */
function steps(pen, line, first, last, x, y) {
  let column = null, left = 0, value = null, low = 0, high = 0;
  const end = () => { if (low < value || high > value) { pen.lineTo(left, y(low)); pen.lineTo(left, y(high)); pen.lineTo(left, y(value)); } };
  for (let i = first; i < last; i += 1) {
    const at = x(line.times[i]), next = line.v[i];
    if (Math.floor(at * 2) === column) { low = Math.min(low, next); high = Math.max(high, next); value = next; continue; }
    if (value === null) pen.moveTo(at, y(next)); else { end(); pen.lineTo(at, y(value)); pen.lineTo(at, y(next)); }
    column = Math.floor(at * 2); left = at; value = low = high = next;
  }
  if (value !== null) end();
  return value;
}

class Lanes {
  constructor(root, panel, onProblem) {
    this.root = root; this.panel = panel; this.onProblem = onProblem;
    this.from = 0; this.to = Math.max(panel.end, 1); this.cursor = null; this.mark = null; this.other = null; this.since = null;
    /* What has been drawn, for tests. */
    this.drawn = {};
    root.replaceChildren();
    this.lanes = [];
    setTimes(panel);
    for (const lane of panel.lanes) {
      this.add(lane.name, 170, (canvas) => this.drawLine(canvas, lane), this.keys(lane), lane);
    }
    if (panel.states.length) this.add("Congestion state", 44, (canvas) => this.drawBlocks(canvas, panel.states, stateColour), [], null);
    if (panel.limits.length) this.add("Limited by", 44, (canvas) => this.drawBlocks(canvas, panel.limits, limitColour), [], null);
    this.tip = element("div", { id: "tip", hidden: "" });
    root.append(this.tip);
    this.draw();
  }

  add(name, height, draw, keys, lane) {
    const canvas = element("canvas", { height, "aria-label": name });
    const output = element("output");
    const title = element("h3", {}, name, ...keys.map(([key, text]) => element("span", {}, element("i", { style: `background:var(${key})` }), text)), output);
    this.root.append(element("div", { class: "lane" }, title, canvas));
    const entry = { name, canvas, height, draw, output, lane };
    this.lanes.push(entry);
    this.listen(canvas);
  }

  /* What the colours of a lane mean. */
  keys(lane) {
    const { losses, probes, flips } = this.panel, keys = lane.lines.map((line, at) => [STROKES[at][0], line.name]);
    if (lane !== this.panel.lanes[0]) return keys;
    if (losses.length) keys.push(["--loss", "✕ packet lost"]);
    if (probes.length) keys.push(["--probe", "▲ probe timeout"]);
    if (flips.length) keys.push(["--flip", "◆ flip: recovery without a loss, or idle adjustment while data waits"]);
    return keys;
  }

  /* Draws another trace's lines too; returns where they part. */
  compare(other) {
    this.other = other; this.since = null;
    if (other) setTimes(other);
    const found = other && firstDifference(this.panel, other);
    if (found) this.since = found.since;
    this.draw();
    return found;
  }

  x(time) { return LEFT + (time - this.from) / (this.to - this.from) * (this.width - LEFT - RIGHT); }
  time(x) { return this.from + (x - LEFT) / (this.width - LEFT - RIGHT) * (this.to - this.from); }

  show(from, to) {
    const end = Math.max(this.panel.end, 1), span = Math.min(Math.max(to - from, 20), end);
    this.from = Math.min(Math.max(from, 0), end - span);
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, at) {
    const middle = at === undefined ? (this.from + this.to) / 2 : at;
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }

  move(share) { const by = (this.to - this.from) * share; this.show(this.from + by, this.to + by); }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      colours.clear();
      this.width = this.root.clientWidth;
      for (const entry of this.lanes) this.paint(entry);
    });
  }

  paint(entry) {
    const { canvas, height } = entry, ratio = window.devicePixelRatio || 1;
    canvas.width = this.width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    this.pen = pen; this.height = height; this.drawn[entry.name] = {};
    this.report = this.drawn[entry.name];
    this.bands();
    pen.save(); pen.beginPath(); pen.rect(LEFT, 0, this.width - LEFT - RIGHT, height); pen.clip();
    const axis = entry.draw(canvas);
    if (this.mark) { pen.fillStyle = colour("--band-note"); pen.fillRect(this.x(this.mark[0]), 0, this.x(this.mark[1]) - this.x(this.mark[0]), height); }
    pen.restore();
    if (axis) axis();
    if (this.cursor !== null) { pen.fillStyle = colour("--faint"); pen.fillRect(this.x(this.cursor), 0, 1, height - AXIS); }
    this.read(entry);
  }

  /* Problems as shaded bands, behind everything. */
  bands() {
    let count = 0;
    for (const [t0, t1, detector] of this.panel.bands) {
      if (t1 < this.from || t0 > this.to) continue;
      const problem = this.panel.problems.find((each) => each.detector === detector);
      const left = Math.max(this.x(t0), LEFT), right = Math.min(this.x(t1), this.width - RIGHT);
      this.pen.fillStyle = colour(`--band-${problem ? problem.severity : "note"}`);
      this.pen.fillRect(left, 0, Math.max(right - left, 2), this.height - AXIS);
      count += 1;
    }
    this.report.bands = count;
  }

  drawLine(canvas, lane) {
    const bottom = this.height - AXIS, pen = this.pen;
    let max = 1, points = 0;
    const ranges = lane.lines.map((line) => [Math.max(firstAt(line.times, this.from) - 1, 0), Math.min(firstAt(line.times, this.to) + 1, line.times.length)]);
    lane.lines.forEach((line, at) => {
      /* A threshold or pacing rate far above everything else would flatten the rest. */
      if (line.name !== "slow start threshold" && (line.name !== "pacing" || lane.lines.length === 1)) for (let i = ranges[at][0]; i < ranges[at][1]; i += 1) max = Math.max(max, line.v[i]);
    });
    const other = this.other ? this.other.lanes.find((each) => each.name === lane.name) : null;
    for (const line of other ? other.lines : []) if (lane.lines.length === 1 || (line.name !== "slow start threshold" && line.name !== "pacing")) for (let i = 0; i < line.v.length; i += 1) if (line.times[i] >= this.from && line.times[i] <= this.to) max = Math.max(max, line.v[i]);
    max = nice(max * 1.02);
    const x = (time) => this.x(time), y = (value) => TOP + (bottom - TOP) * (1 - value / max);
    /* The first line, which matters most, lies above the others. */
    for (let at = lane.lines.length - 1; at >= 0; at -= 1) {
      const line = lane.lines[at];
      pen.strokeStyle = colour(STROKES[at][0]); pen.setLineDash(STROKES[at][1]); pen.lineWidth = at ? 1.2 : 1.8;
      pen.beginPath();
      const before = steps(pen, line, ...ranges[at], x, y);
      points += ranges[at][1] - ranges[at][0];
      if (before !== null) pen.lineTo(Math.min(this.x(this.panel.end), this.width), y(before));
      pen.stroke(); pen.setLineDash([]);
    }
    lane.lines.forEach((own, at) => {
      const line = other && other.lines.find((each) => each.name === own.name);
      if (!line) return;
      pen.strokeStyle = colour(STROKES[at][0]); pen.setLineDash([1, 3]); pen.lineWidth = 1.2;
      pen.beginPath();
      const first = Math.max(firstAt(line.times, this.from) - 1, 0), last = Math.min(firstAt(line.times, this.to) + 1, line.times.length);
      steps(pen, line, first, last, x, y);
      points += last - first;
      pen.stroke(); pen.setLineDash([]);
    });
    if (this.since !== null) { pen.fillStyle = colour("--loss"); pen.fillRect(this.x(this.since), 0, 1.5, bottom); }
    this.report.points = points;
    if (lane === this.panel.lanes[0]) {
      this.report.losses = this.ticks(this.panel.losses, "--loss", bottom, "cross");
      this.report.probes = this.ticks(this.panel.probes, "--probe", bottom, "triangle");
      this.report.flips = this.ticks(this.panel.flips, "--flip", bottom, "diamond");
      for (const [time, text] of this.panel.markers) {
        pen.fillStyle = colour("--faint"); pen.fillRect(this.x(time), 0, 1, bottom); pen.fillText(text.slice(0, 40), this.x(time) + 4, 12);
      }
    }
    return () => this.axes(max, lane.unit, y);
  }

  /* Marks of one kind, at most one a pixel; shapes differ as colours do. */
  ticks(times, name, bottom, shape) {
    const pen = this.pen; let last = -9, count = 0;
    pen.fillStyle = pen.strokeStyle = colour(name); pen.lineWidth = 1.4;
    for (let i = firstAt(times, this.from); i < times.length && times[i] <= this.to; i += 1) {
      const x = this.x(times[i]);
      if (x - last < 3) continue;
      last = x; count += 1;
      pen.beginPath();
      if (shape === "cross") { pen.moveTo(x - 3, bottom - 9); pen.lineTo(x + 3, bottom - 3); pen.moveTo(x + 3, bottom - 9); pen.lineTo(x - 3, bottom - 3); pen.stroke(); }
      else if (shape === "triangle") { pen.moveTo(x, bottom - 12); pen.lineTo(x - 4, bottom - 5); pen.lineTo(x + 4, bottom - 5); pen.fill(); }
      else { pen.moveTo(x, TOP); pen.lineTo(x + 3.5, TOP + 5); pen.lineTo(x, TOP + 10); pen.lineTo(x - 3.5, TOP + 5); pen.fill(); }
    }
    return count;
  }

  axes(max, unit, y) {
    const pen = this.pen;
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (let part = 0; part <= 4; part += 1) {
      const value = max * part / 4;
      pen.globalAlpha = .5; pen.fillStyle = colour("--line"); pen.fillRect(LEFT, y(value), this.width - LEFT - RIGHT, 1);
      pen.globalAlpha = 1; pen.fillStyle = colour("--faint"); pen.fillText(amount(value, unit), LEFT - 6, y(value));
    }
    this.times();
  }

  times() {
    const pen = this.pen, span = this.to - this.from;
    pen.fillStyle = colour("--faint"); pen.textBaseline = "alphabetic";
    for (let part = 0; part <= 8; part += 1) {
      pen.textAlign = part === 0 ? "left" : part === 8 ? "right" : "center";
      const time = this.from + span * part / 8;
      pen.fillText(seconds(time, span), this.x(time), this.height - 4);
    }
    pen.textAlign = "left";
  }

  /* States or limits as blocks, with their names where they fit. */
  drawBlocks(canvas, changes, shade) {
    const pen = this.pen, height = this.height - AXIS - 4;
    let count = 0, skipped = -1;
    const first = Math.max(firstAt(changes, this.from, (change) => change[0]) - 1, 0);
    for (let i = first; i < changes.length && changes[i][0] <= this.to; i += 1) {
      const [time, name] = changes[i], until = i + 1 < changes.length ? changes[i + 1][0] : this.panel.end;
      const left = Math.max(this.x(time), LEFT), right = this.x(until);
      if (right - left < .5 && Math.floor(left) === skipped) continue;
      skipped = Math.floor(left);
      pen.fillStyle = colour(shade(name)); pen.fillRect(left, 2, Math.max(right - left - (right - left > 4 ? 1 : 0), 1), height);
      const label = name.replaceAll("_", " ");
      if (right - left > 6 * label.length + 8) { pen.fillStyle = "#fff"; pen.textBaseline = "middle"; pen.fillText(label, left + 5, 2 + height / 2); }
      count += 1;
    }
    this.report.blocks = count;
    return () => this.times();
  }

  /* The values at the cursor. */
  read(entry) {
    if (this.cursor === null || !entry.lane) { entry.output.textContent = ""; return; }
    const values = entry.lane.lines.map((line) => {
      const at = firstAt(line.times, this.cursor + 1) - 1;
      return at < 0 ? `${line.name} –` : `${line.name} ${amount(line.v[at], entry.lane.unit)}`;
    });
    entry.output.textContent = `${seconds(this.cursor, this.to - this.from)}: ${values.join(", ")}`;
  }

  problemAt(time) {
    const bands = this.panel.bands.filter(([t0, t1]) => t0 <= time && time <= Math.max(t1, t0 + (this.to - this.from) / 200));
    return this.panel.problems.find((each) => bands.some((band) => band[2] === each.detector));
  }

  listen(canvas) {
    let begun = null, moving = false;
    const at = (event) => this.time(event.offsetX);
    canvas.addEventListener("pointerdown", (event) => { begun = [event.offsetX, at(event), this.from, this.to]; moving = event.shiftKey; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      this.cursor = at(event);
      if (begun && moving) { const by = (begun[0] - event.offsetX) / (this.width - LEFT - RIGHT) * (begun[3] - begun[2]); this.show(begun[2] + by, begun[3] + by); }
      else if (begun) this.mark = [begun[1], this.cursor].sort((a, b) => a - b);
      const problem = begun ? null : this.problemAt(this.cursor);
      this.tip.hidden = !problem;
      if (problem) {
        this.tip.textContent = `${problem.summary}. ${problem.cause ? `Cause: ${problem.cause.summary}.` : problem.mechanism}`;
        this.tip.style.left = `${Math.min(event.offsetX + 14, this.width - 390)}px`; this.tip.style.top = `${canvas.offsetTop + event.offsetY + 18}px`;
      }
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const dragged = begun && Math.abs(begun[0] - event.offsetX) > 4;
      if (dragged && !moving && this.mark) { const [from, to] = this.mark; this.mark = null; this.show(from, to); }
      else if (!dragged) { const problem = this.problemAt(at(event)); if (problem) this.onProblem(problem); }
      begun = null; this.mark = null; this.draw();
    });
    canvas.addEventListener("pointerleave", () => { this.cursor = null; this.tip.hidden = true; this.draw(); });
    canvas.addEventListener("dblclick", () => this.show(0, this.panel.end));
    canvas.addEventListener("wheel", (event) => {
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / 800); else this.zoom(Math.exp(event.deltaY / 500), at(event));
      event.preventDefault();
    }, { passive: false });
  }
}

/* The times of points, from their differences. */
function setTimes(panel) {
  for (const lane of panel.lanes) for (const line of lane.lines) {
    if (line.times) continue;
    let time = 0;
    line.times = line.t.map((delta) => (time += delta));
  }
}

/* The earliest time from which a quantity differs by more than a quarter for a fortieth of the common time. */
function firstDifference(here, there) {
  const end = Math.min(here.end, there.end), PARTS = 200, RUN = 5;
  const valueAt = (line, time) => { const at = firstAt(line.times, time + 1) - 1; return at < 0 ? null : line.v[at]; };
  let found = null;
  for (const lane of here.lanes) for (const line of lane.lines) {
    /* What is in flight, and the latest sample, jump about in any trace. */
    if (line.name === "in flight" || line.name === "latest") continue;
    const other = there.lanes.find((each) => each.name === lane.name)?.lines.find((each) => each.name === line.name);
    if (!other) continue;
    /* The first packets of counters differ by much, and mean little. */
    const little = line.v.reduce((most, value) => Math.max(most, value), 0) / 50;
    for (let part = 0, run = 0; part < PARTS; part += 1) {
      const time = end * part / PARTS, a = valueAt(line, time), b = valueAt(other, time);
      run = a !== null && b !== null && Math.abs(a - b) * 4 > Math.max(a, b) && Math.abs(a - b) > little ? run + 1 : 0;
      if (run < RUN) continue;
      const since = end * (part - RUN + 1) / PARTS;
      if (!found || since < found.since) found = { since, name: line.name, here: amount(valueAt(line, since), lane.unit), there: amount(valueAt(other, since), lane.unit) };
      break;
    }
  }
  return found;
}

function stateColour(name) {
  if (name.includes("recovery")) return "--b";
  if (name.includes("start")) return "--c";
  if (name === "drain" || name === "probe_rtt") return "--flip";
  return "--a";
}

function limitColour(name) {
  if (name === "congestion" || name === "pacing") return "--network";
  if (name === "handshake" || name === "amplification") return "--handshake";
  if (name === "scheduling") return "--this-host";
  if (name === "application") return "--application";
  return name ? "--flow-control" : "--unknown";
}
