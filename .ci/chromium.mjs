// A page in Chromium, driven over its debugging protocol: no packages needed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";

// Opens `url`; ends the process if the test takes longer than 50 s.
export async function open(chromium, url) {
  const profile = mkdtempSync(join(tmpdir(), "clearway-viewer-"));
  const browser = spawn(chromium, [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    `--user-data-dir=${profile}`, "--window-size=1360,2000", "--hide-scrollbars", url,
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
  const target = async () => {
    for (;;) {
      const all = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
      const own = all.find((each) => each.type === "page" && each.url.startsWith(url.slice(0, 5)));
      if (own) return own.webSocketDebuggerUrl;
      await new Promise((done) => setTimeout(done, 50));
    }
  };
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
  const send = (method, params = {}) => {
    const id = next++;
    socket.send(JSON.stringify({ id, method, params }));
    return new Promise((done) => waiting.set(id, done)).then((message) => {
      assert.ok(!message.error, `${method}: ${JSON.stringify(message.error)}`);
      return message.result;
    });
  };
  const run = async (expression) => {
    const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    assert.ok(!exceptionDetails, `${expression}: ${exceptionDetails?.exception?.description}`);
    return result.value;
  };
  // Waits until an expression is true.
  const until = async (expression) => {
    while (!await run(`Boolean(${expression})`)) await new Promise((done) => setTimeout(done, 50));
  };
  const key = (text) => run(`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: ${JSON.stringify(text)}, bubbles: true }))`);
  // What was drawn, once the next frame has been painted.
  const drawn = () => run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(page.lanes.drawn))))");
  const close = () => {
    assert.deepEqual(errors, []);
    clearTimeout(deadline);
    socket.close();
    // Its other processes write into the profile for a while after the first has ended.
    browser.once("exit", () => rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
    browser.kill();
  };
  await send("Runtime.enable");
  await send("Page.enable");
  // Before the page there is an empty document, which is complete, too.
  await until("document.getElementById('data') && document.readyState === 'complete'");
  return { send, run, until, key, drawn, close };
}
