// What a report draws, and how it zooms. See .ci/viewer.
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import assert from "node:assert/strict";
import { open } from "./chromium.mjs";

const [chromium, file, screenshot, expected] = process.argv.slice(2);
const { send, run, key, drawn, close } = await open(chromium, `file://${resolve(file)}`);
const range = () => run("[page.lanes.from, page.lanes.to]");

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
if (expected) await disease();
console.log(`viewer: ${panel.headline}`);
console.log(`viewer: ${JSON.stringify(shown[first])}`);
close();

// The page says what is wrong and why, and shows one such round trip.
async function disease() {
  assert.match(panel.headline, new RegExp(expected));
  assert.equal(await run("document.querySelector('h1').className"), "error");
  assert.ok(panel.flips > 500, `${panel.flips}`);
  assert.ok(shown[first].flips > 50, JSON.stringify(shown));
  assert.ok(shown[first].bands > 0, JSON.stringify(shown));
  // The line of the window is flat while it is shaded.
  const flat = await run(`(() => {
    const [problem] = page.panels[0].problems, line = page.panels[0].lanes[0].lines[0];
    const values = line.v.filter((_, i) => line.times[i] > problem.t0 / 1e3 && line.times[i] < problem.t1 / 1e3);
    return Math.max(...values) / Math.min(...values);
  })()`);
  assert.ok(flat <= 1.5, `${flat}`);
  // A click on the event that did it zooms to that round trip.
  await run("document.querySelector('.problem li.flip').click()");
  const [from, to] = await range();
  assert.ok(to - from < 1e6, `${from} ${to}`);
  const closer = (await drawn())[first];
  assert.ok(closer.flips >= 1 && closer.flips <= 3, JSON.stringify(closer));
  assert.ok(await run("document.querySelector('.problem').textContent.includes('Cause: ')"));
}
