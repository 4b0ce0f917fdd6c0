// Drives Chromium over its debugging protocol: no packages needed. See .ci/viewer.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import assert from "node:assert/strict";

const [chromium, page, screenshot] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "clearway-viewer-"));
const browser = spawn(chromium, [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
  `--user-data-dir=${profile}`, "--window-size=1360,2000", "--hide-scrollbars", `file://${resolve(page)}`,
]);
const deadline = setTimeout(() => { console.error("viewer: no answer from Chromium in 50 s"); browser.kill(); process.exit(1); }, 50_000);

const port = await new Promise((found) => {
  let said = "";
  browser.stderr.on("data", (data) => {
    said += data;
    const match = said.match(/ws:\/\/127\.0\.0\.1:(\d+)\//);
    if (match) found(match[1]);
  });
});

async function target() {
  for (;;) {
    const all = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
    const own = all.find((each) => each.type === "page" && each.url.startsWith("file:"));
    if (own) return own.webSocketDebuggerUrl;
    await new Promise((done) => setTimeout(done, 50));
  }
}

const socket = new WebSocket(await target());
await new Promise((open) => { socket.onopen = open; });
let next = 1;
const waiting = new Map();
const errors = [];
socket.onmessage = ({ data }) => {
  const message = JSON.parse(data);
  if (message.method === "Runtime.exceptionThrown") errors.push(message.params.exceptionDetails.text);
  waiting.get(message.id)?.(message);
};
function send(method, params = {}) {
  const id = next++;
  socket.send(JSON.stringify({ id, method, params }));
  return new Promise((done) => waiting.set(id, done)).then((message) => {
    assert.ok(!message.error, `${method}: ${JSON.stringify(message.error)}`);
    return message.result;
  });
}
async function run(expression) {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  assert.ok(!exceptionDetails, `${expression}: ${exceptionDetails?.exception?.description}`);
  return result.value;
}
// What was drawn, once the next frame has been painted.
const drawn = () => run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(page.lanes.drawn))))");
const range = () => run("[page.lanes.from, page.lanes.to]");
async function key(text) {
  await run(`document.dispatchEvent(new KeyboardEvent("keydown", { key: ${JSON.stringify(text)}, bubbles: true }))`).catch(async () => {
    await run(`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: ${JSON.stringify(text)}, bubbles: true }))`);
  });
}

await send("Runtime.enable");
await send("Page.enable");
await run("new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))");

const panel = await run("({ headline: page.panels[0].headline, problems: page.panels[0].problems.length, flips: page.panels[0].flips.length, losses: page.panels[0].losses.length, end: page.panels[0].end, bands: page.panels[0].bands.length })");
assert.equal(await run("document.getElementById('headline').textContent"), panel.headline);
let shown = await drawn();
const first = Object.keys(shown)[0];
assert.equal(first, "Window and bytes in flight");
assert.ok(shown[first].points > 10, JSON.stringify(shown));
assert.equal(shown[first].losses > 0, panel.losses > 0);
assert.equal(shown[first].flips > 0, panel.flips > 0);
assert.equal(shown[first].bands, panel.bands);
assert.equal(await run("document.querySelectorAll('.problem').length"), panel.problems);
assert.ok(await run("[...document.querySelectorAll('canvas')].every((canvas) => canvas.width > 500)"));
// The canvas is not blank.
assert.ok(await run("new Set(document.querySelector('canvas').getContext('2d').getImageData(0, 0, 900, 150).data).size") > 20);
if (screenshot) {
  const { data } = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: false });
  writeFileSync(screenshot, Buffer.from(data, "base64"));
}

// Keys: zoom, move, everything; all lanes share the range.
const whole = await range();
await key("+");
const closer = await range();
assert.ok(closer[1] - closer[0] < (whole[1] - whole[0]) * 0.7);
await key("ArrowRight");
assert.ok((await range())[0] > closer[0]);
await key("0");
assert.deepEqual(await range(), [0, panel.end]);

// Dragging over a lane zooms to what is marked.
const box = await run("(() => { const box = document.querySelector('canvas').getBoundingClientRect(); return [box.left, box.top, box.width]; })()");
const mouse = (type, x) => send("Input.dispatchMouseEvent", { type, x: box[0] + x, y: box[1] + 60, button: type === "mouseMoved" ? "none" : "left", buttons: 1, clickCount: 1 });
await mouse("mousePressed", 300);
await mouse("mouseMoved", 400);
await mouse("mouseReleased", 500);
const marked = await range();
assert.ok(marked[0] > 0 && marked[1] < panel.end, `${marked}`);

// The next problem, the next flip, the search.
if (panel.problems) {
  await key("n");
  assert.equal(await run("document.querySelectorAll('.problem.chosen').length"), 1);
}
if (panel.flips) {
  await key("f");
  const [from, to] = await range();
  assert.ok(to - from < panel.end / 2);
  assert.ok((await drawn())[first].flips > 0);
}
const searched = "(() => { const search = document.getElementById('search'); search.value = TEXT; search.oninput(); return +document.getElementById('events').dataset.count; })()";
const all = await run(searched.replace("TEXT", "''"));
const some = await run(searched.replace("TEXT", "'congestion state'"));
assert.ok(some > 0 && some < all, `${some} of ${all}`);
assert.equal(await run(searched.replace("TEXT", "'no such event'")), 0);
await key("t");
await drawn();
assert.deepEqual(errors, []);
console.log(`viewer: ${panel.headline}`);
console.log(`viewer: ${JSON.stringify(shown[first])}`);
clearTimeout(deadline);
socket.close();
browser.once("exit", () => rmSync(profile, { recursive: true, force: true }));
browser.kill();
